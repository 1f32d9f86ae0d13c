"""Our C products, built once for all tests that use them."""

from __future__ import annotations

import pytest

from inference import cpu_library


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> cpu_library.Library:
    found = cpu_library.load(tmp_path_factory.mktemp("kernels"))
    if found is None:
        pytest.skip("no C compiler")
    return found
