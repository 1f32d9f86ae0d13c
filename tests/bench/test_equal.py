"""`bench --prompts`: every fork is listed with its prompt and judged, and an answer that is another one next time is told."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from inference.bench import equal, side
from inference.bench.forks import Fork
from inference.bench.side import Side
from inference.cli import main as command_line
from inference.engine.engine import Engine
from inference.events import Request
from inference.settings import Settings
from tests.support.page_fixtures import start_fake_lane
from tests.support.tiny import make_checkpoint

SCRIPT = {"load_s": 0.01, "first_s": 0.001, "token_s": 0.001}
SETTINGS = Settings(lanes=("cpu:fp32",))
REQUESTS = [Request(words, max_new_tokens=4) for words in ("one", "two", "three")]
visited = equal._visited


def silent(words):
    """Nobody is told."""


@pytest.fixture
def lanes(monkeypatch):
    """Lets a test say what our lane and plain do."""

    def script(ours, plain):
        def starter(more):
            return lambda lane, settings, **_: start_fake_lane(lane, settings, FAKE_LANE=json.dumps({"*": SCRIPT | more}))

        def engine(settings, start=None):
            return Engine(settings, starter(plain if start is side.start_plain_worker else ours))

        monkeypatch.setattr(equal, "Engine", engine)

    return script


def test_equal_answers_are_counted_and_have_no_fork(lanes):
    lanes({}, {})
    found = equal.equal(SETTINGS, REQUESTS, 2, silent)
    lane = found["lanes"]["cpu:fp32"]
    assert (lane["prompts"], lane["equal"], lane["rounding"], lane["wrong"], lane["forks"]) == (3, 3, 0, 0, [])
    assert (lane["repeats"], lane["repeats_differ"], lane["visitors_differ"]) == (2, [], [])
    told = equal.equal_words(found)
    assert equal.all_right(found) and "3 of 3 answers are those of plain generate" in told
    assert "asked 2 times by one visitor: the same tokens" in told and "asked 4 times by two visitors at once: the same tokens" in told


@pytest.mark.parametrize("rounding", [True, False, None])
def test_every_fork_is_listed_with_its_prompt_and_only_rounding_is_right(lanes, monkeypatch, rounding):
    lanes({"fork_at": 3}, {})
    monkeypatch.setattr(equal.Judge, "fork", lambda self, request, right, ours: Fork(2, 0.1, 0.2, rounding=rounding, why_not="x") if right != ours else None)
    found = equal.equal(SETTINGS, REQUESTS, 1, silent)
    lane = found["lanes"]["cpu:fp32"]
    assert [fork["prompt"] for fork in lane["forks"]] == [1, 2, 3] and lane["equal"] == 0
    assert (lane["rounding"], lane["wrong"]) == ((3, 0) if rounding else (0, 3))
    assert equal.all_right(found) is bool(rounding)
    assert equal.equal_words(found).count(" parts at 3, ") == 3


def test_an_answer_that_changes_is_told_for_one_visitor_and_for_two(lanes, monkeypatch):
    lanes({}, {})
    ask, asked = Side.ask, itertools.count()

    def unsteady(self, request):
        done = ask(self, request)
        return done if request.prompt != "two" else type(done)(**{**vars(done), "token_ids": (next(asked),)})

    monkeypatch.setattr(Side, "ask", unsteady)
    monkeypatch.setattr(equal.Judge, "fork", lambda *_: None)
    found = equal.equal(SETTINGS, REQUESTS, 2, silent)
    lane = found["lanes"]["cpu:fp32"]
    assert lane["repeats_differ"] == lane["visitors_differ"] == [2] and not equal.all_right(found)
    assert "OTHER TOKENS at another time for prompts 2" in equal.equal_words(found)


@pytest.mark.parametrize(("fork_at", "code"), [(9, 0), (2, 1)])
def test_the_command_reads_a_file_and_its_exit_code_says_whether_all_is_right(lanes, monkeypatch, tmp_path, capsys, fork_at, code):
    lanes({"fork_at": fork_at}, {})
    monkeypatch.setattr(equal.Judge, "fork", lambda self, request, right, ours: Fork(2, 0.1, 0.2, rounding=False) if right != ours else None)
    (tmp_path / "orders.txt").write_text("two naan\nthe menu\n")
    assert command_line.main(["bench", "--lanes", "cpu:fp32", "--prompts", str(tmp_path / "orders.txt"), "--repeats", "1", "--max-new-tokens", "5"]) == code
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["lanes"]["cpu:fp32"]
    assert found["prompts"] == 2 and found["wrong"] == 2 * code


def test_real_lanes_of_two_checkpoints_fork_at_numbers_of_real_logits_and_each_answers_the_same_again(tmp_path, monkeypatch):
    first, other = (make_checkpoint(tmp_path / name, "llama", seed) for name, seed in (("a", 0), ("b", 1)))
    settings = Settings(model_id=str(first), lanes=("cpu:fp32",), threads=1, fast=(), quiet=True)

    def engine(settings, start=side.start_worker):
        return Engine(settings if start is side.start_plain_worker else replace(settings, model_id=str(other)), start)

    monkeypatch.setattr(equal, "Engine", engine)
    right = []
    judged = equal.Judge.fork
    monkeypatch.setattr(equal.Judge, "fork", lambda self, request, ids, ours: right.append((self, request, ids)) or judged(self, request, ids, ours))
    same_again = []
    monkeypatch.setattr(equal, "_visited", lambda *given: same_again.append(looked_at(*right[0])) or visited(*given))
    lane = equal.equal(settings, REQUESTS[:2], 1, silent)["lanes"]["cpu:fp32"]
    assert same_again == [True] and lane["wrong"] == 2 and not lane["repeats_differ"] and not lane["visitors_differ"]
    assert all(fork["margin"] > 0 and fork["ways_difference"] > 0.1 and fork["plain_ways_part"] is False for fork in lane["forks"])


def looked_at(judge, request, ids):
    """Whether plain's logits, one at a time and all at once, are likeliest at its own ids."""
    plain = judge._plain
    return plain.logits(request, ids).argmax(-1).tolist() == [plain.best_of_all_at_once(request, ids, n) for n in range(len(ids))] == list(ids)
