"""What a command says of its lanes while it runs: in plain words, on one line of the terminal, a few lines on a pipe."""

import pytest

from inference.cli.progress import CLEAR, Bar, Line, StatusLine, lane_words, phase_words
from inference.events import Loading
from inference.progress import Progress
from inference.terminal import columns

NAMES = {"auto:nf4": "cpu:nf4", "cpu:fp32": "cpu:fp32"}


def drawn(line, *shown):
    line.live = True
    for lane, progress in shown:
        line.show(lane, progress)


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(0.0, "loading", loading=Loading("reading weights", 3, 5, "weights")), "reading weights, 3 of 5"),
        (Progress(0.0, "loading", loading=Loading("downloading", 2**20, 2**21, "bytes")), "downloading, 1.0 MiB of 2.0 MiB"),
        (Progress(0.0, "turn"), "waiting for its turn"),
        (Progress(0.0, "prefill"), "reading the prompt"),
        (Progress(0.0, "decode", n=12), "writing, 12 tokens"),
        (Progress(0.0, "decode", text="of a server that counts at the end"), "writing"),
    ],
)
def test_a_phase_is_told_in_plain_words(progress, words):
    assert phase_words(progress) == words


def test_lanes_are_told_apart_in_as_few_words_as_that_takes():
    assert lane_words(NAMES) == {"auto:nf4": "4-bit", "cpu:fp32": "FP32"}
    assert list(lane_words({name: name for name in ("cuda:nf4", "cpu:nf4", "cpu:fp32")}).values()) == ["4-bit GPU", "4-bit CPU", "FP32"]


def test_a_terminal_gets_one_line_that_is_never_wider_than_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    long = Progress(0.0, "loading", loading=Loading("写" * 60))
    drawn(StatusLine(lambda: NAMES), ("auto:nf4", long), ("cpu:fp32", Progress(0.0, "turn")))
    lines = capsys.readouterr().err.split(CLEAR)[1:]
    assert len(lines) == 2 and all("\n" not in line and 30 < columns(line) < 40 for line in lines)


def test_a_pipe_gets_a_line_a_phase_and_no_more(capsys):
    line = StatusLine(lambda: NAMES)
    for n in range(5):
        line.show("auto:nf4", Progress(0.0, "loading", loading=Loading("reading weights", n, 5)))
    for n in range(50):
        line.show("auto:nf4", Progress(0.0, "decode", n=n))
    assert capsys.readouterr().err.splitlines() == ["4-bit: loading", "4-bit: writing"]


def test_on_a_pipe_the_same_words_with_other_numbers_are_said_once_and_sentences_always(capsys):
    line = Line()
    for n in range(9):
        line.say(f"scoring {n} of 9")
        line.say(f"Line {n} is in no figure.")
    said = capsys.readouterr().err.splitlines()
    assert said.count("scoring 0 of 9") == 1 and "scoring 1 of 9" not in said and len(said) == 10


def test_a_sentence_stays_on_the_terminal(capsys):
    line = Line()
    line.live = True
    for words in ("round 1 of 5", "Line 3 is in no figure.", "round 2 of 5"):
        line.say(words)
    line.close()
    assert capsys.readouterr().err == f"{CLEAR}round 1 of 5{CLEAR}Line 3 is in no figure.\n{CLEAR}round 2 of 5{CLEAR}"


def test_a_series_on_a_pipe_says_once_that_it_warms_up(capsys):
    bar = Bar(3, lambda: NAMES)
    bar.lane("auto:nf4", Progress(0.0, "loading"))
    bar.lane("auto:nf4", Progress(0.0, "decode", n=3))
    assert capsys.readouterr().err == "Warming up for 3 prompts\n"


def test_nothing_is_said_of_lanes_that_are_ended_after_ctrl_c(capsys):
    line = StatusLine(lambda: NAMES)
    line.close()
    line.show("auto:nf4", Progress(0.0, "failed"))
    assert capsys.readouterr().err == ""


def test_a_series_tells_what_its_lanes_do(capsys):
    bar = Bar(2, lambda: NAMES)
    bar.live = True
    bar.lane("auto:nf4", Progress(0.0, "decode", n=3))
    assert "0 of 2 prompts" in (said := capsys.readouterr().err) and "4-bit: writing, 3 tokens" in said
