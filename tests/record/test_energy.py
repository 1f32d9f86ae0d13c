"""Energy in a record: a row of the table, of the CSV and of the JSON, as a number that is known within a tenth or with its reason."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from inference.energy import Energy
from inference.events import Request
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.export import as_json, to_csv
from inference.record.markdown import markdown
from inference.record.missing import why
from inference.record.table import table_rows, text_table
from tests.support.records import ended, status


def taking(energy: Energy | None, **changes) -> Progress:
    run = ended(5)
    return replace(run, done=replace(run.done, energy=energy, **changes))


def record_of(*runs: Progress, lane: str = "cuda:nf4", **facts):
    found = replace(status(lane), facts=replace(status(lane).facts, **facts))
    return build_record([found], Request("hi"), "in-turn", {lane: list(runs)})


def told(record) -> str:
    return next(row.cells[0] for row in table_rows(record) if row.title == "Energy")


LONG = Energy(100.0, 2.0, 75.0, "nvml", 0.1, 3.0, 225.0)
SHORT = Energy(40.0, 0.1, None, "nvml", 0.1, 0.0, 0.0)


def test_a_figure_stands_with_its_error_the_idle_power_and_what_the_counter_covers():
    assert told(record_of(taking(LONG))).splitlines() == [
        "100 J an answer (± 5 %, n 1)",
        "at rest 75.0 W: 150 J in that time",
        "the whole card, other work included",
    ]
    found = told(record_of(taking(replace(LONG, idle_watts=None, source="rapl")), lane="cpu:nf4"))
    assert "at rest n/a (no rest of a second before a run)\nthe whole processor package, other work included" in found

    assert told(record_of(taking(replace(LONG, source="meter")))).endswith("\nmeter, other work included")  # of a file that another version wrote


def test_a_contended_run_says_that_the_other_lane_is_in_it():
    assert told(record_of(taking(LONG), taking(LONG, alone=False))).endswith("other work included, that of lanes at work meanwhile too")


def test_short_runs_are_a_figure_together_and_a_single_one_says_that_it_is_too_short():
    assert told(record_of(*[taking(SHORT)] * 60)).startswith("40.0 J an answer (± 1.7 %, n 60)")
    assert told(record_of(taking(SHORT))) == (
        "n/a (100 ms is too short for its counter, which may move only every 100 ms; ask for longer answers, or for more repeats)"
    )
    assert "n/a (3 runs of 300 ms together are too short" in told(record_of(*[taking(SHORT)] * 3))
    assert record_of(taking(SHORT)).lanes["cuda:nf4"].energy_j is None and record_of(*[taking(SHORT)] * 60).lanes["cuda:nf4"].energy_j == 40


@pytest.mark.parametrize(
    ("runs", "facts", "reason"),
    [
        ([taking(None)], {"unmeasured": {"energy": "there is none here"}}, "there is none here"),
        ([taking(None)], {}, "not measured"),
        ([taking(Energy(0.0, 9.0, None, "rapl", 0.01))], {}, "its counter does not move"),
        ([taking(LONG, finish_reason="stopped")], {}, "stopped before its end"),
        ([Progress(0.0, "failed", error="It died.")], {}, "the run failed"),
    ],
)
def test_without_a_figure_there_is_the_reason(runs, facts, reason):
    assert told(record_of(*runs, **facts)) == f"n/a ({reason})"


def test_a_server_elsewhere_has_none():
    lane = replace(record_of(taking(None)).lanes["cuda:nf4"], server="vLLM")
    assert why(lane, "energy") == "a server elsewhere"


def test_json_has_what_the_counter_said_and_csv_only_what_is_a_figure():
    record = record_of(taking(LONG), taking(SHORT), taking(None))
    first, _, last = (run["energy"] for run in as_json(record)["lanes"]["cuda:nf4"]["runs"])
    assert (
        first == {"joules": 100.0, "seconds": 2.0, "idle_watts": 75.0, "source": "nvml", "step_s": 0.1, "since_s": 3.0, "since_joules": 225.0} and last is None
    )
    rows = list(csv.DictReader(io.StringIO(to_csv([record]))))
    assert [row["energy_j"] for row in rows] == ["100.0", "", ""] and [row["energy_s"] for row in rows] == ["2.0", "0.1", ""]
    assert (rows[0]["energy_idle_watts"], rows[0]["energy_source"]) == ("75.0", "nvml")


def test_it_is_in_the_text_table_and_in_markdown():
    record = record_of(taking(LONG))
    assert "100 J an answer" in text_table(record, 200) and "100 J an answer" in markdown(record)
