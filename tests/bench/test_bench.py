"""The bench refuses what it can't measure before anything loads, and names a lane as it came out on this machine."""

from __future__ import annotations

import json

import pytest

from inference.bench import bench, equal, forks, limits, side, table
from inference.bench.limits import Limits
from inference.cli import bench as bench_command
from inference.cli import main as command_line
from inference.engine.engine import Engine
from inference.errors import InferenceError, WrongArguments
from inference.events import Request
from inference.settings import SMALL_MODEL, Settings
from tests.support.page_fixtures import start_fake_lane

SCRIPT = json.dumps({"*": {"load_s": 0.01, "first_s": 0.01, "token_s": 0.005}})
REQUEST = Request("hi", max_new_tokens=3)


def start(lane, settings, way="plain"):
    return start_fake_lane(lane, settings, FAKE_LANE=SCRIPT)


class Meter:
    """What the machine can do, another thing each time: 1, 2, 3, ... GB/s and GFLOP/s."""

    def __init__(self, threads):
        self.asked = 0

    def measure(self):
        self.asked += 1
        return Limits(self.asked * 1e9, self.asked * 1e10)


@pytest.fixture
def fake_lanes(monkeypatch):
    meters = []
    monkeypatch.setattr(bench, "Engine", lambda settings, starter=start: Engine(settings, start))
    monkeypatch.setattr(side, "Engine", lambda settings, starter: Engine(settings, start))
    monkeypatch.setattr(side, "start_worker", start)
    monkeypatch.setattr(limits, "meter", lambda threads: meters.append(Meter(threads)) or meters[-1])
    return meters


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rounds", "0"], "--rounds must be 1 or more"),
        (["--rounds", "-3"], "--rounds"),
        (["--positions", "513"], "--positions must be from 0 to 512"),
        (["--positions", "-1"], "--positions"),
        (["--prompt-tokens", "-1"], "--prompt-tokens"),
        (["--max-new-tokens", "0"], "Max new tokens"),
        (["--quote", "llama.cpp=fast"], "--quote takes"),
        (["--lanes", "cpu:fp32", "--peer", "bf16"], "bf16 runs on a GPU"),
        (["--lengths", "16,x"], "--lengths takes numbers"),
        (["--lengths", "0"], "--lengths takes numbers"),
        (["--lengths", "16,16"], "each once"),
        (["--lengths", "16", "--prompt-tokens", "3"], "Give one"),
        (["--prompts", "no.txt"], "no.txt can't be read"),
        (["--repeats", "3"], "--repeats goes with --prompts"),
        (["--prompts", "no.txt", "--lengths", "16"], "takes no --lengths"),
        (["--prompts", "no.txt", "--peer", "llama.cpp"], "takes no --peer"),
    ],
)
def test_what_can_not_be_measured_is_refused_before_anything_starts(arguments, words, monkeypatch, capsys):
    for module in (bench, side, forks, equal):
        monkeypatch.setattr(module, "Engine", lambda *_: pytest.fail("a lane was started"))
    assert command_line.main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "model"), [([], SMALL_MODEL), (["--model", "menu"], "menu"), (["--shape", "qwen3-1.7b"], "shape:qwen3-1.7b")])
def test_speed_is_measured_on_the_default_model_s_base_unless_another_is_named(arguments, model, monkeypatch):
    asked = []
    monkeypatch.delenv("MODEL_ID", raising=False)
    monkeypatch.setattr(bench_command, "bench", lambda settings, *_: asked.append(settings.model_id) or {"lanes": {}})
    assert command_line.main(["bench", *arguments]) == 0
    assert asked == [model]


def test_a_temperature_is_refused():
    with pytest.raises(WrongArguments, match="greedy"):
        bench.bench(Settings(), bench.Plan((Request("hi", temperature=0.5),)), lambda _: None)


def test_a_lane_is_named_as_it_came_out_and_the_machine_is_measured_before_the_rounds_and_after_each(fake_lanes):
    settings = Settings(lanes=("auto:nf4", "cpu:fp32"))
    said = []
    result = bench.bench(settings, bench.Plan((REQUEST,), rounds=2), said.append)
    assert list(result["lanes"]) == ["cpu:nf4", "cpu:fp32"] and not any("auto" in words for words in said)
    assert [meter.asked for meter in fake_lanes] == [3, 3]
    for found in result["lanes"].values():
        assert (found["read_bandwidth"], found["fma_peak"]) == (2e9, 2e10)
        assert found["tokens_equal"] and found["repeats_equal"] and found["fork"] is None and found["tokens_against"] == forks.PLAIN
    ours = result["lanes"]["cpu:fp32"]
    assert ours["bandwidth_share"] == pytest.approx(3000 * ours["ours"]["decode_tps"] / 2e9)
    assert ours["peak_share"] == pytest.approx(2 * 800 * 4 / ours["ours"]["ttft_s"] / 2e10)
    words = table.bench_table(result, 400)
    assert "GB/s that a loop of loads reads" in words and "GFLOP/s that these threads multiply and add at" in words
    assert "the tokens are those of plain generate" in words


def test_without_a_c_compiler_nothing_is_said_of_the_machine(fake_lanes, monkeypatch):
    monkeypatch.setattr(limits, "meter", lambda threads: None)
    result = bench.bench(Settings(lanes=("cpu:fp32",)), bench.Plan((REQUEST,), rounds=1), lambda _: None)
    assert "bandwidth_share" not in result["lanes"]["cpu:fp32"] and "loop of loads" not in table.bench_table(result)


def test_each_length_has_rounds_of_its_own_and_a_row_a_way(fake_lanes, monkeypatch, capsys):
    monkeypatch.setattr(bench_command, "prompts_of", lambda lengths, _: [f"prompt of {length}" for length in lengths])
    asked = []
    ask = side.Side.ask
    monkeypatch.setattr(side.Side, "ask", lambda self, request: asked.append(request.prompt) or ask(self, request))
    assert command_line.main(["bench", "--lanes", "cpu:fp32", "--lengths", "16,128", "--rounds", "2", "--max-new-tokens", "3"]) == 0
    shown, _, last = capsys.readouterr().out.rstrip().rpartition("\n")
    found = json.loads(last)["lanes"]["cpu:fp32"]
    assert [entry["plain"]["n"] for entry in found["lengths"]] == [entry["ours"]["n"] for entry in found["lengths"]] == [2, 2]
    assert asked == ["prompt of 16"] * 6 + ["prompt of 128"] * 6  # one to load, one to get warm, then A B A B
    assert shown.count("cpu:fp32, 4 tokens:") == 4  # a sentence and a check a length; a fake prompt has four tokens


def test_a_peer_is_checked_against_what_auto_became(fake_lanes, monkeypatch):
    settings = Settings(lanes=("auto:nf4",))
    monkeypatch.setattr(bench, "bench_lane", lambda *_: pytest.fail("a lane was loaded"))
    with pytest.raises(WrongArguments, match="can't stand beside cpu:nf4"):
        bench.bench(settings, bench.Plan((REQUEST,), peers=("bf16",)), lambda _: None)
    monkeypatch.setattr(bench, "resolved", lambda lane, settings: lane.replace("auto", "cuda"))
    with pytest.raises(WrongArguments, match="can't stand beside cuda:nf4"):
        bench.bench(settings, bench.Plan((REQUEST,), peers=("llama.cpp",)), lambda _: None)
    monkeypatch.setattr(bench, "bench_lane", lambda settings, *_: {"plain": {}, "ours": {}, "peers": {}, "lane": settings.lanes})
    monkeypatch.setattr(bench, "bench_table", lambda *_: "")
    monkeypatch.setattr(bench, "bench_peer", lambda settings, peer, *_: [{"lane": settings.lanes}])
    found = bench.bench(settings, bench.Plan((REQUEST,), peers=("bf16",)), lambda _: None)["lanes"]["cuda:nf4"]
    assert found["lane"] == found["peers"]["bf16"]["lane"] == ("cuda:nf4",)


def test_a_peer_on_the_cpu_takes_part_in_each_round_of_either_lane(fake_lanes):
    result = bench.bench(Settings(lanes=("cpu:nf4", "cpu:fp32")), bench.Plan((REQUEST,), rounds=2, peers=("llama.cpp",)), lambda _: None)
    assert all(found["peers"]["llama.cpp"]["n"] == 2 for found in result["lanes"].values())


def test_a_lane_s_process_that_dies_before_its_hello_is_a_sentence(monkeypatch):
    monkeypatch.setattr(side, "start_worker", lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=json.dumps({"*": {"dies_at_start": True}})))
    with pytest.raises(InferenceError, match="ended before it said what it is"):
        side.resolved("auto:nf4", Settings())
    assert side.resolved("cpu:fp32", Settings()) == "cpu:fp32"


def test_a_lane_s_process_that_never_says_what_it_is_is_given_up(monkeypatch):
    slow = json.dumps({"*": {"imports_s": 60}})
    monkeypatch.setattr(side, "start_worker", lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=slow))
    with pytest.raises(InferenceError, match="has not said what it is for 1 s"):
        side.resolved("auto:nf4", Settings(lane_patience_s=1))
