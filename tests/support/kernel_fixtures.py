"""Our C products, built once for all tests that use them."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference.cpu.library import Library, NoLibrary, load


@pytest.fixture(scope="session")
def kernels(tmp_path_factory) -> Path:
    """The folder of the built products, for what builds them there if they aren't."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session")
def library(kernels) -> Library:
    try:
        return load(kernels)
    except NoLibrary as error:
        pytest.skip(str(error))
