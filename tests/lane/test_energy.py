"""The counters of a card and of a processor, read around runs and in rests: on a made-up driver and a made-up powercap tree."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from inference.events import Done, Energy, decode, encode
from inference.lane.energy import NO_CARD_COUNTER, NO_COUNTER, NOT_READABLE, Meter, Processor, meter_of
from inference.timing import Timings
from tests.support.fakes import FakeClock


@pytest.fixture(autouse=True)
def nothing_in_the_background(monkeypatch):
    monkeypatch.setattr(Processor, "keep_up", lambda self: None)


def zone(root: Path, name: str, kind: str, joules: float, turn: float = 1000.0) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "name").write_text(kind + "\n")
    (folder / "max_energy_range_uj").write_text(f"{int(turn * 1e6)}\n")
    stand(folder, joules)
    return folder


def stand(folder: Path, joules: float) -> None:
    (folder / "energy_uj").write_text(f"{int(joules * 1e6)}\n")


# ---- the processor


def test_the_packages_are_added_up_and_what_is_in_or_around_them_is_not(tmp_path):
    one, two = zone(tmp_path, "intel-rapl:0", "package-0", 100), zone(tmp_path, "intel-rapl:1", "package-1", 200)
    inside, around = zone(tmp_path, "intel-rapl:0:0", "core", 50), zone(tmp_path, "intel-rapl:2", "psys", 900)
    (tmp_path / "intel-rapl:3").mkdir()  # nothing behind the name
    meter, why_not = meter_of("cpu", powercap=tmp_path)
    meter.begin()
    for folder, joules in ((one, 107), (two, 203), (inside, 54), (around, 990)):
        stand(folder, joules)
    taken = meter.end()
    assert not why_not and taken.joules == pytest.approx(10) and taken.source == "rapl"


def test_a_counter_that_comes_round_goes_on(tmp_path):
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 990)
    meter, _ = meter_of("cpu", powercap=tmp_path)
    meter.begin()
    stand(folder, 5)
    assert meter.end().joules == pytest.approx(15)


def test_turns_within_a_run_are_all_counted_where_it_is_read_meanwhile(tmp_path):
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 990)
    counter = Processor([folder])
    for joules in (400, 900, 300, 800, 100):
        stand(folder, joules)
        counter.joules()
    assert counter.joules() == pytest.approx(2110)


@pytest.mark.parametrize("file", ["energy_uj", "name"])
def test_a_counter_that_may_not_be_read_and_one_that_is_not_there_each_have_their_reason(tmp_path, monkeypatch, file):
    assert meter_of("cpu", powercap=tmp_path)[1] == meter_of("cpu", powercap=tmp_path / "none")[1] == NO_COUNTER
    zone(tmp_path, "intel-rapl:0", "package-0", 100)
    read = Path.read_text

    def refused(path: Path, *arguments, **more) -> str:
        if path.name == file:
            raise PermissionError(13, "Permission denied")
        return read(path, *arguments, **more)

    monkeypatch.setattr(Path, "read_text", refused)
    meter, why_not = meter_of("cpu", powercap=tmp_path)
    meter.begin()
    assert why_not == NOT_READABLE and meter.end() is None and meter.look() is None


def test_a_reading_that_fails_in_a_run_leaves_that_run_without_a_figure(tmp_path):
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 100)
    meter, _ = meter_of("cpu", powercap=tmp_path)
    meter.begin()
    (folder / "energy_uj").unlink()
    assert meter.end() is None
    stand(folder, 200)
    meter.begin()
    stand(folder, 201)
    assert meter.end().joules == pytest.approx(1)


# ---- the card


class Driver:
    """NVML with one card, whose counter moves by a step's millijoules each `step` readings."""

    def __init__(self, step: int = 3) -> None:
        self.readings, self.step, self.asked = 0, step, ""

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> SimpleNamespace:
        self.asked = uuid
        return SimpleNamespace(uuid=uuid)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: SimpleNamespace) -> int:
        assert handle.uuid == self.asked
        self.readings += 1
        return 7_000_000 + 40_000 * (self.readings // self.step)


def test_a_cards_counter_is_its_own_and_in_joules(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", driver := Driver())
    meter, why_not = meter_of("cuda", "1234")
    found = []
    for _ in range(3):
        meter.begin()
        found.append(meter.end())
    assert not why_not and driver.asked == "GPU-1234"
    assert sum(each.joules for each in found) == 40 and {each.source for each in found} == {"nvml"}, "one step fell between two runs"
    assert found[0].since_s is None and all(each.since_s >= 0 for each in found[1:])


@pytest.mark.parametrize("missing", ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetHandleByUUID", "nvmlInit"])
def test_a_driver_without_the_call_is_a_reason_and_no_fault(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, "pynvml", driver := Driver())
    monkeypatch.setattr(Driver, missing, property(lambda self: (_ for _ in ()).throw(RuntimeError("Not Supported"))))
    meter, why_not = meter_of("cuda", "GPU-1")
    meter.begin()
    assert why_not == NO_CARD_COUNTER and meter.end() is None and driver.readings == 0


# ---- rests


class Steady:
    """A counter of a device that takes 100 W at rest and 400 W at work, on a clock in the test's hand."""

    source, step_s = "nvml", 0.1

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.watts, self.at, self.total = clock, 100.0, clock.now, 0.0

    def joules(self) -> float:
        self.total += self.watts * (self.clock.now - self.at)
        self.at = self.clock.now
        return self.total

    def works(self, seconds: float, watts: float = 400.0) -> None:
        self.joules()
        self.watts, self.clock.now = watts, self.clock.now + seconds
        self.joules()
        self.watts = 100.0


@pytest.fixture
def counter():
    return Steady(FakeClock())


def answer(meter: Meter, counter: Steady, seconds: float = 2.0) -> Energy:
    meter.begin()
    counter.works(seconds)
    return meter.end()


def rest(meter: Meter, counter: Steady, seconds: float) -> None:
    """As a worker does: it looks whenever it was told to."""
    over = counter.clock.now + seconds
    while (wait_s := meter.look()) is not None and counter.clock.now + wait_s < over:
        counter.clock.now += wait_s
    counter.clock.now = over


def test_idle_power_is_of_the_last_rest_of_a_second_and_a_short_one_gives_none(counter):
    meter = Meter(counter, "cuda", counter.clock)
    assert answer(meter, counter).idle_watts is None, "asked at once after the load"
    rest(meter, counter, 0.9)
    assert answer(meter, counter).idle_watts is None
    rest(meter, counter, 1.5)
    taken = answer(meter, counter)
    assert taken.idle_watts == pytest.approx(100) and taken.joules == pytest.approx(800) and taken.since_s == pytest.approx(1.5)
    assert taken.since_joules == pytest.approx(150)
    assert answer(meter, counter).idle_watts == pytest.approx(100), "the last that is known"


def test_a_rest_is_read_no_sooner_than_a_step_after_the_run(counter):
    meter = Meter(counter, "cuda", counter.clock)
    answer(meter, counter)
    assert meter.look() and meter.look(), "however soon it is asked"
    counter.clock.now += 0.05
    assert meter.look() == pytest.approx(0.05)
    counter.clock.now += 0.06
    assert meter.look() is None


@pytest.mark.parametrize(("device", "others", "counts"), [("cuda", ["cpu"], True), ("cuda", ["cuda"], False), ("cuda", [""], False), ("cpu", ["cuda"], False)])
def test_a_rest_is_none_while_another_lane_is_at_work_on_what_the_counter_covers(counter, device, others, counts):
    meter = Meter(counter, device, counter.clock)
    answer(meter, counter)
    meter.beside(others)
    rest(meter, counter, 3)
    meter.beside([])
    assert (answer(meter, counter).idle_watts is not None) == counts


def test_a_rest_ends_where_another_lane_begins(counter):
    meter = Meter(counter, "cuda", counter.clock)
    answer(meter, counter)
    rest(meter, counter, 3)
    meter.beside(["cuda"])
    counter.works(5)
    meter.beside([])
    assert answer(meter, counter).idle_watts == pytest.approx(100)


def test_energy_crosses_to_the_engine_and_what_has_none_is_null():
    done = Done("r", "stop", "a", (1,), 2, Timings(), energy=Energy(1.5, 2.0, None, "rapl", 0.01, 0.2))
    assert decode(encode(done)) == done and json.loads(encode(Done("r", "stop", "a", (1,), 2, Timings())))["energy"] is None
