"""A lane's status and a run's progress -> what one card shows: top (name, state, figures), answer, and the small print under it.

Pure functions; `now` is on the shared monotonic clock in seconds. Figures are the lane's own stamps, never taken here; only the running
clock is. The top is as high whatever it says, so that cards stay in line; sentences go under the answer. The model's text goes into the answer alone.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, replace
from typing import Any

from inference.events import Loading
from inference.lanes import LaneName, plain_title
from inference.progress import Progress
from inference.status import LOADING_STATES, LaneStatus
from inference.timing import Timings
from inference.units import UNKNOWN, count, rate, seconds, size
from ui import badge
from ui.badge import escape

Messages = list[dict[str, Any]]
IDLE_WORDS = {"off": "Loads at its first prompt", "ready": "Ready", "busy": "Answering another prompt"}
LEAST_HIGH, MOST_HIGH = 120, 420  # pixels, of an answer's box
RESERVED, A_TOKEN = 64, 2.2  # pixels, by which the box is as high from the start as so many tokens need, and nothing moves while they come


@dataclass(frozen=True)
class Line:
    """What a lane is at: a phase for the looks, words, how far it is, and the sentence that stands under the answer."""

    phase: str
    words: str
    detail: str = ""
    sentence: str = ""


def device_word(status: LaneStatus) -> str:
    """Where the lane's weights are, as its own process says; "starting" until it has said so."""
    if LaneName.parse(status.key).elsewhere:
        return " · ".join(filter(None, ["server", status.facts.model_id if status.facts else ""]))
    if status.facts:
        return "CPU" if status.facts.device == "cpu" else status.facts.device_name
    if status.hello:
        device = status.hello.device
        return "CPU" if device == "cpu" else str(status.hello.environment.get("gpu") or "CUDA device")
    if LaneName.parse(status.key).on_cpu:
        return "CPU"
    return "starting" if status.state in ("off", *LOADING_STATES) else "unknown device"


def title(status: LaneStatus) -> str:
    """A card's name, read off the lane: "4-bit (NF4)", "Full precision (FP32)"; of a server as the settings call it."""
    if status.title:
        return status.title
    name = status.hello.lane if status.hello else status.name
    return plain_title(status.facts.precision if status.facts else LaneName.parse(name).precision)


def answer_height(max_new_tokens: int) -> int:
    """How high the box of an answer of at most so many tokens is, in pixels: enough for most, and the rest scrolls."""
    return round(min(MOST_HIGH, max(LEAST_HIGH, RESERVED + A_TOKEN * max_new_tokens)))


# ---- what it is at


def idle_line(status: LaneStatus) -> Line:
    """A lane that this tab has given no prompt yet."""
    return _silent(_at_rest(status), status)


def _at_rest(status: LaneStatus) -> Line:
    if status.state in ("failed", "refused"):
        return Line("failed", "Failed" if status.state == "failed" else "Can't load here", "", status.reason or "This lane can't run.")
    if status.state == "starting":
        return Line("loading", "Starting the lane's process")
    if status.state == "loading":
        return Line("loading", *loading_words(status.progress))
    return Line("idle", IDLE_WORDS.get(status.state, status.state))


def _silent(line: Line, status: LaneStatus) -> Line:
    """The same, with what is to be said of a lane that gives no sign of life, or does not get on."""
    quiet = status.quiet
    if quiet is None or line.sentence:
        return line
    ending = f"After {quiet.ended_after_s:.0f} s of that it is ended and started anew."
    if quiet.frozen:
        return replace(line, words="No sign of life", sentence=f"No sign of life of this lane for {quiet.for_s:.0f} s. {ending}")
    return replace(line, sentence=f"Nothing new of this lane for {quiet.for_s:.0f} s, though it is at work. {ending}")


def past_line(wrote: str | None) -> Line:
    """A card that still shows a run of an earlier model."""
    who = f"Answered by {wrote}, before the model was changed." if wrote else "This answer is from before the model was changed."
    return Line("idle", "Of the model before", "", who)


def run_line(progress: Progress, status: LaneStatus, now: float, limit: int) -> Line:
    """A run: its phase in words, how far it is, and a clock; `limit` is the most tokens it may write."""
    took = count(progress.n) if progress.n else ""
    if progress.phase == "failed":
        return Line("failed", "Failed", took, progress.error or "This run failed.")
    if progress.no_text:
        return Line("failed", "No text", took, progress.fault or "")
    if progress.ended:
        cut = progress.done is not None and progress.done.finish_reason == "length"
        limit = progress.n or limit if status.title else limit  # a server may have one of its own
        words = "Stopped before the first token" if progress.phase == "stopped" and not (progress.n or progress.text) else progress.phase.capitalize()
        return Line("cut" if cut else progress.phase, f"Cut at {count(limit)}" if cut else words, "" if cut else took)
    words, detail = _phase_words(progress, status)
    begun = progress.t_start if progress.phase in ("prefill", "decode") and progress.t_start is not None else progress.since
    clock = badge.clock(max(0.0, now - begun))
    return _silent(Line(progress.phase, words, f"{detail} · {clock}" if detail else clock), status)


def _phase_words(progress: Progress, status: LaneStatus) -> tuple[str, str]:
    starting = status.state == "starting"
    match progress.phase:
        case "waiting" | "queued" | "loading" if starting and not progress.position:
            return "Starting the lane's process", ""
        case "queued":
            return (f"Waiting behind {progress.position}" if progress.position else "Waiting, next in line"), ""
        case "turn":
            return "Waiting for its turn", f"behind {progress.position}" if progress.position else ""
        case "loading":
            return loading_words(progress.loading or status.progress)
        case "prefill":
            return "Reading the prompt", count(len(progress.prompt_ids)) if progress.prompt_ids else ""
        case "decode":
            return "Writing", count(progress.n) if progress.n else ""
    return "Waiting", ""


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


# ---- the parts of a card


def top(status: LaneStatus, line: Line, progress: Progress | None = None) -> str:
    """Name and device, the state, the figures as far as they have come; the same height whatever they say."""
    timings = progress.timings if progress else Timings()
    facts = status.facts
    figures = [
        ("First word", timings.ttft_s, seconds),
        ("Speed", timings.decode_tps, rate),
        ("Total", timings.total_s, seconds),
        ("Size", facts.weights_bytes if facts else None, size),
    ]
    unknown = UNKNOWN if progress and progress.ended else badge.NOT_YET
    tiles = badge.tiles([(name, words(value) if value is not None else unknown) for name, value, words in figures])
    name, _, precision = title(status).partition(" (")
    bracket = f' <span class="in-brackets">({escape(precision)}</span>' if precision else ""
    where = device_word(status)
    return (
        f'<div class="lane-head"><h2>{escape(name)}{bracket}</h2><span class="where" title="{escape(where)}">{escape(where)}</span></div>'
        f'<div class="status phase-{escape(line.phase)}" data-phase="{escape(line.phase)}"><span class="phase" title="{escape(line.words)}">{escape(line.words)}</span>'
        f'<span class="clock" aria-hidden="true">{escape(line.detail)}</span></div>'
        f'<div class="{"" if progress is None or progress.ended else "live"}">{tiles}</div>'
    )


def answer(progress: Progress) -> Messages:
    """What the model has written; plain text, escaped, so that the page shows exactly that."""
    text = "" if progress.no_text else progress.text
    # A plain string would lose its indentation and trailing spaces in Chatbot's cleandoc; a typed part does not.
    return [{"role": "assistant", "content": [{"type": "text", "text": html.escape(text, quote=False)}]}] if text else []


def foot(status: LaneStatus, line: Line, progress: Progress | None = None) -> str:
    """Under the answer: what must be said in a sentence, then the small print: tokens, load, how it was run, and what the model is."""
    alert = f'<p class="sentence" role="alert">{escape(line.sentence)}</p>' if line.sentence and line.phase == "failed" else ""
    note = f'<p class="small">{escape(line.sentence)}</p>' if line.sentence and not alert else ""
    small = " · ".join([*_tokens(progress), *_load(status), *_marks(progress)])
    lines = [small, *_must_be_said(status, progress)]
    return alert + note + "".join(f'<p class="small">{escape(words)}</p>' for words in lines if words)


def _tokens(progress: Progress | None) -> list[str]:
    done = progress.done if progress else None
    if done is None or not done.prompt_tokens:
        return []
    out = progress.n if progress and progress.n else 0 if not done.text else "not counted"
    return [f"{count(done.prompt_tokens)} in, {out} out"]


def _load(status: LaneStatus) -> list[str]:
    load = status.load if status.facts else None  # a lane that is gone has none
    return [f"load {seconds(load.total_s)}, {'cold' if load.cold else 'warm'}"] if load else []


def _marks(progress: Progress | None) -> list[str]:
    done = progress.done if progress else None
    marks = ["first run since the load"] if done and done.warm is False else []
    marks += ["beside another run"] if done and done.alone is False else []
    return marks + ([f"{done.path} path"] if done and done.path_reason else [])


def _must_be_said(status: LaneStatus, progress: Progress | None) -> list[str]:
    """Why the lane is not on a GPU, where that is so, what must be said of its model, and why a run was not decoded by the lane's faster path."""
    hello, facts, done = status.hello, status.facts, progress.done if progress else None
    reason = hello.reason if hello and hello.available and hello.device == "cpu" else None
    lines = [f"{_capital(reason).rstrip('.')}: this lane runs on the CPU."] if reason else []
    lines += [f"{_capital(facts.note)}"] if facts and facts.note else []
    return lines + ([f"Decoded by the {done.path} path, not by {done.path_reason}"] if done and done.path_reason else [])


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
