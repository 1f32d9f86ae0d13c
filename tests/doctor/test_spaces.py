"""Which Spaces a model fits on, in doctor's report: by the figures of a load, with prices, and when and where these were read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from inference.cuda.decoder import OLDEST_BF16
from inference.doctor import spaces
from inference.doctor.judge import judge
from inference.doctor.look import see
from inference.host.hardware import BFLOAT16, CUDA_NF4_WIDE, LaneNeed, from_file
from inference.settings import Settings
from inference.space import prices
from tests.support.space_hub import refuses, silent
from tests.support.tiny import make_checkpoint

GIB = 2**30


def test_a_model_is_judged_for_spaces_with_cards_that_are_not_here(space_hub, tmp_path):
    settings = Settings(cache_dir=str(tmp_path / "cache"))
    folder = make_checkpoint(tmp_path / "m")
    lines, well = judge(str(folder), ("cpu:nf4", "cpu:fp32"), settings)
    assert well and "Spaces that both lanes fit on: cpu-basic free, cpu-upgrade $0.03 an hour, t4-small $0.42 an hour" in lines[-1]
    assert "zero (by quota); prices read 20" in lines[-1] and lines[-1].endswith("of the Hub itself")
    needs = spaces.needs(see(str(folder), settings, tmp_path), settings)
    assert set(needs) == {"cuda:nf4", CUDA_NF4_WIDE, "cpu:nf4", "cpu:fp32"}
    assert needs[CUDA_NF4_WIDE].peak_bytes > needs["cuda:nf4"].peak_bytes, "without bfloat16 more is read in FP32"
    assert BFLOAT16 == OLDEST_BF16
    three = replace(settings, lanes=("cuda:nf4", "cuda:bf16", "cpu:fp32"))
    lines, well = judge(str(folder), ("cpu:fp32",), three)
    assert well and "Spaces that all lanes fit on: cpu-basic free, cpu-upgrade $0.03 an hour, l4x1 " in lines[-1], "a T4 has no bfloat16"


@pytest.mark.parametrize("behaviour", [refuses(503), silent, lambda handler: handler.answer([{"name": "t4-small"}])], ids=["busy", "silent", "other"])
def test_where_the_hub_gives_no_prices_the_file_s_stand_with_their_date(space_hub, monkeypatch, behaviour):
    monkeypatch.setattr(prices, "LONGEST_S", 0.2)
    assert prices.catalog().named("t4-small").dollars_per_hour == 0.42
    space_hub.does["GET", "/api/spaces/hardware"] = behaviour
    assert prices.catalog() == from_file() and "prices read 2026-08" in from_file().dated()


def test_a_model_too_large_for_the_fp32_lane_anywhere_is_told_what_its_4_bit_lane_fits_on():
    large = LaneNeed(30 * GIB, 40 * GIB, GIB)
    needs = {"cuda:nf4": large, CUDA_NF4_WIDE: large, "cpu:nf4": large, "cpu:fp32": LaneNeed(2000 * GIB, 2000 * GIB, GIB)}
    assert spaces.lines(needs, from_file())[0].startswith("  Spaces that the 4-bit lane alone fits on: l40sx1 $1.80 an hour, a100-large $2.50 an hour")
    assert "fits on: none;" in spaces.lines({lane: LaneNeed(9000 * GIB, 9000 * GIB, 0) for lane in needs}, from_file())[0]


def test_what_deploy_asks_for_tells_needs_or_why_there_are_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CACHE_DIR", str(tmp_path / "cache"))
    told = []
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    for name in (make_checkpoint(tmp_path / "m"), tmp_path / "broken"):
        monkeypatch.setenv("MODEL_ID", str(name))
        assert spaces.main() == 0
        told.append(json.loads(capsys.readouterr().out))
    assert all(LaneNeed(**need).bytes > 0 for need in told[0]["needs"].values()) and len(told[0]["needs"]) == 4 and told[0]["refused"] is None
    assert told[1]["needs"] == {} and told[1]["unseen"] is None and "broken" in told[1]["refused"]
