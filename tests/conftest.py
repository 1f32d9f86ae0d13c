"""Fixtures for all tests."""

pytest_plugins = ["page_fixtures", "browser_tab", "engine_fixtures", "kernel_fixtures"]
