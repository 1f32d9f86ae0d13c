"""A file of prompts -> its rows with their line numbers, and the lines that can't be used, each with its reason.

txt: a prompt a line. csv: a column `prompt`, optionally `expected`, between its cells a comma, a semicolon or a tab, as its header has it.
jsonl: an object a line with the same keys. UTF-8.
Empty lines of a txt or jsonl are no rows; a blank row of a csv is told, but for those at its end. Of the lines left out the first few are
kept, the others counted. Knows no engine and no model.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.errors import WrongArguments
from inference.events import MOST_CHARACTERS

KINDS = (".txt", ".csv", ".jsonl")
HINTS = {
    ".txt": "Write one prompt a line.",
    ".csv": "Write one prompt a row below the header.",
    ".jsonl": 'Write one object a line, such as {"prompt": "..."}.',
}
MOST_BYTES = 10 * 2**20
MOST_TOLD = 20
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SEPARATORS = (",", ";", "\t")  # of a csv: where numbers have a decimal comma, spreadsheets write semicolons
NO_COLUMN = "The csv file has no column `prompt`. Its first line must name a column `prompt`."
NOT_UTF8 = "not UTF-8 text"
BLANK = "the row is blank"
MORE_CELLS = "more cells than the header has; put quotes around the prompt"
HALF_CHARACTER = "it holds half a character (a lone surrogate), which is no text"


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


@dataclass
class LeftOut:
    """All rows that were left out: the first `MOST_TOLD` of them, and how many more there were."""

    rows: list[Skipped] = field(default_factory=list)
    more: int = 0

    @property
    def count(self) -> int:
        """How many rows were left out."""
        return len(self.rows) + self.more

    def add(self, row: Skipped) -> None:
        """One more row was left out."""
        if len(self.rows) < MOST_TOLD:
            self.rows.append(row)
        else:
            self.more += 1

    def words(self) -> list[str]:
        """A sentence for each row that is kept, and one for all others."""
        others = [f"And {self.more} more line{'s were' if self.more > 1 else ' was'} left out."] if self.more else []
        return [*(row.words() for row in self.rows), *others]


def read_prompts(path: Path, most: int | None = None) -> tuple[list[Prompt], LeftOut]:
    """The rows of a prompts file in its order, and what was left out.

    Raises WrongArguments for a file that can't be read, holds no row, or holds more than `most`.
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise WrongArguments(f"{path.name} is not a prompts file. Use one of: {', '.join(KINDS)}.")
    prompts: list[Prompt] = []
    left_out = LeftOut()
    for row in {".txt": _txt, ".csv": _csv, ".jsonl": _jsonl}[kind](_data(path)):
        if isinstance(row, Skipped):
            left_out.add(row)
        elif len(prompts) == most:
            raise WrongArguments(f"{path.name} has more than {most} prompts. Split it, or use the command line: python -m inference compare --prompts FILE.")
        else:
            prompts.append(row)
    if not prompts:
        first = [f"Line {row.line}: {row.reason}." for row in left_out.rows[:1]]
        how = [] if first and kind == ".csv" else [HINTS[kind]]  # such a row says itself what to do, and the column is there
        raise WrongArguments(" ".join([f"{path.name} has no prompt that can be used.", *first, *how]))
    return prompts, left_out


def _data(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise WrongArguments(f"{path} can't be read ({error.strerror or error}). Check the path.") from error
    if len(data) > MOST_BYTES:
        raise WrongArguments(f"{path.name} is larger than {MOST_BYTES // 2**20} MiB. Split it.")
    if data.startswith(UTF16):  # every second byte a NUL, which would be read as a part of the prompts
        raise WrongArguments(f"{path.name} is UTF-16 text. Save it as UTF-8.")
    return data


def _text(data: bytes, newline: str | None) -> io.TextIOWrapper:
    """The file's text, a line at a time; bytes that are not UTF-8 become what `_is_utf8` refuses."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _lines(data: bytes) -> Iterator[tuple[int, str | None]]:
    """Lines that hold something, with their numbers; None for one that is not UTF-8."""
    for number, line in enumerate(_text(data, None), 1):
        if line.strip():
            yield number, line if _is_utf8(line) else None


def _txt(data: bytes) -> Iterator[Prompt | Skipped]:
    for number, line in _lines(data):
        yield Skipped(number, NOT_UTF8) if line is None else _row(number, line.strip(), None)


def _jsonl(data: bytes) -> Iterator[Prompt | Skipped]:
    for number, line in _lines(data):
        if line is None:
            yield Skipped(number, NOT_UTF8)
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            yield Skipped(number, "not JSON")
            continue
        yield _row(number, found.get("prompt"), found.get("expected")) if isinstance(found, dict) else Skipped(number, "not a JSON object")


def _csv(data: bytes) -> Iterator[Prompt | Skipped]:
    csv.field_size_limit(MOST_BYTES)  # of the process: a long cell is a long row, not the end of the file
    data = data.rstrip()
    separator = next((each for each in SEPARATORS if "prompt" in _header(data, each)), SEPARATORS[0])
    reader = csv.reader(_text(data, ""), delimiter=separator, strict=True)
    end = 0
    header: list[str] = []
    try:
        for cells in reader:
            begin, end = end + 1, reader.line_num
            blank = not any(cell.strip() for cell in cells)
            if header:
                yield Skipped(begin, BLANK) if blank else _csv_row(begin, header, cells)
            if header or blank:
                continue
            header = _names(cells)
            if "prompt" not in header:
                raise WrongArguments(NO_COLUMN)
    except csv.Error as error:
        yield Skipped(end + 1, f"not csv from here on ({error})")
        return
    if not header:
        raise WrongArguments(NO_COLUMN)


def _header(data: bytes, separator: str) -> list[str]:
    """What the columns are called if this stands between them: the first row that is not blank; nothing where it can't be read so."""
    try:
        rows = csv.reader(_text(data, ""), delimiter=separator, strict=True)
        return next((_names(cells) for cells in rows if any(cell.strip() for cell in cells)), [])
    except csv.Error:
        return []


def _names(header: list[str]) -> list[str]:
    return [cell.strip().lower() for cell in header]


def _csv_row(line: int, header: list[str], cells: list[str]) -> Prompt | Skipped:
    if not all(map(_is_utf8, cells)):
        return Skipped(line, NOT_UTF8)
    if len(cells) > len(header):
        return Skipped(line, MORE_CELLS)
    found = dict(zip(header, cells, strict=False))
    return _row(line, found.get("prompt"), found.get("expected"))


def _row(line: int, prompt: Any, expected: Any) -> Prompt | Skipped:
    if not isinstance(prompt, str):
        return Skipped(line, "no `prompt`" if prompt is None else "`prompt` is not text")
    if not prompt.strip():
        return Skipped(line, "the prompt is empty")
    if len(prompt) > MOST_CHARACTERS:
        return Skipped(line, f"the prompt is longer than {MOST_CHARACTERS:,} characters")
    if isinstance(expected, (int, float)) and not isinstance(expected, bool):
        expected = str(expected)
    if expected is not None and not isinstance(expected, str):
        return Skipped(line, "`expected` is neither text nor a number")
    if not _is_utf8(prompt + (expected or "")):
        return Skipped(line, HALF_CHARACTER)
    hoped = expected if expected and expected.strip() else None  # a blank one would be in every answer, and none would equal it
    return Prompt(line, prompt, hoped)
