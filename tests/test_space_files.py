"""What a Space reads of this folder: the README's front matter, pre-requirements.txt and packages.txt, held against requirements and settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest
import yaml
from huggingface_hub import SpaceHardware
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from inference.host.child import ROOT
from inference.lane.probe import TORCH_FOR_CUDA_12
from inference.settings import SMALL_MODEL

# all that the Hub's configuration reference lists; a Space with another one is not built
KEYS = {
    "title", "emoji", "colorFrom", "colorTo", "sdk", "python_version", "sdk_version", "suggested_hardware", "suggested_storage", "app_file", "app_port",
    "base_path", "fullWidth", "header", "short_description", "models", "datasets", "tags", "thumbnail", "pinned", "license", "preload_from_hub",
    "hf_oauth", "hf_oauth_expiration_minutes", "hf_oauth_scopes", "disable_embedding", "startup_duration_timeout", "custom_headers",
}  # fmt: skip
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
MOST_DESCRIPTION = 60
TORCH = [Version(f"2.{minor}.0") for minor in range(7, 17)]
FIRST_FOR_CUDA_13 = Version("2.11.0")


@pytest.fixture(scope="module")
def front() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "README.md").read_text("utf-8").split("---\n")[1])
    assert isinstance(found, dict)
    return found


def lines(file: str) -> Iterator[str]:
    """A list's lines without comments, those of the lists that it names too."""
    for line in (ROOT / file).read_text("utf-8").splitlines():
        text = line.split("#")[0].strip()
        if text.startswith("-r "):
            yield from lines(text.removeprefix("-r ").strip())
        elif text:
            yield text


def required(file: str) -> dict[str, SpecifierSet]:
    """What a list requires by name, all its lines on a name taken together."""
    found: dict[str, SpecifierSet] = {}
    for requirement in map(Requirement, lines(file)):
        found[requirement.name] = found.get(requirement.name, SpecifierSet()) & requirement.specifier
    return found


def test_the_front_matter_is_one_that_a_space_is_built_from(front):
    assert set(front) <= KEYS and {front["colorFrom"], front["colorTo"]} <= COLOURS
    assert 0 < len(front["short_description"]) <= MOST_DESCRIPTION and front["title"] and not front["emoji"].isascii()
    assert front["suggested_hardware"] in {each.value for each in SpaceHardware}
    assert re.fullmatch(r"\d+(m|h)", front["startup_duration_timeout"])
    assert front["license"] == "apache-2.0" and "Apache License" in (ROOT / "LICENSE").read_text("utf-8")[:200]


def test_it_names_what_is_here(front):
    assert front["sdk"] == "gradio" and " launch(" in (ROOT / front["app_file"]).read_text("utf-8")
    assert front["models"] == [SMALL_MODEL]


def test_its_gradio_is_the_one_that_is_required_and_tested(front):
    version = front["sdk_version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version) and version in required("requirements.txt")["gradio"]
    assert version == metadata.version("gradio")


def test_its_python_is_one_that_everything_required_runs_on(front):
    python = front["python_version"]
    assert isinstance(python, str), "without quotes 3.10 is 3.1"
    supported = {name: metadata.metadata(name)["Requires-Python"] for name in required("requirements.txt")}
    supported["us"] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    assert not [name for name, versions in supported.items() if f"{python}.0" not in SpecifierSet(versions or "")]


def test_a_space_s_torch_is_one_that_is_required_and_needs_no_cuda_13():
    before, after = required("pre-requirements.txt"), required("requirements.txt")
    allowed = [version for version in TORCH if version in before["torch"]]
    assert allowed and all(version in after["torch"] for version in allowed) and max(allowed) < FIRST_FOR_CUDA_13
    assert f"{max(allowed)}.post1" in before["torch"] and str(FIRST_FOR_CUDA_13) + ".dev0" not in before["torch"]
    assert set(before) <= set(after), "what a Space alone installs is not tested"
    assert TORCH_FOR_CUDA_12 in lines("pre-requirements.txt")


def test_the_oldest_that_are_tested_are_what_a_space_gets_and_the_least_that_is_required():
    oldest, after = required("requirements-oldest.txt"), required("requirements.txt")
    newest_on_a_space = max(version for version in TORCH if version in required("pre-requirements.txt")["torch"])
    assert [version for version in TORCH if version in oldest["torch"]] == [newest_on_a_space]
    least = next(Version(each.version) for each in after["transformers"] if each.operator == ">=")
    minors = [Version(f"{least.major}.{minor}.0") for minor in range(50)]
    assert [version for version in minors if version in oldest["transformers"]] == [Version(f"{least}.0")]


def test_a_space_installs_a_c_compiler_and_nothing_apt_would_stumble_over():
    """Its lines are given to apt as they are, so a comment would be a package."""
    packages = (ROOT / "packages.txt").read_text("utf-8").splitlines()
    assert {"gcc", "libc6-dev"} <= set(packages) and all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", package) for package in packages)
