"""Whatever is typed after `python -m inference` ends with a documented code, and a fault is one sentence without a trace; no lane is started."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.cli import bench, parser, quality
from inference.cli import main as command_line
from inference.cli import prompts as prompts_command
from inference.errors import InferenceError
from tests.support.hostile import NASTY, tries

COMMANDS = parser.make()._subparsers._group_actions[0].choices
FLAGS = sorted({word for command in COMMANDS.values() for word in command._option_string_actions})
WORDS = ("compare", "bench", "quality", "decide", "hello", "p.txt", "r.json", "out.json", "cpu:fp32", "cpu:nf4,cpu:fp32", "cuda:nf4=0.8", "3", "0", "-1", "1e999", "nan", "chat", "raw", "menu", "shape:smollm2-135m", "-", "--")  # fmt: skip
# of one folder only, and never a device: what is named is written
words = st.one_of(
    st.sampled_from(WORDS), st.sampled_from(FLAGS), st.sampled_from([word for word in NASTY if "/" not in word and "\x00" not in word]), st.text(max_size=8)
).filter(lambda word: "/" not in word and "\x00" not in word)
lines = st.one_of(
    st.lists(words, max_size=8),
    st.tuples(st.sampled_from(["compare", "bench", "quality", "decide"]), st.lists(words, max_size=8)).map(lambda found: [found[0], *found[1]]),
)


@pytest.fixture
def no_lane(monkeypatch):
    def refuse(*_):
        raise InferenceError("No lane is started here.")

    for module in (command_line, prompts_command, quality):
        monkeypatch.setattr(module, "Engine", refuse)
    monkeypatch.setattr(bench, "bench", refuse)
    monkeypatch.setattr(bench, "equal", refuse)
    monkeypatch.setattr(bench, "prompts_of", refuse)
    for verb in ("doctor", "deploy"):
        monkeypatch.setitem(command_line.COMMANDS, verb, refuse)
    monkeypatch.setattr(command_line.signal, "signal", lambda *_: None)
    monkeypatch.setattr(command_line.logging, "basicConfig", lambda **_: None)


@given(lines)
@tries(40)
def test_any_words_end_with_a_code_and_a_fault_is_one_sentence(no_lane, arguments):
    arguments = [os.fsdecode(word.encode("utf-8", "surrogateescape" if "\udcff" in word else "replace")) for word in arguments]
    out, err, before = io.StringIO(), io.StringIO(), os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        os.chdir(folder)
        try:
            Path("p.txt").write_text("hello\n")
            Path("r.json").write_text("{}")
            code = command_line.main(arguments)
            left = {path.name for path in Path().iterdir()}
        finally:
            os.chdir(before)
    told = err.getvalue()
    assert code in (0, 1, 2, 130) and "Traceback" not in told and "object at 0x" not in told
    assert left == {"p.txt", "r.json"}
    if code == 2:
        assert not out.getvalue() and told.strip() and told.endswith("\n")
        assert "usage:" not in told
