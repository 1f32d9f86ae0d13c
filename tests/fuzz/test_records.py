"""A record of hostile texts keeps every one of them in each format; a changed record is told as damaged, or is one that every format can show."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from inference.cli import report as terminal_report
from inference.errors import WrongArguments
from inference.progress import Progress
from inference.record.export import COLUMNS, FORMULA_SIGNS, as_json, export, to_csv, to_json
from inference.record.model import Record, Row
from inference.record.read import Held, read
from inference.report.html import UNREADABLE, html_report
from inference.terminal import columns
from tests.support.hostile import changed, texts, tries, whole_texts
from tests.support.records import ended, record_of, saying

DIED = Progress(0.0, "failed", "half", 3, prompt_ids=(1, 2), error="It died.", t_first_s=0.25, t_last_s=0.75)
VALID = as_json(replace(record_of(cpu_nf4=ended(5), cpu_fp32=[ended(10), DIED]), row=Row(3, "abc")))
UNREADABLE_ANSWER = record_of(cpu_nf4=[saying("\t\x0b"), DIED], cpu_fp32=saying("b"))  # it failed, so the last run is shown
ACTIVE = {"script", "iframe", "object", "embed", "img", "form", "link", "base", "video", "audio"}


@st.composite
def hostile_records(draw, text=whole_texts) -> Record:
    """A record whose every text that a model, a visitor or a checkpoint writes is hostile."""
    left, right, prompt, system, name, error = (draw(text) for _ in range(6))
    record = record_of(cpu_nf4=[saying(left), replace(DIED, error=error)], cpu_fp32=saying(right, ids=(1, 2, 4)))
    lanes = {key: replace(lane, model_id=name, note=draw(text), files=(draw(text),), unmeasured={draw(text): draw(text)}) for key, lane in record.lanes.items()}
    request = replace(record.request, prompt=prompt, system=system)
    row = Row(draw(st.integers(1, 9)), draw(st.one_of(st.none(), text))) if draw(st.booleans()) else None
    return replace(record, lanes=lanes, request=request, row=row, model=replace(record.model, id=name, note=draw(text), adapter=draw(text)))


def held_in(value) -> Held:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_bytes((value if isinstance(value, str) else json.dumps(value)).encode("utf-8", "backslashreplace"))
        return read(path)


class Page(HTMLParser):
    """The elements of a report, and its text with nothing but the words' order kept."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.data, self.styled = set(), [], False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes) -> None:
        self.styled = tag == "style"
        self.tags.add(tag)
        assert not any(name.startswith("on") or (name == "href" and not value.startswith("#")) for name, value in attributes)  # only to its own prompts

    def handle_data(self, data) -> None:
        self.data += [] if self.styled else [data]


@given(hostile_records(texts))
@example(record_of(cpu_fp32=saying("\ud800\udc00")))  # two halves are one character to JSON
@tries(60)
def test_json_is_read_back_as_it_was(record):
    (found,) = held_in(to_json([record])).records
    assert as_json(found) == json.loads(json.dumps(as_json(record)))


@given(st.lists(hostile_records(), min_size=1, max_size=2))
@tries(50)
def test_csv_has_a_row_a_run_every_text_whole_and_no_formula(records):
    rows = list(csv.reader(io.StringIO(to_csv(records), newline="")))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 1 + 3 * len(records) and {len(row) for row in rows} == {len(COLUMNS)}
    assert not any(cell.startswith(FORMULA_SIGNS) for row in rows for cell in row)
    asked = [(record.request.prompt, run.text) for record in records for lane in record.lanes.values() for run in lane.runs]
    found = [dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]]
    for (prompt, text), row in zip(asked, found, strict=True):
        assert row["prompt"].removeprefix("'") == prompt.removeprefix("'") and row["text"].removeprefix("'") == text.removeprefix("'")


@given(hostile_records())
@example(UNREADABLE_ANSWER)
@tries(25)
def test_a_report_is_one_page_without_anything_active_that_holds_every_answer(record):
    page = Page(html_report([record]))
    assert not page.tags & ACTIVE
    words = "".join("".join(page.data).split())
    for lane in record.lanes.values():
        for text in (record.request.prompt, lane.shown_run.text):
            assert "".join(UNREADABLE.sub("\ufffd", text).split()) in words


@given(hostile_records(), st.integers(20, 200), st.booleans())
@tries(40)
def test_a_terminal_shows_no_control_character_and_no_wider_line(record, width, full):
    shown = terminal_report.comparison(record, width, full)
    assert not any(sign < " " and sign != "\n" or "\x7f" <= sign <= "\x9f" or sign in "\u202d\u202e" for sign in shown)
    assert all(columns(line) <= width for line in shown.split("\n"))


@given(st.one_of(changed(VALID), changed({"schema": "gpu-vs-cpu-prompts/2", "records": [VALID, VALID]})))
@tries(80)
def test_a_changed_record_is_told_or_can_be_shown_in_every_format(value):
    try:
        held = held_in(value)
    except WrongArguments as error:
        assert "a.json" in str(error)
        return
    for format in ("json", "csv", "markdown"):
        assert export(held.records, format)
    for record in held.records:
        assert as_json(held_in(to_json([record])).records[0]) == as_json(record)
        assert terminal_report.comparison(record, 80, True)
    if held.records:
        assert html_report(held.records)
