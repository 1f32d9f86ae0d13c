"""This folder -> the files that a Space needs of it: the program, its page, what both read, and what the platform installs.

In: a folder, what was asked for. Out: `SpaceFile`s with their content, README.md and requirements made fit (`adapted.py`), or the sentence what is
missing. No tests, no documentation, no caches; nothing that git would not have either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from inference.errors import InferenceError
from inference.settings import DEFAULT_MODEL, SMALL_MODEL
from inference.space import adapted
from inference.space.asked import Asked

CODE = ("inference", "ui")
SOURCES = {".py", ".c", ".h", ".cu", ".cuh", ".css", ".js", ".svg", ".json", ".html"}
READ = ("examples/prompts.json", "examples/waiter.csv", "examples/shapes/*.json")  # what the page and the settings look for
ADAPTER = "examples/menu/adapter/*"  # the default model
PICTURE = "docs/page.png"  # what a shared link shows (`ui/preview.py`)
PLATFORM = ("requirements.txt", "pre-requirements.txt", "packages.txt")
NEEDED = ("app.py", "README.md", "requirements.txt", "inference/settings.py", "ui/build.py", "examples/prompts.json", "LICENSE")
SHOWN = re.compile(r'(?:src="|!\[[^\]]*\]\()(docs/[\w./-]+)')
OURS = ("app.py", "inference/settings.py")  # a Space that has these is one of ours
ROOMS = ("inference/", "ui/", "examples/", "docs/")  # of which nothing stays that is not uploaded anew


@dataclass(frozen=True)
class SpaceFile:
    """A file as the Space has it."""

    path: str
    content: bytes = field(repr=False)

    @property
    def bytes(self) -> int:
        return len(self.content)


def collect(folder: Path, asked: Asked) -> list[SpaceFile]:
    """Every file that is uploaded, by path; raises InferenceError where the folder lacks what a Space needs."""
    if missing := [name for name in NEEDED if not (folder / name).is_file()]:
        raise InferenceError(f"{folder} lacks {missing[0]}, without which the page does not run. Take the whole folder as it was delivered.")
    readme = _text(folder / "README.md")
    paths = {path for room in CODE for path in (folder / room).rglob("*") if path.suffix in SOURCES and path.is_file() and not _hidden(path, folder)}
    paths |= {path for pattern in _patterns(asked) for path in folder.glob(pattern) if path.is_file()}
    paths |= {path for name in ("app.py", "LICENSE", PICTURE, *SHOWN.findall(readme)) if (path := folder / name).is_file()}
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    for name in PLATFORM:
        if (folder / name).is_file():
            text = _text(folder / name)
            found[name] = (text if name == "packages.txt" else adapted.requirements(text, asked.hardware)).encode()
    found["README.md"] = adapted.readme(readme, asked.hardware, _on_hub(asked), found).encode()
    return [SpaceFile(path, content) for path, content in sorted(found.items())]


def to_delete(there: set[str], files: list[SpaceFile], everything: bool) -> list[str]:
    """Of the files that are `there`, those that must go: what was ours and is no more; with `everything`, all that is not uploaded."""
    kept = {file.path for file in files} | {".gitattributes"}
    return sorted(path for path in there - kept if everything or path.startswith(ROOMS) or path in PLATFORM)


def _patterns(asked: Asked) -> tuple[str, ...]:
    return (*READ, ADAPTER) if DEFAULT_MODEL in asked.models else READ


def _on_hub(asked: Asked) -> list[str]:
    """The models' Hub ids, without file and revision; the default one is a fine-tune of the small one."""
    ids = [SMALL_MODEL if name == DEFAULT_MODEL else name.partition("@")[0] for name in asked.models if not name.startswith("shape:")]
    return list(dict.fromkeys("/".join(name.split("/")[:2]) for name in ids))


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise InferenceError(f"{path.name} is no UTF-8 text. Take it as it was delivered.") from None
