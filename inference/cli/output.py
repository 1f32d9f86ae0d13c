"""Where the command line writes a comparison: `--json`, `--csv`, `--markdown`, `--report`; `--json -` is stdout.

Targets are tried before anything runs. At the end stdout comes first, then every file, so that one that can't be
written takes nothing else with it: it is kept in the temporary folder.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from inference import terminal
from inference.cli import whole
from inference.errors import WrongArguments
from inference.record.export import to_csv
from inference.record.markdown import markdown_all
from inference.record.model import Record

FILES = ("json", "csv", "markdown", "report")
READ = ("prompts", "text", "records", "load")  # what a command takes its input from
ESCAPED = "backslashreplace"


def check_targets(options: argparse.Namespace) -> None:
    """Raise WrongArguments before anything runs where a file could not be written, or would take another's place that the command reads or writes."""
    taken = {os.path.realpath(name): f"--{key}" if key != "records" else "a record" for key in READ for name in _names(getattr(options, key, None))}
    for key in FILES:
        flag, name = f"--{key}", getattr(options, key, None)
        if name == "-" and flag != "--json":
            raise WrongArguments(f"{flag} can't go to stdout, only --json can. Name a file.")
        check_file(name)
        if not name or name == "-" or not _is_file(name):
            continue
        if other := taken.get(os.path.realpath(name)):
            raise WrongArguments(f"{flag} names the file that {other} names ({name}). Name another file.")
        taken[os.path.realpath(name)] = flag


def _names(given: str | Sequence[str] | None) -> Sequence[str]:
    return [given] if isinstance(given, str) else given or ()


def _is_file(name: str) -> bool:
    """Whether a file is or will be there, which one thing alone can be written to; not a pipe or a device."""
    return not os.path.exists(name) or os.path.isfile(name)


def check_file(name: str | None) -> None:
    """Raise WrongArguments where no file could be written under `name` (nothing and - are fine); leaves no new file behind."""
    if not name or name == "-":
        return
    path = Path(os.path.realpath(name))
    try:
        if not path.parent.is_dir():
            raise WrongArguments(f"The folder of {name} does not exist. Make it first, or name another.")
        if path.is_dir():
            raise WrongArguments(f"{name} is a folder. Name a file in it.")
        _try_to_open(path)
    except OSError as error:
        raise WrongArguments(_sentence(name, error)) from error


def _try_to_open(path: Path) -> None:
    """Raises OSError; a pipe or a device is asked about only, since opening one may wait or be noticed."""
    new = not path.exists()
    if new or path.is_file():
        with path.open("a"):
            pass
    elif not os.access(path, os.W_OK):
        raise PermissionError("permission denied")
    if new:
        path.unlink()


def give(options: argparse.Namespace, records: Sequence[Record], json: str, tables: str, markdown: str | None = None) -> bool:
    """Print `tables` (with --json - the text `json` instead), then write each file that was asked for.

    `markdown` stands in for the records' own. False where something could not be written, which stderr tells.
    """
    done = [show(tables, json if options.json == "-" else None)]
    if options.json and options.json != "-":
        done.append(put(options.json, json))
    if options.csv:
        done.append(put(options.csv, to_csv(records)))
    if options.markdown:
        done.append(put(options.markdown, markdown_all(records) if markdown is None else markdown))
    if options.report:
        from inference.report.html import html_report  # with the templates' library, which nothing else here needs

        done.append(put(options.report, html_report(records)))
    return all(done)


def give_json(name: str | None, tables: str, json: str) -> bool:
    """Print `tables` and, on the last line, the object `json`; with a `name` it is written there as well, with - it is all that is printed.

    False where something could not be written, which stderr tells.
    """
    done = show(f"{tables}\n\n{json}", f"{json}\n" if name == "-" else None)
    return put(name, f"{json}\n") and done if name and name != "-" else done


def put(name: str, text: str) -> bool:
    """Write `text` as UTF-8 under `name`, whole or not at all; where that can't be it is kept elsewhere, and False: stderr tells."""
    data = _bytes(text)
    try:
        whole.write(name, data)
    except BrokenPipeError:  # a pipe whose reader has seen enough
        return False
    except OSError as error:
        terminal.tell(f"{name} can't be written ({error.strerror or error}). {_kept(name, data)}")
        return False
    return True


def show(text: str, json: str | None = None) -> bool:
    """Print `text`, or `json` instead, where there is one, in UTF-8 whatever the terminal's letters; where that can't be it is kept, and False: stderr tells."""
    if json is not None and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=ESCAPED)
    try:
        print(terminal.printable(text) if json is None else terminal.in_json(json), end="\n" if json is None else "", flush=True)
    except BrokenPipeError:  # the reader has seen enough (`| head`)
        return False
    except (OSError, UnicodeError) as error:
        terminal.give_up(sys.stdout)
        kept = _kept("result.txt", _bytes(text)) if json is None else _kept("result.json", _bytes(json))
        print(f"The result can't be printed ({getattr(error, 'strerror', None) or error}). {kept}", file=sys.stderr)
        return False
    return True


@contextmanager
def never_lost(measured: Callable[[], str]) -> Iterator[None]:
    """`measured` gives what was measured by then as JSON, empty for nothing: where the rest, or showing it, fails or is interrupted, it is kept and stderr tells."""
    try:
        yield
    except BrokenPipeError:
        raise
    except BaseException:
        if json := measured():
            print(f"What was measured could not be shown. {_kept('result.json', _bytes(json))}", file=sys.stderr)
        raise


def _bytes(text: str) -> bytes:
    """UTF-8; half a character, which only a file's name can bring here, as its escape, which JSON reads back."""
    return text.encode("utf-8", ESCAPED)


def _kept(name: str, data: bytes) -> str:
    """Put what has no place in the temporary folder; the sentence that says where it is."""
    try:
        return f"It is kept in {whole.keep(name, data)}."
    except OSError as error:
        return f"It could not be kept in the temporary folder either ({error.strerror or error})."


def _sentence(name: str, error: OSError | UnicodeError) -> str:
    return f"{name} can't be written ({getattr(error, 'strerror', None) or error}). Name another file."
