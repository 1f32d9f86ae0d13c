"""What `compare` shows: who won first, each answer whole, six rows; never wider than the terminal, however many lanes and whatever the script."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference.cli.report import comparison
from inference.progress import Progress
from inference.record.scoreboard import TITLES
from inference.record.table import text_table
from inference.series import table
from inference.series.prompts import Prompt
from inference.series.series import Series
from inference.terminal import columns
from tests.support.records import ended, record_of

CHINESE = "我们有鸡肉、羊肉和蔬菜。" * 12
TWO = {"cpu_nf4": ended(5), "cpu_fp32": ended(10, (1, 2, 4))}
FOUR = {"cuda_nf4": ended(100), "cuda_bf16": ended(50), "cpu_nf4": ended(5), "cpu_fp32": ended(10)}
FAILED = {"cpu_nf4": Progress(0.0, "failed", "", 0, error="The lane's process was killed (signal 9)."), "cpu_fp32": ended(10)}


def saying(record, text):
    lanes = {name: replace(lane, runs=tuple(replace(run, text=text) for run in lane.runs)) for name, lane in record.lanes.items()}
    return replace(record, lanes=lanes)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("runs", [TWO, FOUR, FAILED], ids=["two", "four", "failed"])
@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_line_is_wider_than_the_terminal(width, runs, full):
    for text in (comparison(record_of(**runs), width, full), comparison(saying(record_of(**runs), CHINESE), width, full)):
        assert max(map(columns, text.split("\n"))) <= width


def test_the_verdict_is_first_the_answers_are_whole_and_six_rows_follow():
    answer = "First line.\n    indented = code\n" + "biryani " * 300 + "end"
    text = comparison(saying(record_of(**TWO), answer), 80)
    lines = text.split("\n")
    assert lines[0].startswith(TITLES[0]) and "FP32 writes 2.0× faster" in lines[0]
    assert text.count("      indented = code") == 2 and text.count("biryani") == 600
    rows = text.split("\n\n")[-1].split("\n")
    assert [row.split("  ")[0] for row in rows[1:]] == ["Speed", "First token", "Total", "Memory", "Size", "Quality"]
    assert "Dependencies" not in text and "Dependencies" in comparison(record_of(**TWO), 80, full=True)


def test_several_lanes_are_a_table_in_order_of_speed():
    head = comparison(record_of(**FOUR), 110).split("\n\n")[0].split("\n")
    assert [line.split(" on ")[0] for line in head[1:]] == ["4-bit NF4", "FP32", "FP32", "4-bit NF4"]


def test_a_narrow_terminal_has_a_block_a_lane():
    blocks = comparison(record_of(**TWO), 40).split("\n\n")[-2:]
    assert [block.split("\n")[0] for block in blocks] == ["4-bit NF4 on the CPU", "FP32 on the CPU"]
    assert all("  Speed        " in block and "tok/s" in block for block in blocks)


def test_a_lane_that_failed_says_why_where_its_answer_would_stand():
    text = comparison(record_of(**FAILED), 80)
    assert text.startswith("No winner: 4-bit failed.") and "  The lane's process was killed (signal 9)." in text


def test_an_answer_can_not_steer_the_terminal():
    text = comparison(saying(record_of(**TWO), "\x1b[2J\x1b]0;title\x07"), 80, full=True)
    assert "\x1b" not in text and "\\x1b[2J" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_file_of_prompts_fits_too_and_begins_with_how_far_it_came(width):
    series = Series([Prompt(1, "p")])
    series.records.append(saying(record_of(**TWO), CHINESE))
    text = table.text(series, width)
    assert "1 of 1 prompt done." in text.split("\n\n")[0] and max(map(columns, text.split("\n"))) <= width


def test_the_full_table_stands_in_its_width_too():
    assert max(map(columns, text_table(record_of(**FOUR), 100).split("\n"))) <= 100
