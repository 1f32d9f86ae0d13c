"""A fault of the Hub's while a Space is made -> a sentence: what was refused, why, and what to do. In: what was raised, what was being done."""

from __future__ import annotations

import logging
from typing import Any

from huggingface_hub import constants
from huggingface_hub import errors as hub_errors

from inference.errors import InferenceError
from inference.sources import hub_faults
from inference.space.asked import Asked

log = logging.getLogger(__name__)
FAULTS = hub_faults.FAULTS
AGAIN = "what was done stays, and the same command goes on from there"


def told(error: Exception, doing: str, asked: Asked) -> InferenceError:
    """The sentence for a fault that was raised while `doing` ("making the Space"); its trace goes to the log, without token and secrets."""
    log.info("%s failed\n%s", doing, asked.masked(hub_faults.trace(error)))
    if isinstance(error, hub_errors.OfflineModeIsEnabled):
        return InferenceError("The Hub may not be asked (HF_HUB_OFFLINE is set). Unset it, or see what would be done with --dry-run.")
    response = hub_faults.answer(error)
    status = 0 if response is None else response.status_code
    if by_status := {401: _unknown, 402: _unpaid, 403: _forbidden, 404: _gone, 409: _conflict, 412: _changed}.get(status):
        return InferenceError(asked.masked(by_status(doing, asked, _said(response))))
    if response is not None and 400 <= status < 500 and status not in (408, 429):
        return InferenceError(asked.masked(f"The Hub refuses {doing} ({status}: {_said(response) or 'no reason given'}). Mend that, and deploy again."))
    state = "can't be reached" if response is None else "gives no answer now"
    return InferenceError(f"The Hugging Face Hub {state} while {doing} ({hub_faults.why(error)}). Try again later: {AGAIN}.")


def refused(error: Exception) -> bool:
    """Whether the Hub itself answered that it did not do it."""
    response = hub_faults.answer(error)
    return response is not None and response.status_code < 500


def no_token() -> InferenceError:
    """The sentence where there is no token at all."""
    return InferenceError(f"No token is set, and a Space is made with one. Make one that may write at {_tokens()}, then: hf auth login (or set HF_TOKEN).")


def _said(response: Any) -> str:
    """The Hub's own reason, on one line."""
    words = response.headers.get("X-Error-Message", "")
    if not words:
        try:
            body = response.json()
            words = body.get("error") or body.get("message") or "" if isinstance(body, dict) else ""
        except (ValueError, RuntimeError):  # no JSON, or a body that was not read
            words = ""
    return " ".join(str(words).split())[:300].rstrip(".")


def _tokens() -> str:
    return f"{constants.ENDPOINT}/settings/tokens"


def _because(words: str) -> str:
    return f": {words}" if words else ""


def _unknown(doing: str, asked: Asked, said: str) -> str:
    return f"The Hub does not accept the token that is set (401{_because(said)}): it is wrong or has expired. Make a new one that may write at {_tokens()}, then: hf auth login."


def _unpaid(doing: str, asked: Asked, said: str) -> str:
    plan = "a paid plan (PRO, or an organization's)" if asked.hardware.zero or not asked.hardware.dollars_per_hour else "a payment method and credit"
    return (
        f"The Hub asks for payment for {asked.hardware.name} (402{_because(said)}): it wants {plan}. "
        f"Add it at {constants.ENDPOINT}/settings/billing (an organization's: in its own settings), or choose other --hardware."
    )


def _forbidden(doing: str, asked: Asked, said: str) -> str:
    return (
        f"The token that is set may not be used for {doing} (403{_because(said)}). At {_tokens()} give it write access to the repositories of {asked.owner}, "
        "or name a Space of an account that it may write to."
    )


def _gone(doing: str, asked: Asked, said: str) -> str:
    return f"The Hub knows no Space {asked.space} (404{_because(said)}) while {doing}: was it deleted or renamed meanwhile? Check the name, and deploy again."


def _conflict(doing: str, asked: Asked, said: str) -> str:
    return f"The Hub refuses {doing} because of what is there already (409{_because(said)}). Look at {constants.ENDPOINT}/spaces/{asked.space}, or choose another name."


def _changed(doing: str, asked: Asked, said: str) -> str:
    return f"{asked.space} was changed by somebody else meanwhile (412{_because(said)}). Look at what changed, and deploy again."
