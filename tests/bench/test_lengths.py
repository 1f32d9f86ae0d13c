"""`bench --lengths`: one table, charts and the lengths at which a lane passes a wait; one that can't be answered is told, and the others go on."""

from __future__ import annotations

import json

import pytest

from inference.bench import bench, side
from inference.bench.lengths import by_length, lengths_words
from inference.bench.table import bench_table
from inference.cli import bench as bench_command
from inference.cli import main as command_line
from inference.engine.engine import Engine
from tests.support.page_fixtures import start_fake_lane

WIDE = 200


def entry(tokens: int, ttft_s: float, tps: float = 50.0, vram: int | None = None) -> dict:
    """What the bench keeps of a length, as far as it is looked at here."""
    return {"ours": {"prompt_tokens": tokens, "ttft_s": ttft_s, "decode_tps": tps, "new_tokens": 50, "ram_rss_peak": 2**29, "vram_reserved": vram}}


def lanes(**lane: list) -> dict:
    return by_length({name.replace("_", ":"): {"lengths": entries} for name, entries in lane.items()})


def test_where_a_wait_is_passed_is_interpolated_between_measured_lengths_and_never_beyond_them():
    found = lanes(cpu_fp32=[entry(16, 0.1), entry(128, 0.5), entry(512, 2.5), entry(2048, 9.0)], cuda_nf4=[entry(16, 1.5), entry(128, 2.0)])
    one, ten = found["cpu:fp32"]["passes"]
    assert one["tokens"] == 128 + (512 - 128) * (1 - 0.5) / (2.5 - 0.5) == 224 and one["between"] == [128, 512]
    assert ten["tokens"] is None and ten["words"] == "at no measured length (the longest: 2,048 tokens)"
    assert found["cuda:nf4"]["passes"][0]["words"] == "already at 16 tokens, the shortest that was measured"
    words = " ".join(lengths_words(found, WIDE).split())
    assert "cpu:fp32: the first token passes 1.00 s at about 224 tokens (interpolated between 128 and 512); 10.0 s at no measured length" in words


def test_a_wait_that_is_met_on_a_measured_length_is_passed_there():
    (one, _) = lanes(cpu_fp32=[entry(16, 0.1), entry(128, 1.0), entry(512, 2.0)])["cpu:fp32"]["passes"]
    assert one["tokens"] == 128


def test_memory_is_what_the_lane_holds_where_its_weights_are_and_the_context_is_where_it_wrote():
    found = lanes(cpu_fp32=[entry(16, 0.1)], cuda_nf4=[entry(16, 0.01, vram=2**31)])
    (ram,), (vram,) = (found[lane]["points"] for lane in ("cpu:fp32", "cuda:nf4"))
    assert (ram["memory_bytes"], ram["memory_kind"]) == (2**29, "RAM") and (vram["memory_bytes"], vram["memory_kind"]) == (2**31, "VRAM")
    assert ram["context_tokens"] == [17, 66]
    words = lengths_words(found, WIDE)
    assert "17 to 66" in words and "512 MiB RAM" in words and "2.00 GiB VRAM" in words


def test_all_lanes_stand_in_one_table_by_length_and_in_one_chart():
    found = lanes(cpu_fp32=[entry(16, 0.1), entry(128, 0.5)], cpu_nf4=[entry(16, 0.2), entry(128, 2.0)])
    shown = lengths_words(found, WIDE)
    order = [line.split()[:2] for line in shown.splitlines() if line.startswith(("16 ", "128 "))]
    assert order == [["16", "cpu:fp32"], ["16", "cpu:nf4"], ["128", "cpu:fp32"], ["128", "cpu:nf4"]]
    assert shown.count("a cpu:fp32, b cpu:nf4") == 2 and "1.00 s |-" in shown


@pytest.fixture
def fake_lanes(monkeypatch):
    """Lanes without a model; a prompt that holds "too long" fails, one that holds "kills" ends its process."""
    script = json.dumps({"*": {"load_s": 0.01, "first_s": 0.01, "token_s": 0.005, "fails_on": "too long", "dies_on": "kills"}})
    started = []

    def start(lane, settings, way="ours"):
        started.append(way)
        return start_fake_lane(lane, settings, FAKE_LANE=script)

    monkeypatch.setattr(bench, "Engine", lambda settings, starter=start: Engine(settings, starter if starter is start else lambda *a: start(*a, way="plain")))
    monkeypatch.setattr(side, "Engine", lambda settings, starter: Engine(settings, start))
    texts = {16: "a", 128: "b", 512: "too long", 2048: "kills"}
    monkeypatch.setattr(bench_command, "prompts_of", lambda lengths, _: [texts[length] for length in lengths])
    monkeypatch.setattr("inference.bench.limits.meter", lambda threads: None)
    return started


def test_lengths_that_can_not_be_answered_are_told_and_the_others_go_on(fake_lanes, capsys):
    arguments = ["--lanes", "cpu:fp32", "--lengths", "2048,128,512,16", "--ours-only", "--rounds", "1", "--max-new-tokens", "3"]
    assert command_line.main(["bench", *arguments]) == 1
    shown, _, last = capsys.readouterr().out.rstrip().rpartition("\n")
    points = json.loads(last)["by_length"]["cpu:fp32"]["points"]
    assert ["why_not" in point for point in points] == [False, False, True, True] and [points[2]["prompt_tokens"], points[3]["prompt_tokens"]] == [512, 2048]
    words = " ".join(shown.split())
    assert "512 tokens were not measured. cpu:fp32: The scripted lane can't answer this one." in words
    assert "2,048 tokens were not measured. cpu:fp32: The lane's process was killed" in words


def test_without_plain_nothing_is_held_against_it(fake_lanes, capsys):
    assert command_line.main(["bench", "--lanes", "cpu:fp32", "--lengths", "16,128", "--ours-only", "--rounds", "1", "--max-new-tokens", "3"]) == 0
    shown, _, last = capsys.readouterr().out.rstrip().rpartition("\n")
    found = json.loads(last)["lanes"]["cpu:fp32"]
    assert fake_lanes == ["ours"] and "plain" not in found and found["ratio"] == {} and found["tokens_equal"] is None
    assert "plain generate was left out" in shown and "ours / plain" not in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ours-only", "--positions", "8"], "which --ours-only leaves out"),
        (["--ours-only", "--prompts", "no.txt"], "takes no --ours-only"),
    ],
)
def test_what_does_not_go_with_ours_only_is_refused(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(bench, "Engine", lambda *_: pytest.fail("a lane was started"))
    assert command_line.main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_answers_of_one_token_have_no_speed_and_no_chart_of_it_and_one_token_is_no_plural():
    entries = [entry(1, 1.5), entry(128, 2.0)]
    for each in entries:
        each["ours"] |= {"decode_tps": None, "new_tokens": 1, "path": "c-step", "total_s": 2.0, "load_s": 1.0, "weights_bytes": 600, "n": 1}
    found = lanes(cpu_fp32=entries)
    shown = lengths_words(found, WIDE)
    assert "Speed by the context" not in shown and "First token by" in shown and "already at 1 token, the shortest" in shown
    beside = {"ratio": {}, "tokens_equal": None, "tokens_why_not": "plain generate was left out", "distinct_tokens": 1, "note": None, "peers": {}}
    told = bench_table({"lanes": {"cpu:fp32": {"ours": entries[0]["ours"], **beside}}}, WIDE)
    assert "cpu:fp32: our lane has no speed, which takes two tokens; plain generate was left out." in told and "; 1 distinct token" in told
