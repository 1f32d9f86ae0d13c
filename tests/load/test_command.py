"""`bench --clients`: bad values get a sentence; who goes away and who fails is counted and told, and the others go on; where a wait limit breaks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from inference.cli import main as command_line
from inference.endpoints import Endpoint
from inference.engine.engine import Engine
from inference.events import Done, Request
from inference.load import clients
from inference.load.level import ANSWERED, FAILED, LEFT, Level, Limit, Seen, limit_of
from inference.load.plan import Plan, usual_prompts
from inference.load.words import all_answered, as_json, load_table
from inference.settings import DEFAULT_MODEL, Settings
from inference.timing import Timings
from tests.support.false_server import FalseServer, good
from tests.support.page_fixtures import start_fake_lane
from tests.support.until import until

QUICK = {"load_s": 0.01, "first_s": 0.01, "token_s": 0.005, "tokens": 6}
WIDE = 400


@pytest.fixture
def fake_lanes(monkeypatch):
    """Lanes in processes without a model; the script given to it is theirs."""
    script = {"*": dict(QUICK)}
    starter = lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=json.dumps(script))  # noqa: E731
    monkeypatch.setattr(clients, "Engine", lambda settings: Engine(settings, starter))
    return script["*"]


def plan(*levels: int, rounds: int = 3, prompts: tuple[str, ...] = (), **more) -> Plan:
    return Plan(levels, rounds, prompts or usual_prompts(sum(levels) * rounds), Request("x", max_new_tokens=6), **more)


def measured(asks: Plan, *lanes: str, **settings):
    return list(clients.under_load(Settings(lanes=lanes or ("cpu:fp32",), **settings), asks, lambda _: None))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--clients", "0"], "--clients takes numbers from 1 to 64"),
        (["--clients", ""], "--clients takes numbers"),
        (["--clients", "two"], "--clients takes numbers"),
        (["--clients", "4,4"], "each once"),
        (["--clients", "65"], "from 1 to 64"),
        (["--clients", "2", "--rounds", "0"], "--rounds must be 1 or more"),
        (["--clients", "2", "--max-first-token", "0"], "--max-first-token must be a number of seconds above 0"),
        (["--clients", "2", "--max-total", "nan"], "--max-total must be a number of seconds above 0"),
        (["--clients", "2", "--max-total", "-3"], "--max-total"),
        (["--clients", "2", "--leave-every", "-1"], "--leave-every must be 1 or more"),
        (["--clients", "2", "--max-new-tokens", "0"], "Max new tokens"),
        (["--clients", "2", "--prompt", "hi"], "takes no --prompt"),
        (["--clients", "2", "--lengths", "16"], "takes no --lengths"),
        (["--clients", "2", "--ours-only"], "takes no --ours-only"),
        (["--clients", "2", "--repeats", "2"], "takes no --repeats"),
        (["--clients", "2", "--peer", "llama.cpp"], "takes no --peer"),
        (["--clients", "2", "--prompts", "no.txt"], "no.txt can't be read"),
        (["--clients", "2", "--json", "/nowhere/at/all.json"], "does not exist"),
        (["--max-total", "3"], "--max-total goes with --clients"),
        (["--leave-every", "3"], "--leave-every goes with --clients"),
    ],
)
def test_what_can_not_be_asked_is_refused_before_anything_starts(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(clients, "Engine", lambda *_: pytest.fail("a lane was started"))
    assert command_line.main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_more_clients_than_different_prompts_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(clients, "Engine", lambda *_: pytest.fail("a lane was started"))
    (tmp_path / "p.txt").write_text("one\ntwo\none\n")
    assert command_line.main(["bench", "--clients", "1,3", "--prompts", str(tmp_path / "p.txt")]) == 2
    assert "3 clients at once need as many different prompts; there are 2." in capsys.readouterr().err


def test_the_command_prints_a_table_a_lane_and_its_object_on_the_last_line_and_into_a_file(fake_lanes, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("MODEL_ID", raising=False)
    arguments = ["--lanes", "cpu:fp32,cpu:nf4", "--clients", "4,1", "--rounds", "2", "--max-total", "60", "--json", str(tmp_path / "l.json")]
    assert command_line.main(["bench", *arguments]) == 0
    shown, _, last = capsys.readouterr().out.rstrip().rpartition("\n")
    found = json.loads(last)
    assert found == json.loads((tmp_path / "l.json").read_text()) and found["model"] == "fake/model"
    for lane in ("cpu:fp32", "cpu:nf4"):
        assert [(level["clients"], level["n"], level["failed"]) for level in found["clients"][lane]] == [(1, 2, 0), (4, 8, 0)]
        assert f"{lane}: a lane that answers one at a time" in shown
        alone, four = (level["total_s"] for level in found["clients"][lane])
        assert alone["p95"] is None and 0 < alone["p50"] <= alone["max"] and 0 < four["p50"] <= four["max"]
    assert " ".join(shown.split()).count("60.0 s for the whole answer: kept up to 4 clients, the most that were measured.") == 2


def test_json_alone_goes_to_stdout_and_the_default_model_is_the_page_s(monkeypatch, capsys):
    asked = []
    monkeypatch.delenv("MODEL_ID", raising=False)
    monkeypatch.setattr("inference.cli.load.under_load", lambda settings, *_: asked.append(settings.model_id) or [])
    assert command_line.main(["bench", "--clients", "2", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["clients"] == {} and asked == [DEFAULT_MODEL]


def test_clients_that_go_away_in_mid_answer_are_counted_apart_and_the_others_go_on(fake_lanes):
    fake_lanes["tokens"] = 60
    asks = replace(plan(4, rounds=2, leave_every=4), request=Request("x", max_new_tokens=60))
    (found,) = measured(asks)
    (level,) = found.levels
    assert len(level.of(LEFT)) == 2 and len(level.of(ANSWERED)) == 6 and all_answered([found])
    assert all(len(each.done.token_ids) == 60 for each in level.of(ANSWERED)), "nobody else was stopped"
    assert "2 of 8 questions were left in the middle of the answer, in no figure; the others went on." in load_table(asks, [found], WIDE)


def test_a_lane_that_dies_under_load_fails_that_answer_alone_and_the_others_go_on(fake_lanes, capsys, tmp_path):
    fake_lanes["dies_on"] = "poison"
    (tmp_path / "p.txt").write_text("the longest, which is for the warm-up\ntwo\npoison\nfour\n")
    assert command_line.main(["bench", "--lanes", "cpu:fp32", "--clients", "4", "--rounds", "2", "--prompts", str(tmp_path / "p.txt")]) == 1
    shown, _, last = capsys.readouterr().out.rstrip().rpartition("\n")
    (level,) = json.loads(last)["clients"]["cpu:fp32"]
    assert (level["n"], level["failed"]) == (6, 2) and "killed" in level["errors"][0] and level["load_s"] > 0
    words = " ".join(shown.split())
    assert "With 4 clients 2 of 8 questions failed; the others went on: The lane's process was killed" in words
    assert "the lane loaded for" in words and "in between, which is in no figure" in words


def test_the_model_of_a_load_is_that_of_our_own_lane_where_there_is_one():
    server, ours = clients.LaneLoad("endpoint:x", (), "served-as-this"), clients.LaneLoad("cpu:fp32", (), "fake/model")
    assert as_json(plan(1), [server, ours], "m")["model"] == "fake/model" and as_json(plan(1), [server], "m")["model"] == "served-as-this"


def test_a_lane_that_answers_no_more_ends_the_levels_and_one_that_can_not_begin_is_told(fake_lanes):
    fake_lanes |= {"dies_on": "poison"}
    asks = plan(1, 2, prompts=("poison", "poison too", "the longest of them, to get warm by"), rounds=1)
    (found,) = measured(asks)
    assert [(len(level.of(ANSWERED)), len(level.of(FAILED))) for level in found.levels] == [(0, 1)]
    assert "With 1 nothing was answered, so 2 were not tried." in load_table(asks, [found], WIDE)
    fake_lanes |= {"load_fails": "There is no such model."}
    (none,) = measured(asks)
    assert not all_answered([none]) and as_json(asks, [none], "m")["why_not"]["cpu:fp32"].endswith("There is no such model.")
    assert "Not measured under load. cpu:fp32: There is no such model." in load_table(asks, [none], WIDE)


def test_the_clients_of_a_server_ask_it_at_once_and_it_is_said():
    server, asks = FalseServer(), plan(1, 3, rounds=2)
    together, come = {asks.question(3, client, 0).prompt for client in range(3)}, set()

    def answers_none_before_all_three_ask(handler) -> None:
        prompt = handler.body["messages"][-1]["content"]
        if prompt in together:
            come.add(prompt)
            until(lambda: come == together, 20, "three clients at once")
        good(handler)

    server.script = answers_none_before_all_three_ask
    try:
        (found,) = measured(asks, "endpoint:far", endpoints=(Endpoint("far", server.url),))
    finally:
        server.close()
    assert [len(level.of(ANSWERED)) for level in found.levels] == [2, 6] and found.model_id == "menu-4bit"
    prompts = [body["messages"][-1]["content"] for _, _, body in server.seen if body]
    assert len(set(prompts)) == 8, "each client's own, the warm-ups' among them"
    assert "Each client is a process of its own here, asking the same server" in load_table(asks, [found], WIDE)


def test_a_client_s_time_has_its_wait_for_the_line_and_for_another_lane_s_turn():
    done = Done("r", "stop", "", (), 0, Timings(ttft_s=0.5, total_s=1.0), queue_s=2.0, turn_wait_s=4.0, load_wait_s=8.0)
    seen = Seen(0, 100.0, ANSWERED, done)
    assert (seen.first_token_s, seen.total_s, seen.t_end) == (6.5, 7.0, 115.0), "a load is in neither, but it passed"


def test_the_load_of_a_lane_that_died_is_in_no_figure():
    def seen(client: int, t_accept: float, queue_s: float, load_s: float) -> Seen:
        done = Done("r", "stop", "", (), 0, Timings(ttft_s=0.5, total_s=1.0), queue_s=queue_s, turn_wait_s=0.0, load_wait_s=load_s)
        return Seen(client, t_accept, ANSWERED, done)

    both = Level(2, (seen(0, 0.0, 0.0, 0.0), Seen(1, 0.0, FAILED, error="It died."), seen(0, 1.0, 0.0, 30.0), seen(1, 1.0, 1.0, 30.0)))
    found = both.as_json()
    assert (found["first_token_s"]["max"], found["total_s"]["max"]) == (1.5, 2.0)
    assert found["load_s"] == 30.0 and found["answers_per_min"] == 60 * 3 / 3.0, "33 s, of which 30 were a load"


def level(clients: int, *totals: float) -> Level:
    return Level(clients, tuple(Seen(0, 0.0, ANSWERED, Done("r", "stop", "", (), 0, Timings(ttft_s=each / 2, total_s=each))) for each in totals))


def test_a_limit_breaks_at_the_fewest_clients_whose_p95_or_largest_of_few_passes_it():
    levels = [level(1, 1.0), level(2, 1.0, 2.0), level(4, *[3.0] * 19, 9.0), level(8, 8.0)]
    assert limit_of(levels, "total", 1.5) == Limit(1.5, 1, 2, "max", 2.0)
    assert limit_of(levels, "total", 3.5) == Limit(3.5, 4, 8, "max", 8.0), "of 20 answers one in 20 may pass it"
    assert limit_of(levels, "first_token", 4.0) == Limit(4.0, 8, None)
    assert limit_of(levels, "total", 0.5) == Limit(0.5, None, 1, "max", 1.0)
    assert limit_of([Level(1, ())], "total", 1.0) is None


@pytest.mark.parametrize(("slow", "told"), [(0.011, False), (0.02, True)])
def test_a_lane_that_wrote_slower_for_more_clients_was_not_alone_on_its_machine(slow, told):
    levels = tuple(
        Level(n, (Seen(0, 0.0, ANSWERED, Done("r", "stop", "", (), 0, Timings(ttft_s=0.1, tpot_s=tpot_s, total_s=1.0))),))
        for n, tpot_s in ((1, 0.01), (8, slow))
    )
    sentence = "A token took 10 ms with 1 client and 20 ms with 8, though one answer is written at a time: other programs were at work."
    assert (sentence in load_table(plan(1, 8), [clients.LaneLoad("cpu:fp32", levels)], WIDE)) == told
    assert "other programs" not in load_table(plan(1, 8), [clients.LaneLoad("endpoint:far", levels)], WIDE)


@pytest.mark.parametrize(
    ("limit_s", "words"),
    [
        (0.5, "500 ms for the whole answer: not kept, with 1 client already (max 1.00 s)."),
        (1.5, "1.50 s for the whole answer: kept with 1 client, breaks with 2 (max 2.00 s)."),
        (2.5, "2.50 s for the whole answer: kept with 2 clients, breaks with 8 (max 8.00 s); what lies between was not measured."),
        (9.0, "9.00 s for the whole answer: kept up to 8 clients, the most that were measured."),
    ],
)
def test_where_a_limit_breaks_is_a_sentence(limit_s, words):
    found = clients.LaneLoad("cpu:fp32", (level(1, 1.0), level(2, 1.0, 2.0), level(8, 8.0)))
    assert words in load_table(plan(1, 2, 8, max_total_s=limit_s), [found], WIDE)


LIMITED = plan(4, 8, max_first_token_s=2.0, max_total_s=2.0)


def test_questions_that_failed_kept_no_limit():
    failed = Seen(1, 0.0, FAILED, error="It broke.")
    some, none = Level(8, (*level(8, 1.0).seen, failed)), Level(8, (failed,))
    for last in (some, none):
        assert limit_of([level(4, 1.0), last], "total", 2.0) == Limit(2.0, 4, 8, "failed")
        assert "kept with 4 clients, breaks with 8 (questions failed)" in load_table(LIMITED, [clients.LaneLoad("cpu:fp32", (level(4, 1.0), last))], 200)
    assert limit_of([Level(8, (*level(8, 3.0).seen, failed))], "total", 2.0) == Limit(2.0, None, 8, "max", 3.0)


def test_a_wait_that_breaks_a_limit_is_never_told_as_the_limit_itself():
    told = load_table(LIMITED, [clients.LaneLoad("cpu:fp32", (level(4, 1.0), level(8, 2.003)))], 200)
    assert "2.00 s for the whole answer: kept with 4 clients, breaks with 8 (max 2.01 s)" in told
    told = load_table(LIMITED, [clients.LaneLoad("cpu:fp32", (level(4, 1.0), level(8, 2.1521)))], 200)
    assert "breaks with 8 (max 2.15 s)" in told  # as the table has it
