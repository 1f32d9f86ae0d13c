"""Fixtures for all tests, and their order."""

from __future__ import annotations

import pytest

FIXTURES = (
    "page_fixtures",
    "browser_tab",
    "engine_fixtures",
    "kernel_fixtures",
    "real_fixtures",
    "small_disk",
    "false_hub",
    "source_fixtures",
    "tiny_hub",
    "changes",
)
pytest_plugins = [f"tests.support.{name}" for name in FIXTURES]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of a compiled step come last: it is compiled, at the lowest priority, while the others run."""
    items.sort(key=lambda item: "step_file" in getattr(item, "fixturenames", ()))
