"""When a server is asked beside other lanes: together where it is elsewhere, in turn where it may share this machine; and whom it holds up."""

from __future__ import annotations

import pytest

from inference.engine.runs import Comparison, LaneSlot, Run
from inference.engine.turns import mark_contended, settle_mode
from inference.events import Done, Hello, Request
from inference.lanes import LaneName
from inference.timing import Timings


def lane(name: str, on_this_machine: bool = False, hello: bool = True) -> LaneSlot:
    slot = LaneSlot(name, LaneName.parse(name), "ready")
    slot.hello = Hello(name, slot.name.device, {}, {"on_this_machine": on_this_machine}) if hello else None
    return slot


def asked(*lanes: LaneSlot) -> Comparison:
    comparison = Comparison("c1", Request("hi"), "auto")
    for slot in lanes:
        comparison.runs[slot.key] = slot.current = Run(f"r-{slot.key}", slot, comparison, 0.0)
    return comparison


@pytest.mark.parametrize(("lanes", "mode"), [
    ((lane("endpoint:far"), lane("cpu:fp32")), "together"),
    ((lane("endpoint:far"), lane("endpoint:other"), lane("cuda:nf4")), "together"),
    ((lane("endpoint:far", on_this_machine=True), lane("cpu:fp32")), "in-turn"),
    ((lane("endpoint:far", on_this_machine=True), lane("endpoint:other")), "in-turn"),
    ((lane("endpoint:far", on_this_machine=True),), "together"),
    ((lane("endpoint:far"), lane("cpu:nf4"), lane("cpu:fp32")), "in-turn"),
])  # fmt: skip
def test_lanes_that_may_share_a_device_are_asked_in_turn(lanes, mode):
    comparison = asked(*lanes)
    assert settle_mode(comparison) and comparison.mode == mode


def test_the_mode_waits_until_the_server_s_process_has_said_where_it_is():
    slot = lane("endpoint:far", hello=False)
    slot.state = "starting"
    assert not settle_mode(asked(slot, lane("cpu:fp32")))


@pytest.mark.parametrize("on_this_machine", [False, True])
def test_a_server_on_another_machine_slows_nobody_and_nobody_knows_whether_it_is_alone(on_this_machine):
    far, ours = lane("endpoint:far", on_this_machine), lane("cpu:fp32")
    comparison = asked(far, ours)
    mark_contended([far, ours])
    done = Done("r", "stop", "", (), 0, Timings(), t_start=1.0)
    assert comparison.runs["cpu:fp32"].with_waits(done).alone is not on_this_machine
    assert comparison.runs["endpoint:far"].with_waits(done).alone is None


def test_a_server_on_this_machine_may_be_at_work_on_any_device_and_one_elsewhere_on_none():
    lanes = (lane("endpoint:far", on_this_machine=True), lane("endpoint:far"), lane("endpoint:far", hello=False), lane("cuda:nf4"), lane("auto:nf4"))
    assert [each.works_on for each in lanes] == ["", "endpoint:far", "", "cuda", ""]
