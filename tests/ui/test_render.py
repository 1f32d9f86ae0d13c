"""Figures in words, a column from its lane and its run, and frames that are few and never miss the end; no browser."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from inference import units
from inference.engine.engine import Engine
from inference.engine.runs import Comparison
from inference.events import Done, Failed, Hello, LaneFacts, LoadFigures, Loading, Prefill, Queued, Text
from inference.progress import Progress
from inference.settings import Settings
from inference.status import LaneStatus
from inference.timing import Timings
from ui import badge, render
from ui.handlers import FAULT, FRAME_S, Page

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


def test_a_title_is_read_off_the_lane_and_never_guessed():
    assert render.title(status(state="starting")) == "4-bit NF4 · starting"
    assert render.title(status(hello=hello("cuda"))) == "4-bit NF4 · NVIDIA H100"
    assert render.title(status(hello=hello("cpu"))) == "4-bit NF4 · CPU"
    assert render.title(status(hello=hello("cuda"), facts=FACTS)) == "4-bit NF4 · NVIDIA H100"
    assert render.title(status(key="cpu:fp32", name="cpu:fp32", state="off")) == "FP32 · CPU"
    assert render.title(status(state="failed")) == "4-bit NF4 · unknown device"


def test_a_missing_cuda_device_is_plain_information():
    head = shown(render.head(status(hello=hello("cpu", reason="no CUDA device"))))
    assert "No CUDA device: this lane runs on the CPU." in head and "GPU" not in head and "install" not in head


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "off"}, "Not loaded yet: it loads at its first prompt."),
        ({"state": "loading", "progress": Loading("downloading", 2**20, 4 * 2**20, "bytes")}, "Loading: downloading 1.0 MiB of 4.0 MiB"),
        ({"state": "loading", "progress": Loading("reading weights", 3, 5, "weights")}, "Loading: reading weights 3 of 5 weights"),
        ({"state": "refused", "reason": "Needs 17 GiB, has 15 GiB."}, "Needs 17 GiB, has 15 GiB."),
    ],
)
def test_an_idle_column_says_what_its_lane_does(changes, words):
    assert shown(render.idle_line(status(**changes))) == words


# ---- a run


def line(*events, **changes) -> str:
    progress = Progress(10.0)
    for event in events:
        progress = progress.apply(event, 11.0)
    return shown(render.run_line(progress, status(**changes), 12.5))


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "Waiting 2.5 s"),
        ([Queued("r1", 2, "lane")], "Waiting behind 2 other runs 1.5 s"),
        ([Queued("r1", 0, "lane")], "Waiting, next in line 1.5 s"),
        ([Queued("r1", 0, "turn")], "Waiting for its turn: the lanes are measured one after the other 1.5 s"),
        ([Queued("r1", 0, "load")], "Loading 1.5 s"),
        ([Loading("reading weights", 3, 5, "weights")], "Loading: reading weights 3 of 5 weights · 1.5 s"),
        ([Prefill("r1", (1, 2, 3), "chat", 12.0)], "Prefill: reading the prompt 3 tokens · 0.5 s"),
        ([Prefill("r1", (1, 2, 3), "chat", 12.0), Text("r1", "Hello", 1, 0.2)], "Decoding 1 token · 0.5 s"),
        ([DONE], "Done 2 tokens · 1.24 s"),
        ([Done("r1", "stopped", "", (), 0, Timings())], "Stopped before the first token"),
        ([Failed("r1", "It broke. Ask again.")], "It broke. Ask again."),
        ([Done("r1", "length", "<pad><pad>", (0, 0), 4, DONE.timings)], "No text produced. 2 tokens · 1.24 s"),
    ],
)
def test_the_status_names_the_phase_and_runs_a_clock(events, words):
    assert line(*events) == words


def test_a_starting_lane_is_not_said_to_be_busy():
    assert line(Queued("r1", 0, "load"), state="starting").startswith("Starting the lane's process")
    assert line(Queued("r1", 2, "lane"), state="starting").startswith("Waiting behind 2 other runs")


def test_badges_hold_the_lanes_own_figures_and_device():
    words = shown(render.badges(status(facts=FACTS, load=LoadFigures(2.4, cold=True)), Progress(0.0).apply(DONE, 1.0)))
    for expected in ("First token 35 ms", "Speed 98.3 tok/s", "Total 1.24 s", "Weights 3.00 GiB", "device NVIDIA H100", "precision 4-bit NF4", "load 2.40 s", "tokens 4 in, 2 out", "end by itself", "cold load"):  # fmt: skip
        assert expected in words
    assert "contended" not in words


def test_an_eager_run_of_a_lane_that_has_a_faster_path_is_marked_with_the_reason():
    slow = replace(DONE, path="eager", path_reason="cuda-graph: layer 0 has no mlp")
    words = shown(render.badges(status(facts=FACTS), Progress(0.0).apply(slow, 1.0)))
    assert "eager path" in words and "not by cuda-graph: layer 0 has no mlp" in words
    assert "eager path" not in shown(render.badges(status(facts=FACTS), Progress(0.0).apply(replace(DONE, path="eager"), 1.0)))


def test_marks_qualify_the_figures():
    done = Done("r1", "length", "x", (1,), 4, Timings(0.1, 40.0, None, None, 0.1), warm=False, alone=False)
    words = shown(render.badges(status(facts=FACTS), Progress(0.0).apply(done, 1.0)))
    assert "Speed n/a" in words and "cold run" in words and "contended" in words and "end cut at the token limit" in words


@pytest.mark.parametrize("end", [Failed("r1", "It died."), Done("r1", "stopped", "Hello you", (), 0, Timings())])
def test_a_run_that_broke_off_keeps_the_figures_of_the_tokens_that_came(end):
    progress = Progress(0.0)
    for event in (Prefill("r1", (1, 2), "chat", 0.0), Text("r1", "Hello", 1, 0.02), Text("r1", " you", 2, 0.12), end):
        progress = progress.apply(event, 1.0)
    words = shown(render.badges(status(facts=FACTS), progress))
    assert "First token 20 ms" in words and "Speed 10.0 tok/s" in words and "Total 120 ms" in words


def test_a_model_name_can_not_leave_its_badge():
    facts = LaneFacts(**{**FACTS.__dict__, "model_id": "<img src=x>${alert(1)}", "device_name": "${x}<b>"})
    assert not set("${}`") & set(render.head(status(facts=facts)) + render.badges(status(facts=facts)))
    assert "<img" not in render.head(status(facts=facts)) + render.badges(status(facts=facts))


def test_an_answer_keeps_every_space():
    text = "    a\n\n\tb <b>  \n"
    (_, answer) = render.answer("p", Progress(0.0).apply(Text("r1", text, 3, 0.1), 1.0))
    assert html.unescape(answer["content"][0]["text"]) == text


# ---- frames


class StubEngine:
    """`Engine` for one lane and one run, which hands out scripted events and moves the clock."""

    def __init__(self, events: list) -> None:
        self.settings, self.now, self._events, self.closed = Settings(lanes=("cpu:fp32",)), 0.0, events, False

    def status(self) -> list[LaneStatus]:
        return [status(key="cpu:fp32", name="cpu:fp32", facts=FACTS)]

    def statuses_of(self, comparison: Comparison) -> list[LaneStatus]:
        return self.status()

    def submit(self, request, mode: str) -> Comparison:
        run = SimpleNamespace(id="r1", ended=False)
        return Comparison("c1", request, mode, {"cpu:fp32": run})

    def events(self, run_id: str):
        try:
            for pause_s, event in self._events:
                self.now += pause_s
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed = True


def frames(engine: StubEngine):
    page = Page(engine, lambda: None, lambda: engine.now)
    request = SimpleNamespace(session_hash="tab")
    page.begin("hello", "", "chat", 50, 0, 0, "auto", request)
    return page, page.lanes[0].stream(request), request


def test_a_fast_lane_gives_few_frames_and_its_last_word():
    texts = [(0.001, Text("r1", "w ", n, n / 1000)) for n in range(1, 2001)]
    done = Done("r1", "length", "w " * 2000, tuple(range(2000)), 4, Timings(0.001, 1.0, 0.001, 1000.0, 2.0))
    _, stream, _ = frames(StubEngine([*texts, (0.001, done)]))
    sent = list(stream)
    assert len(sent) <= 2 / FRAME_S + 2
    assert html.unescape(sent[-1][2][-1]["content"][0]["text"]) == done.text and "1000 tok/s" in shown(sent[-1][3])
    assert all(len(frame) == 4 for frame in sent)


def test_the_first_frame_comes_before_any_event():
    engine = StubEngine([(60.0, DONE)])
    _, stream, _ = frames(engine)
    assert "Waiting" in next(stream)[1] and engine.now == 0.0


def test_a_silent_lane_still_moves_the_clock():
    _, stream, _ = frames(StubEngine([(0.1, None)] * 30 + [(0.1, DONE)]))
    assert len({frame[1] for frame in stream}) > 5


def test_whoever_is_far_back_in_the_line_is_sent_few_frames_and_a_change_of_phase_at_once():
    ticks = [(0.1, None)] * 100
    far, near = (list(frames(StubEngine([(0.1, Queued("r1", place, "lane")), *ticks, (0.1, DONE)]))[1]) for place in (40, 0))
    assert len(far) < 6 < len(near) and "behind 40 other runs" in far[1][1]


def test_closing_the_stream_closes_the_run_and_frees_the_tab():
    engine = StubEngine([(0.1, None)] * 100)
    page, stream, _ = frames(engine)
    next(stream), next(stream)
    stream.close()
    assert engine.closed and not page.sessions.get("tab").running


def test_a_second_stream_of_the_same_run_shows_nothing():
    page, stream, request = frames(StubEngine([(0.1, DONE)]))
    next(stream)
    (only,) = page.lanes[0].stream(request)
    assert all(update == {"__type__": "update"} for update in only)


def test_a_bug_in_the_page_becomes_a_sentence_in_the_column():
    page, stream, _ = frames(StubEngine([(0.1, None), (0.1, KeyError("bug"))]))
    assert shown(list(stream)[-1][1]) == FAULT
    assert page.sessions.get("tab").complete


def test_the_stub_has_what_the_engine_has():
    assert all(hasattr(Engine, name) for name in ("status", "statuses_of", "submit", "events"))
