"""The app with fake lanes, and a headless Chromium to look at it with. No model, no Hub."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.engine.engine import Engine
from inference.engine.process import LaneProcess
from inference.host.child import ROOT
from inference.settings import Settings
from inference.status import LOADING_STATES
from tests.support.until import until

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
FAKE_LANE = Path(__file__).with_name("fake_lane.py")
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"


class FakeApp:
    """A served page over fake lanes; `script` says what the lanes do from their next answer on."""

    def __init__(self, script_file: Path, settings: Settings | None = None) -> None:
        from app import start_once
        from ui.build import build, launch

        keep_builds_apart()
        self.script_file = script_file
        if not script_file.exists():
            self.script()
        settings = settings or Settings()
        self.engine = Engine(settings, self._start_lane)
        self.demo = build(self.engine, start_once(self.engine))
        self.url = launch(self.demo, settings).rstrip("/")

    def script(self, **scripts: dict) -> None:
        """Scripts by lane name with "_" for ":" ("both" for all lanes)."""
        named = {"*" if name == "both" else name.replace("_", ":"): script for name, script in scripts.items()}
        new = self.script_file.with_suffix(".new")
        new.write_text(json.dumps(named), "utf-8")
        new.replace(self.script_file)  # at once: a lane may be reading it

    def close(self) -> None:
        self.engine.close()
        self.demo.close(verbose=False)

    def _start_lane(self, lane: str, settings: Settings) -> LaneProcess:
        return start_fake_lane(lane, settings, FAKE_LANE_FILE=str(self.script_file), FAKE_MODEL=settings.model_id)


def keep_builds_apart() -> None:
    """What a listener of one page makes in its thread must not become a part of another page that the main thread is building.

    Gradio has one place for "the page being built" in a process; only tests build one while another is served.
    """
    from gradio import blocks

    for name in ("get_blocks_context", "get_render_context"):
        real = getattr(blocks, name)
        if real.__module__.startswith("gradio."):
            setattr(blocks, name, lambda real=real: real() if threading.current_thread() is threading.main_thread() else None)


def start_fake_lane(lane: str, settings: Settings, **env: str) -> LaneProcess:
    """A starter for `Engine`: the fake lane in the place of the worker."""
    return LaneProcess([sys.executable, str(FAKE_LANE), lane], {**os.environ, "PYTHONPATH": str(ROOT), **env})


@pytest.fixture(scope="session")
def shared_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeApp]:
    app = FakeApp(tmp_path_factory.mktemp("fake") / "script.json")
    yield app
    app.close()


@pytest.fixture
def fake_app(shared_app: FakeApp) -> FakeApp:
    """The one app that most tests share, with its lanes' script reset and nothing running."""
    shared_app.script()
    until(lambda: not any(lane.waiting or lane.state in ("busy", *LOADING_STATES) for lane in shared_app.engine.status()), what="lanes at rest")
    return shared_app


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    if not Path(CHROMIUM).exists():
        pytest.skip("no Chromium here (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        yield chromium.new_context()  # one for all tests, so that the page's files are fetched once
        chromium.close()
