"""A fast path can never cost a lane: each optional one made to fail, while loading and in a run; the lane answers and says why."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile

import pytest
import torch

from inference.child import ROOT
from inference.cpu import compiling, install, nf4, patches, probe, products
from inference.cpu import decoder as cpu_decoder
from inference.cpu import step as compiled_step
from inference.cpu.library import NoLibrary
from inference.cpu.nf4 import Nf4Linear
from inference.decode.eager import EagerDecoder
from inference.events import Request
from inference.fast import ALL, OFF
from inference.lane import paths
from inference.lane.lane import Lane
from inference.models import arguments, exact
from inference.settings import Settings
from tests.support.real import answer, plain_ids
from tests.support.tiny import make_checkpoint

ASKED = Request("hello good morning", max_new_tokens=12)


class Odd(Exception):
    """An error of a kind that nobody thought of."""


def fails(*_, **__):
    raise Odd("on purpose")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "llama", "llama")


def loaded(name, folder, cache, fast=ALL):
    lane = Lane(name, Settings(model_id=str(folder), cache_dir=str(cache), fast=fast))
    lane.load(lambda _: None)
    return lane


def tokens(lane):
    return list(answer(lane, ASKED).token_ids)


def expected(lane, folder):
    return plain_ids(lane.name, str(folder), tuple(lane.source.encode(ASKED)[0]), 12, lane.end_ids)


BROKEN = {
    "compact": ("cpu:fp32", lambda patch: patch.setattr(exact, "exact_dtype", fails)),
    "products": ("cpu:fp32", lambda patch: patch.setattr(products, "choose", fails)),
    "layers": ("cpu:fp32", lambda patch: patch.setattr(patches, "_norm", fails)),
    "nf4": ("cpu:nf4", lambda patch: patch.setattr(nf4, "install", fails)),
    "compiled": ("cpu:fp32", lambda patch: patch.setattr(compiled_step, "file_for", fails)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_lane_whose_way_fails_in_the_load_answers_with_plains_tokens_and_says_why(name, folder, tmp_path, monkeypatch):
    lane_name, break_it = BROKEN[name]
    monkeypatch.setattr(arguments, "compute_dtype", lambda _: torch.float32)  # where it isn't, no way of ours is tried
    with monkeypatch.context() as patch:
        break_it(patch)
        lane = loaded(lane_name, folder, tmp_path)
    assert "on purpose" in lane.now().facts.fast_why_not[name] and name not in lane.facts.fast_used
    assert tokens(lane) == expected(lane, folder)


def test_without_the_c_library_everything_else_goes_on(folder, tmp_path, monkeypatch):
    def none(_):
        raise NoLibrary("no C compiler is installed")

    monkeypatch.setattr(install, "load", none)
    lane = loaded("cpu:fp32", folder, tmp_path)
    facts = lane.now().facts
    assert facts.fast_why_not["layers"] == "no C compiler is installed" and "products" in facts.fast_used
    assert tokens(lane) == expected(lane, folder)


@pytest.mark.parametrize("lane_name", ["cpu:fp32", "cpu:nf4"])
def test_all_ways_off_is_recorded_and_gives_the_same_tokens(lane_name, folder, tmp_path):
    lane = loaded(lane_name, folder, tmp_path, fast=())
    facts = lane.now().facts
    assert (
        facts.fast_used == ()
        and set(facts.fast_why_not.values()) == {OFF}
        and facts.kernel in ("torch", "bitsandbytes (4-bit), torch (the rest)", "bitsandbytes")
    )
    assert tokens(lane) == expected(lane, folder)


def test_on_this_machine_every_way_that_can_be_had_is_taken(folder, tmp_path, monkeypatch):
    """Where a check that falls back hides a broken kernel, this fails; whether ours is faster too is not asked, lest other work on this machine decide."""
    monkeypatch.setattr(probe, "faster", lambda ours, own: True)
    monkeypatch.setattr(probe, "best_s", lambda call: 1.0 if isinstance(call.func, Nf4Linear) else 2.0)
    if install_reason := _no_library():
        pytest.skip(install_reason)
    lane = loaded("cpu:fp32", folder, tmp_path)
    assert set(lane.now().facts.fast_used) >= {"compact", "products", "layers"} and not lane.facts.fast_why_not
    four = loaded("cpu:nf4", folder, tmp_path)
    if arguments.compute_dtype("cpu") == torch.float32:
        assert set(four.now().facts.fast_used) == {"compact", "products", "layers", "nf4"}
    else:
        assert "bfloat16" in four.now().facts.fast_why_not["nf4"]


def _no_library() -> str | None:
    from inference.cpu import library

    return None if library.compiler() else "no C compiler"


def test_what_is_only_being_made_ready_is_not_said_to_be_in_use(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "command", lambda *_: ["sh", "-c", "read wait"])
    monkeypatch.setattr(compiling, "compiler", lambda: "g++")
    lane = loaded("cpu:fp32", folder, tmp_path)
    assert "compiled" not in lane.now().facts.fast_used
    lane.compile_beside()
    assert lane.now().path_pending and "compiled" not in lane.facts.fast_used
    lane.paths.compiler.child.stdin.close()
    lane.paths.compiler.thread.join(10)


def test_a_step_that_fails_for_a_passing_reason_is_kept_and_a_broken_one_is_not(folder, tmp_path, monkeypatch):
    for content, kept in ((b"cut", False), (whole_archive(), True)):
        lane = loaded("cpu:fp32", folder, tmp_path)
        file = compiled_step.file_for(lane.model, tmp_path / "inductor", lane.threads)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        monkeypatch.setattr(cpu_decoder.CpuDecoder, "with_step", no_room)
        again = loaded("cpu:fp32", folder, tmp_path)
        monkeypatch.undo()
        assert file.exists() == kept and "No space left" in again.now().facts.fast_why_not["compiled"]


def no_room(*_):
    raise RuntimeError("No space left on device")


def whole_archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("data", "x")
    return out.getvalue()


def test_parts_that_fail_half_way_leave_the_models_own_code(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(patches, "_gate", fails)
    lane = loaded("cpu:fp32", folder, tmp_path)
    assert "on purpose" in lane.now().facts.fast_why_not["layers"]
    assert not any("forward" in vars(module) for module in lane.model.modules())


def test_an_fp32_lane_brings_no_bitsandbytes():
    code = "import sys; import inference.lane.lane, inference.lane.worker; print('bitsandbytes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert "False" in done.stdout + done.stderr, done.stderr


def test_a_missing_compiler_is_told_and_nothing_waits(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "compiler", lambda: None)
    lane = loaded("cpu:fp32", folder, tmp_path)
    lane.compile_beside()
    assert lane.now().facts.fast_why_not["compiled"] == "no C++ compiler is installed" and not lane.paths.pending
    assert answer(lane, ASKED).path_reason == "compiled: no C++ compiler is installed"


class Failing:
    """A faster decoder that gives `good` ids as the eager one does, and then raises."""

    path = "compiled"

    def __init__(self, model, good):
        self._eager, self._good = EagerDecoder(model), good

    def why_not(self, *_):
        return None

    def prefill(self, *asked):
        return self._eager.prefill(*asked)

    def decode(self, *asked):
        for n, token in enumerate(self._eager.decode(*asked)):
            if n == self._good:
                fails()
            yield token


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("good", [0, 1, 5])
def test_a_path_that_fails_in_a_run_is_followed_by_the_eager_one_with_the_same_tokens(good, temperature, folder, tmp_path):
    lane = loaded("cpu:fp32", folder, tmp_path)
    request = Request("hello good morning", max_new_tokens=12, temperature=temperature, seed=3)
    whole = answer(lane, request).token_ids
    lane.paths.fast = Failing(lane.model, good)
    done = answer(lane, request)
    assert done.token_ids == whole and done.path == "eager"
    assert "it failed in a run: Odd: on purpose" in done.path_reason and "on purpose" in lane.now().facts.fast_why_not["compiled"]
    assert answer(lane, request).path == "eager", "it is not tried again"


def test_an_error_of_the_eager_path_is_told_and_the_next_run_is_whole(folder, tmp_path, monkeypatch):
    lane = loaded("cpu:fp32", folder, tmp_path)
    monkeypatch.setattr(lane.paths.eager, "decode", fails)
    with pytest.raises(Odd):
        answer(lane, ASKED)
    monkeypatch.undo()
    assert tokens(lane) == expected(lane, folder)


def test_a_run_that_a_path_has_no_room_for_is_eager_and_says_so(folder, tmp_path, monkeypatch):
    lane = loaded("cpu:fp32", folder, tmp_path)
    monkeypatch.setattr(cpu_decoder, "window", lambda _: 5)
    lane.paths.fast = cpu_decoder.CpuDecoder(lane.model, object(), lane.paths.eager.hook)
    done = answer(lane, ASKED)
    assert done.path == "eager" and done.path_reason == "compiled: prompt and answer pass the sliding window of 5 tokens"


def test_a_failed_load_holds_no_model_and_the_next_one_tries_everything_anew(folder, tmp_path, monkeypatch):
    lane = Lane("cpu:fp32", Settings(model_id=str(folder), cache_dir=str(tmp_path)))
    monkeypatch.setattr(patches, "install", fails)
    monkeypatch.setattr(Lane, "_warm_up", fails)
    with pytest.raises(Odd):
        lane.load(lambda _: None)
    assert lane.model is None and lane.paths.eager is None and not lane.loaded
    monkeypatch.undo()
    assert not lane.load(lambda _: None).facts.fast_why_not


def test_a_stop_between_two_tokens_is_not_taken_for_a_failure(folder, tmp_path):
    lane = loaded("cpu:fp32", folder, tmp_path)
    lane.paths.fast = Failing(lane.model, 100)
    seen = []
    for event in lane.generate("r", Request("hi", max_new_tokens=50), lambda: len(seen) > 3):
        seen.append(event)
    assert seen[-1].finish_reason == "stopped" and seen[-1].path == "compiled" and lane.paths.fast is not None


def test_without_a_card_the_device_is_not_lost():
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    assert not paths.device_lost()
