"""A file of prompts -> prompts with, where the file has them, the expected answers.

A text file has one prompt a line; csv has a column `prompt` and perhaps `expected`; jsonl has one object a line with
the same names. Knows no lane.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path

from inference.errors import InferenceError


@dataclass(frozen=True)
class Prompt:
    """One prompt and, where one is known, the answer that is expected."""

    prompt: str
    expected: str | None = None


def read_prompts(file: Path) -> list[Prompt]:
    """The prompts of a txt, csv or jsonl file; raises InferenceError for one that can't be read or holds none."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InferenceError(f"{file} can't be read ({error}). Give a UTF-8 file of prompts: txt, csv or jsonl.") from error
    kind = file.suffix.lower()
    rows = _jsonl(text, file) if kind == ".jsonl" else _csv(text, file) if kind == ".csv" else [{"prompt": line} for line in text.splitlines()]
    found = [Prompt(row["prompt"], row.get("expected")) for row in rows if row["prompt"].strip()]
    if not found:
        raise InferenceError(f"{file} holds no prompt. Put one a line (txt), or in a column or field `prompt` (csv, jsonl).")
    return found


def _csv(text: str, file: Path) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text))
    if "prompt" not in (reader.fieldnames or ()):
        raise InferenceError(f"{file} has no column `prompt`. Name one so in its first line.")
    return [{key: row[key] for key in ("prompt", "expected") if row.get(key) is not None} for row in reader if row.get("prompt")]


def _jsonl(text: str, file: Path) -> list[dict[str, str]]:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InferenceError(f"{file}, line {number}: not JSON ({error.msg}).") from error
        if not isinstance(row, dict) or not isinstance(row.get("prompt"), str):
            raise InferenceError(f"{file}, line {number}: there is no text `prompt`.")
        rows.append({key: str(row[key]) for key in ("prompt", "expected") if row.get(key) is not None})
    return rows
