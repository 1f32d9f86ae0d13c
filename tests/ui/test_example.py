"""The example program: what it prints of a page's answers, and that whatever goes wrong is one sentence."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading

import pytest

from examples import client as example
from inference.host.child import ROOT
from tests.support.page_fixtures import FakeApp
from tests.support.until import until


def breaking(app: FakeApp) -> None:
    """Cut every connection of the page and take no other, as the end of its process would."""
    app.demo.server.force_exit = True
    app.demo.server.should_exit = True


def test_the_example_prints_both_answers_and_their_figures(fake_app, capsys):
    assert example.main(["hello", "--page", fake_app.url]) == 0
    told = capsys.readouterr().out
    assert told.count("We have chicken biryani") == 2 and told.count("12 tokens, first token ") == 2 and told.count(" tok/s, total ") == 2
    assert "cpu:nf4 writes " in told and "times as fast as cpu:fp32." in told


def test_the_example_prints_a_stream(fake_app, capsys):
    fake_app.script(both={"token_s": 0.04})
    assert example.main(["hello", "--page", fake_app.url, "--stream", "cpu:fp32", "--max-new-tokens", "8"]) == 0
    answer, figures = capsys.readouterr().out.splitlines()
    assert answer.strip() == "We have chicken biryani, mutton korma and a" and figures.startswith("8 tokens, first token ")


def test_the_example_ends_with_a_sentence(fake_app, capsys):
    assert example.main([" ", "--page", fake_app.url]) == 1
    assert "The prompt is empty" in capsys.readouterr().err
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        assert example.main(["hello", "--page", f"http://127.0.0.1:{nobody.getsockname()[1]}"]) == 1
        assert re.fullmatch(r"No page at http://127\.0\.0\.1:\d+: start it with python app\.py, or check --page\. \(.*refused\)\n", capsys.readouterr().err)


def test_a_stream_that_the_page_refuses_ends_with_its_sentence(fake_app, capsys):
    assert example.main(["hello", "--page", fake_app.url, "--stream", "cpu:fp23"]) == 1
    out, told = capsys.readouterr()
    assert not out and told.startswith("This page has no lane 'cpu:fp23'. Its lanes are: ")


def test_a_lane_that_fails_in_the_middle_of_a_stream_is_told_below_what_it_wrote(fake_app, capsys):
    fake_app.script(both={"token_s": 0.3, "fail_at": 3})
    assert example.main(["hello", "--page", fake_app.url, "--stream", "cpu:fp32"]) == 1
    out, told = capsys.readouterr()
    assert out.startswith("We") and out.endswith("\n") and told.startswith("cpu:fp32: The scripted lane failed here.")


def test_a_space_without_a_network_is_a_sentence():
    """Its name is asked of the Hub, whose library has a network library of its own."""
    env = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"} | {"HF_ENDPOINT": "http://127.0.0.1:1"}
    command = [sys.executable, "examples/client.py", "hello", "--page", "owner/name"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and not done.stdout
    assert re.fullmatch(r"No page at owner/name: start it with python app\.py, or check --page\. \(.+\)\n", done.stderr)


@pytest.mark.parametrize("lane", ["cpu:fp32", None])
def test_a_page_that_goes_away_meanwhile_is_a_sentence(tmp_path, capsys, lane):
    app = FakeApp(tmp_path / "script.json")
    app.script(both={"hold_at": 3})
    breaks = threading.Thread(target=lambda: (until(lambda: any(each.state == "busy" for each in app.engine.status()), what="a run"), breaking(app)))
    try:
        breaks.start()
        assert example.main(["hello", "--page", app.url, *(["--stream", lane] if lane else [])]) == 1
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"The page at {app.url} went away. Ask again. (")  # the server tells of its end before
    finally:
        breaks.join()
        app.close()


def test_the_loop_of_the_documentation_raises_what_went_wrong(fake_app):
    (told,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text("utf-8"), re.S)
    told = told.replace("http://127.0.0.1:7860", fake_app.url)
    names: dict[str, dict] = {}
    exec(told, names)
    assert set(names["record"]["lanes"]) == {"cpu:fp32"}
    with pytest.raises(ValueError, match="no lane 'cpu:fp23'"):
        exec(told.replace("cpu:fp32", "cpu:fp23"), {})
