"""A small base to bring things on, and settings with a cache of their own."""

from __future__ import annotations

import pytest

from inference.settings import Settings
from tests.support.tiny import make_checkpoint


@pytest.fixture
def base(tmp_path):
    return make_checkpoint(tmp_path / "base", "llama")


@pytest.fixture
def settings(tmp_path):
    return Settings(cache_dir=str(tmp_path / "cache"))
