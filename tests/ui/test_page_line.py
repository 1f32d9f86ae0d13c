"""More visitors than a page once streamed to: each is shown its place in the line and is answered, over HTTP and fake lanes."""

from __future__ import annotations

import json
import threading
import urllib.request

from tests.support.page_fixtures import FakeApp
from tests.support.until import until

VISITORS = 20
SETTINGS = ["", "chat", 3, 0, 0, "together"]


class Visitor(threading.Thread):
    """A tab without a browser, so that no component triggers what it asks: begins a comparison, then reads the full-precision column's frames."""

    def __init__(self, app: FakeApp, number: int) -> None:
        super().__init__(daemon=True)
        self.url, self.tab, self.lines = f"{app.url}/gradio_api", f"visitor{number}", []
        listeners = {listener["api_name"]: listener["id"] for listener in app.demo.config["dependencies"]}
        self.press_id, self.stream_id = listeners["press"], sorted(id for name, id in listeners.items() if name.startswith("stream"))[-1]

    def _post(self, way: str, fn_index: int, data: list) -> None:
        body = json.dumps({"data": data, "fn_index": fn_index, "session_hash": self.tab}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{way}", body, {"Content-Type": "application/json"})).read()

    def begin(self) -> None:
        self._post("run/predict", self.press_id, [f"I am {self.tab}", *SETTINGS])
        self._post("queue/join", self.stream_id, [])
        self.start()

    def run(self) -> None:
        with urllib.request.urlopen(f"{self.url}/queue/data?session_hash={self.tab}", timeout=60) as events:
            for line in events:
                if line.startswith(b"data:"):
                    self.lines.append(line.decode())
                    if '"process_completed"' in self.lines[-1]:
                        return

    def saw(self, words: str) -> bool:
        return any(words in line for line in self.lines)


def test_the_twentieth_visitor_of_a_slow_lane_is_shown_its_place_and_is_answered(fake_app):
    fake_app.script(cpu_fp32={"hold_at": 2})
    visitors = [Visitor(fake_app, number) for number in range(VISITORS)]
    for visitor in visitors:
        visitor.begin()
    until(lambda: visitors[-1].saw(f"Waiting behind {VISITORS - 1}"), 30, what="the last one's place")
    fake_app.script()
    until(lambda: not any(visitor.is_alive() for visitor in visitors), 60, what="all answered")
    assert not any(visitor.saw("read already") or visitor.saw("is over") for visitor in visitors)
    assert all(visitor.saw("chicken") and visitor.saw("Cut at 3 tokens") for visitor in visitors)
