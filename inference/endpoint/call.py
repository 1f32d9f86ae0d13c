"""One question to a server, read in a thread of its own: pieces as they come, stamped where they come.

In: an endpoint, a request. Out: `Piece`s from `get`, the last of which says how it ended. Closing shuts the connection at once. Knows no run.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inference.endpoint import faults
from inference.endpoint.private import NO_KEY, Session
from inference.endpoints import Endpoint
from inference.errors import InferenceError
from inference.events import Request

SAFETY_S = 5.0  # more than the patience, which is looked after by whoever reads


@dataclass(frozen=True)
class Piece:
    """What came at `at` (on the shared clock): text, thoughts that are no answer, the reason for the end, counts; or that nothing more comes.

    `prompt` and `written` are the server's own counts of tokens, where it gives any.
    """

    at: float
    text: str = ""
    thought: str = ""
    reason: str = ""
    prompt: int | None = None
    written: int | None = None
    over: bool = False
    error: InferenceError | None = None


class Call:
    """The question under way."""

    def __init__(self, endpoint: Endpoint, model: str, session: Session, request: Request) -> None:
        self._endpoint, self._model, self._session, self._request = endpoint, model, session, request
        self._pieces: queue.SimpleQueue[Piece] = queue.SimpleQueue()
        self._closed = False
        self._begun = False
        threading.Thread(target=self._read, name="answer", daemon=True).start()

    def get(self, timeout_s: float) -> Piece | None:
        """The next piece; None where none came in time."""
        try:
            return self._pieces.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Shut the connection, whatever is under way on it."""
        self._closed = True
        self._session.shut()

    def _read(self) -> None:
        try:
            self._ask()
            self._pieces.put(Piece(time.perf_counter(), over=True))
        except Exception as error:  # noqa: BLE001 - each becomes a sentence (`faults.py`)
            told = faults.told(error, self._endpoint, self._begun)
            told.__cause__ = None if isinstance(error, InferenceError) else error
            self._pieces.put(Piece(time.perf_counter(), over=True, error=told))

    def _ask(self) -> None:
        asked, patience_s = self._request, self._endpoint.patience_s + SAFETY_S
        with self._session.client(base_url=self._endpoint.url, api_key=self._endpoint.key or NO_KEY, timeout=patience_s) as client:
            stream = client.chat_completion(
                messages_of(asked), model=self._model or None, stream=True, stream_options={"include_usage": True},  # type: ignore[arg-type]
                max_tokens=asked.max_new_tokens, temperature=asked.temperature, top_p=1.0 if asked.temperature else None,
                seed=asked.seed if asked.temperature else None,
            )  # fmt: skip
            for found in stream:
                if self._closed:
                    return
                self._begun = True
                self._pieces.put(self._piece(found, time.perf_counter()))

    def _piece(self, found: Any, at: float) -> Piece:
        """One object of the stream; raises InferenceError for one that is no part of an answer. Whatever else it holds is left out."""
        usage = getattr(found, "usage", None)
        prompt, written = (_number(usage, name) for name in ("prompt_tokens", "completion_tokens"))
        choices = getattr(found, "choices", None)
        if not isinstance(choices, list) or not (choices or usage):
            raise faults.malformed(self._endpoint, "a piece without choices")
        if not choices:
            return Piece(at, prompt=prompt, written=written)
        delta = _part(choices[0], "delta")
        text, thought = _part(delta, "content"), _part(delta, "reasoning") or _part(delta, "reasoning_content")
        reason = _part(choices[0], "finish_reason")
        if not all(each is None or isinstance(each, str) for each in (text, thought, reason)):
            raise faults.malformed(self._endpoint, "a piece of another form")
        return Piece(at, text or "", thought or "", reason or "", prompt, written)


def messages_of(request: Request) -> list[dict[str, str]]:
    """The request as a chat, whose template is the server's business."""
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, {"role": "user", "content": request.prompt}]


def _part(found: Any, name: str) -> Any:
    """By attribute first: read as a mapping, one of the library's objects has parts that lack every field which the library doesn't know."""
    value = getattr(found, name, None)
    return found.get(name) if value is None and isinstance(found, Mapping) else value


def _number(usage: Any, name: str) -> int | None:
    value = _part(usage, name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
