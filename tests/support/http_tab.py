"""A tab without a browser, over plain HTTP, so that no component triggers what it asks; and whatever headers a proxy adds."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Mapping

SETTINGS = ["", "chat", 3, 0, 0, "together"]
JSON = {"Content-Type": "application/json"}


def from_address(address: str) -> dict[str, str]:
    """What a proxy says of a visitor who comes from `address`."""
    return {"X-Forwarded-For": address}


class HttpTab(threading.Thread):
    """Begins a comparison, then reads the frames of one lane's column (the last one's) into `lines`."""

    def __init__(self, url: str, name: str, headers: Mapping[str, str] = {}, lane: int = -1) -> None:
        super().__init__(daemon=True)
        self.url, self.tab, self.headers, self.lines = f"{url.rstrip('/')}/gradio_api", name, dict(headers), []
        with urllib.request.urlopen(f"{url.rstrip('/')}/config") as config:
            self.listeners = {listener["api_name"]: listener["id"] for listener in json.load(config)["dependencies"]}
        self.lane = sorted(id for name, id in self.listeners.items() if name.startswith("stream"))[lane]

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

    def begin(self, prompt: str = "", settings: list = SETTINGS) -> None:
        """Send, and read from now on."""
        self.press(prompt or f"I am {self.tab}", settings)
        self.follow()

    def follow(self) -> None:
        """Read what a comparison that was accepted streams."""
        self._post("queue/join", self.lane, [])
        self.start()

    def run(self) -> None:
        with urllib.request.urlopen(f"{self.url}/queue/data?session_hash={self.tab}", timeout=300) as events:
            for line in events:
                if line.startswith(b"data:"):
                    self.lines.append(line.decode())
                    if '"process_completed"' in self.lines[-1]:
                        return

    def saw(self, words: str) -> bool:
        """Whether a frame held these words."""
        return any(words in line for line in list(self.lines))
