"""A file of prompts -> its rows with their line numbers, and the lines that can't be used, each with its reason.

txt: a prompt a line. csv: a column `prompt`, optionally `expected`. jsonl: an object a line with the same keys. UTF-8.
Empty lines are no rows. Knows no engine and no model.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.errors import InferenceError

KINDS = (".txt", ".csv", ".jsonl")
MOST_BYTES = 10 * 2**20


@dataclass(frozen=True)
class Prompt:
    """One row: the line it begins on (from 1), what to ask, and the answer to hope for, if the file has one."""

    line: int
    text: str
    expected: str | None = None


@dataclass(frozen=True)
class Skipped:
    """A row that was left out: its line and why."""

    line: int
    reason: str

    def words(self) -> str:
        """What to tell of it."""
        return f"Line {self.line} was left out: {self.reason}."


def read_prompts(path: Path) -> tuple[list[Prompt], list[Skipped]]:
    """The rows of a prompts file in its order; raises InferenceError for a file that holds none or can't be read."""
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise InferenceError(f"{path.name} is not a prompts file. Use one of: {', '.join(KINDS)}.")
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InferenceError(f"{path.name} is larger than {MOST_BYTES // 2**20} MiB. Split it.")
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise InferenceError(f"{path} can't be read ({error.strerror or error}). Check the path.") from error
    rows = list({".txt": _txt, ".csv": _csv, ".jsonl": _jsonl}[kind](data))
    prompts, skipped = [row for row in rows if isinstance(row, Prompt)], [row for row in rows if isinstance(row, Skipped)]
    if not prompts:
        first = f" Line {skipped[0].line}: {skipped[0].reason}." if skipped else ""
        raise InferenceError(f"{path.name} has no prompt that can be used.{first} {_hint(kind)}")
    return prompts, skipped


def _hint(kind: str) -> str:
    return {".txt": "Write one prompt a line.", ".csv": "Its first line must name a column `prompt`."}.get(
        kind, 'Write one object a line, such as {"prompt": "..."}.'
    )


def _lines(data: bytes) -> Iterator[tuple[int, str | None]]:
    """Lines that hold something, with their numbers; None for one that is not UTF-8."""
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                yield number, line.decode("utf-8")
            except UnicodeDecodeError:
                yield number, None


def _txt(data: bytes) -> Iterator[Prompt | Skipped]:
    for number, line in _lines(data):
        yield Skipped(number, "not UTF-8 text") if line is None else Prompt(number, line.strip())


def _jsonl(data: bytes) -> Iterator[Prompt | Skipped]:
    for number, line in _lines(data):
        if line is None:
            yield Skipped(number, "not UTF-8 text")
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            yield Skipped(number, "not JSON")
            continue
        yield _row(number, found.get("prompt"), found.get("expected")) if isinstance(found, dict) else Skipped(number, "not a JSON object")


def _csv(data: bytes) -> Iterator[Prompt | Skipped]:
    text = data.decode("utf-8", errors="replace")
    reader = csv.reader(io.StringIO(text, newline=""))
    end = 0
    header: list[str] = []
    try:
        for cells in reader:
            begin, end = end + 1, reader.line_num
            if not header:
                header = [cell.strip().lower() for cell in cells]
                if "prompt" not in header:
                    raise InferenceError("The csv file has no column `prompt`. " + _hint(".csv"))
            elif any(cell.strip() for cell in cells):
                found = dict(zip(header, cells, strict=False))
                if any("\ufffd" in cell for cell in cells):
                    yield Skipped(begin, "not UTF-8 text")
                else:
                    yield _row(begin, found.get("prompt"), found.get("expected"))
    except csv.Error as error:
        yield Skipped(end + 1, f"not csv from here on ({error})")


def _row(line: int, prompt: Any, expected: Any) -> Prompt | Skipped:
    if not isinstance(prompt, str):
        return Skipped(line, "no `prompt`" if prompt is None else "`prompt` is not text")
    if not prompt.strip():
        return Skipped(line, "the prompt is empty")
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        expected = str(expected)
    if expected is not None and not isinstance(expected, str):
        return Skipped(line, "`expected` is neither text nor a number")
    return Prompt(line, prompt, expected or None)
