"""A server elsewhere as a lane: asked whether it is there, then a question at a time, as the events of every lane.

In: an endpoint, requests. Out: events. Times are taken here, so that the network is in them; ids are unknown, texts are the server's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from inference.endpoint import counts, faults
from inference.endpoint.call import Call, Piece
from inference.endpoint.private import MOST_CONNECT_S, Session
from inference.endpoints import Endpoint, variable_of
from inference.errors import InferenceError
from inference.events import Done, LaneFacts, Loaded, Loading, Prefill, Queued, Report, Request, Text
from inference.lanes import ENDPOINT
from inference.settings import Settings

log = logging.getLogger(__name__)
LOOK_S = 0.05
USAGE_S = 2.0  # after the end of an answer, for the server's counts
MOST_MODELS, MOST_OF_A_NAME = 5, 120
A_TOKEN, MORE = 100, 10_000  # characters: an answer of more than so many a token, and these, has no end
PATH = "server"
NOTE = "a server elsewhere: its times are taken here, so the network is in them, and what else it does meanwhile is not known"
NO_RAW = "A server is asked by chat messages, so it can't take a raw prompt. Choose the chat format, or ask without this lane."
FILTERED = "The server's filter ended the answer. Change the prompt."
NO_ANSWER = "The server's model only thought, and wrote no answer. Ask for more new tokens, or switch its thinking off where it is served."
NO_END = "The server writes on past the tokens that were asked for, so the connection was closed."


class Server:
    """The lane of one endpoint."""

    model: Any = None  # its weights are elsewhere

    def __init__(self, name: str, settings: Settings) -> None:
        self.name, self._settings = name, settings
        self._endpoint: Endpoint = settings.endpoint(name)
        self._session = Session(self._endpoint, variable_of(self._endpoint.name, "URL"))
        self._model = self._endpoint.model
        self.source, self._runs = _NoSource(), 0
        self._facts: LaneFacts | None = None

    @property
    def loaded(self) -> bool:
        """Whether the server has answered."""
        return self._facts is not None

    def load(self, report: Report) -> Loaded:
        """Ask whether the server is there, and what it serves; raises InferenceError with the reason where it can't be used."""
        report(Loading("asking the server"))
        listed = self.models()
        self._model = self._endpoint.model or self._only(listed)
        self._facts = _facts(self._model)
        return self.now()

    def now(self) -> Loaded:
        """The lane as it is; a server's load is not ours to time."""
        assert self._facts is not None
        return Loaded(self._facts, None)

    def hold(self, devices: Collection[str]) -> None:
        """Nothing goes on beside the runs."""

    def between_runs(self) -> float | None:
        """Nothing."""
        return None

    def models(self) -> list[str]:
        """The models that the server lists; none where it has no list. Raises InferenceError where it does not answer or takes no such key."""
        headers = {"authorization": f"Bearer {self._endpoint.key}"} if self._endpoint.key else {}
        try:
            response = self._session.http.get(_list_of(self._endpoint.url), headers=headers, timeout=min(MOST_CONNECT_S, self._endpoint.patience_s))
            if response.status_code in (404, 405, 501):
                return []
            if response.status_code >= 400:
                raise faults.refused(response, self._endpoint)
            found = response.json()
        except Exception as error:  # noqa: BLE001 - each becomes a sentence (`faults.py`)
            raise faults.told(error, self._endpoint) from (None if isinstance(error, InferenceError) else error)
        rows = found.get("data") if isinstance(found, dict) else None
        return [name for row in rows or () if isinstance(row, dict) and isinstance(name := row.get("id"), str) and name.isprintable()]

    def _only(self, models: list[str]) -> str:
        if len(models) > 1:
            named = ", ".join(name[:MOST_OF_A_NAME] for name in models[:MOST_MODELS]) + (", ..." if len(models) > MOST_MODELS else "")
            raise InferenceError(f"The server has {len(models)} models ({named}). Name one in {variable_of(self._endpoint.name, 'MODEL')}.")
        return models[0] if models else ""

    # ---- an answer

    def generate(self, run_id: str, request: Request, should_stop: Callable[[], bool]) -> Iterator[Prefill | Queued | Text | Done]:
        """Ask; while the server is busy, ask again for as long as the lane's patience lasts. Raises InferenceError."""
        if request.format != "chat":
            raise InferenceError(NO_RAW)
        asked, give_up = 0, time.perf_counter() + self._endpoint.patience_s
        while not should_stop():  # in the load, too: a question that is sent is computed, and paid for
            try:
                yield from _Answer(self, run_id, request, should_stop).events()
                return
            except faults.Busy as busy:
                wait_s = faults.WAITS_S[min(asked, len(faults.WAITS_S) - 1)] if busy.after_s is None else busy.after_s
                asked += 1
                if time.perf_counter() + wait_s > give_up:
                    raise
                log.info("the server is busy; it is asked again in %.1f s", wait_s)
                yield Queued(run_id, 0, "lane")
                _wait(wait_s, should_stop)
        yield Done(run_id, "stopped", "", (), 0, counts.timings([], None), path=PATH)

    def begin(self, request: Request) -> Call:
        """A question under way."""
        return Call(self._endpoint, self._model, self._session, request)

    def ended(self) -> bool:
        """Note that a run is over; whether it was not the first."""
        self._runs += 1
        return self._runs > 1

    def silent(self, what: str) -> InferenceError:
        """The sentence for no word in time."""
        return faults.silent(self._endpoint, what)

    def no_stream(self) -> InferenceError:
        """The sentence for an answer that is no stream."""
        return InferenceError(faults.NO_STREAM.format(variable_of(self._endpoint.name, "URL")))

    @property
    def patience_s(self) -> float:
        """How long it may be silent."""
        return self._endpoint.patience_s

    def count(self, text: str) -> int | None:
        """Tokens in a text, where the server has not said it."""
        return counts.count(text, self._settings)


class _Answer:
    """One answer as it comes."""

    def __init__(self, server: Server, run_id: str, request: Request, should_stop: Callable[[], bool]) -> None:
        self._server, self._run_id, self._request, self._should_stop = server, run_id, request, should_stop
        self._text = self._thoughts = self._reason = ""
        self._arrivals: list[float] = []
        self._streamed = False
        self._prompt: int | None = None
        self._written: int | None = None

    def events(self) -> Iterator[Prefill | Text | Done]:
        """All events of the run; raises InferenceError where it breaks off."""
        t_start = heard = time.perf_counter()
        yield Prefill(self._run_id, (), "chat", t_start, PATH)
        call = self._server.begin(self._request)
        try:
            while not self._should_stop():
                piece = call.get(LOOK_S)
                if piece is None:
                    if time.perf_counter() - heard > (USAGE_S if self._reason else self._server.patience_s):
                        break
                    continue
                heard = piece.at
                if piece.over:
                    self._end(piece)
                    break
                if (event := self._take(piece, piece.at - t_start)) is not None:
                    yield event
            if not self._reason and not self._should_stop():
                raise self._server.silent("fell silent" if self._arrivals else "did not answer")
            if self._reason and self._thoughts and not self._text.strip():
                raise InferenceError(NO_ANSWER)
        finally:
            call.close()
        yield self._done(t_start)

    def _take(self, piece: Piece, t_s: float) -> Text | None:
        self._streamed = True
        self._prompt, self._written = piece.prompt or self._prompt, piece.written or self._written
        self._text, self._thoughts = self._text + piece.text, self._thoughts + piece.thought
        if piece.text or piece.thought or (piece.reason and piece.reason != "length"):
            self._arrivals.append(t_s)
        if piece.reason == "content_filter":
            raise InferenceError(FILTERED)
        if piece.reason:
            self._reason = "length" if piece.reason == "length" else "stop"
        if len(self._text) + len(self._thoughts) > A_TOKEN * self._request.max_new_tokens + MORE:
            raise InferenceError(NO_END)
        first = bool(piece.thought) and len(self._arrivals) == 1  # no text, and yet the first token
        return Text(self._run_id, piece.text, self._written or 0, t_s) if piece.text or first else None

    def _end(self, piece: Piece) -> None:
        """Nothing more comes: a fault, unless the answer was complete before."""
        if not self._reason:
            raise piece.error or (InferenceError(faults.UNFINISHED) if self._streamed else self._server.no_stream())

    def _done(self, t_start: float) -> Done:
        reason = self._reason or "stopped"
        tokens, by = self._written, counts.BY_SERVER
        if (tokens is None or reason == "stopped") and (counted := self._server.count(self._thoughts + self._text)) is not None:
            tokens, by = counted + (reason == "stop"), counts.BY_TOKENIZER
        return Done(
            self._run_id, reason, self._text, (), self._prompt or 0, counts.timings(self._arrivals, tokens), t_start=t_start, path=PATH,
            warm=self._server.ended(), new_tokens=tokens, counted_by=by if tokens else None,
        )  # fmt: skip


class _NoSource:
    """What a lane reads its checkpoint by: a server has none here."""

    def read(self, report: Report) -> None:
        """Nothing is to be read."""

    def encode(self, request: Request) -> None:
        """Its ids are the server's business, and too long a prompt is refused there."""


def _wait(seconds: float, should_stop: Callable[[], bool]) -> None:
    """Wait, unless that is stopped."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until and not should_stop():
        time.sleep(min(LOOK_S, max(0.0, until - time.perf_counter())))


def _list_of(url: str) -> str:
    """Where a server lists its models, from the address that its chat completions are asked by."""
    stem, _, query = url.partition("?")
    stem = stem.rstrip("/").removesuffix("/chat/completions")
    return f"{stem}{'' if stem.endswith('/v1') else '/v1'}/models" + (f"?{query}" if query else "")


def _facts(model: str) -> LaneFacts:
    """What is known of a model that is elsewhere: what it is called."""
    shown = "".join(sign for sign in model if sign.isprintable())[:MOST_OF_A_NAME]
    return LaneFacts(
        model_id=shown, revision=None, architecture="", parameters=0, device=ENDPOINT, device_name="server", precision="", storage_dtype="", compute_dtype="",
        quantization=None, device_map="", kernel="", threads=None, kept_16bit=(), weights_bytes=None, context_length=0, has_chat_template=True, note=NOTE,
    )  # fmt: skip
