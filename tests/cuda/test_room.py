"""The cache's size: what a run needs, doubled, as far as the model's context and the card's memory go; small again when it is given back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from inference.cuda.memory import StepMemory, bytes_for
from inference.cuda.room import MARGIN_BYTES, CacheRoom
from inference.cuda.step import MOST_NARROW_ROWS
from inference.parts.reader import read_parts
from tests.support.cuda_step import emulated
from tests.support.quantized import made, quantized

IDS = torch.randint(3, 490, (100,), generator=torch.Generator().manual_seed(0)).tolist()


class Card(CacheRoom):
    """A card with so many bytes free beside the cache it holds, and, once, another process that is faster."""

    free = 1 << 40
    left = 1 << 40  # positions, once another process was faster

    def _free(self) -> int:
        return self.free - MARGIN_BYTES

    def _hold(self, memory, rows: int) -> None:
        super()._hold(memory, min(rows, self.left))
        if rows > self.left:
            memory.let_go()
            self.rows = 0
            raise torch.cuda.OutOfMemoryError("out of memory")


@pytest.mark.parametrize(("wanted", "held"), [(64, 64), (65, 128), (129, 256), (300, 400)])
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@torch.no_grad()
def test_a_grown_cache_answers_the_same_and_shrinks_back(wanted: int, held: int, tmp_path: Path) -> None:
    model = quantized("llama")
    runner = emulated(model, 64, tmp_path)
    words = runner.memory.words.data_ptr()
    short = runner.run(IDS[:50], 0)
    room = Card(runner.step.parts, 400, at_rest=64)
    assert room.must_grow(wanted) == (wanted > 64)
    if room.must_grow(wanted):
        room.grow(runner.memory, wanted)
    assert room.why_not(wanted) is None and not room.must_grow(wanted)
    assert room.rows == held and runner.memory.rows == held + MOST_NARROW_ROWS and runner.memory.words.data_ptr() == words
    assert torch.equal(runner.run(IDS[:50], 0), short), "kernels find the new cache where the words say"
    if held > 64:
        whole = model(torch.tensor([IDS])).logits[0, -1]
        assert (runner.run(IDS, 0) - whole).norm() < 0.05 * whole.norm()
    assert room.shrink(runner.memory) == (held > 64) and room.rows == 64
    assert torch.equal(runner.run(IDS[:50], 0), short)


@torch.no_grad()
def test_what_has_no_room_is_told_with_its_size() -> None:
    parts = read_parts(made("llama"))
    room = Card(parts, 1 << 20, at_rest=64)
    assert "pass the model's context of 1,048,576" in str(room.why_not(1 << 21))
    room.free = MARGIN_BYTES + bytes_for(parts, 5000 + MOST_NARROW_ROWS)
    assert room.must_grow(5000)
    reason = room.why_not(5001)
    assert reason is not None and reason.startswith("5,001 tokens need ") and " of cache; " in reason and reason.endswith(" are free")
    assert not room.must_grow(5001), "what can't be had is not tried"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@torch.no_grad()
def test_it_grows_by_what_fits_where_twice_does_not_and_comes_back_where_another_was_faster(tmp_path: Path) -> None:
    runner = emulated(quantized("llama"), 64, tmp_path)
    parts = runner.step.parts
    room = Card(parts, 4096, at_rest=64)
    room.free = MARGIN_BYTES + bytes_for(parts, 100 + MOST_NARROW_ROWS)
    room.grow(runner.memory, 80)
    assert room.rows == 80
    room.free, room.left = 1 << 40, 70
    room.grow(runner.memory, 1000)
    assert room.rows == 64 and runner.memory.rows == 64 + MOST_NARROW_ROWS
    assert room.why_not(64) is None and "holds 64 positions, and the card had no room for 1,000" in str(room.why_not(1000))


@torch.no_grad()
def test_where_even_the_positions_at_rest_are_gone_nothing_is_held_until_there_is_room_again() -> None:
    parts = read_parts(made("llama"))
    room, memory = Card(parts, 4096, at_rest=64), StepMemory(parts, 64 + MOST_NARROW_ROWS)
    room.left = 10
    room.grow(memory, 1000)
    assert room.rows == memory.rows == 0 and not room.shrink(memory)
    assert "holds 0 positions" in str(room.why_not(1)) and room.must_grow(1)
    room.left = 1 << 40
    room.grow(memory, 1)
    assert room.rows == 64 and room.why_not(64) is None
    room.grow(memory, 1000)
    room.left = 10
    assert room.shrink(memory) and room.rows == memory.rows == 0, "a shrink that fails ends no lane"
