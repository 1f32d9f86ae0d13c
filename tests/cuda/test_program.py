"""The whole decode step as one kernel, run on the CPU phase by phase: steps and products against FP64, tokens, faults, refusals."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import bitsandbytes.functional as bnbf
import pytest
import torch

from inference.cuda.memory import StepMemory
from inference.cuda.program import Kernel, Program, layout, program_source
from inference.parts.description import ModelParts, NotUnderstood
from inference.parts.reader import read_parts
from tests.support import reference
from tests.support.cuda_emulator import Emulator
from tests.support.quantized import made, quantized

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
IDS = torch.randint(3, 490, (14,), generator=torch.Generator().manual_seed(0)).tolist()  # past the window of 12
HOPPER, SMALLEST = 232448, 101376  # shared memory of a block on sm_90, and on sm_86, sm_89 and sm_120


class PhaseByPhase(Emulator):
    """The kernel on the CPU: its blocks can't wait for each other, so that each phase is a launch."""

    cooperative = False

    def __init__(self, macros: dict[str, object], folder: Path, blocks: int, shared: int) -> None:
        super().__init__('#include "cuda_program.h"\n' + program_source(), macros, folder, blocks)
        self.shared_limit = shared

    def launch_together(self, *_: Any) -> None:
        raise AssertionError("blocks can't wait for each other here")


def program_of(parts: ModelParts, folder: Path, blocks: int = 4, shared: int = HOPPER, **macros: int) -> tuple[Program, StepMemory]:
    """A step whose cache is all NaN: what isn't written must not be read."""
    memory = StepMemory(parts, 64)
    memory.keys.fill_(float("nan")), memory.values.fill_(float("nan"))
    return Program(parts, memory, kernel_of(parts, folder, blocks, shared, **macros)), memory


def kernel_of(parts: ModelParts, folder: Path, blocks: int = 4, shared: int = HOPPER, **macros: int) -> Kernel:
    plan = layout(parts, blocks, shared)
    return Kernel(PhaseByPhase(plan.macros | macros, folder, blocks, shared), plan)


def distance(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.double() - truth).norm() / truth.norm())


FORMS = {
    "biases, a narrow table, more blocks than tiles": ("llama, biases", True, {"blocks": 9, "shared": SMALLEST}),
    "windows, ranges of keys, tiles that two blocks share": ("gemma3", True, {"blocks": 7, "LEAST_KEYS": 3}),
    "norms over all heads, norms after": ("olmo2", True, {"blocks": 3}),
    "part of a head is rotated": ("phi4-mini, part of a head", True, {}),
    "caps, weights in 16 bits": ("gemma2", False, {}),
    "multipliers, weights in 16 bits, shared tiles": ("granite", False, {"blocks": 3, "shared": SMALLEST}),
}


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_steps_are_as_near_to_exact_as_the_models_own(form: str, tmp_path: Path) -> None:
    name, four_bit, how = FORMS[form]
    model = (quantized if four_bit else made)(name)
    parts = read_parts(model)
    program, memory = program_of(parts, tmp_path, **how)
    truth, plain = reference.logits(parts, IDS), model(torch.tensor([IDS])).logits[0]
    for place, token in enumerate(IDS if any(layer.window for layer in parts.layers) else IDS[:5]):
        memory.token.fill_(token)
        program.step()
        assert distance(program.logits, truth[place]) < 1.5 * max(distance(row, exact) for row, exact in zip(plain, truth, strict=True)) < 0.07
        assert int(memory.token) == int(memory.history[place + 1]) == int(program.logits.argmax()) and int(memory.position) == place + 1


@torch.no_grad()
def test_the_kernel_of_a_model_runs_one_of_its_layers(tmp_path: Path) -> None:
    parts = read_parts(quantized("llama"))
    alone = replace(parts, layers=parts.layers[1:])
    memory = StepMemory(alone, 64)
    program = Program(alone, memory, kernel_of(parts, tmp_path))
    for place, (token, truth) in enumerate(zip(IDS[:3], reference.logits(alone, IDS[:3]), strict=True)):
        memory.token.fill_(token)
        program.step()
        assert distance(program.logits, truth) < 0.02 and int(memory.position) == place + 1


@torch.no_grad()
def test_products_of_odd_shapes_agree_with_fp64_on_the_same_weights(tmp_path: Path) -> None:
    model = quantized("llama")  # 192 columns: three blocks of scales
    parts = read_parts(model)
    program, memory = program_of(parts, tmp_path)
    memory.token.fill_(7)
    program.run_phases(0, 1)
    layer = parts.layers[0]
    weights = [bnbf.dequantize_4bit(matrix.module.weight.data, matrix.state).double() for matrix in (layer.q, layer.k, layer.v)]
    row = model.model.layers[0].input_layernorm(model.model.embed_tokens(torch.tensor([[7]])))[0, 0].double()
    assert distance(program.room["qkv_sums"].sum(0), torch.cat(weights) @ row) ** 2 < 2e-5


@torch.no_grad()
def test_a_row_that_is_no_number_is_marked_and_a_step_without_commit_chooses_nothing(tmp_path: Path) -> None:
    model = quantized("llama")
    program, memory = program_of(read_parts(model), tmp_path)
    memory.token.fill_(7)
    program.step(commit=False)
    assert int(memory.token) == 7 and int(memory.position) == 0 and not program.logits.isnan().any()
    head, large = model.lm_head.weight.data, model.model(torch.tensor([[7]]))[0][0, 0].sign() * 3e38  # times the last row: infinite
    for value, rows in ((large, [3]), (-large, range(500)), (large * float("nan"), [499])):
        clean = head.clone()
        head[list(rows)] = value
        memory.token.fill_(7), memory.position.fill_(0), memory.history.fill_(5)
        program.step()
        assert int(memory.history[1]) == -1 and int(memory.token) == 0 and int(memory.position) == 1
        head.copy_(clean)
    head[:] = head[300]  # all equally likely: the first, as torch.argmax
    memory.token.fill_(7), memory.position.fill_(0)
    program.step()
    head.copy_(clean)
    assert int(memory.token) == int(program.logits.argmax()) == 0 and int(memory.history[1]) == 0


def test_what_the_kernel_has_no_form_for_is_refused_in_a_sentence() -> None:
    parts = read_parts(quantized("llama"))
    for changed, why in (
        (replace(parts, head_dim=96), "heads have 96 columns"), (replace(parts, final_norm=parts.final_norm.float()), "norm is not in bfloat16"),
        (replace(parts, layers=(replace(parts.layers[0], o=read_parts(made("llama")).layers[0].o), parts.layers[1])), "some of its o matrices"),
    ):  # fmt: skip
        with pytest.raises(NotUnderstood, match=why):
            layout(changed, 132, HOPPER)
    with pytest.raises(NotUnderstood, match="3 heads for 2 multiprocessors"):
        layout(parts, 2, HOPPER)
