"""A chart in plain characters: points where they belong, levels as lines, no line wider than was asked for."""

from __future__ import annotations

from inference.plot import ROWS, plot
from inference.units import seconds

WIDTH = 60


def rows_of(chart: str) -> list[str]:
    """The field of the chart, from the top, without the axis of y."""
    return [line.partition("|")[2] for line in chart.splitlines()[:ROWS]]


def at(chart: str, mark: str) -> list[tuple[int, int]]:
    """Where a letter stands: (column, row from the bottom)."""
    return [(column, ROWS - 1 - number) for number, row in enumerate(rows_of(chart)) for column, sign in enumerate(row) if sign == mark]


def test_each_series_has_a_letter_at_its_points_and_both_ends_of_the_axes_are_used():
    chart = plot({"cpu:fp32": [(16, 1.0), (64, 10.0), (256, 100.0)], "cpu:nf4": [(16, 2.0)]}, str, WIDTH, log_y=True)
    (left, low), (middle, half), (right, high) = sorted(at(chart, "a"))
    assert (left, low, high) == (0, 0, ROWS - 1) and abs(middle - right / 2) <= 1 and abs(half - high / 2) <= 1, "both axes are logarithmic"
    assert "a cpu:fp32, b cpu:nf4" in chart and len(at(chart, "b")) == 1
    assert chart.splitlines()[0].startswith("100.0 |") and chart.splitlines()[ROWS - 1].startswith("  1.0 |")
    assert "16" in chart.splitlines()[ROWS + 1] and "64" in chart.splitlines()[ROWS + 1] and "256" in chart.splitlines()[ROWS + 1]


def test_a_level_is_a_line_where_it_lies_within_and_none_beyond():
    chart = plot({"a lane": [(1, 0.5), (100, 5.0)]}, str, WIDTH, (1.0, 10.0), log_y=True)
    lines = [row for row in rows_of(chart) if "-" in row]
    assert len(lines) == 1 and "1.0 |-" in chart and "10.0" not in chart


def test_two_series_at_one_place_are_one_star_and_a_linear_axis_begins_at_nothing():
    chart = plot({"x": [(1, 10.0), (10, 5.0)], "y": [(1, 10.0), (10, 2.0)]}, str, WIDTH)
    assert at(chart, "*") == [(0, ROWS - 1)] and "* several" in chart
    assert dict(at(chart, "a"))[max(dict(at(chart, "a")))] == round((ROWS - 1) / 2) and chart.splitlines()[ROWS - 1].startswith(" 0.0 |")


def test_no_line_is_wider_than_the_terminal_and_one_point_or_none_is_no_fault():
    for width in (30, 80, 300):
        chart = plot({"endpoint:with-a-long-name": [(16, 1.0), (2048, 3.0)], "cpu:fp32": [(16, 1.0), (2048, 2.0)]}, str, width, (1.0,))
        assert max(map(len, chart.splitlines())) <= width
    assert plot({}, str, WIDTH) == "" == plot({"x": []}, str, WIDTH)
    assert len(at(plot({"x": [(5, 3.0)]}, str, WIDTH), "a")) == 1


def test_a_level_in_the_row_of_an_end_keeps_its_own_words():
    drawn = plot({"a": [(1, 0.01), (10, 1.01)]}, seconds, 80, (1.0,), log_y=True)
    assert drawn.splitlines()[0].startswith("1.00 s, 1.01 s |-")
