"""The seam over our faster ways: one switch, whatever fails is done without, and the reason is kept."""

from __future__ import annotations

import pytest

from inference.errors import DeviceLost, InferenceError
from inference.events import Loading
from inference.fast import ALL, ENDED, OFF, WAYS, FastWays, parse
from inference.settings import Settings, from_env


class Odd(Exception):
    """An error of a kind that nobody thought of."""


ERRORS = (Odd("odd"), AttributeError("no self_attn"), AssertionError(), TypeError("past_key_values"), MemoryError(), KeyError("x"), RecursionError("deep"))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_way_raises_is_kept_as_the_reason(error, caplog):
    def work():
        raise error

    ways = FastWays("cuda:nf4", ALL)
    assert ways.attempt("cuda-graph", work) is None
    assert type(error).__name__ in ways.why_not["cuda-graph"] and ways.used == [] and not ways.may("cuda-graph")
    assert "Traceback" in caplog.text, "the log has the trace"


def test_a_sentence_of_ours_is_the_reason_as_it_is(caplog):
    def work():
        raise InferenceError("layer 0 has no mlp")

    ways = FastWays("cuda:nf4", ALL)
    ways.attempt("cuda-graph", work)
    assert ways.why_not == {"cuda-graph": "layer 0 has no mlp"} and "Traceback" not in caplog.text


def test_what_was_given_up_is_not_tried_again():
    ways, tried = FastWays("cpu:fp32", ALL), []
    ways.refuse("products", "no")
    assert ways.attempt("products", lambda: tried.append(1)) is None and not tried


def test_a_way_that_works_is_used_until_it_is_refused():
    ways = FastWays("cpu:fp32", ALL)
    assert ways.attempt("products", lambda: 7) == 7 and ways.used == ["products"]
    ways.refuse("products", "it failed in a run")
    assert ways.used == [] and ways.why_not["products"] == "it failed in a run"


def test_a_lane_knows_its_own_ways_only():
    assert FastWays("cuda:nf4", ALL).names == ("cuda-graph", "compact") and FastWays("cuda:bf16", ALL).names == ("cuda-graph",)
    assert FastWays("cpu:fp32", ALL).attempt("nf4", lambda: pytest.fail("it is no way of this lane")) is None


def test_a_way_that_means_nothing_on_a_machine_is_no_way_there():
    ways = FastWays("cuda:nf4", ("cuda-graph",))
    ways.leave_out("compact")
    assert ways.names == ("cuda-graph",) and ways.why_not == {} and not ways.may("compact")


def test_the_switch_turns_each_way_off_alone():
    for name in WAYS:
        for lane in WAYS[name].lanes:
            ways = FastWays(lane, tuple(other for other in ALL if other != name))
            assert ways.why_not == {name: OFF} and not ways.may(name)
    assert FastWays("cpu:fp32", ()).why_not == dict.fromkeys(FastWays("cpu:fp32", ALL).names, OFF)


def test_a_way_that_ended_a_process_before_is_left_out_and_told():
    assert FastWays("cuda:nf4", ALL, ("cuda-graph",)).why_not == {"cuda-graph": ENDED}


def test_it_is_told_before_a_way_is_tried():
    ways, seen = FastWays("cuda:nf4", ALL), []
    ways.attempt("cuda-graph", lambda: seen.append("tried"), seen.append)
    assert isinstance(seen[0], Loading) and seen[0].trying == "cuda-graph" and seen[1] == "tried"


def test_a_device_past_use_is_not_taken_for_a_way_that_failed():
    def work():
        raise RuntimeError("an illegal memory access was encountered")

    ways = FastWays("cuda:nf4", ALL, device_lost=lambda: True)
    with pytest.raises(DeviceLost, match="illegal memory access"):
        ways.attempt("cuda-graph", work)


def test_the_variable_takes_all_none_or_a_list():
    assert parse("all") == ALL and parse("none") == () and parse(" nf4, compact ") == ("compact", "nf4")
    with pytest.raises(InferenceError, match="'grpah'.*cuda-graph"):
        parse("cuda-graph,grpah")
    for value in (ALL, (), ("c-step",)):
        assert from_env(Settings(fast=value, fast_lost=("nf4",)).to_env()) == Settings(fast=value, fast_lost=("nf4",))
