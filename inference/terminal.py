"""What a terminal can show: how wide it is, how wide a text is on it, lines broken to that, letters that it lacks, a reader that has gone.

In: streams, text. Out: lines of at most so many columns. Text of a model is untrusted: its control characters are shown, never obeyed.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import TextIO

USUAL_WIDTH = 80  # where the output goes to no terminal, or to one that does not say
LEAST_WIDTH = 20
PLAIN = {"×": "x", "±": "+-", "–": "-", "—": "-", "·": "-", "…": "...", "‘": "'", "’": "'", "“": '"', "”": '"'}
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)  # C0, C1, line ends that are none here, and what turns the rest of a line round


def prepare() -> None:
    """Let stdout and stderr take any text: what their encoding has no letter for is written plainly (`PLAIN`) or escaped."""
    codecs.register_error("plainly", _plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plainly")


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(PLAIN.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in signs), error.end


def delivering(run: Callable[[], int], gone: int) -> int:
    """The exit code of `run`, which prints, or `gone` where a reader has gone before all was written."""
    try:
        code = run()
    except BrokenPipeError:
        code = gone
    return code if delivered() else gone


def delivered() -> bool:
    """Write out what is buffered; False where a reader has gone (`| head`), of whom nothing more is heard then, or the disk is full, which is told."""
    done = True
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            done = False
            give_up(stream)
            if not isinstance(error, BrokenPipeError) and stream is sys.stdout:
                print(f"Not all could be printed ({error.strerror or error}).", file=sys.stderr)
    return done


def say(words: str, stream: TextIO | None = None) -> None:
    """Print a line to `stream` (stdout) at once; a program that serves goes on also where nothing can be printed: a full disk, a reader that has gone."""
    try:
        print(words, file=stream, flush=True)
    except OSError:
        give_up(stream or sys.stdout)


def give_up(stream: TextIO) -> None:
    """Let go of what `stream` could not write: else the interpreter tries again at its end, and complains."""
    with contextlib.suppress(OSError, ValueError):  # one that is no file of the system
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def width(stream: TextIO | None = None) -> int:
    """The columns of the terminal that `stream` (stdout) goes to; COLUMNS wins."""
    told = os.environ.get("COLUMNS", "")
    try:
        found = int(told) if told.isdecimal() else os.get_terminal_size((stream or sys.stdout).fileno()).columns
    except (OSError, ValueError, AttributeError):
        found = 0
    return max(LEAST_WIDTH, found or USUAL_WIDTH)


def fit(text: str, hang: int = 0) -> str:
    """A text with its lines wrapped to the terminal; as it is where there is none (a file, `| grep`) and COLUMNS says nothing."""
    return wrapped(text, width(), hang) if sys.stdout.isatty() or os.environ.get("COLUMNS") else text


def columns(text: str) -> int:
    """How many columns a text of one line takes: two for a wide sign (Chinese, an emoji), none for one that joins another."""
    return len(text) if text.isascii() else sum(map(_columns, text))


@functools.lru_cache(4096)
def _columns(sign: str) -> int:
    if sign == "\ufe0f":  # makes the sign before it a picture, which is wide
        return 1
    if unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def printable(text: str) -> str:
    """`text` with its control characters shown as escapes, line breaks kept and tabs as spaces."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text.replace("\r\n", "\n")).expandtabs(4)


def in_json(text: str) -> str:
    """JSON that says the same, its control characters as JSON's own escapes; they can stand in its strings alone."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def tell(words: object) -> None:
    """A line on stderr, if anybody still reads it."""
    say(printable(str(words)), sys.stderr)


def cut(line: str, most: int) -> str:
    """The beginning of `line` that takes at most `most` columns, of one sign at least."""
    used = 0
    for index, sign in enumerate(line):
        used += columns(sign)
        if used > most and index:
            return line[:index]
    return line


def pad(text: str, most: int) -> str:
    """`text` filled up with spaces to `most` columns."""
    return text + " " * (most - columns(text))


def wrap(line: str, most: int, hang: int = 0) -> list[str]:
    """A line in lines of at most `most` columns, broken between words where that can be; those after the first are indented as it is, and by `hang`."""
    margin = " " * min(len(line) - len(line.lstrip()) + hang, most // 2)
    done, now = list[str](), ""
    for word in re.findall(r"\s*\S+", line):
        if now.strip() and columns(now) + columns(word) > most:
            done.append(now)
            now = margin + word.lstrip()
        else:
            now += word
        while columns(now) > most:
            head = cut(now, most)
            done.append(head)
            now = margin + now[len(head) :]
    return [*done, now]


def wrapped(text: str, most: int, hang: int = 0) -> str:
    """A text with each line that is too long wrapped."""
    return "\n".join(part for line in text.split("\n") for part in wrap(line, most, hang))
