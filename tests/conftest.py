"""Fixtures for all tests."""

from __future__ import annotations

FIXTURES = (
    "page_fixtures",
    "program",
    "browser_tab",
    "engine_fixtures",
    "kernel_fixtures",
    "real_fixtures",
    "small_disk",
    "false_hub",
    "source_fixtures",
    "tiny_hub",
    "space_hub",
    "changes",
    "server_lane",
)
pytest_plugins = [f"tests.support.{name}" for name in FIXTURES]
