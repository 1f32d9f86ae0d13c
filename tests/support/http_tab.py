"""A tab without a browser, over plain HTTP, so that no component triggers what it asks; and whatever headers a proxy adds."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Mapping

from tests.support.until import until

SETTINGS = ["", "chat", 3, 0, 0, "together"]
JSON = {"Content-Type": "application/json"}


def from_address(address: str) -> dict[str, str]:
    """What a proxy says of a visitor who comes from `address`."""
    return {"X-Forwarded-For": address}


class HttpTab(threading.Thread):
    """Begins a comparison, then reads the frames of the last lane's column, or of `all_lanes`', into `lines`."""

    def __init__(self, url: str, name: str, headers: Mapping[str, str] | None = None, all_lanes: bool = False) -> None:
        super().__init__(daemon=True)
        self.url, self.tab, self.headers, self.lines = f"{url.rstrip('/')}/gradio_api", name, dict(headers or {}), []
        with urllib.request.urlopen(f"{url.rstrip('/')}/config") as config:
            self.listeners = {listener["api_name"]: listener["id"] for listener in json.load(config)["dependencies"]}
        self.streams = sorted(id for name, id in self.listeners.items() if name.startswith("stream"))[0 if all_lanes else -1 :]

    def _post(self, way: str, fn_index: int, data: list) -> dict:
        body = json.dumps({"data": data, "fn_index": fn_index, "session_hash": self.tab}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/{way}", body, {**JSON, **self.headers})) as answer:
            return json.load(answer)

    def press(self, prompt: str, settings: list = SETTINGS) -> str:
        """Send; the sentence under the prompt, which is empty where it was accepted."""
        return json.dumps(self._post("run/predict", self.listeners["press"], [prompt, *settings])["data"][0])

    def call(self, listener: str) -> None:
        """One of the page's listeners that take no input and wait in no line: "stop"."""
        self._post("run/predict", self.listeners[listener], [])

    def cancelled(self, endpoint: str, data: list, once: Callable[[], object]) -> None:
        """Ask an endpoint, and take it back `once` something holds."""
        joined = self._post("queue/join", self.listeners[endpoint], data)
        until(once, what="what the cancelling waits for")
        body = json.dumps({"session_hash": self.tab, "fn_index": self.listeners[endpoint], "event_id": joined["event_id"]}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/cancel", body, {**JSON, **self.headers}), timeout=10).read()

    def begin(self, prompt: str = "", settings: list = SETTINGS) -> None:
        """Send, and read from now on."""
        self.press(prompt or f"I am {self.tab}", settings)
        self.follow()

    def follow(self) -> None:
        """Read what a comparison that was accepted streams."""
        for stream in self.streams:
            self._post("queue/join", stream, [])
        self.start()

    def exported(self) -> str:
        """The tab's comparison as JSON, once it is over, as its History tab shows it."""
        shown = self._post("run/predict", self.listeners["refresh"], [[], "json", 0])["data"]
        return shown[-2]["value"]

    def run(self) -> None:
        ended = 0
        with urllib.request.urlopen(f"{self.url}/queue/data?session_hash={self.tab}", timeout=300) as events:
            for line in events:
                if line.startswith(b"data:"):
                    self.lines.append(line.decode())
                    ended += '"process_completed"' in self.lines[-1]
                    if ended == len(self.streams):
                        return

    def saw(self, words: str) -> bool:
        """Whether a frame held these words."""
        return any(words in line for line in list(self.lines))
