"""Our C library, built once for all tests of this process, whatever cache a lane has."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.cpu import build
from inference.cpu.build import NoLibrary
from inference.cpu.library import Library, load


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built library, for what builds it there if it isn't."""
    folder: Path = tmp_path_factory.mktemp("kernels")
    return folder


@pytest.fixture(scope="session", autouse=True)
def built_once() -> Iterator[None]:
    """What the compiler has made of the same command is copied in the place of being made again."""
    own, made = build._run, dict[tuple[str, ...], bytes]()

    def copied(command: list[str], until: float, work: Path) -> subprocess.CompletedProcess[str]:
        place = command.index("-o") + 1
        key = (*command[:place], *command[place + 1 :])
        if key in made:
            Path(command[place]).write_bytes(made[key])
            return subprocess.CompletedProcess(command, 0, "", "")
        done = own(command, until, work)
        if done.returncode == 0 and Path(command[place]).exists():
            made[key] = Path(command[place]).read_bytes()
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_run", copied)
        patch.setattr(build, "MOST_S", 120.0)  # a busy machine is no reason to leave out the tests of what is built
        yield


@pytest.fixture(scope="session")
def library(kernels: Path) -> Library:
    try:
        return load(kernels)
    except NoLibrary as error:
        pytest.skip(str(error))
