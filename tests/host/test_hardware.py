"""The dated file of hardware: every flavor that the Hub's library knows, a price only with its date, and what fits where."""

from __future__ import annotations

import re

import pytest
from huggingface_hub import SpaceHardware

from inference.errors import WrongArguments
from inference.host.hardware import BESIDE_RAM, CUDA_NF4_WIDE, GB, LaneNeed, from_file

GIB = 2**30
LANES = ("cuda:nf4", CUDA_NF4_WIDE, "cpu:nf4", "cpu:fp32")


def needs(**bytes_: int) -> dict[str, LaneNeed]:
    given = {"wide": CUDA_NF4_WIDE, "gpu": "cuda:nf4", "cpu": "cpu:nf4", "full": "cpu:fp32", "half": "cuda:bf16"}
    return {given[key]: LaneNeed(count, count, 0) for key, count in bytes_.items()}


def test_it_has_every_hardware_of_the_library_by_the_library_s_name_and_a_date():
    catalog = from_file()
    assert {one.flavor for one in catalog.hardware} >= {flavor.value for flavor in SpaceHardware}
    assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", catalog.read) and catalog.source.startswith("https://")
    assert len({one.name for one in catalog.hardware}) == len(catalog.hardware)
    for one in catalog.hardware:
        assert bool(one.gpu) == bool(one.gpus) == bool(one.vram_bytes) == bool(one.capability), one
        assert one.zero == bool(one.flavor != one.name) and (one.dollars_per_hour is None) == ("$" not in one.price() and one.price() != "free")


def test_a_hardware_is_named_by_either_name_and_an_unknown_one_is_told():
    catalog = from_file()
    assert catalog.named("zero") is catalog.named("zero-a10g") and catalog.named("t4-small").vram_bytes == 16 * GB
    with pytest.raises(WrongArguments, match="There is no hardware 'h100'. There is: cpu-basic, "):
        catalog.named("h100")


def test_a_lane_is_held_against_the_memory_that_it_uses():
    catalog = from_file()
    found = catalog.named("t4-small").fit(needs(gpu=99 * GIB, wide=GIB, full=GIB))
    assert [(fit.lane, fit.fits) for fit in found] == [("cuda:nf4", True), ("cpu:fp32", True)], "a T4 has no bfloat16: its need is the wide one"
    assert not catalog.named("l4x1").fit(needs(gpu=99 * GIB, wide=GIB))[0].fits
    assert not catalog.named("l4x4").fit(needs(gpu=30 * GIB))[0].fits, "a lane uses one card of four"
    ram = 16 * GB - BESIDE_RAM
    assert [fit.fits for fit in catalog.named("cpu-basic").fit(needs(cpu=ram // 2, full=ram // 2))] == [True, True]
    assert [fit.fits for fit in catalog.named("cpu-basic").fit(needs(cpu=ram // 2, full=ram // 2 + 2))] == [True, False], "both share the RAM"
    assert [fit.fits for fit in catalog.named("zero").fit(needs(gpu=GIB, full=GIB))] == [True, None]


def test_the_bf16_lane_stands_on_the_same_card_as_the_4_bit_one_and_only_where_bfloat16_is():
    catalog = from_file()
    found = catalog.named("l4x1").fit(needs(gpu=4 * GIB, full=GIB, half=17 * GIB))
    assert [(fit.lane, fit.fits) for fit in found] == [("cuda:nf4", True), ("cuda:bf16", True), ("cpu:fp32", True)]
    assert [fit.fits for fit in catalog.named("l4x1").fit(needs(gpu=4 * GIB, half=19 * GIB))] == [True, False], "both share the card"
    (_, old) = catalog.named("t4-small").fit(needs(wide=GIB, half=GIB))
    assert old.fits is False and str(old).startswith("cuda:bf16 can't run: this ") and "emulates bfloat16" in str(old)
    assert [fit.lane for fit in catalog.named("cpu-basic").fit(needs(cpu=GIB, half=GIB))] == ["cpu:nf4"]


def test_the_cheapest_that_fits_comes_first_and_the_hub_s_prices_go_before_the_file_s():
    catalog = from_file()
    small = {lane: LaneNeed(GIB, GIB, GIB) for lane in LANES}
    names = [one.name for one in catalog.fitting(small)]
    assert names[:4] == ["cpu-basic", "cpu-upgrade", "t4-small", "t4-medium"] and "zero" not in names, "ZeroGPU's RAM is not known"
    told = catalog.priced({"t4-medium": 0.01, "zero-a10g": 9.0}, "2026-11-29", "of the Hub itself")
    assert told.dated() == "prices read 2026-11-29, of the Hub itself" and told.fitting(small)[0].name == "t4-medium"
    assert told.named("t4-small").dollars_per_hour is None and told.named("zero").price() == "a quota, no price"


def test_a_price_is_told_as_it_is_and_one_of_less_than_a_cent_is_no_zero():
    told = from_file().priced({"t4-small": 0.4, "l4x1": 0.2769, "cpu-upgrade": 0.004, "cpu-basic": 0.0}, "2026-08-01", "of the Hub itself")
    assert [told.named(name).price() for name in ("t4-small", "l4x1", "cpu-upgrade", "cpu-basic")] == [
        "$0.40 an hour",
        "$0.2769 an hour",
        "$0.004 an hour",
        "free",
    ]
