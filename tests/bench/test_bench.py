"""The bench refuses what it can't measure before anything loads, and names a lane as it came out on this machine."""

from __future__ import annotations

import json

import pytest

from inference.bench import bench, side
from inference.cli import main as command_line
from inference.engine.engine import Engine
from inference.errors import InferenceError, WrongArguments
from inference.events import Request
from inference.settings import SMALL_MODEL, Settings
from tests.support.page_fixtures import start_fake_lane

SCRIPT = json.dumps({"*": {"load_s": 0.01, "first_s": 0.01, "token_s": 0.005}})


def start(lane, settings, way="plain"):
    return start_fake_lane(lane, settings, FAKE_LANE=SCRIPT)


@pytest.fixture
def fake_lanes(monkeypatch):
    monkeypatch.setattr(bench, "Engine", lambda settings, starter=start: Engine(settings, start))
    monkeypatch.setattr(side, "Engine", lambda settings, starter: Engine(settings, start))
    monkeypatch.setattr(side, "start_worker", start)
    monkeypatch.setattr(bench, "read_bandwidth", lambda threads: 1e9)


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
        (["--lanes", "cpu:nf4", "--peer", "llama.cpp"], "llama.cpp is measured in FP32"),
    ],
)
def test_what_can_not_be_measured_is_refused_before_anything_starts(arguments, words, monkeypatch, capsys):
    for module in (bench, side):
        monkeypatch.setattr(module, "Engine", lambda *_: pytest.fail("a lane was started"))
    assert command_line.main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "model"), [([], SMALL_MODEL), (["--model", "menu"], "menu"), (["--shape", "qwen3-1.7b"], "shape:qwen3-1.7b")])
def test_speed_is_measured_on_the_default_model_s_base_unless_another_is_named(arguments, model, monkeypatch):
    asked = []
    monkeypatch.delenv("MODEL_ID", raising=False)
    monkeypatch.setattr(bench, "bench", lambda settings, *_: asked.append(settings.model_id) or {"lanes": {}})
    assert command_line.main(["bench", *arguments]) == 0
    assert asked == [model]


def test_a_lane_is_named_as_it_came_out_and_its_bandwidth_is_told(fake_lanes):
    settings = Settings(lanes=("auto:nf4", "cpu:fp32"))
    said = []
    result = bench.bench(settings, Request("hi", max_new_tokens=3), 1, said.append)
    assert list(result["lanes"]) == ["cpu:nf4", "cpu:fp32"] and not any("auto" in words for words in said)
    assert all(lane["bandwidth_share"] > 0 for lane in result["lanes"].values())


def test_a_peer_is_checked_against_what_auto_became(fake_lanes, monkeypatch):
    settings, request = Settings(lanes=("auto:nf4",)), Request("hi", max_new_tokens=3)
    monkeypatch.setattr(bench, "bench_lane", lambda *_: pytest.fail("a lane was loaded"))
    with pytest.raises(WrongArguments, match="can't stand beside cpu:nf4"):
        bench.bench(settings, request, 1, lambda _: None, ["bf16"])
    monkeypatch.setattr(bench, "resolved", lambda lane, settings: lane.replace("auto", "cuda"))
    monkeypatch.setattr(bench, "bench_lane", lambda settings, *_: {"plain": {}, "ours": {}, "peers": {}, "lane": settings.lanes})
    monkeypatch.setattr(bench, "bench_table", lambda *_: "")
    monkeypatch.setattr(bench, "bench_peer", lambda settings, peer, *_: {"lane": settings.lanes})
    found = bench.bench(settings, request, 1, lambda _: None, ["bf16"])["lanes"]["cuda:nf4"]
    assert found["lane"] == found["peers"]["bf16"]["lane"] == ("cuda:nf4",)


def test_a_lane_s_process_that_dies_before_its_hello_is_a_sentence(monkeypatch):
    monkeypatch.setattr(side, "start_worker", lambda lane, settings: start_fake_lane(lane, settings, FAKE_LANE=json.dumps({"*": {"dies_at_start": True}})))
    with pytest.raises(InferenceError, match="ended before it said what it is"):
        side.resolved("auto:nf4", Settings())
    assert side.resolved("cpu:fp32", Settings()) == "cpu:fp32"
