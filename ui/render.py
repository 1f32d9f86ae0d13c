"""A lane's status and a run's progress -> what one column shows: head, status line, answer, badges.

Pure functions; `now` is on the shared monotonic clock in seconds. Figures are read off `Done` and the lane's
facts, never measured here; only the running clock is. The model's text goes into the answer alone.
"""

from __future__ import annotations

import html
from typing import Any

from inference import ends
from inference.events import LaneFacts, Loading
from inference.lanes import LaneName, precision_words, short_title
from inference.progress import Progress
from inference.status import LOADING_STATES, LaneStatus
from inference.timing import Timings
from inference.units import UNKNOWN, count, rate, seconds, size
from ui import badge
from ui.badge import escape

Messages = list[dict[str, Any]]
STATE_WORDS = {"off": "not loaded", "refused": "can't load"}
IDLE_WORDS = {
    "off": "Not loaded yet: it loads at its first prompt.",
    "ready": "Ready.",
    "busy": "Answering another prompt.",
}


def device_word(status: LaneStatus) -> str:
    """Where the lane's weights are, as its own process says; "starting" until it has said so."""
    if status.facts:
        return "CPU" if status.facts.device == "cpu" else status.facts.device_name
    if status.hello:
        device = status.hello.device
        return "CPU" if device == "cpu" else str(status.hello.environment.get("gpu") or "CUDA device")
    if LaneName.parse(status.key).on_cpu:
        return "CPU"
    return "starting" if status.state in ("off", *LOADING_STATES) else "unknown device"


def title(status: LaneStatus) -> str:
    """A column's title, read off the lane: "4-bit NF4 · CPU"."""
    name = status.hello.lane if status.hello else status.name
    return short_title(status.facts.precision if status.facts else LaneName.parse(name).precision, device_word(status))


def head(status: LaneStatus) -> str:
    """Title and state, and under them why the lane is not on a GPU, where that is so."""
    hello = status.hello
    reason = hello.reason if hello and hello.available and hello.device == "cpu" else None
    note = f"{reason[:1].upper()}{reason[1:].rstrip('.')}: this lane runs on the CPU." if reason else ""
    state = STATE_WORDS.get(status.state, status.state)
    return (
        f'<div class="lane-head"><h2>{escape(title(status))}</h2>'
        f'<span class="state state-{escape(status.state)}">{escape(state)}</span></div><p class="lane-notes">{escape(note)}</p>'
    )


def _model_lines(facts: LaneFacts, progress: Progress | None) -> str:
    """The model a lane answers with, what must be said of it, and why a run was not decoded by the lane's faster path."""
    slow = progress.done.path_reason if progress and progress.done else None
    threads = f", {facts.threads} threads" if facts.threads and facts.device == "cpu" else ""
    lines = [f"{facts.model_id} on {facts.device_name}{threads}", f"{facts.note[:1].upper()}{facts.note[1:]}" if facts.note else ""]
    lines += [f"Decoded by the {progress.done.path} path, not by {slow}"] if slow and progress and progress.done else []
    return "".join(f'<p class="lane-model">{escape(text)}</p>' for text in lines if text)


def loading_words(loading: Loading | None) -> tuple[str, str]:
    """A load's stage, and how far it is: ("Loading: reading weights", "3 of 5 weights")."""
    if loading is None:
        return "Loading", ""
    words = f"Loading: {loading.stage}"
    if not loading.total:
        return words, ""
    if loading.unit in ("B", "bytes"):
        return words, f"{size(loading.done)} of {size(loading.total)}"
    return words, f"{loading.done:g} of {loading.total:g} {loading.unit}".rstrip()


def idle_line(status: LaneStatus) -> str:
    """The status line of a column that has shown no run yet."""
    if status.state in ("failed", "refused"):
        return _line("failed", status.reason or "This lane can't run.")
    if status.state == "starting":
        return _line("loading", "Starting the lane's process")
    if status.state == "loading":
        return _line("loading", *loading_words(status.progress))
    return _line("idle", IDLE_WORDS.get(status.state, status.state))


def past_line(wrote: str | None) -> str:
    """The status line of a column that still shows a run of an earlier model."""
    return _line("idle", f"Answered by {wrote}, before the model was changed" if wrote else "From before the model was changed")


def run_line(progress: Progress, status: LaneStatus, now: float) -> str:
    """The status line of a run: its phase in words, how far it is, and a clock."""
    if progress.phase == "failed":
        return _line("failed", progress.error or "This run failed.", count(progress.n) if progress.n else "")
    total_s = progress.done.timings.total_s if progress.done else None
    took = f"{count(progress.n)} · {seconds(total_s)}" if total_s is not None else ""
    if progress.no_text:
        return _line("failed", "No text produced.", took)
    if progress.ended:
        words = "Stopped before the first token" if progress.phase == "stopped" and not progress.n else progress.phase.capitalize()
        return _line(progress.phase, words, took)
    words, detail = _phase_words(progress, status)
    begun = progress.t_start if progress.phase in ("prefill", "decode") and progress.t_start is not None else progress.since
    clock = badge.clock(max(0.0, now - begun))
    return _line(progress.phase, words, f"{detail} · {clock}" if detail else clock)


def _phase_words(progress: Progress, status: LaneStatus) -> tuple[str, str]:
    starting = status.state == "starting"
    others = f"{progress.position} other run{'s' * (progress.position != 1)}"
    match progress.phase:
        case "waiting" | "queued" | "loading" if starting and not progress.position:
            return "Starting the lane's process", ""
        case "queued":
            return (f"Waiting behind {others}" if progress.position else "Waiting, next in line"), ""
        case "turn":
            return "Waiting for its turn: the lanes are measured one after the other", f"behind {others}" if progress.position else ""
        case "loading":
            return loading_words(progress.loading or status.progress)
        case "prefill":
            return "Prefill: reading the prompt", count(len(progress.prompt_ids))
        case "decode":
            return "Decoding", count(progress.n)
    return "Waiting", ""


def _line(phase: str, words: str, detail: str = "") -> str:
    # Only the words are announced: a clock and a counter in a live region would be read out ten times a second.
    role = "alert" if phase == "failed" else "status"
    return (
        f'<div class="status phase-{escape(phase)}"><span class="phase" role="{role}" aria-live="polite">{escape(words)}</span>'
        f'<span class="clock" aria-hidden="true">{escape(detail)}</span></div>'
    )


def answer(prompt: str, progress: Progress) -> Messages:
    """The conversation so far; plain text, escaped, so that the page shows exactly what the model wrote."""
    messages = [_message("user", prompt)]
    if progress.no_text:
        messages.append(_message("assistant", progress.fault or ""))
    elif progress.text:
        messages.append(_message("assistant", progress.text))
    return messages


def _message(role: str, text: str) -> dict[str, Any]:
    # A plain string would lose its indentation and trailing spaces in Chatbot's cleandoc; a typed part does not.
    return {"role": role, "content": [{"type": "text", "text": html.escape(text, quote=False)}]}


def badges(status: LaneStatus, progress: Progress | None = None) -> str:
    """The measured figures of a column, as far as they are known, and the model they are about."""
    done = progress.done if progress else None
    ended = progress is not None and progress.ended
    timings = progress.timings if progress and ended else Timings()
    facts, load = status.facts, status.load

    def figure(value: float | None, words: Any) -> str:
        return words(value) if value is not None or ended else badge.NOT_YET

    headline = [
        ("First token", figure(timings.ttft_s, seconds)),
        ("Speed", figure(timings.decode_tps, rate)),
        ("Total", figure(timings.total_s, seconds)),
        ("Weights", size(facts.weights_bytes) if facts else UNKNOWN if ended else badge.NOT_YET),
    ]
    small = [
        ("device", device_word(status) if status.hello or status.facts else badge.NOT_YET),
        ("precision", precision_words(facts.precision) if facts else badge.NOT_YET),
        ("load", seconds(load.total_s) if load else badge.NOT_YET),
    ]
    if done and done.prompt_tokens:
        small.append(("tokens", f"{done.prompt_tokens} in, {len(done.token_ids)} out"))
    if progress and ended:
        small.append(("end", _end_words(progress)))
    return badge.tiles(headline) + badge.chips(small, _marks(status, progress)) + (_model_lines(facts, progress) if facts else "")


def _end_words(progress: Progress) -> str:
    if progress.phase == "failed":
        return "failed"
    if progress.no_text:
        return "failed: no text produced"
    reason = progress.done.finish_reason if progress.done else None
    return ends.WORDS.get(reason or "", reason or UNKNOWN)


def _marks(status: LaneStatus, progress: Progress | None) -> list[str]:
    done = progress.done if progress else None
    marks = ["cold load"] if status.load and status.load.cold else []
    if done and done.warm is False:
        marks.append("cold run")
    if done and done.alone is False:
        marks.append("contended")
    if done and done.path_reason:
        marks.append(f"{done.path} path")
    return marks
