"""A fault of the Hub's library -> why, in words: each answer of the Hub and each way of not reaching it has its own.

In: what was raised, the model's name. Out: a sentence. Told by status and headers, since the library's own classes merge some of them.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from huggingface_hub import constants, get_token
from huggingface_hub import errors as hub_errors

from inference.errors import InferenceError, Refused
from inference.host import certificates

# of httpx or httpx2, whichever the library uses
TransportError: type[Exception] = hub_errors.HfHubHTTPError.__bases__[0]
NO_ADDRESS = ("name or service not known", "name resolution", "nodename nor servname", "no address associated", "getaddrinfo")
SILENT = {"TimeoutException", "TimeoutError"}
InvalidURL: type[Exception] = sys.modules[TransportError.__module__.partition(".")[0]].InvalidURL
NO_HUB = (ValueError, TypeError, KeyError, AttributeError)  # of an answer that is none of the Hub's
FAULTS = (TransportError, InvalidURL, OSError, RuntimeError, ImportError, *NO_HUB)  # what the library and its downloader in Rust raise
QUOTES = "\"'"
BROKEN_OFF = {"NetworkError", "ProtocolError", "ConnectionError"}


def endpoint() -> str:
    """The Hub's address as it may be shown: without a password in it, as mirrors want one."""
    return re.sub(r"//[^/@]*@", "//", constants.ENDPOINT)


def told(error: Exception, name: str, revision: str | None) -> InferenceError:
    """What the Hub, or the way to it, refused before anything was downloaded, and what to do."""
    if isinstance(error, hub_errors.HFValidationError):
        return Refused(f"{name!r} is neither an existing folder nor a Hub id (owner/name). Check MODEL_ID.")
    response = answer(error)
    if response is not None and (sentence := _refused(response, name, revision)):
        return Refused(sentence)
    if isinstance(error, hub_errors.OfflineModeIsEnabled):
        return InferenceError(f"The Hub may not be asked (HF_HUB_OFFLINE is set), and {name} is not on this machine. Unset it, or name a local folder.")
    state, advice = ("can't be reached", "Connect to the network") if response is None else ("gives no answer now", "Ask again later")
    return InferenceError(f"The Hugging Face Hub {state} ({why(error)}), and {name} is not on this machine. {advice}, or set MODEL_ID to a local folder.")


def why(error: Exception) -> str:
    """The reason of a fault on the way, in a few words."""
    response = answer(error)
    if response is not None:
        return _busy(response) or f"it answered {response.status_code}"
    cause = next((one for one in _chain(error) if isinstance(one, (TransportError, ConnectionError, TimeoutError))), error)
    kinds, text, place = {kind.__name__ for kind in type(cause).__mro__}, str(cause), endpoint()
    if isinstance(cause, OSError) and cause.filename and str(cause.filename) == constants.HF_TOKEN_PATH:
        return f"{cause.filename}, where the token is kept, can't be read ({cause.strerror}): set HF_TOKEN, or HF_TOKEN_PATH to another file"
    if isinstance(cause, OSError) and (unusable := certificates.fault()):
        return unusable
    if isinstance(cause, UnicodeEncodeError):
        return "HF_TOKEN holds a character that no token has"
    if isinstance(cause, ImportError):
        return "the proxy that is set is a SOCKS one, which this Python can't use: look at HTTPS_PROXY and ALL_PROXY, or pip install socksio"
    if "UnsupportedProtocol" in kinds and not place.startswith(("http://", "https://")):
        return f"HF_ENDPOINT ({place or 'set, and empty'}) is no address: it must begin with https://, or be unset"
    if isinstance(cause, InvalidURL):
        return "the address of the proxy that is set, or HF_ENDPOINT, is none: look at HTTPS_PROXY and ALL_PROXY"
    if "ProxyError" in kinds:
        return "the proxy that is set refuses the connection: look at HTTPS_PROXY"
    if "TooManyRedirects" in kinds or "redirect" in text.lower():
        return f"{place} sends from one address to the next without end"
    if SILENT & kinds:
        return f"{place} did not answer in time"
    if any(words in text.lower() for words in NO_ADDRESS):
        return f"there is no address for {place}"
    if "certificate" in text.lower():
        return f"the certificate of {place} is not trusted"
    if "refused" in text.lower():
        return f"{place} refuses the connection"
    if BROKEN_OFF & kinds:
        return "the connection broke off"
    if isinstance(cause, NO_HUB):
        return f"what answers at {place} is not the Hub, perhaps a proxy or a page to log in"
    return f"{type(cause).__name__}: {text.splitlines()[0][:200] if text else 'no reason given'}"


def _token() -> str | None:
    """The token that is set; None for one whose file can't be read, which is the fault to tell."""
    try:
        return get_token()
    except (OSError, ValueError):
        return None


def trace(error: BaseException) -> str:
    """The trace of a fault for the log, without the token."""
    text = "".join(traceback.format_exception(error))
    token = _token()
    return text.replace(token, "***") if token else text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def answer(error: BaseException) -> Any:
    """The Hub's answer that a fault was raised for; None where there was none."""
    return next((one.response for one in _chain(error) if isinstance(one, hub_errors.HfHubHTTPError)), None)


def _busy(response: Any) -> str | None:
    """Why the Hub doesn't answer now but may later; None where it would not later either."""
    status = response.status_code
    if status == 429:
        more = "" if _token() else "; with a token (HF_TOKEN) it may be asked more often"
        return f"429: it was asked too often; it may be asked again {_wait(response.headers)}{more}"
    if status >= 500 or status == 408:
        return f"{status}: a fault of its own"
    return None


def _wait(headers: Any) -> str:
    found = re.fullmatch(r"\d+", headers.get("Retry-After", "")) or re.search(r"(?<=t=)\d+", headers.get("RateLimit", ""))
    return f"in {found[0]} s" if found else "later"


def _refused(response: Any, name: str, revision: str | None) -> str | None:
    """The sentence for an answer that asking again won't change; None for one that it may."""
    if _busy(response) or response.status_code < 400:
        return None
    code = response.headers.get("X-Error-Code", "")
    said = response.headers.get("X-Error-Message", "")
    by_status = {401: _unknown_caller, 403: _forbidden, 404: _not_there}.get(response.status_code)
    if by_status:
        return by_status(name, revision, code, said)
    return f"The Hub refuses {name} ({response.status_code}{f': {said}' if said else ''}). Check MODEL_ID{_elsewhere()}."


def _unknown_caller(name: str, revision: str | None, code: str, said: str) -> str:
    if token := _token():
        why = "it is wrong or has expired" if token[0] not in QUOTES else "it stands in quotes, which belong to it where it is set: take them off"
        return (
            f"The Hub does not accept the token that is set (401): {why}. Make a new one at {endpoint()}/settings/tokens "
            f"and set the secret HF_TOKEN, or unset it if {name} is public."
        )
    if code == "GatedRepo":
        return f"{name} is locked, and no token was given. Accept its licence at {_page(name)} and set the secret HF_TOKEN."
    return f"The Hub shows no model {name} to somebody without a token (401): check the spelling of MODEL_ID; for a private model set the secret HF_TOKEN."


def _forbidden(name: str, revision: str | None, code: str, said: str) -> str:
    if "disabled" in said:
        return f"{name} has been disabled on the Hub (403). Set MODEL_ID to another model."
    if "fine-grained" in said or (code != "GatedRepo" and _token()):
        return (
            f"The token that is set may not read {name} (403): it lacks a permission. At {endpoint()}/settings/tokens give it read access "
            "to this model (for a locked one: to public gated repositories), or set HF_TOKEN to another one."
        )
    if "await" in said and "review" in said:
        return f"{name} is locked, and this account's request still awaits its authors' review (403). Look at {_page(name)}, or set MODEL_ID to another model."
    if code == "GatedRepo":
        return f"{name} is locked, and this token's account may not read it. Accept its licence at {_page(name)} with that account."
    return f"The Hub, or a proxy before it, refuses {name} (403), and no token was given. Set the secret HF_TOKEN if the model is private{_elsewhere()}."


def _not_there(name: str, revision: str | None, code: str, said: str) -> str:
    if code == "RevisionNotFound":
        return f"{name} has no revision {revision or 'main'}. The Hub lists its branches, tags and commits at {_page(name)}/commits/main."
    if code == "EntryNotFound":
        return f"{name} lacks a file that it should have ({said or 'the Hub does not say which'}). Name another revision (owner/name@revision) or model."
    whose = "or it is private and this token's account may not see it" if _token() else "or it is private: then set the secret HF_TOKEN"
    return f"The Hub knows no model {name}{f' with revision {revision}' if revision else ''}, {whose}. Check the spelling of MODEL_ID{_elsewhere()}."


def _page(name: str) -> str:
    return f"{endpoint()}/{name}"


def _elsewhere() -> str:
    """A word more where it is not the Hub itself that is asked."""
    return "" if constants.ENDPOINT == "https://huggingface.co" else f", and HF_ENDPOINT ({endpoint()})"
