"""A card's frames are few and never miss the end, and a fault of the page becomes a sentence on it; no browser."""

from __future__ import annotations

import html
from types import SimpleNamespace

import gradio as gr

from inference.engine.engine import Engine
from inference.engine.runs import Comparison
from inference.events import Done, Queued, Text
from inference.settings import Settings
from inference.status import LaneStatus
from inference.timing import Timings
from tests.support.records import status
from ui.comparison.columns import FAULT, FRAME_S
from ui.comparison.handlers import Page

DONE = Done("r1", "stop", "Hello there", (1, 2), 4, Timings(0.035, 100.0, 0.01, 98.34, 1.24))


class StubEngine:
    """`Engine` for one lane and one run, which hands out scripted events and moves the clock."""

    def __init__(self, events: list) -> None:
        self.settings, self.now, self._events, self.closed = Settings(lanes=("cpu:fp32",)), 0.0, events, False

    def status(self) -> list[LaneStatus]:
        return [status("cpu:fp32")]

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
    page.press("hello", "", "chat", 50, 0, 0, "auto", request, gr.EventData(None, None))
    return page, page.lanes[0].stream(request), request


def test_a_fast_lane_gives_few_frames_and_its_last_word():
    texts = [(0.001, Text("r1", "w ", n, n / 1000)) for n in range(1, 2001)]
    done = Done("r1", "length", "w " * 2000, tuple(range(2000)), 4, Timings(0.001, 1.0, 0.001, 1000.0, 2.0))
    _, stream, _ = frames(StubEngine([*texts, (0.001, done)]))
    sent = list(stream)
    assert len(sent) <= 2 / FRAME_S + 2
    assert html.unescape(sent[-1][1][-1]["content"][0]["text"]) == done.text and "1000 tok/s" in sent[-1][0]
    assert all(len(frame) == 3 for frame in sent)


def test_the_first_frame_comes_before_any_event():
    engine = StubEngine([(60.0, DONE)])
    _, stream, _ = frames(engine)
    assert "Waiting" in next(stream)[0] and engine.now == 0.0


def test_a_silent_lane_still_moves_the_clock():
    _, stream, _ = frames(StubEngine([(0.1, None)] * 30 + [(0.1, DONE)]))
    assert len({frame[0] for frame in stream}) > 5


def test_whoever_is_far_back_in_the_line_is_sent_few_frames_and_a_change_of_phase_at_once():
    ticks = [(0.1, None)] * 100
    far, near = (list(frames(StubEngine([(0.1, Queued("r1", place, "lane")), *ticks, (0.1, DONE)]))[1]) for place in (40, 0))
    assert len(far) < 6 < len(near) and "behind 40" in far[1][0]


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


def test_a_bug_in_the_page_becomes_a_sentence_on_the_card():
    page, stream, _ = frames(StubEngine([(0.1, None), (0.1, KeyError("bug"))]))
    assert FAULT in list(stream)[-1][2]
    assert page.sessions.get("tab").complete


def test_the_stub_has_what_the_engine_has():
    assert all(hasattr(Engine, name) for name in ("status", "statuses_of", "submit", "events"))
