"""What each figure on the page means, one tap away: a popover for each, opened by the label that names it (`badge.about`).

The browser's own popovers: they close by Esc or a tap beside them, and stay out of the way of what streams.
"""

from __future__ import annotations

from ui.badge import escape

DEFINITIONS: dict[str, tuple[str, str]] = {
    "ttft": (
        "First word",
        "From the moment the lane begins the prompt until its first token has been chosen, timed in the lane on token ids. "
        "Loading the model and waiting for a turn or for other visitors are not in it.",
    ),
    "speed": (
        "Speed",
        "Tokens a second after the first one: one token fewer than were written, divided by the time between the first and the last. "
        "Reading the prompt, loading and waiting are not in it. A token is a word or a part of one.",
    ),
    "total": ("Total", "From the moment the lane begins the prompt until its last token. Loading and waiting are not in it; an answer that is longer takes longer."),
    "size": ("Size", "What the loaded weights hold, each once, in bytes. A 4-bit lane keeps some parts in 16 bits: they and the scales are counted."),
    "memory": (
        "Memory",
        "On a GPU: the most video memory that torch has reserved. On the CPU: the most RAM the lane's process took above its libraries; "
        "mapped pages of the model's file count. The two are not alike, so no ratio is given between them.",
    ),
    "answers": (
        "Answers",
        "Whether both lanes wrote the same tokens, and if not, the first word that differs. Both always take their likeliest token (unless a temperature "
        "is set), so a difference is the rounding's doing, and at a near tie it says little about quality.",
    ),
    "quality": (
        "Quality",
        "How often both lanes had the same first choice, when both read the full-precision answer. It takes the comparison token by token, and a longer text "
        "for a verdict: python -m inference quality.",
    ),
    "precision": (
        "4-bit and full precision",
        "NF4 keeps each weight as one of 16 values, with a scale for every 64 of them: about a seventh of the bytes of FP32, and not quite the same model. "
        "FP32 computes everything in 32-bit numbers: what the 4-bit answer is held against.",
    ),
}  # fmt: skip


def popovers() -> str:
    """All definitions, hidden until a label opens one."""
    return "".join(
        f'<div popover id="about-{key}" class="definition" role="note"><strong>{escape(title)}</strong><p>{escape(words)}</p></div>'
        for key, (title, words) in DEFINITIONS.items()
    )
