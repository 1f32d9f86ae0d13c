"""Fixtures for all tests."""

pytest_plugins = [f"tests.support.{name}" for name in ("page_fixtures", "browser_tab", "engine_fixtures", "kernel_fixtures", "small_disk")]
