"""What a terminal can show: widths in columns, lines broken to them, letters it lacks, a reader that has gone."""

import json
import os
import subprocess
import sys

import pytest

from inference import terminal
from inference.host.child import ROOT

TEXTS = [
    "a plain sentence of several words",
    "    indented code = 1",
    "一二三四五六七八九十" * 3,
    "mixed 漢字 and 🎉🎉 and words",
    "x" * 90,
    "e\u0301" * 50,
    "",
]


@pytest.mark.parametrize(("text", "wide"), [("abc", 3), ("漢字", 4), ("🎉", 2), ("e\u0301", 1), ("❤\ufe0f", 2), ("a\u200bb", 2), ("", 0)])
def test_a_sign_counts_as_wide_as_it_is(text, wide):
    assert terminal.columns(text) == wide and terminal.columns(terminal.pad(text, 9)) == 9


@pytest.mark.parametrize("most", [20, 33, 80])
@pytest.mark.parametrize("hang", [0, 4])
@pytest.mark.parametrize("text", TEXTS)
def test_a_wrapped_line_fits_and_loses_nothing(text, most, hang):
    lines = terminal.wrap(text, most, hang)
    assert max(map(terminal.columns, lines)) <= most
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(line.startswith(text[: len(text) - len(text.lstrip())]) for line in lines)


def test_a_model_s_control_characters_are_shown_and_not_obeyed():
    assert terminal.printable("a\x1b[2Jb\rc\ne\u202ef\x9b") == "a\\x1b[2Jb\\rc\ne\\u202ef\\x9b"
    assert terminal.printable("\x1b]8;;http://evil\x07link\x08 \u2067rtl\u2069") == "\\x1b]8;;http://evil\\x07link\\x08 \\u2067rtl\\u2069"
    assert terminal.printable("👩\u200d👧 שלום\u200f") == "👩\u200d👧 שלום\u200f", "what joins signs, and marks of direction that end with them, stay"
    assert terminal.printable("\tif x:") == "    if x:"
    assert terminal.printable("two\r\nlines") == "two\nlines"


@pytest.mark.parametrize("text", ["a\x9b31m", "\x7f\u202e", "\u2028\u2066", 'quoted "\\u009b"', "plain é 漢"])
def test_json_on_a_terminal_says_the_same_and_is_not_obeyed(text):
    shown = terminal.in_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(shown) == {"a": text} and not set("\x7f\x9b\u2028\u202e\u2066") & set(shown)


def python(program, **more):
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, timeout=60, stderr=subprocess.PIPE, **more)


def test_letters_that_the_terminal_lacks_are_written_plainly_or_escaped():
    shown = python(
        "from inference import terminal; terminal.prepare(); print('3.2× ± 1 – é 漢')", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert shown.stdout == "3.2x +- 1 - \\xe9 \\u6f22\n" and not shown.stderr


@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_reader_that_has_gone_is_noticed_without_a_word(buffered):
    read, write = os.pipe()
    os.close(read)
    program = "from inference.cli.main import main; raise SystemExit(main(['--help']))"
    gone = python(program, stdout=write, env={**os.environ, "PYTHONUNBUFFERED": buffered})
    os.close(write)
    assert gone.returncode in (0, 1) and gone.stderr == ""  # unbuffered, argparse takes it for done


def test_the_width_is_what_columns_says_and_80_without_a_terminal(monkeypatch):
    for told, width in (("40", 40), ("3", terminal.LEAST_WIDTH), ("wide", 80), ("", 80)):
        monkeypatch.setenv("COLUMNS", told)
        monkeypatch.setattr(os, "get_terminal_size", lambda _: (_ for _ in ()).throw(OSError()))
        assert terminal.width() == width
