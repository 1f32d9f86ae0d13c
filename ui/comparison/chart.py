"""A record -> the one chart and the six rows under the answers, as HTML that is safe inside `gr.HTML`.

The race: a bar a lane on one linear axis of time, from a lane's beginning with the prompt to its last token, its pale part the wait for the first word, a mark
every so many tokens. The rows: each figure as a number and a bar in the lane's colour. Everything else is in the details.
"""

from __future__ import annotations

from inference.record.figures import MEMORY, Figure
from inference.record.missing import ELSEWHERE, why
from inference.record.model import LaneRecord, Record
from inference.record.scores import NoQuality, Quality
from inference.record.verdict import reference_of
from inference.report.charts import FIGURES, RaceBar, heading, race, unsure, value
from inference.units import UNKNOWN, count, seconds, share
from ui.badge import about, colour, escape

LAST = 0.9  # of the axis: from there on a label stands before its mark


def measured(record: Record) -> str:
    """The section: race and rows."""
    return f"{_race(record)}{_rows(record)}"


# ---- the race


def _race(record: Record) -> str:
    if not (drawn := race(record)):
        return ""
    longest = drawn.longest_s
    bars = "".join(_bar(record, bar, longest) for bar in drawn.bars)
    ticks = "".join(
        f'<span{" class=last" if at > LAST * longest else ""} style="left:{100 * at / longest:.2f}%">{escape(seconds(at) if at else "0")}</span>'
        for at in drawn.ticks
    )
    return (
        f'<figure class="race" aria-label="The race over time"><figcaption><strong>The race</strong> {escape(drawn.words)} '
        f'<span class="key"><i class="wait"></i> waiting for the first word <i class="write"></i> writing</span></figcaption>'
        f'<ol>{bars}</ol><div class="axis" aria-hidden="true">{ticks}</div></figure>'
    )


def _bar(record: Record, bar: RaceBar, longest: float) -> str:
    marks = "".join(f'<i style="left:{100 * at:.2f}%"></i>' for at in bar.marks)
    return (
        f'<li class="{colour(bar.lane, record.lanes)}"><span class="race-name">{escape(heading(bar.lane, record.lanes[bar.lane]))}</span>'
        f'<span class="track"><span class="bar" style="width:{100 * bar.end_s / longest:.2f}%"><b style="width:{100 * bar.first_s / bar.end_s:.2f}%"></b>{marks}</span></span>'
        f'<span class="race-words">{escape(bar.words)}</span></li>'
    )


# ---- the rows


def _rows(record: Record) -> str:
    heads = "".join(f'<th scope="col" class="{colour(name, record.lanes)}">{escape(heading(name, lane))}</th>' for name, lane in record.lanes.items())
    rows = "".join(_row(record, figure, title) for figure, title in FIGURES)
    quality = "".join(f"<td>{escape(_quality(record, name))}</td>" for name in record.lanes)
    return (
        f'<div class="key-rows"><table><caption class="unseen">What was measured, a column a lane</caption><thead><tr><td></td>{heads}</tr></thead>'
        f'<tbody>{rows}<tr><th scope="row">{about("Quality")}</th>{quality}</tr></tbody></table></div>'
    )


def _row(record: Record, figure: Figure, title: str) -> str:
    values = {name: value(figure, lane) for name, lane in record.lanes.items()}
    largest = max((each for each in values.values() if each), default=0.0)
    cells = "".join(_cell(record.lanes[name], figure, found, largest, colour(name, record.lanes)) for name, found in values.items())
    return f'<tr><th scope="row">{about(title)}</th>{cells}</tr>'


def _cell(lane: LaneRecord, figure: Figure, found: float | None, largest: float, lane_colour: str) -> str:
    if not found:
        return f"<td>{escape(f'{UNKNOWN}: {why(lane, figure.key)}')}</td>"
    kind = f" {lane.memory_kind}" if figure is MEMORY else ""
    return (
        f'<td class="{lane_colour}"><span class="value">{escape(figure.words(found))}</span>{escape(kind + unsure(figure, lane))}'
        f'<span class="cell-bar" aria-hidden="true"><i style="width:{100 * found / largest:.1f}%"></i></span></td>'
    )


def _quality(record: Record, name: str) -> str:
    found = record.quality
    if record.lanes[name].elsewhere:
        return f"{UNKNOWN}: {ELSEWHERE}"
    if name == (found.reference if isinstance(found, Quality) else reference_of(record.lanes)):
        return "the reference"
    if isinstance(found, NoQuality):
        return f"{UNKNOWN}: {found.error}"
    if found is None or name not in found.lanes:
        return "not compared yet"
    figures = found.lanes[name]
    few = "" if found.figures.enough else f", on {count(found.figures.positions, 'position')} only"
    return f"{share(figures.top1_agreement)} the same first choice{few}"
