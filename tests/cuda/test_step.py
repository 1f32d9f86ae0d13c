"""The CUDA kernels' source run on the CPU: whole steps of every family against the description's own mathematics in FP64."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.cuda.prefill import chunks_of
from inference.parts.check import let_in
from inference.parts.description import NotUnderstood
from inference.parts.reader import read_parts
from tests.support import reference
from tests.support.cuda_step import emulated, emulated_parts
from tests.support.quantized import in_16_bits, made, quantized

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
IDS = torch.randint(3, 490, (46,), generator=torch.Generator().manual_seed(0)).tolist()
# over the edge of the window of 12 and past it; 34 and 44 rows go the wide way
WAYS = ([1] * 3, [11, 1, 1, 1, 5, 1], [30, 1], [12, 34], [44, 1, 1])
# kernels of another form are compiled apart, which takes most of the time: each form is tried in one arithmetic or the other
FOUR_BIT = ("llama, biases", "mistral, a window", "gemma3", "olmo2", "phi4-mini, part of a head")
FULL_WIDTH = ("gemma2", "smollm3", "granite", "olmo3", "phi3")


def distance(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.double() - truth).norm() / truth.norm())


def worst(model, folder: Path) -> tuple[float, float]:
    """The largest distance of our logits from FP64's, and of the model's own, over every way to put the ids."""
    runner, truth = emulated(model, 96, folder), reference.logits(read_parts(model), IDS)
    memory, found = runner.memory, 0.0
    for sizes in WAYS:
        place = 0
        for size in sizes:
            ours = runner.run(IDS[place : place + size], place)
            place += size
            memory.position.fill_(place - 1)
            runner.step.take_best()
            assert int(memory.token) == int(memory.history[place]) == int(ours.argmax()) and int(memory.position) == place
            found = max(found, distance(ours, truth[place - 1]))
    plain = model(torch.tensor([IDS])).logits[0]
    return found, max(distance(row, exact) for row, exact in zip(plain, truth, strict=True))


@pytest.mark.parametrize("name", FOUR_BIT)
@torch.no_grad()
def test_steps_in_bfloat16_are_as_near_to_exact_as_the_models_own(name: str, tmp_path: Path) -> None:
    ours, plain = worst(quantized(name, nested=name == "gemma3"), tmp_path)
    assert ours < 1.3 * plain < 0.06


@pytest.mark.parametrize("name", ["gemma2"])
@torch.no_grad()
def test_weights_kept_in_16_bits_are_read_as_they_are(name: str, tmp_path: Path) -> None:
    ours, plain = worst(made(name), tmp_path)
    assert ours < 1.3 * plain < 0.06


@pytest.mark.parametrize("name", FULL_WIDTH)
@torch.no_grad()
def test_steps_in_float32_are_exact_to_float32(name: str, tmp_path: Path) -> None:
    model = quantized(name, torch.float32)
    ours, plain = worst(in_16_bits(model) if name == "granite" else model, tmp_path)
    assert ours < max(1.5 * plain, 1e-6)


@torch.no_grad()
def test_the_check_lets_our_step_in_16_bits_in_and_a_fault_of_one_layer_not(tmp_path: Path) -> None:
    model = quantized("llama, biases")
    parts = read_parts(model)
    found = let_in(model, parts, lambda parts, positions: emulated_parts(parts, positions, tmp_path))
    assert all(each.difference <= each.bound < 0.1 for each in found)
    wrong = replace(parts, layers=(parts.layers[0], replace(parts.layers[1], rotary=None)))
    with pytest.raises(NotUnderstood, match="the whole model, 12 ids"):
        let_in(model, wrong, lambda parts, positions: emulated_parts(parts, positions, tmp_path))


@torch.no_grad()
def test_logits_that_are_no_numbers_give_no_id(tmp_path: Path) -> None:
    model = quantized("llama")
    runner = emulated(model, 96, tmp_path)
    runner.run(IDS[:4], 0)
    for poison, places in ((float("nan"), [7]), (float("inf"), [499]), (float("-inf"), range(500))):
        clean = model.lm_head.weight.data.clone()
        model.lm_head.weight.data[list(places)] = 0
        row = torch.ones(192, dtype=torch.bfloat16)
        row[0] = poison
        model.lm_head.weight.data[list(places), 0] = 1
        if poison == float("nan"):
            model.lm_head.weight.data[[place for place in range(500) if place not in places]] = 0
        runner.step.head(row)
        runner.memory.position.fill_(3)
        runner.step.take_best()
        assert int(runner.memory.history[4]) == -1 and int(runner.memory.token) == 0
        assert runner.sampled(1.0, 0.5)[0] == -1
        model.lm_head.weight.data.copy_(clean)


@torch.no_grad()
def test_of_equally_likely_ids_the_first_is_taken_and_none_beside_one_that_is_no_number(tmp_path: Path) -> None:
    model = quantized("llama")
    runner = emulated(model, 96, tmp_path)
    head = model.lm_head.weight.data
    clean = head.clone()
    head[:70], head[70:] = 0, 1  # the first is in no block's first row
    runner.step.head(torch.ones(192, dtype=torch.bfloat16))
    runner.step.take_best()
    assert int(runner.memory.token) == 70
    head[90] = float("nan")  # a single one among numbers
    runner.step.head(torch.ones(192, dtype=torch.bfloat16))
    runner.step.take_best()
    assert int(runner.memory.token) == 0 and int(runner.memory.history[int(runner.memory.position)]) == -1
    head.copy_(clean)


@pytest.mark.parametrize("length", [1, 16, 32, 33, 96, 97, 512, 2048, 2049, 9000])
def test_chunks_cover_the_prompt_once(length: int) -> None:
    pieces = chunks_of(length, 96, 32)
    assert [start for start, _ in pieces] == [sum(size for _, size in pieces[:i]) for i in range(len(pieces))]
    assert sum(size for _, size in pieces) == length and all(size <= 2048 for _, size in pieces)
    assert length <= 96 or min(size for _, size in pieces) > 32, "what is read the wide way has no narrow rest"
