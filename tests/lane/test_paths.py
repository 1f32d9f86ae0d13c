"""A fast path can never cost a lane: each optional one made to fail, while loading and in a run; the lane answers and says why."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from inference.cpu import install, nf4, products
from inference.decode.eager import EagerDecoder
from inference.decode.sampling import NOT_FINITE, NotFinite
from inference.errors import OutOfMemory
from inference.events import Request
from inference.fast import ALL, OFF
from inference.host import machine
from inference.host.child import ROOT
from inference.lane import paths
from inference.lane.lane import Lane
from inference.models import exact
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
    "products": ("cpu:fp32", lambda patch: patch.setattr(products, "ours", fails)),
    "nf4": ("cpu:nf4", lambda patch: patch.setattr(nf4, "install", fails)),
    "c-step": ("cpu:fp32", lambda patch: patch.setattr(install, "read_parts", fails)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_lane_whose_way_fails_in_the_load_answers_with_plains_tokens_and_says_why(name, folder, tmp_path, monkeypatch):
    lane_name, break_it = BROKEN[name]
    with monkeypatch.context() as patch:
        break_it(patch)
        lane = loaded(lane_name, folder, tmp_path)
    assert "on purpose" in lane.now().facts.fast_why_not[name] and name not in lane.facts.fast_used
    assert tokens(lane) == expected(lane, folder)


@pytest.mark.parametrize("lane_name", ["cpu:fp32", "cpu:nf4"])
def test_without_a_compiler_the_lane_answers_eagerly_and_says_so(lane_name, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "c_compiler", lambda: None)
    lane = loaded(lane_name, folder, tmp_path)
    facts = lane.now().facts
    assert facts.fast_why_not["c-step"] == facts.fast_why_not["products"] == "no C compiler is installed"
    assert tokens(lane) == expected(lane, folder)
    assert answer(lane, ASKED).path_reason == "c-step: no C compiler is installed"


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


def test_on_this_machine_every_way_that_can_be_had_is_taken(folder, tmp_path):
    """Where a check that falls back hides a broken kernel, this fails."""
    if machine.c_compiler() is None:
        pytest.skip("no C compiler")
    for name, ways in (("cpu:fp32", {"compact", "products", "c-step"}), ("cpu:nf4", {"compact", "products", "nf4", "c-step"})):
        lane = loaded(name, folder, tmp_path)
        facts = lane.now().facts
        assert set(facts.fast_used) == ways and not facts.fast_why_not and facts.compute_dtype == "float32"
        assert [tried["what"] for tried in facts.fast_checked] == ["the whole model", "layer 0 alone"]
        done = answer(lane, ASKED)
        assert (done.path, done.path_reason, list(done.token_ids)) == ("c-step", None, expected(lane, folder))


def test_an_fp32_lane_brings_no_bitsandbytes():
    code = "import sys; import inference.lane.lane, inference.lane.worker; print('bitsandbytes' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert "False" in done.stdout + done.stderr, done.stderr


class Failing:
    """A faster decoder that gives `good` ids as the eager one does, and then raises."""

    path = "c-step"

    def __init__(self, model, good, error=None):
        self._eager, self._good, self._error = EagerDecoder(model), good, error or Odd("on purpose")

    def why_not(self, *_):
        return None

    def prefill(self, *asked):
        return self._eager.prefill(*asked)

    def decode(self, *asked):
        for n, token in enumerate(self._eager.decode(*asked)):
            if n == self._good:
                raise self._error
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
    assert "it failed in a run: Odd: on purpose" in done.path_reason and "on purpose" in lane.now().facts.fast_why_not["c-step"]
    assert answer(lane, request).path == "eager", "it is not tried again"


def test_logits_that_are_not_finite_cost_a_lane_no_path_and_are_told_where_the_eager_one_has_them_too(folder, tmp_path, monkeypatch):
    lane = loaded("cpu:fp32", folder, tmp_path)
    whole = tokens(lane)
    lane.paths.fast = Failing(lane.model, 3, NotFinite(NOT_FINITE))
    done = answer(lane, ASKED)
    assert list(done.token_ids) == whole and done.path == "eager" and "no finite numbers" in done.path_reason
    with monkeypatch.context() as patch:
        patch.setattr(lane.paths, "eager", Failing(lane.model, 3, NotFinite(NOT_FINITE)))
        with pytest.raises(NotFinite, match="Check the checkpoint"):
            answer(lane, ASKED)
    lane.paths.fast = Failing(lane.model, 100)
    assert answer(lane, ASKED).path == "c-step" and not lane.now().facts.fast_why_not


def test_an_error_of_the_eager_path_is_told_and_the_next_run_is_whole(folder, tmp_path, monkeypatch):
    lane = loaded("cpu:fp32", folder, tmp_path, fast=("compact",))
    monkeypatch.setattr(lane.paths.eager, "decode", fails)
    with pytest.raises(Odd):
        answer(lane, ASKED)
    monkeypatch.undo()
    assert tokens(lane) == expected(lane, folder)


def test_a_run_that_there_is_no_memory_for_is_told_and_the_path_stays(folder, tmp_path, monkeypatch):
    lane = loaded("cpu:fp32", folder, tmp_path)
    begin = lane.paths.fast._stepper.begin
    monkeypatch.setattr(lane.paths.fast._stepper, "begin", lambda positions: begin(2**45))
    with pytest.raises(OutOfMemory, match="Shorten the prompt"):
        answer(lane, ASKED)
    monkeypatch.undo()
    assert answer(lane, ASKED).path == "c-step"


def test_a_failed_load_holds_no_model_and_the_next_one_tries_everything_anew(folder, tmp_path, monkeypatch):
    lane = Lane("cpu:fp32", Settings(model_id=str(folder), cache_dir=str(tmp_path)))
    monkeypatch.setattr(install, "step", fails)
    monkeypatch.setattr(Lane, "_warm_up", fails)
    with pytest.raises(Odd):
        lane.load(lambda _: None)
    assert lane.model is None and lane.paths.eager is None and not lane.loaded
    monkeypatch.undo()
    assert "c-step" in lane.load(lambda _: None).facts.fast_used


def test_a_stop_between_two_tokens_is_not_taken_for_a_failure(folder, tmp_path):
    lane = loaded("cpu:fp32", folder, tmp_path)
    lane.paths.fast = Failing(lane.model, 100)
    seen = []
    for event in lane.generate("r", Request("hi", max_new_tokens=50), lambda: len(seen) > 3):
        seen.append(event)
    assert seen[-1].finish_reason == "stopped" and seen[-1].path == "c-step" and lane.paths.fast is not None


def test_without_a_card_the_device_is_not_lost():
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    assert not paths.device_lost()
