"""An engine on fake processes, with the default lanes, for the tests of what it promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fakes import Stage


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.engine.close()


@pytest.fixture
def loaded(stage) -> Stage:
    """The same, its 4-bit lane loaded."""
    stage.lanes["auto:nf4"].ready()
    return stage
