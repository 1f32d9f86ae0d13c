"""Figures in words, and a card from its lane and its run; no browser."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from inference import units
from inference.events import Done, Failed, Hello, LaneFacts, LoadFigures, Loading, Prefill, Queued, Text
from inference.progress import Progress
from inference.status import LaneStatus, Quiet
from inference.timing import Timings
from ui import badge
from ui.comparison import render

FACTS = LaneFacts("m/odel", None, "A", 3, "cuda", "NVIDIA H100", "NF4", "uint8", "bfloat16", {"type": "nf4"}, "{'': 0}", "k", None, (), 3 * 2**30, 512, True)
DONE = Done("r1", "stop", "Hello there", (1, 2), 4, Timings(0.035, 100.0, 0.01, 98.34, 1.24))


def status(**changes) -> LaneStatus:
    values = {"key": "auto:nf4", "name": "auto:nf4", "state": "ready", "reason": None, "available": True, "waiting": 0}
    return LaneStatus(**{**values, **dict.fromkeys(("hello", "facts", "load", "progress")), **changes})


def hello(device: str, **changes) -> Hello:
    return Hello(f"{device}:nf4", device, {}, {"gpu": "NVIDIA H100" if device == "cuda" else None}, **changes)


def shown(markup: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", markup))).strip()


# ---- figures


@pytest.mark.parametrize(
    ("words", "value", "expected"),
    [
        (units.seconds, None, "n/a"), (units.seconds, 0.0042, "4.2 ms"), (units.seconds, 0.035, "35 ms"), (units.seconds, 0.9994, "999 ms"),
        (units.seconds, 1.2449, "1.24 s"), (units.seconds, 12.44, "12.4 s"), (units.seconds, 1325, "22 min 05 s"), (units.seconds, 3720, "1 h 02 min"),
        (units.rate, None, "n/a"), (units.rate, 0.031, "0.03 tok/s"), (units.rate, 9.87, "9.87 tok/s"), (units.rate, 98.34, "98.3 tok/s"), (units.rate, 214.2, "214 tok/s"),
        (units.size, None, "n/a"), (units.size, 600, "600 B"), (units.size, 512 * 2**20, "512 MiB"), (units.size, 3.15 * 2**30, "3.15 GiB"),
        (badge.clock, 0.04, "0.0 s"), (badge.clock, 9.94, "9.9 s"), (badge.clock, 62.3, "62 s"), (badge.clock, 125, "2 min 05 s"),
    ],
)  # fmt: skip
def test_a_figure_has_its_unit_and_sensible_digits(words, value, expected):
    assert words(value) == expected


def test_escaped_text_holds_nothing_that_a_template_or_a_browser_reads():
    hostile = "${alert(1)} {{value}} `x` <b>\"'\\ &amp;"
    assert not set("${}`<>\"'\\") & set(badge.escape(hostile))
    assert html.unescape(badge.escape(hostile)) == hostile


# ---- a lane


def test_a_name_and_its_device_are_read_off_the_lane_and_never_guessed():
    for lane, title, where in (
        (status(state="starting"), "4-bit (NF4)", "starting"),
        (status(hello=hello("cuda")), "4-bit (NF4)", "NVIDIA H100"),
        (status(hello=hello("cpu")), "4-bit (NF4)", "CPU"),
        (status(hello=hello("cuda"), facts=FACTS), "4-bit (NF4)", "NVIDIA H100"),
        (status(hello=hello("cuda"), facts=replace(FACTS, precision="BF16")), "Half precision (BF16)", "NVIDIA H100"),
        (status(key="cpu:fp32", name="cpu:fp32", state="off"), "Full precision (FP32)", "CPU"),
        (status(state="failed"), "4-bit (NF4)", "unknown device"),
    ):
        assert (render.title(lane), render.device_word(lane)) == (title, where)
        assert shown(render.top(lane, render.idle_line(lane))).startswith(f"{title} {where}")


def test_a_missing_cuda_device_is_plain_information():
    lane = status(hello=hello("cpu", reason="no CUDA device"))
    small = shown(render.foot(lane, render.idle_line(lane)))
    assert small == "No CUDA device: this lane runs on the CPU." and "alert" not in render.foot(lane, render.idle_line(lane))
    old = status(hello=hello("cpu", reason='the driver is too old (it serves CUDA 12.9: run pip install "torch>=2.8,<2.11")'))
    small = shown(render.foot(old, render.idle_line(old)))
    assert small == 'The driver is too old (it serves CUDA 12.9: run pip install "torch>=2.8,<2.11"): this lane runs on the CPU.'


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "off"}, "Loads at its first prompt"),
        ({"state": "ready"}, "Ready"),
        ({"state": "busy"}, "Answering another prompt"),
        ({"state": "loading", "progress": Loading("downloading", 2**20, 4 * 2**20, "bytes")}, "Loading: downloading 1.0 MiB of 4.0 MiB"),
        ({"state": "loading", "progress": Loading("reading weights", 3, 5, "weights")}, "Loading: reading weights 3 of 5 weights"),
        ({"state": "refused", "reason": "Needs 17 GiB, has 15 GiB."}, "Can't load here Needs 17 GiB, has 15 GiB."),
        ({"state": "failed", "reason": "It died."}, "Failed It died."),
    ],
)
def test_an_idle_card_says_what_its_lane_does(changes, words):
    assert said(render.idle_line(status(**changes))) == words


def said(line: render.Line) -> str:
    return " ".join(filter(None, [line.words, line.detail, line.sentence]))


def test_a_sentence_stands_under_the_answer_and_the_top_is_as_long_whatever_it_says():
    lane = status(state="failed", reason="It died of something that takes a long sentence to tell. " * 5)
    line = render.idle_line(lane)
    assert "long sentence" not in render.top(lane, line) and 'role="alert"' in render.foot(lane, line)
    assert render.top(lane, line).count("<div") == render.top(status(), render.idle_line(status())).count("<div")


# ---- a run


LIMIT = 50


def line(*events, **changes) -> render.Line:
    progress = Progress(10.0)
    for event in events:
        progress = progress.apply(event, 11.0)
    return render.run_line(progress, status(**changes), 12.5, LIMIT)


NO_TEXT = "No text produced. The model gave 2 tokens, none of which is readable text. This is a fault of the lane, not an answer."


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "Waiting 2.5 s"),
        ([Queued("r1", 2, "lane")], "Waiting behind 2 1.5 s"),
        ([Queued("r1", 0, "lane")], "Waiting, next in line 1.5 s"),
        ([Queued("r1", 0, "turn")], "Waiting for its turn 1.5 s"),
        ([Queued("r1", 2, "turn")], "Waiting for its turn behind 2 · 1.5 s"),
        ([Queued("r1", 0, "load")], "Loading 1.5 s"),
        ([Loading("reading weights", 3, 5, "weights")], "Loading: reading weights 3 of 5 weights · 1.5 s"),
        ([Prefill("r1", (1, 2, 3), "chat", 12.0)], "Reading the prompt 3 tokens · 0.5 s"),
        ([Prefill("r1", (1, 2, 3), "chat", 12.0), Text("r1", "Hello", 1, 0.2)], "Writing 1 token · 0.5 s"),
        ([DONE], "Done 2 tokens"),
        ([replace(DONE, finish_reason="length")], "Cut at 50 tokens"),
        ([replace(DONE, finish_reason="stopped")], "Stopped 2 tokens"),
        ([Done("r1", "stopped", "", (), 0, Timings())], "Stopped before the first token"),
        ([Text("r1", "of a server that counts at the end", 0, 0.2), Done("r1", "stopped", "", (), 0, Timings())], "Stopped"),
        ([Failed("r1", "It broke. Ask again.")], "Failed It broke. Ask again."),
        ([Done("r1", "length", "<pad><pad>", (0, 0), 4, DONE.timings)], f"No text 2 tokens {NO_TEXT}"),
    ],
)
def test_the_status_names_the_phase_and_runs_a_clock(events, words):
    assert said(line(*events)) == words


def test_a_starting_lane_is_not_said_to_be_busy():
    assert line(Queued("r1", 0, "load"), state="starting").words == "Starting the lane's process"
    assert line(Queued("r1", 2, "lane"), state="starting").words == "Waiting behind 2"


@pytest.mark.parametrize("event", [Loading("reading weights"), Prefill("r1", (1, 2), "chat", 0.0), Text("r1", "Hello", 1, 0.02), Queued("r1", 1, "lane")])
def test_silence_is_told_on_the_card_with_what_becomes_of_it(event):
    frozen, still = Quiet(12.0, 60.0, True), Quiet(40.0, 900.0, False)
    words = shown(card(Progress(0.0).apply(event, 1.0), quiet=frozen))
    assert "No sign of life of this lane for 12 s. After 60 s of that it is ended and started anew." in words
    words = shown(card(Progress(0.0).apply(event, 1.0), quiet=still))
    assert "Nothing new of this lane for 40 s, though it is at work. After 900 s of that" in words and "No sign of life" not in words


def test_silence_is_told_of_a_lane_that_loads_and_not_of_a_run_that_is_over():
    assert render.idle_line(status(state="loading", quiet=Quiet(12.0, 60.0, True))).words == "No sign of life"
    assert "life" not in ended(DONE, quiet=Quiet(12.0, 60.0, True))


def card(progress: Progress, **changes) -> str:
    """Top and small print of a card that shows a run."""
    lane = status(**{"facts": FACTS, **changes})
    line = render.run_line(progress, lane, 12.5, LIMIT)
    return render.top(lane, line, progress) + render.foot(lane, line, progress)


def ended(done: Done, **changes) -> str:
    return shown(card(Progress(0.0).apply(done, 1.0), **changes))


def test_a_card_holds_the_lanes_own_figures_device_and_load():
    words = ended(DONE, load=LoadFigures(2.4, cold=True))
    for expected in (
        "First word 35 ms",
        "Speed 98.3 tok/s",
        "Total 1.24 s",
        "Size 3.00 GiB",
        "4-bit (NF4) NVIDIA H100",
        "load 2.40 s, cold",
        "4 tokens in, 2 out",
    ):
        assert expected in words
    assert "beside another run" not in words and "Ready" not in words


def test_figures_stand_while_an_answer_is_written():
    progress = Progress(0.0)
    for event in (Prefill("r1", (1, 2), "chat", 0.0), Text("r1", "Hello", 1, 0.02), Text("r1", " you", 2, 0.12)):
        progress = progress.apply(event, 1.0)
    words = shown(card(progress))
    assert "First word 20 ms" in words and "Speed 10.0 tok/s" in words and "Total 120 ms" in words and 'class="live"' in card(progress)
    assert "First word –" in shown(card(Progress(0.0))), "not yet known is no n/a"


def test_a_lane_that_is_gone_has_no_size_and_no_load():
    words = ended(DONE, facts=None, load=LoadFigures(6.0, cold=True))
    assert "Size n/a" in words and "load" not in words


def test_an_eager_run_of_a_lane_that_has_a_faster_path_is_marked_with_the_reason():
    words = ended(replace(DONE, path="eager", path_reason="cuda-graph: layer 0 has no mlp"))
    assert "eager path" in words and "not by cuda-graph: layer 0 has no mlp" in words
    assert "eager path" not in ended(replace(DONE, path="eager"))


def test_marks_qualify_the_figures():
    words = ended(Done("r1", "length", "x", (1,), 4, Timings(0.1, 40.0, None, None, 0.1), warm=False, alone=False))
    assert "Speed n/a" in words and "first run since the load" in words and "beside another run" in words and "Cut at 50 tokens" in words


@pytest.mark.parametrize("end", [Failed("r1", "It died."), Done("r1", "stopped", "Hello you", (), 0, Timings())])
def test_a_run_that_broke_off_keeps_the_figures_of_the_tokens_that_came(end):
    progress = Progress(0.0)
    for event in (Prefill("r1", (1, 2), "chat", 0.0), Text("r1", "Hello", 1, 0.02), Text("r1", " you", 2, 0.12), end):
        progress = progress.apply(event, 1.0)
    words = shown(card(progress))
    assert "First word 20 ms" in words and "Speed 10.0 tok/s" in words and "Total 120 ms" in words


def test_no_text_of_a_model_or_a_lane_can_leave_its_place():
    hostile = "<img src=x>${alert(1)}"
    facts = replace(FACTS, device_name=hostile, note=hostile)
    markup = card(Progress(0.0).apply(replace(DONE, path=hostile, path_reason=hostile), 1.0), facts=facts) + card(
        Progress(0.0).apply(Failed("r1", hostile), 1.0), facts=facts
    )
    past = render.past_line(hostile)
    markup += render.top(status(facts=facts), past) + render.foot(status(facts=facts), past)
    assert not set("${}`") & set(markup) and "<img" not in markup and shown(markup).count(hostile) >= 4


def test_an_answer_keeps_every_space():
    text = "    a\n\n\tb <b>  \n"
    (answer,) = render.answer(Progress(0.0).apply(Text("r1", text, 3, 0.1), 1.0))
    assert html.unescape(answer["content"][0]["text"]) == text
