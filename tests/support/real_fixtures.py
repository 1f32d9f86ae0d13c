"""The default model's lanes, each loaded once for all tests that ask them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from inference.lane.lane import Lane
from inference.settings import SMALL_MODEL, Settings
from inference.sources import checkpoints
from tests.support.real import loaded_lane


@pytest.fixture(scope="session")
def default_folder() -> str:
    """The default model's checkpoint, fetched by whichever way there is."""
    return str(checkpoints.find(SMALL_MODEL, Settings(), lambda _: None).folder)


@pytest.fixture(scope="session")
def default_lane(default_folder) -> Callable[[str], Lane]:
    """A lane of the default model by its name; don't change it."""
    return functools.cache(lambda name: loaded_lane(name, default_folder))
