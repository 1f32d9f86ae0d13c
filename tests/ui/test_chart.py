"""The race and the six rows: widths, marks and ticks; a run that failed, values that don't count, kinds of memory; no browser."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from inference.events import Ram, Vram
from inference.progress import Progress
from inference.record.figures import FIGURES as ALL_FIGURES
from inference.record.scores import Figures, NoQuality, Quality
from inference.report import charts
from inference.timing import Timings
from tests.support.records import ended, record_of
from ui.comparison import chart

FAILED = Progress(0.0, "failed", "half", 3, prompt_ids=(1, 2), error="It died.", t_first_s=0.25, t_last_s=0.75)
DIED_AT_ONCE = Progress(0.0, "failed", error="No.")
FOUR = {"cuda_nf4": ended(100), "cuda_bf16": ended(200), "cpu_nf4": ended(20), "cpu_fp32": ended(10)}


def words(markup: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", markup))).strip()


def run(times: list[float], first: float | None = None) -> Progress:
    """A run whose tokens came at these times."""
    timings = Timings(first or times[0], 40.0, 0.1, 10.0, times[-1], tuple(times))
    base = ended(10, ids=range(len(times)))
    return replace(base, done=replace(base.done, timings=timings))


def bars(markup: str) -> list[tuple[str, float, float, str]]:
    """Each bar's colour, width, width of the wait in it (percents), and words."""
    found = re.findall(r'<li class="([^"]*)">.*?class="bar" style="width:([\d.]+)%"><b style="width:([\d.]+)%">.*?class="race-words">(.*?)</span></li>', markup)
    return [(colour, float(width), float(wait), words(told)) for colour, width, wait, told in found]


def row(markup: str, title: str) -> list[str]:
    """A row's cells."""
    for line in re.findall(r"<tr>(.*?)</tr>", markup):
        if words(re.search(r'<th scope="row">(.*?)</th>', line)[1] if 'scope="row"' in line else "") == title:
            return [words(cell) for cell in re.findall(r"<td.*?>(.*?)</td>", line)]
    raise AssertionError(f"no row {title}")


# ---- the race


def test_the_slowest_fills_the_axis_and_the_others_end_early():
    shown = bars(chart.measured(record_of(cuda_nf4=run([0.5, 1.0]), cpu_fp32=run([1.0, 4.0]))))
    assert shown[0] == ("of-4bit", 25.0, 50.0, "1.00 s for 2 tokens, first after 500 ms")
    assert shown[1] == ("of-fp32", 100.0, 25.0, "4.00 s for 2 tokens, first after 1.00 s")


def test_marks_stand_where_their_tokens_came():
    markup = chart.measured(record_of(cuda_nf4=run([n / 10 for n in range(1, 31)]), cpu_fp32=run([n / 5 for n in range(1, 31)])))
    assert "a mark every 5 tokens" in words(markup)
    left = [float(place) for place in re.findall(r'<i style="left:([\d.]+)%"', markup.split("</li>")[0])]
    assert left == pytest.approx([100 * n / 30 for n in (5, 10, 15, 20, 25)], abs=0.01)


@pytest.mark.parametrize(("tokens", "every"), [(0, 0), (2, 0), (3, 1), (12, 1), (13, 2), (50, 5), (128, 20), (4096, 500), (500_000, 50_000)])
def test_marks_are_few_and_round(tokens, every):
    assert charts.marks_every(tokens) == every
    assert not every or tokens / every <= charts.MOST_MARKS


@pytest.mark.parametrize("longest", [1e-290, 2e-6, 1e-5, 0.0042, 0.2, 0.999, 1.0, 4.9, 37, 59.9, 3600, 86_000, 2.6e10, 1e300])
def test_ticks_are_few_round_and_on_the_axis(longest):
    ticks = charts.ticks_of(longest)
    assert ticks[0] == 0 and ticks[-1] <= longest and 3 <= len(ticks) <= charts.MOST_TICKS
    assert {f"{tick - before:.1e}"[0] for before, tick in zip(ticks, ticks[1:], strict=False)} <= set("125")


@pytest.mark.parametrize("longest", [5e-324, float("inf")])
def test_what_can_t_be_divided_has_no_tick_but_0(longest):
    assert charts.ticks_of(longest) == [0]


def test_a_run_that_failed_is_drawn_as_far_as_it_came_and_does_not_count():
    markup = chart.measured(record_of(cuda_nf4=ended(20), cpu_fp32=FAILED))
    assert bars(markup)[1] == ("of-fp32", 100.0, 33.33, "750 ms for 3 tokens, first after 250 ms (not counted)")
    assert row(markup, "Writing speed")[1] == "4.00 tok/s (not counted)" and row(markup, "First word")[1] == "250 ms (not counted)"


def test_one_that_never_wrote_has_no_bar_and_says_why_in_the_rows():
    markup = chart.measured(record_of(cuda_nf4=ended(20), cpu_fp32=DIED_AT_ONCE))
    assert len(bars(markup)) == 1 and row(markup, "Writing speed")[1] == "n/a: the run failed"
    assert "race" not in chart.measured(record_of(cuda_nf4=DIED_AT_ONCE, cpu_fp32=DIED_AT_ONCE)), "nothing ran: no race"


# ---- the rows


def test_six_rows_each_value_once_with_a_bar_of_its_share():
    markup = chart.measured(record_of(cuda_nf4=ended(20), cpu_fp32=ended(5)))
    assert len(re.findall('<th scope="row">', markup)) == 6
    assert row(markup, "Writing speed") == ["20.0 tok/s", "5.00 tok/s"]
    assert re.findall(r'cell-bar" aria-hidden="true"><i style="width:([\d.]+)%', markup)[:2] == ["100.0", "25.0"]


def test_memory_says_what_kind_it_is():
    gpu, cpu = ended(20), ended(5)
    gpu = replace(gpu, done=replace(gpu.done, vram=Vram(5 * 2**30, 4 * 2**30, 6 * 2**30)))
    cpu = replace(cpu, done=replace(cpu.done, ram=Ram(700 * 2**20, 300 * 2**20)))
    left, right = row(chart.measured(record_of(cuda_nf4=gpu, cpu_fp32=cpu)), "Memory")
    assert left.endswith("GiB VRAM reserved") and right == "700 MiB RAM peak"


def test_what_was_not_measured_says_why():
    assert row(chart.measured(record_of(cuda_nf4=ended(20), cpu_fp32=ended(5))), "Memory") == ["n/a: not measured", "n/a: the system gives no figure"]


def test_quality_is_told_or_why_not():
    scored = Figures(12, 0.5, 0.1, 0.4, 2.0, 3.0, 0.75, 0.1, 5.0, 6.0, 1.2, None)
    record = record_of(cuda_nf4=ended(20), cpu_fp32=ended(5))
    assert row(chart.measured(record), "Quality") == ["not compared yet", "the reference"]
    few = replace(record, quality=Quality(scored, "cpu:fp32", "cuda:nf4", "answer", 12, 1000, {"cuda:nf4": scored}))
    assert row(chart.measured(few), "Quality") == ["75 % the same first choice, on 12 positions only", "the reference"]
    assert row(chart.measured(replace(record, quality=NoQuality("Too short."))), "Quality") == ["n/a: Too short.", "the reference"]


def test_four_lanes_have_four_colours_the_same_in_race_and_rows():
    markup = chart.measured(record_of(**FOUR))
    colours = [colour for colour, *_ in bars(markup)]
    assert len(set(colours)) == 4 and re.findall(r'<th scope="col" class="([^"]*)"', markup) == colours


def test_what_is_drawn_is_part_of_the_one_list_of_figures():
    assert {figure for figure, _ in charts.FIGURES} <= set(ALL_FIGURES)


def test_hostile_text_of_a_fault_can_not_leave_its_cell():
    hostile = "${alert(1)}`<img src=x>"
    record = replace(record_of(cuda_nf4=ended(20), cpu_fp32=ended(5)), quality=NoQuality(hostile))
    markup = chart.measured(record)
    assert not set("${}`") & set(markup) and "<img" not in markup and hostile in words(markup)


def test_quality_has_the_reference_that_the_table_has_and_no_figure_without_a_reason():
    record = record_of(cuda_nf4=ended(20), cuda_bf16=ended(5), cpu_nf4=ended(5))
    bf16 = {name: replace(lane, precision="BF16") if name == "cuda:bf16" else lane for name, lane in record.lanes.items()}
    scored = Figures(1, 0.5, None, 0.4, 2.0, 3.0, 1.0, 0.0, 5.0, 6.0, 1.2, None)
    record = replace(record, lanes=bf16)
    assert row(chart.measured(record), "Quality") == ["not compared yet", "the reference", "not compared yet"]
    one = replace(record, quality=Quality(scored, "cuda:bf16", "cuda:nf4", "answer", 1, 1000, {"cuda:nf4": scored}))
    assert row(chart.measured(one), "Quality") == ["100 % the same first choice, on 1 position only", "the reference", "not compared yet"]
