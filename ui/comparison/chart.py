"""A record -> the one chart and the six rows under the answers, as HTML that is safe inside `gr.HTML`.

The race: a bar a lane on one linear axis of time, from a lane's beginning with the prompt to its last token, its pale part the wait for the first word, a mark
every so many tokens. The rows: each figure as a number and a bar in the lane's colour. Everything else is in the details.
"""

from __future__ import annotations

from inference.lanes import LaneName, plain_title
from inference.record.figures import FIRST_TOKEN, MEMORY, SPEED, TOTAL, WEIGHTS, Figure
from inference.record.missing import ELSEWHERE, why
from inference.record.model import LaneRecord, Record, RunRecord
from inference.record.scores import NoQuality
from inference.units import UNKNOWN, count, seconds, share
from ui.badge import about, colour, escape

FIGURES = ((SPEED, "Writing speed"), (FIRST_TOKEN, "First word"), (TOTAL, "Total"), (MEMORY, "Memory"), (WEIGHTS, "Size"))
MOST_MARKS, MOST_TICKS = 12, 5
LAST = 0.9  # of the axis: from there on a label stands before its mark


def measured(record: Record) -> str:
    """The section: race and rows."""
    return f"{_race(record)}{_rows(record)}"


def _title(name: str, lane: LaneRecord) -> str:
    """A lane's name with its device, configured where it was never loaded."""
    if lane.server:
        return f"{lane.server} · server"
    asked = LaneName.parse(name)
    device = {"cuda": "GPU", "cpu": "CPU"}.get(lane.device or asked.device, "")
    return " · ".join(filter(None, [plain_title(lane.precision or asked.precision), device]))


# ---- the race


def _race(record: Record) -> str:
    runs = {name: lane.shown_run for name, lane in record.lanes.items()}
    longest = max((_end(run) for run in runs.values() if run), default=0.0)
    if not longest:
        return ""
    step = marks_every(max(run.new_tokens or 0 for run in runs.values() if run))
    bars = "".join(_bar(record, name, run, longest, step) for name, run in runs.items() if run and _end(run))
    ticks = "".join(
        f'<span{" class=last" if at > LAST * longest else ""} style="left:{100 * at / longest:.2f}%">{escape(seconds(at) if at else "0")}</span>'
        for at in ticks_of(longest)
    )
    marks = f"; a mark every {'token' if step == 1 else count(step)}" if step else ""
    told = f"Time from when a lane begins the prompt to its last token{marks}."
    return (
        f'<figure class="race" aria-label="The race over time"><figcaption><strong>The race</strong> {escape(told)} '
        f'<span class="key"><i class="wait"></i> waiting for the first word <i class="write"></i> writing</span></figcaption>'
        f'<ol>{bars}</ol><div class="axis" aria-hidden="true">{ticks}</div></figure>'
    )


def ticks_of(longest: float) -> list[float]:
    """Round numbers of seconds from 0 up to `longest`, three to six of them."""
    step = next(step * 10.0**power for power in range(-4, 7) for step in (1, 2, 5) if longest / (step * 10.0**power) < MOST_TICKS)
    return [step * i for i in range(int(longest / step) + 1)]


def _end(run: RunRecord) -> float:
    return run.total_s or (run.token_times_s[-1] if run.token_times_s else 0.0)


def marks_every(tokens: int) -> int:
    """Tokens between two marks: a round number that makes at most MOST_MARKS of them; 0 for an answer too short to need any."""
    steps = (step * 10**power for power in range(6) for step in (1, 2, 5))
    return 0 if tokens < 3 else next(step for step in steps if tokens / step <= MOST_MARKS)


def _bar(record: Record, name: str, run: RunRecord, longest: float, step: int) -> str:
    end, lane = _end(run), record.lanes[name]
    first = min(run.ttft_s or end, end)
    marks = "".join(f'<i style="left:{100 * run.token_times_s[n - 1] / end:.2f}%"></i>' for n in range(step, len(run.token_times_s), step)) if step else ""
    words = f"{seconds(end)} for {run.length}, first after {seconds(run.ttft_s)}" + ("" if run.counted else " (not counted)")
    return (
        f'<li class="{colour(name, record.lanes)}"><span class="race-name">{escape(_title(name, lane))}</span>'
        f'<span class="track"><span class="bar" style="width:{100 * end / longest:.2f}%"><b style="width:{100 * first / end:.2f}%"></b>{marks}</span></span>'
        f'<span class="race-words">{escape(words)}</span></li>'
    )


# ---- the rows


def _rows(record: Record) -> str:
    heads = "".join(f'<th scope="col" class="{colour(name, record.lanes)}">{escape(_title(name, lane))}</th>' for name, lane in record.lanes.items())
    rows = "".join(_row(record, figure, title) for figure, title in FIGURES)
    quality = "".join(f"<td>{escape(_quality(record, name))}</td>" for name in record.lanes)
    return (
        f'<div class="key-rows"><table><caption class="unseen">What was measured, a column a lane</caption><thead><tr><td></td>{heads}</tr></thead>'
        f'<tbody>{rows}<tr><th scope="row">{about("Quality")}</th>{quality}</tr></tbody></table></div>'
    )


def _row(record: Record, figure: Figure, title: str) -> str:
    values = {name: _value(figure, lane) for name, lane in record.lanes.items()}
    largest = max((value for value in values.values() if value), default=0.0)
    cells = "".join(_cell(record.lanes[name], figure, value, largest, colour(name, record.lanes)) for name, value in values.items())
    return f'<tr><th scope="row">{about(title)}</th>{cells}</tr>'


def _value(figure: Figure, lane: LaneRecord) -> float | None:
    """The median of the runs that count; where none does, what the last one got to."""
    run = lane.shown_run
    return getattr(run, figure.key, figure.read(lane)) if run and not lane.n else figure.read(lane)


def _cell(lane: LaneRecord, figure: Figure, value: float | None, largest: float, lane_colour: str) -> str:
    if not value:
        return f"<td>{escape(f'{UNKNOWN}: {why(lane, figure.key)}')}</td>"
    kind = f" {lane.memory_kind}" if figure is MEMORY else ""
    unsure = "" if lane.n or figure in (MEMORY, WEIGHTS) else " (not counted)"
    return (
        f'<td class="{lane_colour}"><span class="value">{escape(figure.words(value))}</span>{escape(kind + unsure)}'
        f'<span class="cell-bar" aria-hidden="true"><i style="width:{100 * value / largest:.1f}%"></i></span></td>'
    )


def _quality(record: Record, name: str) -> str:
    found = record.quality
    if isinstance(found, NoQuality):
        return f"{UNKNOWN}: {found.error}"
    if record.lanes[name].elsewhere:
        return f"{UNKNOWN}: {ELSEWHERE}"
    if found is None:
        return "the reference" if LaneName.parse(name).full else "not compared yet"
    if name not in found.lanes:
        return "the reference" if name == found.reference else UNKNOWN
    figures = found.lanes[name]
    few = "" if found.figures.enough else f", on {found.figures.positions} positions only"
    return f"{share(figures.top1_agreement)} the same first choice{few}"
