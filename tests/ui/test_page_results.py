"""The page under and beside the answers, in headless Chromium over fake lanes: table and charts."""

from __future__ import annotations

import subprocess
import sys

from inference.child import ROOT
from inference.progress import Progress
from tests.support.records import ended, record_of
from tests.support.tab_pages import compare
from ui import charts

# ---- results


def test_after_a_comparison_the_page_shows_table_summary_charts_and_their_numbers(open_tab):
    tab = open_tab()
    assert not tab.page.locator("#results").is_visible()
    compare(tab)
    table = tab.page.locator("#table").text_content()
    for row in ("Code to load", "Startup time", "Decode speed", "n/a (this lane uses no GPU)", "not measured", "python -m inference quality"):
        assert row in table, row
    assert "times" in tab.page.locator("#summary").text_content()
    tab.page.locator("#tokens-over-time svg, #tokens-over-time canvas").first.wait_for()
    assert "first token" in tab.page.locator("#charts-in-words").text_content()


# ---- without a browser


def test_the_time_axis_is_logarithmic_only_where_totals_differ_by_more_than_ten_times():
    near, far = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)), record_of(cuda_nf4=ended(100), cpu_fp32=ended(1, total=10.0))
    assert not charts.logarithmic(near) and charts.logarithmic(far)
    assert charts.tokens_over_time(near).frame["time"].tolist()[:3] == [0.1, 0.2, 0.3]
    assert abs(charts.tokens_over_time(far).frame["time"][0] + 1) < 1e-9 and "logarithmic" in charts.in_words(far)


def test_four_lanes_have_four_colours():
    record = record_of(cuda_nf4=ended(100), cuda_bf16=ended(200), cpu_nf4=ended(20), cpu_fp32=ended(10))
    assert len(set(charts.colours(record).values())) == 4
    assert all(len(chart.frame) == 4 for chart in charts.bars(record)[:3])


def test_the_charts_in_words_tell_how_each_run_ended_and_what_a_failed_one_got_to():
    failed = Progress(0.0, "failed", "half", 3, prompt_ids=(1, 2), error="It died.", t_first_s=0.25, t_last_s=0.75)
    words = charts.in_words(record_of(cpu_nf4=failed, cuda_nf4=Progress(0.0, "failed", error="No."), cpu_fp32=ended(10, reason="length"))).splitlines()
    assert any("first token 250 ms, end after 750 ms: failed (not counted); 4.00 tok/s; load" in line for line in words)
    assert any("first token n/a, end before the first token: failed (not counted)" in line for line in words)
    assert any("end after 300 ms: cut at the token limit;" in line for line in words)
    assert not any("stopped after" in line or "all after" in line for line in words)


def test_the_pages_process_imports_no_torch_even_for_its_results():
    look = (
        "import app, sys; sys.path.insert(0, 'tests'); from tests.support.records import record_of, ended; from ui import charts; "
        "from inference.record.export import export; r = record_of(cpu_nf4=ended(5), cpu_fp32=ended(10)); charts.bars(r); export([r], 'markdown'); "
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"], done.stderr
