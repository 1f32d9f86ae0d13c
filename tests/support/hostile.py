"""Values that nobody foresaw, for property-based tests: texts, JSON, bytes, and a valid JSON with some places changed.

`FUZZ=N` tries N inputs a property instead of some tens, anew each time; without it the same ones are tried at every run.
"""

from __future__ import annotations

import copy
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TRIED = int(os.environ.get("FUZZ", "0"))
CALM = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much]
NASTY = (
    "", " ", "\x00", "\n", "\r", "\r\n", "\u2028", "\x85", "\ufeff", "=1+1", "'=1", '"', "a,b", "`", "|", "</script><script>alert(1)</script>", "<b>", "&lt;", "{{ 7 * 7 }}",
    "{% raw %}", "%s%n", "\x1b[31mred", "\u202eabc", "عربي", "漢字", "e\u0301" * 9, "👩‍👩‍👧", "\ud800", "\udcff", "a\ud83d", "../../etc", "~root", "-x", "--json", "NaN",
    "1e999", "٣", "x" * 3000, "\t\x0b\x0c", "\\", "${HOME}", "[a](javascript:1)", "<!--", "]]>", "\x7f", "\ufffe",
)  # fmt: skip
NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63, -(2**63), 10**40, 0.0, -0.0, 1e-310, 1e308, float("inf"), float("-inf"), float("nan"), 0.5)

texts = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=[]), max_size=40), st.lists(st.sampled_from(NASTY), max_size=4).map("".join))
whole_texts = texts.filter(lambda text: not any("\ud800" <= sign <= "\udfff" for sign in text))
numbers = st.one_of(st.sampled_from(NUMBERS), st.integers(), st.floats())
plain = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(plain, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)), max_leaves=8)


def tries(few: int):
    """How many inputs a property is tried with: `few`, or FUZZ."""
    return settings(
        max_examples=TRIED or few, derandomize=not TRIED, deadline=None, database=None, suppress_health_check=CALM, print_blob=False, report_multiple_bugs=True
    )


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every place in a JSON value, itself included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way, *(place for key, each in inner for place in places(each, (*way, key)))]


@st.composite
def changed(draw, value: Any, most: int = 3) -> Any:
    """A JSON value with up to `most` places replaced by something else, or gone."""
    made = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, most))):
        way = draw(st.sampled_from(places(made)))
        if not way:
            made = draw(values)
            continue
        holder = made
        for key in way[:-1]:
            holder = holder[key]
        if draw(st.booleans()) and draw(st.booleans()):
            del holder[way[-1]]
        else:
            holder[way[-1]] = draw(values)
    return made


@st.composite
def damaged(draw, data: bytes) -> bytes:
    """Bytes cut short, with some changed, or with others in their midst."""
    at = draw(st.integers(0, len(data)))
    how = draw(st.sampled_from(["cut", "flip", "insert"]))
    if how == "cut":
        return data[:at]
    more = draw(st.binary(min_size=1, max_size=12))
    return data[:at] + more + data[at + (len(more) if how == "flip" else 0) :]
