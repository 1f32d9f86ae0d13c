"""The CPU decoders give plain generate's tokens by every path and at every length, and stop inside a prompt and between two layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inference.cpu import install, runner
from inference.cpu.decoder import ChunkedDecoder, CStepDecoder, chunk_rows, chunked
from inference.cpu.library import Library
from inference.decode.decoder import answer
from inference.decode.eager import EagerDecoder
from inference.decode.sampling import Sampler
from inference.events import Request
from inference.fast import FastWays
from inference.lane.lane import Lane
from inference.models import exact, loading
from inference.settings import Settings
from tests.support import families
from tests.support.real import plain_ids
from tests.support.tiny import make_checkpoint

KINDS = ("gemma3_text", "llama", "qwen3")
PROMPT = [0, *range(40, 75)]
NO_END = frozenset({511})


@pytest.fixture(scope="module", params=KINDS)
def folder(request, tmp_path_factory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / request.param, request.param)


def read(folder: Path):
    model = loading.read(folder, "cpu:fp32", FastWays("cpu:fp32", ("compact",)))
    exact.install(model, exact.in_fp32)
    return model


@pytest.fixture
def decoder(folder) -> ChunkedDecoder:
    return ChunkedDecoder(read(folder))


@pytest.fixture
def step(decoder, library: Library) -> CStepDecoder:
    return install.step(decoder._forward.model, library, FastWays("cpu:fp32", (install.STEP,)))


def ids(decoder, prompt=PROMPT, limit=60, sampler=None):
    return [token for token in answer(decoder, prompt, limit, sampler or Sampler()) if token is not None]


def test_tokens_are_those_of_plain_generate(decoder, step, folder):
    expected = plain_ids("cpu:fp32", str(folder), tuple(PROMPT), 60, NO_END)
    assert ids(decoder) == expected and decoder.path == "eager"
    assert ids(step) == expected and step.path == "c-step"
    other = list(range(7, 7 + 300))
    assert ids(step, other, 20) == plain_ids("cpu:fp32", str(folder), tuple(other), 20, NO_END)


def test_the_same_draws_give_the_same_tokens_by_every_path(decoder, step):
    eager = ids(EagerDecoder(decoder._forward.model), limit=20, sampler=Sampler(0.8, 3))
    assert ids(decoder, limit=20, sampler=Sampler(0.8, 3)) == eager
    assert ids(step, limit=20, sampler=Sampler(0.8, 3)) == eager


@pytest.mark.parametrize("name", families.FAST | families.EAGER)
def test_a_prompt_in_chunks_gives_what_one_forward_gives_or_is_not_read_so(name):
    model = families.make(name)
    decoder, prompt = ChunkedDecoder(model), torch.randint(3, 100, (90,), generator=torch.Generator().manual_seed(0)).tolist()
    decoder.chunk = 16
    if not chunked(model):
        assert name in ("mamba", "mamba2", "llama, dynamic rope", "phi3, longrope")
        return
    list(decoder.prefill(prompt, 1, lambda: False))
    whole = EagerDecoder(model)
    list(whole.prefill(prompt, 1, lambda: False))
    assert (decoder._logits - whole._logits).norm() < 1e-5 * whole._logits.norm()


def test_chunks_leave_room_for_a_stop(decoder):
    whole = ids(decoder)
    decoder.chunk = 10
    tokens = list(answer(decoder, PROMPT, 60, Sampler()))
    assert tokens[:3] == [None] * 3 and None not in tokens[3:] and tokens[3:] == whole


@pytest.mark.parametrize("fast", [(), (install.STEP,)], ids=["eager", "c-step"])
def test_a_stop_inside_a_forward_ends_the_run_at_the_next_layer_and_the_next_run_is_whole(fast, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "ASK_S", 0.0)
    lane = Lane("cpu:fp32", Settings(model_id=str(folder), cache_dir=str(tmp_path), fast=fast))
    lane.load(lambda _: None)
    looks = iter([False, True])
    done = list(lane.generate("r", Request("good morning " * 9), lambda: next(looks, True)))[-1]
    assert (done.finish_reason, done.token_ids, next(looks, None), done.timings.ttft_s) == ("stopped", (), None, None)
    done = list(lane.generate("r", Request("good morning", max_new_tokens=3), lambda: False))[-1]
    assert done.token_ids and done.path == (fast or ("eager",))[0]
    looks = iter([False] * 10)  # the prompt, some tokens, and then inside a forward
    done = list(lane.generate("r", Request("hi", max_new_tokens=40), lambda: next(looks, True)))[-1]
    assert done.finish_reason == "stopped" and 1 <= len(done.token_ids) < 40 and done.timings.ttft_s > 0


def test_nothing_of_a_run_is_held_after_a_stop_in_its_prompt(decoder, step, monkeypatch):
    monkeypatch.setattr(runner, "ASK_S", 0.0)
    assert list(step.prefill(PROMPT, 3, lambda: True)) == [None] and step._run is None
    assert list(decoder.prefill(PROMPT, 3, lambda: True)) == [None] and decoder._cache is None
    decoder.chunk = 10
    reading = decoder.prefill(PROMPT, 3, lambda: False)
    next(reading)
    reading.close()
    assert decoder._cache is None


def test_a_layer_of_a_chunk_takes_some_tenths_of_a_second():
    assert chunk_rows(135_000_000, 30, 2) == 256 and chunk_rows(4_300_000_000, 34, 2) == 112
    assert chunk_rows(70_000_000_000, 80, 1) == 16 and chunk_rows(1000, 0, 1) == 256
