"""Our C products, built once for all tests that use them."""

from __future__ import annotations

import pytest

from inference.cpu.library import Library, NoLibrary, load


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Library:
    try:
        return load(tmp_path_factory.mktemp("kernels"))
    except NoLibrary as error:
        pytest.skip(str(error))
