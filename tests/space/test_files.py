"""The deployed README.md and requirements: ZeroGPU's rules, the head's keys, no link to what is not uploaded; and which files go and stay."""

from __future__ import annotations

import re

import pytest

from inference.errors import InferenceError
from inference.host.child import ROOT
from inference.host.hardware import from_file
from inference.space import files
from inference.space.asked import Asked, variables
from inference.space.files import SpaceFile

ZERO, T4 = from_file().named("zero"), from_file().named("t4-small")
TORCHES = {"2.8.0", "2.9.1", "2.10.0", "2.11.0"}
README = "---\ntitle: A\nsdk: gradio\nsdk_version: 6.31.0\napp_file: app.py\nmodels:\n  - old/one\n- old/two\nhardware: x\npython_version: '3.12'\ntags:\n  - t\n---\n"


def packages(text: str) -> dict[str, str]:
    """Requirement lines by normalized name."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {re.split(r"[\[<>=!~; ]", line)[0].strip().lower().replace("_", "-"): line for line in lines}


@pytest.mark.parametrize("name", [name for name in files.PLATFORM if name != "packages.txt" and (ROOT / name).exists()])
def test_on_zerogpu_torch_is_one_that_the_platform_takes_and_what_it_brings_is_not_named(name):
    found = packages(files.requirements_for((ROOT / name).read_text("utf-8"), ZERO))
    assert found["torch"].partition("==")[2] in TORCHES and not {"gradio", "spaces", "huggingface-hub"} & set(found)
    own = packages((ROOT / name).read_text("utf-8"))
    assert {key: line for key, line in found.items() if key != "torch"} == {k: v for k, v in own.items() if k in found and k != "torch"}
    assert set(own) - set(found) <= {"gradio", "spaces", "huggingface-hub"}


def test_requirements_are_told_by_their_name_not_by_how_it_begins():
    text = "Gradio[mcp]>=6\ngradio-client>=2\nhuggingface_hub>=1\nspaces\nspacesuit\ntorch >=2.8 ; python_version > '3'\ntorchvision\n"
    assert files.requirements_for(text, ZERO) == "gradio-client>=2\nspacesuit\ntorch==2.10.0\ntorchvision\n"
    assert files.requirements_for(text, T4) == text


def test_the_head_names_hardware_and_models_once_and_keeps_the_rest():
    made = files.readme_for(README + "# A\n", ZERO, ["you/tuned", "you/other"], ())
    head = made[: made.index("---\n", 4)]
    assert "models:\n  - you/tuned\n  - you/other\n" in head and "old/" not in head and "\nhardware:" not in head
    assert head.count("python_version") == 1 and 'python_version: "3.12.12"' in head and "suggested_hardware: zero-a10g" in head
    assert "tags:\n  - t\n" in head and made.endswith("---\n# A\n")
    assert "python_version: '3.12'" in files.readme_for(README, T4, [], ()) and "hardware: t4-small" in files.readme_for(README, T4, [], ())


def test_a_link_to_what_is_not_uploaded_is_left_as_its_words():
    body = "[a](docs/a.md) [b](docs/a.md#x) [c](#here) [d](https://e.f/g) [e](LICENSE) ![p](docs/p.png)\n"
    made = files.readme_for(README + body, T4, [], {"LICENSE"})
    assert made.endswith("a b [c](#here) [d](https://e.f/g) [e](LICENSE) ![p](docs/p.png)\n")


@pytest.mark.parametrize("broken", ["# no head\n", README.replace("sdk: gradio\n", ""), README.replace("sdk: gradio", "sdk: docker")])
def test_a_readme_that_no_space_could_read_is_told(broken):
    with pytest.raises(InferenceError, match="Take README.md as it was delivered"):
        files.readme_for(broken, T4, [], ())


def test_a_folder_that_lacks_something_is_told(tmp_path):
    (tmp_path / "app.py").write_text("")
    with pytest.raises(InferenceError, match="lacks README.md"):
        files.collect(tmp_path, Asked("you/demo", T4, "menu", variables([], "menu", None)))


def test_what_was_ours_goes_and_what_others_put_there_stays():
    there = {"app.py", "inference/old.py", "docs/old.png", "packages.txt", "mine.md", ".gitattributes"}
    assert files.to_delete(there, [SpaceFile("app.py", b"")], everything=False) == ["docs/old.png", "inference/old.py", "packages.txt"]
    assert files.to_delete(there, [SpaceFile("app.py", b"")], everything=True) == ["docs/old.png", "inference/old.py", "mine.md", "packages.txt"]
