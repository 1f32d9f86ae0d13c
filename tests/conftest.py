"""Fixtures for all tests."""

FIXTURES = ("page_fixtures", "browser_tab", "engine_fixtures", "kernel_fixtures", "real_fixtures", "small_disk")
pytest_plugins = [f"tests.support.{name}" for name in FIXTURES]
