"""A record -> what its charts draw, and the same in words for those who don't see them. Needs pandas, imported at the first chart.

Tokens over time for all lanes, on a logarithmic time axis where their totals differ by more than 10 times (Gradio's
plots have no such axis: the logarithm is drawn, and the axis says so); bars for the key figures. Knows no component.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inference import ends
from inference.lanes import CPU_FP32, CPU_NF4, CUDA_BF16, CUDA_NF4, LaneName, short_title
from inference.record.figures import FIRST_TOKEN, LOAD, MEMORY, SPEED, WEIGHTS, Figure
from inference.record.model import LaneRecord, Record, RunRecord
from inference.units import UNKNOWN, seconds, size

if TYPE_CHECKING:
    import pandas

COLOURS = {str(CUDA_NF4): "#7c83f7", str(CPU_NF4): "#7c83f7", str(CPU_FP32): "#d98a1f", str(CUDA_BF16): "#0d9f92"}
BARS = (FIRST_TOKEN, SPEED, LOAD, MEMORY, WEIGHTS)
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


def label(name: str, lane: LaneRecord) -> str:
    """A lane's name in a chart: "4-bit NF4 · CPU"; its configured one where it was never loaded."""
    asked = LaneName.parse(name)
    return short_title(lane.precision or asked.precision, lane.device or asked.device)


def colours(record: Record) -> dict[str, str]:
    """A colour for each lane, the same in every chart and for every comparison of the same lanes."""
    both = {str(CUDA_NF4), str(CPU_NF4)} <= set(record.lanes)
    return {label(name, lane): SECOND_4BIT if both and name == str(CPU_NF4) else COLOURS.get(name, "#888888") for name, lane in record.lanes.items()}


def _shown(record: Record) -> dict[str, RunRecord]:
    """The run to show of each lane that gave a token, by label."""
    runs = {label(name, lane): lane.shown_run for name, lane in record.lanes.items()}
    return {name: run for name, run in runs.items() if run and run.token_times_s}


def logarithmic(record: Record) -> bool:
    """Whether the spans from start to last token differ by more than 10 times."""
    totals = [run.total_s or run.token_times_s[-1] for run in _shown(record).values()]
    return len(totals) > 1 and max(totals) / min(totals) > LOG_FROM


def tokens_over_time(record: Record) -> Chart:
    """Each lane's tokens against the time since its start, one point a token, of its last run."""
    import pandas

    log = logarithmic(record)
    rows = [(math.log10(max(t_s, 1e-4)) if log else t_s, n, name) for name, run in _shown(record).items() for n, t_s in enumerate(run.token_times_s, 1)]
    title = "log10 of seconds" if log else "Seconds since the start"
    return Chart(pandas.DataFrame(rows, columns=["time", "tokens", "lane"]), title, "Tokens", "Tokens over time", colours(record))


def bars(record: Record) -> list[Chart]:
    """First token, speed, load, memory and weights: one bar a lane; a lane without the figure has none."""
    return [_bar(record, figure) for figure in BARS]


def _bar(record: Record, figure: Figure) -> Chart:
    import pandas

    values = {label(name, lane): figure.read(lane) for name, lane in record.lanes.items()}
    unit, word = _scale(figure, max((value or 0 for value in values.values()), default=0))
    rows = [(name, round(value / unit, 4)) for name, value in values.items() if value is not None]
    better = "more" if figure.more_is_better else "less"
    return Chart(pandas.DataFrame(rows, columns=["lane", "value"]), "", word, f"{figure.title}: {better} wins", colours(record))


def _scale(figure: Figure, largest: float) -> tuple[float, str]:
    """What to divide a figure by, and the axis's word for it: sizes are drawn in MiB or GiB."""
    if figure.words is not size:
        return 1.0, figure.unit
    unit, word = (GIB, "GiB") if largest >= GIB else (MIB, "MiB")
    return unit, f"{figure.unit} in {word}"


def _end(run: RunRecord | None) -> str:
    """When the shown run had its last token, and how it ended."""
    if run is None:
        return f"end {UNKNOWN}"
    when = "before the first token" if run.total_s is None else f"after {seconds(run.total_s)}"
    return f"end {when}: {ends.WORDS[run.finish_reason]}{'' if run.counted else ' (not counted)'}"


def in_words(record: Record) -> str:
    """All numbers of the charts, a Markdown list with an item a lane."""
    lines = []
    for name, lane in record.lanes.items():
        run = lane.shown_run
        measured = lane.median if lane.n or run is None else run  # as in the table: what a run that does not count got to
        times = run.token_times_s if run else ()
        halfway = f", half of its {len(times)} tokens after {seconds(times[(len(times) - 1) // 2])}" if len(times) > 1 else ""
        lines.append(
            f"- **{label(name, lane)}**: first token {FIRST_TOKEN.words(measured.ttft_s)}{halfway}, {_end(run)}; "
            f"{SPEED.words(measured.decode_tps)}; load {LOAD.words(LOAD.read(lane))}; "
            f"{lane.memory_kind} {MEMORY.words(MEMORY.read(lane))}; weights {WEIGHTS.words(WEIGHTS.read(lane))}"
        )
    note = f"{LOG_NOTE}\n\n" if logarithmic(record) else ""
    return f"{note}The charts in numbers (an unknown one is {UNKNOWN}, the table says why).\n\n" + "\n".join(lines)
