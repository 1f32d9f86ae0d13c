"""The two texts that a Space reads before our program starts, made fit for its hardware: README.md's head and the requirements.

In: this folder's texts, the hardware, the model. Out: the deployed copies. Standard library only: the head is ours, a `key: value` a line.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from inference.errors import InferenceError
from inference.hardware import Hardware

HEAD = re.compile(r"\A---\n(.*?\n)---\n", re.S)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)#\s]+)(?:#[^)\s]*)?\)")
REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
# ZeroGPU takes torch 2.8.0, 2.9.1, 2.10.0 or 2.11.0 and no other. 2.10.0 is the newest of them that brings CUDA 12 (12.8, with code for the
# compute capability 12.0 of its cards): 2.11 brings CUDA 13, which wants a driver of 580 or newer, and the Spaces' was seen to serve 12.9.
ZERO_TORCH = "torch==2.10.0"
ZERO_PYTHON = "3.12.12"  # it has this one and 3.10.13, and transformers 5 needs 3.11 or newer
ZERO_BRINGS = ("gradio", "spaces", "huggingface-hub")  # not to be listed there: the platform installs its own
NEEDED = ("sdk", "sdk_version", "app_file", "title")


def head(readme: str) -> dict[str, str]:
    """What README.md's head says, by key; raises InferenceError where it has none or lacks what a Space needs."""
    found = HEAD.match(readme)
    lines = found[1].splitlines() if found else []
    said = {key.strip(): value.strip().strip("\"'") for key, colon, value in (line.partition(":") for line in lines if line[:1].strip()) if colon}
    if missing := [key for key in NEEDED if not said.get(key)]:
        raise InferenceError(f"README.md has no {missing[0]} in its head, which a Space reads. Take README.md as it was delivered.")
    if said["sdk"] != "gradio":
        raise InferenceError(f"README.md names the sdk {said['sdk']}, and this page is a gradio one. Take README.md as it was delivered.")
    return said


def readme(text: str, hardware: Hardware, models: Collection[str], uploaded: Collection[str]) -> str:
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


def requirements(text: str, hardware: Hardware) -> str:
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
