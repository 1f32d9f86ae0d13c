"""Where the command line writes a comparison: `--json`, `--csv`, `--markdown`; `--json -` is stdout."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inference.errors import InferenceError
from inference.export import to_csv
from inference.markdown import markdown_all


def check_targets(options: argparse.Namespace) -> None:
    """Raise InferenceError before anything runs where a file could not be written."""
    for name in (options.json, options.csv, options.markdown):
        if name and name != "-" and not Path(name).resolve().parent.is_dir():
            raise InferenceError(f"The folder of {name} does not exist. Make it first, or name another.")


def write(options: argparse.Namespace, records: Sequence[dict[str, Any]], whole: dict[str, Any], markdown: str | None = None) -> None:
    """Write what was asked for; `whole` is what goes into the JSON, `markdown` stands in for the records' own."""
    text = json.dumps(whole, indent=2, ensure_ascii=False)
    if options.json == "-":
        print(text)
    elif options.json:
        _put(options.json, text + "\n")
    if options.csv:
        _put(options.csv, to_csv(records))
    if options.markdown:
        _put(options.markdown, markdown_all(records) if markdown is None else markdown)


def _put(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InferenceError(f"{name} can't be written ({error.strerror or error}). Name another file.") from error
