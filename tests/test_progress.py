"""A run as it is folded from its events: what is known of its figures while it goes on, and after it broke off."""

from __future__ import annotations

import pytest

from inference.engine.runs import Inbox
from inference.events import Done, Failed, Prefill, Text
from inference.progress import Progress
from inference.timing import Timings

PREFILL = Prefill("r", (1, 2, 3, 4), "chat", 10.0)
FAILED = Failed("r", "It died.")


def folded(*events) -> Progress:
    progress = Progress(10.0)
    for event in events:
        progress = progress.apply(event, 11.0)
    return progress


def texts(*stamps):
    return [Text("r", "w ", n, t_s) for n, t_s in enumerate(stamps, 1)]


def test_a_run_that_broke_off_knows_its_first_token_and_how_fast_it_wrote():
    timings = folded(PREFILL, *texts(0.5, 0.6, 0.7), FAILED).timings
    assert timings.ttft_s == 0.5 and timings.total_s == 0.7 and timings.prefill_tps == 8.0
    assert timings.decode_tps == pytest.approx(10.0)


def test_one_token_has_no_rate_and_none_has_no_figure():
    assert folded(PREFILL, *texts(0.5), FAILED).timings == Timings(0.5, 8.0, None, None, 0.5)
    assert folded(PREFILL, FAILED).timings == Timings()


def test_a_first_token_whose_event_was_not_seen_is_unknown_and_not_that_of_a_later_one():
    timings = folded(PREFILL, Text("r", "a b c ", 3, 0.9), Text("r", "d ", 4, 1.0), FAILED).timings
    assert timings.ttft_s is None and timings.decode_tps is None and timings.total_s == 1.0


def test_the_lanes_own_figures_win_and_a_lane_that_was_ended_for_not_answering_has_none_of_its_own():
    own = Timings(0.4, 10.0, 0.1, 9.0, 0.8, (0.4,))
    assert folded(PREFILL, *texts(0.5), Done("r", "stop", "w ", (1,), 4, own)).timings == own
    assert folded(PREFILL, *texts(0.5, 0.6), Done("r", "stopped", "w w ", (), 0, Timings())).timings.ttft_s == 0.5


def test_the_first_token_reaches_a_slow_reader_as_an_event_of_its_own():
    inbox = Inbox()
    for event in texts(0.5, 0.6, 0.7):
        inbox.put(event)
    first, rest = inbox.get(0), inbox.get(0)
    assert (first.n, first.t_s) == (1, 0.5) and (rest.n, rest.t_s, rest.delta) == (3, 0.7, "w w ") and inbox.get(0) is None


@pytest.mark.parametrize("text", ["", " \n", "<pad><pad>", "<|im_end|>", "</s> [PAD]", "<unused42>"])
def test_only_special_tokens_are_a_fault_and_no_answer(text):
    run = folded(PREFILL, Done("r", "stop", text, (7, 7), 4, Timings(0.1, 1.0, 0.1, 1.0, 0.2)))
    assert run.no_text and "None" not in run.fault and "2 tokens, none of which is readable text" in run.fault


def test_an_answer_and_a_stopped_run_are_no_fault():
    assert folded(Done("r", "stop", "<b>", (7,), 4, Timings())).fault is None
    assert folded(Done("r", "stopped", "", (), 0, Timings())).fault is None
    assert folded(FAILED).fault == "It died."
