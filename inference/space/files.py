"""This folder -> the files that a Space needs of it: the program, its page, what both read, and what the platform installs.

In: a folder, what was asked for. Out: `SpaceFile`s with their content, README.md's head and the requirements made fit for the hardware, or the
sentence what is missing. No tests, no documentation, no caches. Standard library only: the head is ours, a `key: value` a line.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from inference.errors import InferenceError
from inference.host.hardware import Hardware
from inference.settings import DEFAULT_MODEL, SMALL_MODEL
from inference.space.asked import Asked

CODE = ("inference", "ui")
SOURCES = {".py", ".c", ".h", ".cu", ".cuh", ".css", ".js", ".svg", ".png", ".json", ".html"}
READ = ("examples/prompts.json", "examples/waiter.csv", "examples/shapes/*.json")  # what the page and the settings look for
ADAPTER = "examples/menu/adapter/*"  # the default model
PLATFORM = ("requirements.txt", "pre-requirements.txt", "packages.txt")
NEEDED = ("app.py", "README.md", "requirements.txt", "inference/settings.py", "ui/build.py", "examples/prompts.json", "LICENSE")
SHOWN = re.compile(r'(?:src="|!\[[^\]]*\]\()(docs/[\w./-]+)')
OURS = ("app.py", "inference/settings.py")  # a Space that has these is one of ours
ROOMS = ("inference/", "ui/", "examples/", "docs/")  # of which nothing stays that is not uploaded anew

HEAD = re.compile(r"\A---\n(.*?\n)---\n", re.S)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(?:#[^)\s]*)?\)")
REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
# ZeroGPU takes torch 2.8.0, 2.9.1, 2.10.0 or 2.11.0 and no other. 2.10.0 is the newest of them that brings CUDA 12 (12.8, with code for the
# compute capability 12.0 of its cards): 2.11 brings CUDA 13, which wants a driver of 580 or newer, and the Spaces' was seen to serve 12.9.
ZERO_TORCH = "torch==2.10.0"
ZERO_PYTHON = "3.12.12"  # it has this one and 3.10.13, and transformers 5 needs 3.11 or newer
ZERO_BRINGS = ("gradio", "spaces", "huggingface-hub")  # not to be listed there: the platform installs its own
KEYS = ("sdk", "sdk_version", "app_file", "title")


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
    paths |= {path for name in ("app.py", "LICENSE", *SHOWN.findall(readme)) if (path := folder / name).is_file()}
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    for name in PLATFORM:
        if (folder / name).is_file():
            text = _text(folder / name)
            found[name] = (text if name == "packages.txt" else requirements_for(text, asked.hardware)).encode()
    found["README.md"] = readme_for(readme, asked.hardware, _on_hub(asked), found).encode()
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


def head(readme: str) -> dict[str, str]:
    """What README.md's head says, by key; raises InferenceError where it has none or lacks what a Space needs."""
    found = HEAD.match(readme)
    lines = found[1].splitlines() if found else []
    said = {key.strip(): value.strip().strip("\"'") for key, colon, value in (line.partition(":") for line in lines if line[:1].strip()) if colon}
    if missing := [key for key in KEYS if not said.get(key)]:
        raise InferenceError(f"README.md has no {missing[0]} in its head, which a Space reads. Take README.md as it was delivered.")
    if said["sdk"] != "gradio":
        raise InferenceError(f"README.md names the sdk {said['sdk']}, and this page is a gradio one. Take README.md as it was delivered.")
    return said


def readme_for(text: str, hardware: Hardware, models: Collection[str], uploaded: Collection[str]) -> str:
    """README.md for that hardware and those models; a link to a file that is not `uploaded` is left as its words."""
    head(text)
    found = HEAD.match(text)
    lines = found[1].splitlines() if found else []
    lines = _with(lines, "suggested_hardware", hardware.flavor)
    if hardware.zero:
        lines = _with([line for line in lines if not line.startswith("hardware:")], "python_version", f'"{ZERO_PYTHON}"')
    if models:
        lines = _with(lines, "models", "", [f"  - {model}" for model in models])
    body = LINK.sub(lambda link: link[0] if link[2] in uploaded else link[1], text[found.end() :] if found else text)
    return "\n".join(["---", *lines, "---", body])


def _with(lines: list[str], key: str, value: str, below: list[str] | None = None) -> list[str]:
    """These lines with `key` at `value`, where it stood or at the end; the list that it had is gone."""
    kept, at, inside = list[str](), len(lines), False
    for line in lines:
        inside = inside and line[:1] in (" ", "-")
        if line.partition(":")[0] == key and line[:1].strip():
            at, inside = len(kept), True
        elif not inside:
            kept.append(line)
    at = min(at, len(kept))
    return [*kept[:at], f"{key}: {value}".rstrip(), *(below or ()), *kept[at:]]


def requirements_for(text: str, hardware: Hardware) -> str:
    """Requirements for that hardware: as they are, but for ZeroGPU, which brings some itself and takes few torches."""
    if not hardware.zero:
        return text
    kept = []
    for line in text.splitlines():
        named = REQUIREMENT.match(line)
        name = re.sub(r"[-_.]+", "-", named[1]).lower() if named else ""
        if name not in ZERO_BRINGS:
            kept.append(ZERO_TORCH if name == "torch" else line)
    return "\n".join(kept) + "\n"
