"""The CPU decoder gives plain generate's tokens by every path, stops inside a long prompt, and never waits for a compiler."""

import os
import signal
import subprocess
import sys

import psutil
import pytest
import torch

from inference.child import ROOT
from inference.cpu import compiling, products
from inference.cpu import step as compiled_step
from inference.cpu.decoder import CpuDecoder, chunk_rows, compilable
from inference.decode.decoder import answer
from inference.decode.eager import EagerDecoder
from inference.decode.sampling import Sampler
from inference.errors import InferenceError
from inference.events import Request
from inference.fast import FastWays
from inference.lane.lane import Lane
from inference.models import exact, loading
from inference.settings import Settings
from tests.support.page_fixtures import until
from tests.support.real import plain_ids
from tests.support.tiny import make_checkpoint

KINDS = ("gemma3_text", "llama", "qwen3")
PROMPT = [0, *range(40, 75)]
NO_END = frozenset({511})


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """(folder, file of its step, compiler) of each kind; all compile at once while other tests run (`conftest.py`)."""
    root, found = tmp_path_factory.mktemp("tiny"), {}
    for kind in KINDS:
        folder, path = make_checkpoint(root / kind, kind), root / "steps" / f"{kind}.pt2"
        compiler = compiling.Compiler(folder, path, True, 2)
        if compiling.compiler():
            compiler.start()
        found[kind] = (folder, path, compiler)
    yield found
    for _, _, compiler in found.values():
        if compiler.running:
            os.killpg(compiler.child.pid, signal.SIGKILL)


@pytest.fixture(scope="session", params=KINDS)
def folder(request, made):
    return made[request.param][0]


@pytest.fixture(scope="session")
def step_file(folder, made):
    _, path, compiler = made[folder.name]
    if compiler.thread is None:
        pytest.skip("no C++ compiler")
    compiler.thread.join(250)
    assert path.exists()
    return path


def read(folder):
    model = loading.read(folder, "cpu:fp32", FastWays("cpu:fp32", ("compact",)))
    exact.install(model, products.plain)
    return model


@pytest.fixture
def decoder(folder):
    return CpuDecoder(read(folder))


def ids(decoder, prompt=PROMPT, limit=60, sampler=None):
    return [token for token in answer(decoder, prompt, limit, sampler or Sampler()) if token is not None]


def test_eager_tokens_are_those_of_plain_generate(decoder, folder):
    assert ids(decoder) == plain_ids("cpu:fp32", str(folder), tuple(PROMPT), 60, NO_END) and decoder.path == "eager"


def test_compiled_tokens_are_those_of_plain_generate(decoder, folder, step_file):
    fast = decoder.with_step(step_file)
    assert ids(fast) == plain_ids("cpu:fp32", str(folder), tuple(PROMPT), 60, NO_END) and fast.path == "compiled"
    # another prompt, another length, the same step
    other = list(range(7, 7 + 130))
    assert ids(fast, other, 20) == plain_ids("cpu:fp32", str(folder), tuple(other), 20, NO_END)


def test_a_loaded_step_leaves_nothing_in_the_temporary_folder_and_works_on(decoder, folder, step_file, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    fast = decoder.with_step(step_file)
    assert not list(tmp_path.iterdir())
    assert ids(fast, limit=5) == plain_ids("cpu:fp32", str(folder), tuple(PROMPT), 5, NO_END)


def test_compiling_leaves_nothing_but_the_step(step_file):
    beside = [path.name for path in step_file.parent.iterdir() if not path.name.startswith(".new-")]  # others still compile
    assert all(name.endswith(".pt2") for name in beside)


def test_the_same_draws_give_the_same_tokens_by_every_path(decoder, step_file):
    eager = ids(EagerDecoder(decoder.model), limit=20, sampler=Sampler(0.8, 3))
    assert ids(decoder, limit=20, sampler=Sampler(0.8, 3)) == eager
    assert ids(decoder.with_step(step_file), limit=20, sampler=Sampler(0.8, 3)) == eager


def test_logits_of_the_compiled_step_differ_by_rounding_only(decoder, step_file):
    assert decoder.with_step(step_file).difference() < 1e-5


def test_a_step_made_for_other_weights_is_not_used(decoder, step_file, folder):
    with torch.no_grad():
        decoder.model.model.layers[0].mlp.down_proj.weight.mul_(2)
    assert decoder.with_step(step_file).difference() < 1e-5, "the weights belong to the model, not to the file"
    for broken in (b"", b"no archive"):
        (folder / "broken.pt2").write_bytes(broken)
        with pytest.raises(RuntimeError):
            decoder.with_step(folder / "broken.pt2")


def test_a_step_that_gives_other_logits_is_not_used(decoder, step_file, monkeypatch):
    monkeypatch.setattr(CpuDecoder, "difference", lambda _: float("nan"))
    with pytest.raises(InferenceError, match="differs from the eager one by nan"):
        decoder.with_step(step_file)


def test_past_the_sliding_window_decoding_is_eager_and_equal(tmp_path):
    folder = make_checkpoint(tmp_path / "gemma", "gemma3_text")
    model = read(folder)
    model.config.sliding_window = 32
    decoder = CpuDecoder(model)
    decoder.chunk = 16
    fast = CpuDecoder(model, object(), decoder.hook)  # never asked
    assert fast.why_not(20, 12) is None and "sliding window of 32" in fast.why_not(len(PROMPT), 12)
    model.config._attn_implementation = "sdpa"
    expected = model.generate(torch.tensor([PROMPT]), max_new_tokens=12, do_sample=False, eos_token_id=511, pad_token_id=2)
    assert ids(decoder, limit=12) == expected[0, len(PROMPT) :].tolist() and decoder.path == "eager"


def test_chunks_give_the_tokens_of_one_forward_and_room_for_a_stop(decoder):
    whole = ids(decoder)
    decoder.chunk = 10
    tokens = list(answer(decoder, PROMPT, 60, Sampler()))
    assert tokens[:3] == [None] * 3 and None not in tokens[3:] and tokens[3:] == whole


def test_a_stop_inside_the_prompt_ends_the_run(folder, tmp_path):
    lane = Lane("cpu:fp32", Settings(model_id=str(folder), cache_dir=str(tmp_path)))
    lane.load(lambda _: None)
    lane.paths.eager.chunk = 4
    done = list(lane.generate("r", Request("good morning " * 9), lambda: True))[-1]
    assert (done.finish_reason, done.token_ids, done.timings.ttft_s) == ("stopped", (), None)


def test_a_stop_inside_a_forward_ends_the_run_at_the_next_layer_and_the_next_run_is_whole(folder, tmp_path):
    lane = Lane("cpu:fp32", Settings(model_id=str(folder), cache_dir=str(tmp_path)))
    lane.load(lambda _: None)
    looks = iter([False, True])
    done = list(lane.generate("r", Request("good morning " * 9), lambda: next(looks, True)))[-1]
    assert (done.finish_reason, done.token_ids, next(looks, None)) == ("stopped", (), None)
    assert list(lane.generate("r", Request("good morning", max_new_tokens=3), lambda: False))[-1].token_ids


def test_the_compiler_is_held_while_a_run_goes_on_and_nobody_waits_for_it(folder, tmp_path, monkeypatch):
    lane = Lane("cpu:fp32", Settings(model_id=str(folder), cache_dir=str(tmp_path)))
    lane.load(lambda _: None)
    monkeypatch.setattr(compiling, "command", lambda *_: ["sh", "-c", "read wait; echo no compiler >&2; exit 1"])
    monkeypatch.setattr(compiling, "compiler", lambda: "g++")
    lane.compile_beside()
    compiler, held = lane.paths.compiler, []
    monkeypatch.setattr(compiler, "hold", held.append)
    done = list(lane.generate("r", Request("hi", max_new_tokens=3), lambda: False))[-1]
    assert held == [True, False] and compiler.running and lane.now().path_pending
    assert (done.path, done.path_reason) == ("eager", "compiled: it is being made ready")
    compiler.child.stdin.write(b"\n")
    compiler.child.stdin.close()
    compiler.thread.join(10)
    assert lane.between_runs() == (True, None) and not lane.now().path_pending
    assert "no compiler" in lane.facts.fast_why_not["compiled"]
    done = list(lane.generate("r", Request("hi", max_new_tokens=3), lambda: False))[-1]
    assert done.path == "eager" and "no compiler" in done.path_reason


def test_a_held_child_ends_with_the_process_that_holds_it(tmp_path):
    code = (
        "import os, sys, time; from pathlib import Path; from inference.cpu import compiling; compiling.compiler = lambda: 'g++'; "
        f"compiler = compiling.Compiler(Path({str(tmp_path)!r}), Path({str(tmp_path / 'x.pt2')!r}), True, 1); compiler.start(); time.sleep(1); "
        "compiler.hold(True); print(compiler.child.pid, flush=True); os.read(0, 1); os._exit(0)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(holder.stdout.readline()))
    until(lambda: child.status() == psutil.STATUS_STOPPED, what="the child is held")
    holder.stdin.close()
    holder.wait(10)
    gone, left = psutil.wait_procs([child], 10)
    assert gone and not left


def test_a_step_is_not_compiled_where_a_second_copy_of_the_weights_has_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "compiler", lambda: "g++")
    monkeypatch.setattr(compiling.machine, "ram_available_bytes", lambda: compiling.NEEDED_BYTES + 2**20)
    with pytest.raises(compiling.NotCompiled, match="memory"):
        compiling.Compiler(tmp_path, tmp_path / "x.pt2", False, 1, weights_bytes=2**21).start()


def test_a_stop_inside_a_step_ends_the_run_as_stopped(folder, tmp_path):
    lane = Lane("cpu:fp32", Settings(model_id=str(folder), cache_dir=str(tmp_path)))
    lane.load(lambda _: None)
    ids, layers = [], len(lane.paths.eager.hook.layers)
    looks = iter([False] * (2 * layers + 6))  # the prompt, some tokens, and then inside a forward
    for event in lane.generate("r", Request("hi", max_new_tokens=40), lambda: next(looks, True)):
        ids.append(event)
    done = ids[-1]
    assert done.finish_reason == "stopped" and 1 <= len(done.token_ids) < 40 and done.timings.ttft_s > 0


def test_the_compiled_step_of_an_earlier_start_is_used_at_once(folder, step_file, tmp_path):
    settings = Settings(model_id=str(folder), cache_dir=str(tmp_path))
    lane = Lane("cpu:fp32", settings)
    lane.load(lambda _: None)
    target = compiled_step.file_for(lane.model, tmp_path / "inductor", lane.threads)
    target.parent.mkdir()
    target.write_bytes(step_file.read_bytes())
    again = Lane("cpu:fp32", settings)
    again.load(lambda _: None)
    assert list(again.generate("r", Request("hi", max_new_tokens=3), lambda: False))[-1].path == "compiled" and not again.paths.pending


def test_a_layer_of_a_chunk_takes_some_tenths_of_a_second():
    assert chunk_rows(135_000_000, 30, 2) == 256 and chunk_rows(4_300_000_000, 34, 2) == 112
    assert chunk_rows(70_000_000_000, 80, 1) == 16 and chunk_rows(1000, 0, 1) == 256


def test_lengths_at_which_rotary_frequencies_change_are_not_compiled(decoder):
    assert compilable(decoder.model)
    decoder.model.config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0}
    assert not compilable(decoder.model)
