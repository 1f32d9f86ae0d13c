"""Records, and a decision if there is one -> the report: one HTML file of text, style and drawings, that asks for nothing and runs nothing.

In: what was measured. Out: the file's text. The template escapes all it is given; the file's own policy allows its one style sheet and nothing else, no script, no
style of an element's own, no address. Knows no file and no page.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from inference.decide.model import Decision
from inference.record.export import SCHEMA
from inference.record.model import Record
from inference.record.scores import Quality
from inference.report import decision as decided
from inference.report import quality
from inference.report.answers import Answers
from inference.report.decision import CostLine
from inference.report.parts import Part, parts
from inference.units import count, seconds

HERE = Path(__file__).parent
UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")  # what no HTML file may hold
# `style-src` by the sheet's hash: an element that came with a text has no style, whatever it says
POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"


def html_report(
    records: Sequence[Record], decision: Decision | None = None, costs: Sequence[CostLine] = (), scored: Sequence[Quality] = ()
) -> str:  # fmt: skip
    """The report of these records; `costs` draw the decision's chart, `scored` is quality measured beside them. Whole for any number of records, none included."""
    style = (HERE / "report.css").read_text("utf-8")
    found = parts(records)
    text = _template().render(
        policy=POLICY.format(base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()),
        style=Markup(style),  # ours; the one text that is not escaped
        title=_title(found, decision), when=_when(records), prompts=count(_prompts(found), "prompt"),
        parts=[(part, Answers(part), told) for part, told in zip(found, quality.sections(found, scored), strict=True)],
        decision=decided.shown(decision, costs) if decision else None, schema=SCHEMA, seconds=seconds, percent=_percent,
    )  # fmt: skip
    return UNREADABLE.sub("\ufffd", text)


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.get_template("report.html")


def _title(found: Sequence[Part], decision: Decision | None) -> str:
    models = list(dict.fromkeys(part.model for part in found))
    return (decision.model if decision else "") or ", ".join(models) or "Nothing measured"


def _prompts(found: Sequence[Part]) -> int:
    """How many prompts were asked; one that each of several sets of lanes was asked is one."""
    asked: Counter[object] = Counter()
    for part in found:
        asked |= Counter((record.request.prompt, record.row) for record in part.records)
    return asked.total()


def _when(records: Sequence[Record]) -> str:
    """The day and time of the records, from the first to the last: "29 November 2026, 11:49 UTC"."""
    times = sorted(found for record in records if (found := _time(record.created)))
    if not times:
        return ""
    first, last = (f"{at.day} {at:%B %Y, %H:%M}" for at in (times[0], times[-1]))
    return f"{first} UTC" if first == last else f"{first} to {last if times[0].date() != times[-1].date() else f'{times[-1]:%H:%M}'} UTC"


def _time(created: str) -> datetime | None:
    """A record's time; None where what a file says is none."""
    try:
        return datetime.fromisoformat(created).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _percent(part: float) -> str:
    """A share as a length in a drawing."""
    return f"{100 * min(1.0, max(0.0, part)):.2f}%"
