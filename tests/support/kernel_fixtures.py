"""Our C products, built once for all tests that use them."""

from __future__ import annotations

import pytest

from inference.cpu.library import Library, load


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Library:
    found = load(tmp_path_factory.mktemp("kernels"))
    if found is None:
        pytest.skip("no C compiler")
    return found
