"""A real OpenAI-compatible server, llama.cpp, beside our FP32 lane on the same weights: greedy texts are the same; killed, the lane says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
from tokenizers import Tokenizer

from inference.endpoints import Endpoint
from inference.engine.compare import compare, read_all
from inference.engine.engine import Engine
from inference.events import Request
from inference.host.child import ROOT
from inference.settings import Settings
from tests.support.gguf_file import write_gguf
from tests.support.says import make_says
from tests.support.tiny import TEMPLATE, make_tokenizer

FAR, FP32 = "endpoint:llama-cpp", "cpu:fp32"
SAID = " may i see the menu with couple of drinks"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A checkpoint that answers with `SAID` and goes on with that forever, over and over."""
    tokenizer = make_tokenizer()
    folder = tmp_path_factory.mktemp("says")
    newline = tokenizer("<start_of_turn>model\n")["input_ids"][-1]
    ids = list(dict.fromkeys(tokenizer(SAID)["input_ids"]))
    return make_says(folder / "model", tokenizer, [newline, *ids, 1])


@pytest.fixture(scope="module")
def server(folder) -> Iterator[subprocess.Popen]:
    file = write_gguf(folder, folder / "f32.gguf", gguf.GGMLQuantizationType.F32, template=TEMPLATE)
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("llama_server.py")), str(file)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child.url = child.stdout.readline().strip()
    yield child
    child.kill()
    child.wait()


@pytest.fixture(scope="module")
def engine(folder, server, tmp_path_factory) -> Iterator[Engine]:
    endpoint = Endpoint("llama-cpp", server.url, "", "llama.cpp F32")
    with Engine(Settings(str(folder), lanes=(FAR, FP32), endpoints=(endpoint,), cache_dir=str(tmp_path_factory.mktemp("cache")), fast=())) as engine:
        yield engine


def test_a_greedy_answer_of_llama_cpp_is_the_fp32_lane_s_and_its_tokens_are_counted(engine, folder):
    record = compare(engine, Request("hello", max_new_tokens=40))
    (far,), (ours,) = record.lanes[FAR].runs, record.lanes[FP32].runs
    assert far.error is None and ours.error is None
    assert far.text == ours.text and len(ours.text) > 10 and record.verdict.identical
    assert (far.finish_reason, far.new_tokens, far.prompt_tokens) == (ours.finish_reason, ours.new_tokens, ours.prompt_tokens)
    assert far.counted_by == "the server" and far.decode_tps and Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_a_server_killed_while_it_answers_fails_its_own_lane_only(engine, server):
    comparison = engine.submit(Request("hello", max_new_tokens=400), mode="together")
    first = threading.Event()

    def told(lane: str, progress) -> None:
        if lane == FAR and progress.phase in ("prefill", "decode") and not first.is_set():
            first.set()
            os.kill(server.pid, signal.SIGKILL)

    runs = read_all(engine, comparison, told)
    assert runs[FP32].phase == "done" and runs[FAR].phase in ("failed", "done")
    if runs[FAR].phase == "failed":
        assert "connection to the server broke" in runs[FAR].error
    gone = read_all(engine, engine.submit(Request("hello"), (FAR,)))[FAR]
    assert "can't be reached" in gone.error
