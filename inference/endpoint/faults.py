"""What may go wrong with a server -> one sentence: what happened, then what to do. Neither its address nor its key is in any.

In: what huggingface_hub and its HTTP library raise, told apart by the names of their classes, since two such libraries are in use. Out: an
InferenceError. What a server says of itself is shortened, on one line, and text.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime

from inference.endpoints import Endpoint, variable_of
from inference.errors import KEPT, InferenceError

MOST_SAID = 200  # characters of a server's own sentence
BUSY = (429, 503)
WAITS_S = (1.0, 2.0, 4.0, 8.0)  # before each further try, where the server names no time
CUT = f"The connection to the server broke before the answer was complete. {KEPT}ask again."
UNFINISHED = f"The server's answer ended before the server said that it was complete. {KEPT}ask again."
NO_STREAM = "The server answered, but with no stream of a chat completion, so no time can be taken. Have it stream (what stands between may not), or check {}."
MALFORMED = "The server sent something that is no part of a chat completion ({}). Check that {} is the address of an OpenAI-compatible server."


class Busy(InferenceError):
    """The server asks to be left alone for `after_s` seconds; None where it names no time."""

    def __init__(self, words: str, after_s: float | None) -> None:
        super().__init__(words)
        self.after_s = after_s


def told(error: BaseException, endpoint: Endpoint, answering: bool = False) -> InferenceError:
    """The sentence for `error`; `answering`: the server had begun its answer."""
    if isinstance(error, InferenceError):
        return error
    chain = list(_chain(error))
    names = {kind.__name__ for each in chain for kind in type(each).__mro__}
    response = next((response for each in chain if (response := getattr(each, "response", None)) is not None), None)
    if response is not None and "HfHubHTTPError" in names:
        return refused(response, endpoint)
    address = variable_of(endpoint.name, "URL")
    if answering and names & {"TransportError", "RemoteProtocolError", "ReadError", "StreamError", "OSError"}:
        return InferenceError(CUT)
    if any(isinstance(each, ssl.SSLError) for each in chain):
        return InferenceError(
            f"The server's certificate can't be trusted, or it speaks no TLS on that port. Check {address} (https or http) and its certificate."
        )
    if any(isinstance(each, socket.gaierror) for each in chain):
        return InferenceError(f"The server's host name is not known (DNS). Check {address}, and that this machine has a network.")
    if "ProxyError" in names:
        return InferenceError("The proxy between here and the server refused the connection. Check HTTPS_PROXY and NO_PROXY.")
    if "ConnectTimeout" in names:
        return InferenceError(
            f"The server's address gives no connection. Check {address} (https or http, host, port), and what stands between, then ask again."
        )
    if "TimeoutException" in names or "InferenceTimeoutError" in names:
        return InferenceError("The server takes the connection and does not answer. Look at the server, then ask again.")
    if "ConnectError" in names or any(isinstance(each, ConnectionRefusedError) for each in chain):
        return InferenceError(f"The server can't be reached: nothing answers at its address. Start it, or check {address}, then ask again.")
    if "TransportError" in names or "OSError" in names:
        return InferenceError("The connection to the server broke before it answered. Ask again; if that stays so, read the server's log.")
    if names & {"TextGenerationError", "JSONDecodeError", "UnicodeDecodeError", "ValueError", "TypeError", "AttributeError", "KeyError"}:
        return _not_ours(chain[0], endpoint)
    return InferenceError(f"Asking the server failed ({type(error).__name__}). Ask again; if that stays so, read the server's log.")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def silent(endpoint: Endpoint, what: str) -> InferenceError:
    """The sentence for a server that says nothing; `what`: "did not answer", "fell silent"."""
    return InferenceError(
        f"The server {what} for {endpoint.patience_s} s, so the connection was closed. Ask again, or set {variable_of(endpoint.name, 'TIMEOUT')} to more seconds."
    )


def _not_ours(error: BaseException, endpoint: Endpoint) -> InferenceError:
    """A piece of the stream that can't be read, or that is the server's own word of a fault."""
    if any(kind.__name__ == "TextGenerationError" for kind in type(error).__mro__):
        said = said_by(error.args[0] if error.args else None, endpoint)
        return InferenceError(f"The server broke its answer off{said}. {KEPT}ask again, or read the server's log.")
    what = "no JSON" if "JSON" in type(error).__name__ else "a piece of another form"
    return malformed(endpoint, what)


def malformed(endpoint: Endpoint, what: str) -> InferenceError:
    """The sentence for a stream that is none of a chat completion."""
    return InferenceError(MALFORMED.format(what, variable_of(endpoint.name, "URL")))


def refused(response: object, endpoint: Endpoint) -> InferenceError:
    """The sentence for a status that is an error."""
    status, headers = int(getattr(response, "status_code", 0)), getattr(response, "headers", {})
    key, model = variable_of(endpoint.name, "KEY"), variable_of(endpoint.name, "MODEL")
    if status in (401, 403):
        has = f"does not take the key in {key}" if endpoint.key else f"wants a key, and {key} holds none"
        return InferenceError(f"The server {has} ({status}). Set {key} to one that may use it, then start again.")
    said = said_by(_body(response), endpoint)
    if status == 404:
        return InferenceError(
            f"The server knows no model {endpoint.model or 'of that name'}, or has no chat completions (404){said}. Check {model} and {variable_of(endpoint.name, 'URL')}."
        )
    if status in BUSY:
        after_s = retry_after_s(headers)
        when = "in a moment" if after_s is None else f"in {after_s:.0f} s"
        return Busy(f"The server is {'busy' if status == 429 else 'not ready'} ({status}){said}. Ask again {when}.", after_s)
    if status in (400, 413, 422):
        return InferenceError(f"The server does not take this request ({status}){said}. Change the prompt or its settings, or check {model}.")
    if status >= 500:
        return InferenceError(f"The server failed ({status}){said}. Ask again; if that stays so, read the server's log.")
    return InferenceError(f"The server answers with status {status}{said}. Check {variable_of(endpoint.name, 'URL')}.")


def _body(response: object) -> object:
    try:
        return json.loads(response.read())  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - a page, half a body, nothing at all: then there is nothing to quote
        return None


def said_by(body: object, endpoint: Endpoint) -> str:
    """What a server says in an error's body, as ": "its sentence""; empty where there is none to be found."""
    for key in ("error", "message", "detail"):
        while isinstance(body, Mapping) and key in body:
            body = body[key]
    if isinstance(body, list) and body and isinstance(body[0], Mapping):
        body = body[0].get("msg")
    if not isinstance(body, str) or not body.strip():
        return ""
    line = "".join(sign if sign.isprintable() else " " for sign in endpoint.without_secrets(body))
    words = " ".join(line.split()).rstrip(".")
    return f': "{words if len(words) <= MOST_SAID else f"{words[: MOST_SAID - 3]}..."}"'


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or a date, which is held against the server's own clock; None where it names none."""
    text, sent = (str(headers.get(name, "")).strip() for name in ("retry-after", "date"))
    try:
        if text.replace(".", "", 1).isdigit():
            return float(text)
        return max(0.0, (parsedate_to_datetime(text) - parsedate_to_datetime(sent)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
