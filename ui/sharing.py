"""What to say at the start of a page that strangers can open, and its share link, made beside the page and not before it.

In: settings, the page once it is served. Out: sentences. The link may take half a minute, or never come: meanwhile the page is there, and Ctrl+C ends it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping

import gradio as gr

from inference import terminal
from inference.settings import Settings
from inference.units import count
from ui import private
from ui.visitors import Visitors

log = logging.getLogger(__name__)
ON_A_SPACE = "A share link is not made on a Space (SHARE is ignored there): its own address is the link to share."
OPEN_TO_ALL = "Anyone who has the share link can use this page, for a week: start it with --auth user:password to ask them for a password."


def notices(settings: Settings, environ: Mapping[str, str] = os.environ) -> list[str]:
    """What whoever starts the page is told of strangers, a sentence each."""
    said = []
    if settings.share and environ.get("SPACE_ID"):
        said.append(ON_A_SPACE)
    elif settings.share and not settings.auth:
        said.append(OPEN_TO_ALL)
    if Visitors(settings, environ).limited:
        said.append(f"Each visitor has one run at a time{_limits(settings)}. LIMITS=off lifts that.")
    return said


def _limits(settings: Settings) -> str:
    most = [
        (settings.limit_a_minute, f"{count(settings.limit_a_minute, 'prompt')} a minute"),
        (settings.limit_characters, f"{settings.limit_characters:,} characters a prompt"),
        (settings.limit_new_tokens, f"{settings.limit_new_tokens:,} new tokens an answer"),
        (settings.limit_rows, f"{settings.limit_rows:,} prompts a file"),
    ]
    told = [words for number, words in most if number]
    return f", and at most {', '.join(told)}" if told else ""


def open_link(demo: gr.Blocks, settings: Settings, url: str, environ: Mapping[str, str] = os.environ) -> None:
    """Make the share link that is asked for in a thread of its own; it is printed, or why there is none."""
    if settings.share and not environ.get("SPACE_ID"):
        threading.Thread(target=_open, args=(demo, url), name="share link", daemon=True).start()


def _open(demo: gr.Blocks, url: str) -> None:
    try:
        terminal.say(f"Share link, good for a week: {private.share_link(demo)}")
    except Exception as error:
        log.debug("no share link", exc_info=True)
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        terminal.say(f"There is no share link ({reason}). Look at the network, then start again with --share. The page goes on at {url}", sys.stderr)
