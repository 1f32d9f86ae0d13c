"""The whole decode step as one kernel, run on the CPU phase by phase: steps against the models' own logits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.cuda.memory import StepMemory
from inference.cuda.program import Program, layout, program_source
from inference.parts.description import ModelParts
from inference.parts.reader import read_parts
from tests.support.cuda_emulator import Emulator
from tests.support.quantized import quantized

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


class PhaseByPhase(Emulator):
    cooperative = False

    def __init__(self, parts: ModelParts, folder: Path, multiprocessors: int = 7) -> None:
        macros = layout(parts, multiprocessors, 232448).macros
        super().__init__('#include "cuda_program.h"\n' + program_source(), macros, folder, multiprocessors)

    def launch_together(self, *_: Any) -> None:
        raise AssertionError("blocks can't wait for each other here")


def distance(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.float() - truth.float()).norm() / truth.float().norm())


@pytest.mark.parametrize("name", ["llama", "gemma3"])
@torch.no_grad()
def test_steps_give_the_models_logits(name: str, tmp_path: Path) -> None:
    model = quantized(name)
    parts = read_parts(model)
    memory = StepMemory(parts, 64)
    program = Program(parts, memory, PhaseByPhase(parts, tmp_path))
    ids = torch.randint(0, 500, (16,))
    truth = model(ids[None]).logits[0].float()
    memory.keys.fill_(float("nan")), memory.values.fill_(float("nan"))
    for place in range(16):
        memory.token.copy_(ids[place : place + 1])
        program.step()
        assert distance(program.logits, truth[place]) < 0.06
        assert int(memory.token) == int(memory.history[place + 1]) == int(program.logits.argmax()) and int(memory.position) == place + 1
