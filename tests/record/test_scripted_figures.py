"""Known delays through the command line, the endpoint and the page: every figure right to 2 %, and the wrong ones rejected."""

from __future__ import annotations

import json
import re

import pytest
from gradio_client import Client

from app import start_once
from inference.cli import main as command_line
from inference.settings import Settings
from tests.support.scripted import EXPECTED, LANE, RAM, SPANS, ScriptedEngine


def check(record) -> None:
    lane = record["lanes"][LANE]
    (run,) = lane["runs"]
    for key, value in EXPECTED.items():
        assert run[key] == pytest.approx(value, rel=0.02, abs=1e-6), key
        assert lane["median"][key] == lane["min"][key] == lane["max"][key] == run[key]
    assert run["new_tokens"] == 30 and len(run["token_times_s"]) == 30 and run["prompt_tokens"] == 40
    assert lane["load"]["total_s"] == pytest.approx(3.0) and lane["load"]["spans"] == SPANS and lane["load"]["cold"] is True
    assert (run["ram"]["rss_peak"], run["ram"]["uss"], run["vram"]) == (RAM.rss_peak, RAM.uss, None)
    assert run["alone"] is True and run["warm"] is True


def test_the_command_line_gives_them(monkeypatch, capsys):
    monkeypatch.setattr(command_line, "Engine", ScriptedEngine)
    assert command_line.main(["compare", "--prompt", "hello", "--json", "-"]) == 0
    check(json.loads(capsys.readouterr().out))


def test_the_command_lines_table_shows_them(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command_line, "Engine", ScriptedEngine)
    files = {flag: tmp_path / f"out.{flag}" for flag in ("json", "csv", "markdown")}
    assert command_line.main(["compare", "hello", "--full", *(word for flag, path in files.items() for word in (f"--{flag}", str(path)))]) == 0
    table = " ".join(capsys.readouterr().out.split())
    for words in ("3.00 s (cold)", "import 1.00 s, read 1.50 s, warm-up 500 ms", "4.90 s", "2.00 s", "10.0 tok/s", "20.0 tok/s", "queue 5.00 s", "load 3.00 s", "50.0 MiB peak", "60.0 MiB its own"):  # fmt: skip
        assert words in table, words
    check(json.loads(files["json"].read_text("utf-8")))
    assert "10.0 tok/s" in files["markdown"].read_text("utf-8") and len(files["csv"].read_text("utf-8").splitlines()) == 2


@pytest.fixture
def served():
    from ui.build import build, launch_options

    engine = ScriptedEngine()
    demo = build(engine, start_once(engine))
    yield demo.launch(**launch_options(Settings()))[1].rstrip("/")
    engine.close()
    demo.close(verbose=False)


def test_the_endpoint_gives_them(served):
    check(Client(served, verbose=False).predict("hello", api_name="/compare"))


def test_the_page_shows_them(served, browser):
    page = browser.new_page()
    page.goto(served)
    page.locator("#prompt textarea").fill("hello")
    page.locator("#send").click()
    page.locator(".board[data-state=done]").wait_for()
    page.locator("#details button").first.click()
    page.locator("#table table").wait_for()
    tiles, race, table = page.locator(".tiles").text_content(), page.locator(".race-words").text_content(), page.locator("#table table").text_content()
    page.close()
    for words in ("First word2.00 s", "Speed10.0 tok/s", "Total4.90 s"):
        assert words in tiles, tiles
    assert race == "4.90 s for 30 tokens, first after 2.00 s"
    for words in ("3.00 s (cold)", "10.0 tok/s", "20.0 tok/s", "queue 5.00 s", "load 3.00 s", "4.90 s"):
        assert words in table, words
    assert not re.search(r"\b(6\.\d+|14\.\d+) tok/s", table)
