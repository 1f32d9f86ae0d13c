"""A record -> what its charts draw, and the same in words for those who don't see them. Needs pandas, imported at the first chart.

Tokens over time for all lanes, on a logarithmic time axis where their totals differ by more than 10 times (Gradio's
plots have no such axis: the logarithm is drawn, and the axis says so); bars for the key figures. Knows no component.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inference.record.lanes import DEVICES, ENDED, held, shown_run
from inference.units import UNKNOWN, rate, seconds, size

if TYPE_CHECKING:
    import pandas

COLOURS = {"cuda:nf4": "#7c83f7", "cpu:nf4": "#7c83f7", "cpu:fp32": "#d98a1f", "cuda:bf16": "#0d9f92"}
SECOND_4BIT = "#d6569a"
LOG_FROM = 10.0
LOG_NOTE = "The time axis is logarithmic, because the totals differ by more than 10 times: -2 is 10 ms, -1 is 0.1 s, 0 is 1 s, 1 is 10 s."
MIB, GIB = 2.0**20, 2.0**30


@dataclass(frozen=True)
class Chart:
    """One chart: its data, its axis titles, and the colour of each lane that is in it."""

    frame: pandas.DataFrame
    x_title: str
    y_title: str
    title: str
    colours: dict[str, str] = field(default_factory=dict)


def label(name: str, lane: dict[str, Any]) -> str:
    """A lane's name in a chart, short enough for an axis: "NF4 · CPU"."""
    device = DEVICES.get(lane["device"] or name.split(":")[0], "?")
    return f"{lane['precision'] or name.split(':')[-1].upper()} · {device}"


def colours(record: dict[str, Any]) -> dict[str, str]:
    """A colour for each lane, the same in every chart and for every comparison of the same lanes."""
    both = {"cuda:nf4", "cpu:nf4"} <= set(record["lanes"])
    return {label(name, lane): SECOND_4BIT if both and name == "cpu:nf4" else COLOURS.get(name, "#888888") for name, lane in record["lanes"].items()}


def _shown(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The run to show of each lane that gave a token, by label."""
    runs = {label(name, lane): shown_run(lane) for name, lane in record["lanes"].items()}
    return {name: run for name, run in runs.items() if run and run["token_times_s"]}


def logarithmic(record: dict[str, Any]) -> bool:
    """Whether the spans from start to last token differ by more than 10 times."""
    totals = [run["total_s"] or run["token_times_s"][-1] for run in _shown(record).values()]
    return len(totals) > 1 and max(totals) / min(totals) > LOG_FROM


def tokens_over_time(record: dict[str, Any]) -> Chart:
    """Each lane's tokens against the time since its start, one point a token, of its last run."""
    import pandas

    log = logarithmic(record)
    rows = [(math.log10(max(t_s, 1e-4)) if log else t_s, n, name) for name, run in _shown(record).items() for n, t_s in enumerate(run["token_times_s"], 1)]
    title = "log10 of seconds" if log else "Seconds since the start"
    return Chart(pandas.DataFrame(rows, columns=["time", "tokens", "lane"]), title, "Tokens", "Tokens over time", colours(record))


def bars(record: dict[str, Any]) -> list[Chart]:
    """First token, speed, load, memory and weights: one bar a lane; a lane without the figure has none."""
    lanes = {label(name, lane): lane for name, lane in record["lanes"].items()}
    memory = {name: held(lane)[1] for name, lane in lanes.items()}
    weights = {name: lane["weights_bytes"] for name, lane in lanes.items()}
    return [
        _bar(record, "First token", "Seconds", {name: lane["median"]["ttft_s"] for name, lane in lanes.items()}),
        _bar(record, "Speed", "Tokens a second", {name: lane["median"]["decode_tps"] for name, lane in lanes.items()}),
        _bar(record, "Load", "Seconds", {name: (lane["load"] or {}).get("total_s") for name, lane in lanes.items()}),
        _sized(record, "Memory held", memory, ", VRAM or RAM"),
        _sized(record, "Weights", weights),
    ]


def _sized(record: dict[str, Any], title: str, values: dict[str, int | None], kind: str = "") -> Chart:
    unit, word = (GIB, "GiB") if max((value or 0 for value in values.values()), default=0) >= GIB else (MIB, "MiB")
    return _bar(record, title, word + kind, {name: None if value is None else value / unit for name, value in values.items()})


def _bar(record: dict[str, Any], title: str, unit: str, values: dict[str, float | None]) -> Chart:
    import pandas

    rows = [(name, round(value, 4)) for name, value in values.items() if value is not None]
    return Chart(pandas.DataFrame(rows, columns=["lane", "value"]), "", unit, title, colours(record))


def in_words(record: dict[str, Any]) -> str:
    """All numbers of the charts, a Markdown list with an item a lane."""
    lines = []
    for name, lane in record["lanes"].items():
        run = shown_run(lane)
        times = run["token_times_s"] if run else []
        end = "stopped after" if run and run["finish_reason"] not in ENDED else "all after"
        halfway = f", half of its {len(times)} tokens after {seconds(times[(len(times) - 1) // 2])}" if len(times) > 1 else ""
        kind, value = held(lane)
        lines.append(
            f"- **{label(name, lane)}**: first token {seconds(lane['median']['ttft_s'])}{halfway}, {end} {seconds(times[-1] if times else None)}; "
            f"{rate(lane['median']['decode_tps'])}; load {seconds((lane['load'] or {}).get('total_s'))}; "
            f"{kind} {size(value) if value is not None else UNKNOWN}; weights {size(lane['weights_bytes'])}"
        )
    note = f"{LOG_NOTE}\n\n" if logarithmic(record) else ""
    return f"{note}The charts in numbers (an unknown one is {UNKNOWN}, the table says why).\n\n" + "\n".join(lines)
