"""The page on ZeroGPU with the platform's own package: its worker is forked, the false device API lends it a card, and CUDA must not start."""

import importlib.util
import json
import subprocess
import sys

import pytest

from inference.events import Request
from inference.host.child import ROOT, environment
from inference.lane.text import Encoder
from tests.support.says import make_says
from tests.support.tiny import make_tokenizer
from tests.support.zero_scenario import LONG, TOKEN

pytestmark = pytest.mark.skipif(importlib.util.find_spec("spaces") is None, reason="the package spaces is not installed")
ANSWER = "ok i want two chicken biryani"
GPU, CPU = "cuda:nf4", "cpu:fp32"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What came of all that `zero_scenario` does, in a process of its own."""
    folder, tokenizer = tmp_path_factory.mktemp("zero"), make_tokenizer()
    words = tokenizer(ANSWER, add_special_tokens=False)["input_ids"]
    last = Encoder(tokenizer).encode(Request("hello good morning")).ids[-1]
    others = [token for token in range(260, 400) if token not in (last, *words)]
    make_says(folder / "says", tokenizer, [last, *words, *others])
    command = [sys.executable, "-m", "tests.support.zero_scenario", str(folder / "says"), str(folder / "cache")]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_importing_the_app_imports_the_platform_and_starts_no_cuda(found):
    assert found["modules"] == {"torch": True, "spaces": True} and found["cuda"] is False


def test_the_quantized_model_is_on_cuda_before_the_page_opens_with_all_its_states(found):
    assert found["card"] == {"devices": ["cuda:0"], "quantized": 14}


def test_the_platform_finds_a_decorated_function_when_the_page_opens(found):
    assert found["reported"] == ["/startup-report"]


def test_the_page_s_own_run_carries_the_visitor_s_identity_which_gradio_sends_with_queued_events_alone(found):
    assert found["press_waits_in_the_queue"] == [True]


def test_both_lanes_answer_and_what_the_gpu_lane_cannot_measure_is_said(found):
    for record in found["page"]:
        assert [record[lane]["text"] for lane in (GPU, CPU)] == [ANSWER, ANSWER]
        assert record[GPU]["kind"] == "cuda" and record[GPU]["decode_tps"] and record[GPU]["ram"] == {"rss_peak": None, "uss": None}
        assert "share their memory" in record[GPU]["unmeasured"]["ram"] and "lent for a run" in record[GPU]["unmeasured"]["energy"]
        assert set(record[CPU]["unmeasured"]) <= {"energy"}  # where the processor's counter can't be read


def test_a_run_is_counted_on_the_visitor_who_asked_and_asks_for_a_time_of_its_own(found):
    scheduled = [given for path, given in found["asked"] if path == "/schedule"]
    assert [given["token"] for given in scheduled] == [TOKEN, TOKEN]
    assert all(20 < int(given["durationSeconds"]) < 30 for given in scheduled)


def test_a_worker_that_has_answered_is_used_again(found):
    assert [path for path, _ in found["asked"]].count("/allow") == 1 and [record[GPU]["warm"] for record in found["page"]] == [False, True]


def test_the_cpu_lane_s_process_has_no_card_and_knows_of_no_platform(found):
    assert found["child"] == {"CUDA_VISIBLE_DEVICES": ""}


def test_a_used_up_quota_is_a_sentence_and_the_other_lane_goes_on(found):
    told = found["refused"][GPU]["error"]
    assert "exceeded your free ZeroGPU quota (21s requested vs. 12s left). Try again in 1:00:00" in told and told.count("ZeroGPU quota exceeded") == 1
    assert found["refused"][CPU]["text"] == ANSWER


@pytest.mark.parametrize(("what", "words"), [("killed", "ended this run's worker before the answer was complete"), ("too_long", "took longer than the 0 s")])
def test_a_worker_that_is_gone_is_a_sentence_its_text_is_kept_and_the_other_lane_goes_on(found, what, words):
    run, other = found[what][GPU], found[what][CPU]
    assert words in run["error"] and run["finish_reason"] == "failed" and 1 <= run["new_tokens"] < LONG.max_new_tokens
    assert other["error"] is None and other["new_tokens"] == LONG.max_new_tokens


def test_a_new_worker_answers_after_one_that_was_killed(found):
    assert found["again"][GPU]["text"] == ANSWER and found["again"][GPU]["error"] is None


def test_a_stop_reaches_the_worker_and_its_figures_come_back(found):
    assert found["stopped"]["reason"] == "stopped" and 3 <= found["stopped"]["tokens"] < LONG.max_new_tokens and found["stopped"]["ttft_s"] > 0


def test_all_that_crosses_is_plain_and_pickles(found):
    assert found["crossed"]["job"] and found["crossed"]["kinds"] == ["str"]
    assert found["crossed"]["events"] == ["loading", "loaded", "prefill", *["text"] * 6, "done"] or found["crossed"]["events"] == [
        "prefill",
        *["text"] * 6,
        "done",
    ]
