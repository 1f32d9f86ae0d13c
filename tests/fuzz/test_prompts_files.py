"""A prompts file of any bytes is rows and what was left out, which add up, or a sentence; csv and jsonl of the same rows agree."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from inference.errors import WrongArguments
from inference.events import Request
from inference.series.prompts import KINDS, read_prompts
from tests.support.hostile import damaged, texts, tries, values, whole_texts

GOOD = b'prompt,expected\n"two\nlines",x\nplain,\n'
pieces = st.lists(
    st.one_of(st.binary(max_size=8), st.sampled_from([b"\n", b"\r\n", b"\r", b",", b'"', b"prompt", b"{", b"\xef\xbb\xbf", b"\x00", b"\xff"])), max_size=20
)
files = st.one_of(st.binary(max_size=80), pieces.map(b"".join), pieces.map(lambda found: b"prompt\n" + b"".join(found)), damaged(GOOD))
objects = st.lists(st.one_of(values, st.fixed_dictionaries({"prompt": st.one_of(texts, values)}, optional={"expected": values})), max_size=6)


def read(kind: str, data: bytes):
    """The rows, and how many were left out; None for a file that is refused in a sentence."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{kind}"
        path.write_bytes(data)
        try:
            prompts, left_out = read_prompts(path)
        except WrongArguments as error:
            assert str(error).startswith(("a.", "The csv file")) and str(error).endswith(".")
            return None
    for prompt in prompts:
        Request(prompt.text).check()
        (prompt.expected or "").encode("utf-8")
    assert len(left_out.words()) <= 21 and [row.line for row in prompts] == sorted({row.line for row in prompts})
    return prompts, left_out.count


@given(st.sampled_from(KINDS), files)
@tries(100)
def test_any_bytes_are_rows_or_a_sentence(kind, data):
    found = read(kind, data)
    if found and kind != ".csv":
        lines = re.split("\r\n|\r|\n", data.decode("utf-8-sig", "surrogateescape"))
        assert len(found[0]) + found[1] == sum(bool(line.strip()) for line in lines)


@given(objects)
@tries(100)
def test_every_line_of_a_jsonl_is_a_row_or_left_out(rows):
    found = read(".jsonl", "\n".join(json.dumps(row) for row in rows).encode())
    assert found is None or len(found[0]) + found[1] == len(rows)


@given(st.lists(st.tuples(st.one_of(whole_texts, texts), st.one_of(st.none(), texts)), min_size=1, max_size=6))
@tries(80)
def test_csv_and_jsonl_of_the_same_rows_agree(rows):
    rows = [*json.loads(json.dumps(rows)), ("last", "one")]  # JSON joins two halves of a character; blank rows at a csv's end are none
    table = io.StringIO()
    writer = csv.writer(table, quoting=csv.QUOTE_ALL)
    writer.writerows([("prompt", "expected"), *rows])
    of_csv = read(".csv", table.getvalue().encode("utf-8", "surrogatepass"))
    of_jsonl = read(".jsonl", "\n".join(json.dumps({"prompt": prompt, "expected": expected}) for prompt, expected in rows).encode())
    assert of_csv and of_jsonl and of_csv[1] == of_jsonl[1]
    assert [(row.text, row.expected) for row in of_csv[0]] == [(row.text, row.expected) for row in of_jsonl[0]]
