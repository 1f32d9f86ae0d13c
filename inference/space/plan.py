"""What `deploy` would do, as text: files, the texts made for this hardware, variables, the names of secrets, the price, the calls.

In: what was asked for, the files, how the model fits. Out: lines. Asks nobody, and holds no secret's value.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference.host.hardware import Catalog
from inference.space.asked import Asked
from inference.space.files import PLATFORM, ZERO_PYTHON, ZERO_TORCH, SpaceFile
from inference.space.model import Judged, on_the_hub
from inference.units import count, seconds, size

WHY_ZERO = f"ZeroGPU's rules: no gradio, spaces or huggingface_hub in it, {ZERO_TORCH} (the newest it takes that brings CUDA 12), Python {ZERO_PYTHON}"


def told(asked: Asked, files: Sequence[SpaceFile], judged: Judged, catalog: Catalog) -> str:
    """The whole plan."""
    texts = {file.path: file.content.decode() for file in files if file.path in (*PLATFORM, "README.md")}
    total = sum(file.bytes for file in files)
    readme = texts["README.md"]
    head = readme[: readme.index("---\n", 4) + 4]
    lines = [
        f"{asked.space}, {'private' if asked.private else 'public'}, sdk gradio", "",
        *hardware(asked, catalog), "",
        f"Model {asked.model}", *(f"  {line}" for line in judged.lines(asked)), *(f"  {line}" for line in [judged.warning(asked, catalog)] if line), "",
        "Variables (everybody can read them)", *(f"  {name}={value}" for name, value in asked.variables.items()), "",
        "Secrets (their names; no value is shown)", *([f"  {name}" for name in asked.secrets] or ["  none"]), "",
        f"Files ({len(files)}, {size(total)})", *(f"  {file.path}  {size(file.bytes)}" for file in files), "",
        *([WHY_ZERO, ""] if asked.hardware.zero else ()),
    ]  # fmt: skip
    for name in PLATFORM:
        if name in texts:
            lines += [f"{name} as it is uploaded", *(f"  {line}" for line in texts[name].splitlines()), ""]
    lines += ["README.md's head as it is uploaded", *(f"  {line}" for line in head.splitlines()), ""]
    lines += ["Calls", *(f"  {number}. {call}" for number, call in enumerate(calls(asked, len(files)), 1)), ""]
    return "\n".join([*lines, "Nothing was asked and nothing was made (--dry-run)."])


def hardware(asked: Asked, catalog: Catalog) -> list[str]:
    """What it runs on and what that costs, with the date."""
    chosen = catalog.named(asked.hardware.name)
    lines = [f"Hardware {chosen}", f"  {chosen.price()} ({catalog.dated()})"]
    if chosen.dollars_per_hour:
        lines.append("  charged for as long as it runs, visited or not: pause it, or set a sleep time in its settings")
    return [*lines, f"  {chosen.note}"] if chosen.note else lines


def calls(asked: Asked, files: int) -> list[str]:
    """HfApi's calls, in their order."""
    space, flavor = asked.space, asked.hardware.flavor
    change = [f"add_space_variable({space}, {name})" for name in asked.variables] + [f"add_space_secret({space}, {name}, ***)" for name in asked.secrets]
    private = [f"update_repo_settings({space}, private=True), where it is public"] if asked.private else []
    named = f"variables {', '.join(asked.variables)}" + (f", secrets {', '.join(asked.secrets)}" if asked.secrets else "")
    return [
        "whoami(): may this token write there?",
        *(f"model_info({name}): is it there, is it locked?" for name in dict.fromkeys(asked.models) if on_the_hub(name)),
        f"space_info({space}): is there one, and is it ours?" + (" All that is not ours is removed (--replace)" if asked.replace else ""),
        f"where there is none: create_repo({space}, space_sdk=gradio, space_hardware={flavor}{', private' if asked.private else ''}), with {named}",
        f"where it is ours: {', '.join([*change, *private])}",
        f"create_commit({space}): {count(files, 'file')}, in one",
        f"where it has other hardware: request_space_hardware({space}, {flavor}); where it is paused, asleep or failed: restart_space({space})",
        *([f"get_space_runtime({space}) until it runs, {seconds(asked.budget_s)} at most"] if asked.budget_s else []),
        *(["gradio_client: one prompt to /compare"] if asked.budget_s else []),
    ]
