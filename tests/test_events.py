"""Requests are checked in plain words, events survive the trip through JSON."""

import json

import pytest

from inference.errors import InferenceError
from inference.events import (
    MOST_CHARACTERS,
    Done,
    Failed,
    Hello,
    LaneFacts,
    Loaded,
    LoadFigures,
    Loading,
    Prefill,
    Queued,
    Ram,
    Request,
    Text,
    Vram,
    decode,
    encode,
)
from inference.timing import Timings

FACTS = LaneFacts("m", "r", "A", 3, "cpu", "c", "NF4", "uint8", "float32", {"type": "nf4"}, "cpu", "k", 2, ("a", "b"), 9, 512, True)


@pytest.mark.parametrize(
    "event",
    [
        Hello("cpu:nf4", "cpu", {"torch": "2"}, {"gpu": None}, "no CUDA device"),
        Loading("reading", 1, 2, "weights"),
        Loaded(FACTS, LoadFigures(3.0, {"read": 3.0}, True, 5, Vram(1, 2, 3))),
        Queued("r1", 2, "turn"),
        Prefill("r1", (1, 2), "chat", 5.5),
        Text("r1", "a\u2028b ${x} 😀\n", 3, 0.5),
        Done("r1", "stop", "text", (1, 2), 4, Timings(0.1, 2.0, 0.3, 4.0, 5.0, (0.1, 5.0)), 1.0, 0.0, 0.0, 0.0, Vram(1, 2, 3), Ram(1, 2), "eager", True, False),
        Failed(None, "sentence", True),
    ],
)
def test_events_survive_json_on_one_line(event):
    line = encode(event)
    assert "\n" not in line and json.loads(line)["event"] == type(event).__name__.lower()
    assert decode(line) == event


def test_a_line_that_is_no_event_is_refused():
    with pytest.raises(ValueError):
        decode('{"event": "nonsense"}')


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"prompt": " \n"}, "empty"),
        ({"prompt": "x" * 150_000, "system": "y" * 50_001}, "200,001 characters"),
        ({"format": "x"}, "format"),
        ({"max_new_tokens": 0}, "tokens"),
        ({"temperature": -1}, "Temperature"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_requests_get_a_sentence(change, word):
    with pytest.raises(InferenceError, match=word):
        Request(**{"prompt": "hi", **change}).check()


def test_a_request_of_just_the_most_characters_is_taken():
    Request("x" * (MOST_CHARACTERS - 3), system="abc").check()
