"""What a loaded model is, read off its parameters: the lane's labels, what it holds in which dtype, what of it is not quantized.

In: the model, and what its loading left behind (`Origin`). Out: facts; a model that contradicts its lane's name has none.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from inference.errors import InferenceError
from inference.events import LaneFacts
from inference.host import machine
from inference.models.exact import computes_in_fp32, dtype_name, storage_label
from inference.models.private import is_four_bit, is_odd_rows
from inference.models.values import Values
from inference.sources.at_hand import Checkpoint
from inference.sources.files import weights_files
from inference.sources.headers import Stored, tensors_of

CONTEXT = 2048
FOUR_BIT = "4-bit"
LAYER = re.compile(r"(?<=\.)\d+(?=\.)")
MUCH = 0.01  # of the bytes: from this share on it is said wherever the lane's answers are shown
NAMED = 3


@dataclass(frozen=True)
class Origin:
    """What a model was loaded from: its files' tensors and values, the tensors that it had no place for, and the files whose pages are its memory."""

    tensors: Mapping[str, Stored]
    values: Values
    stray: tuple[str, ...] = ()
    mapped: Mapping[Path, os.stat_result] = field(default_factory=dict)


def remember(model: PreTrainedModel, origin: Origin) -> None:
    """Keep with `model` where it is from."""
    model.loaded_from = origin


def describe(model: PreTrainedModel, checkpoint: Checkpoint, lane: str, threads: int) -> LaneFacts:
    """Facts read off the loaded model; raises InferenceError when they contradict the lane's name."""
    four_bit = [(name, module) for name, module in model.named_modules() if is_four_bit(module)]
    floating = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    in_fp32 = computes_in_fp32(model)
    precision = "FP32" if in_fp32 and not four_bit else _precision(four_bit, floating)
    if precision.lower() != lane.split(":")[1]:
        raise InferenceError(
            f"The {lane} lane came out as {precision}, so it is not shown under that name. See the log, and check MODEL_ID's quantization settings."
        )
    device = str(model.device)
    origin = getattr(model, "loaded_from", None) or _origin(checkpoint)
    compute = {module.compute_dtype for _, module in four_bit} if four_bit else {torch.float32} if in_fp32 else floating
    kept = _kept(model) if four_bit else []
    return LaneFacts(
        model_id=checkpoint.id, revision=checkpoint.revision, architecture=type(model).__name__,
        parameters=model.num_parameters(), device=device.split(":")[0], device_name=device_name(device), precision=precision,
        storage_dtype="uint8, two weights a byte" if four_bit else storage_label(model, origin.values.hold), compute_dtype=_names(compute),
        quantization=_quantization(four_bit), device_map=device, kernel="bitsandbytes" if four_bit else "torch",
        threads=threads if device == "cpu" else None, kept_16bit=tuple(f"{part.name} ({part.dtype})" for part in kept if part.sixteen_bit),
        weights_bytes=weights_bytes(model), context_length=context_length(model.config),
        has_chat_template=False, adapter=checkpoint.adapter, base=checkpoint.base, own_tokenizer=checkpoint.own_tokenizer, note=_note(checkpoint.note, model, kept, origin.stray),
        held=held(model), step_bytes=step_bytes(model), matrix_parameters=matrix_parameters(model), not_quantized=tuple(f"{part.name} ({part.dtype}, {part.share:.1%})" for part in kept), files=_files(checkpoint),
    )  # fmt: skip


def context_length(config: PretrainedConfig) -> int:
    """Positions that a model was made for; CONTEXT where its configuration doesn't say."""
    said = int(getattr(config.get_text_config(), "max_position_embeddings", 0) or 0)
    return said if said > 0 else CONTEXT


def weights_bytes(model: PreTrainedModel) -> int:
    """Bytes of all parameters and buffers, the scales of 4-bit weights too, each once."""
    return sum(held(model).values())


def held(model: PreTrainedModel) -> dict[str, int]:
    """The bytes of `weights_bytes` by dtype; packed 4-bit weights as "4-bit"."""
    found: dict[int, tuple[str, int]] = {}
    for tensor in [*model.parameters(), *model.buffers()]:
        state = getattr(tensor, "quant_state", None)
        _count(found, tensor, FOUR_BIT if state is not None else dtype_name(tensor.dtype))
        for part in state_tensors(state):
            _count(found, part, dtype_name(part.dtype))
    kept = Counter[str]()
    for dtype, count in found.values():
        kept[dtype] += count
    return dict(kept)


def step_bytes(model: PreTrainedModel) -> int:
    """Of `weights_bytes`, those that a step of decode reads: of an embedding that is not the head too it is a row."""
    head = model.get_output_embeddings()
    skipped = {weight.data_ptr(): weight.nbytes for weight in _embeddings(model) if head is None or weight.data_ptr() != head.weight.data_ptr()}
    return weights_bytes(model) - sum(skipped.values())


def matrix_parameters(model: PreTrainedModel) -> int:
    """The numbers in the layers' matrices, which each token of a prompt is multiplied by; the head, which only the last is, and embeddings are none."""
    head = model.get_output_embeddings()
    ends = {weight.data_ptr() for weight in (*_embeddings(model), *([] if head is None else [head.weight]))}
    shapes = {p.data_ptr(): getattr(getattr(p, "quant_state", None), "shape", p.shape) for p in model.parameters()}
    return sum(math.prod(shape) for pointer, shape in shapes.items() if pointer not in ends and len(shape) > 1)


def _embeddings(model: PreTrainedModel) -> list[torch.Tensor]:
    return [module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)]


def _count(found: dict[int, tuple[str, int]], tensor: torch.Tensor, dtype: str) -> None:
    if tensor.nbytes:
        found.setdefault(tensor.data_ptr(), (dtype, tensor.nbytes))


def state_tensors(state: Any) -> list[torch.Tensor]:
    """The tensors of bitsandbytes' state of a 4-bit weight, those of a double quantization too."""
    if state is None:
        return []
    inner = getattr(state, "state2", None)
    return [part for part in (state.absmax, state.code, getattr(state, "offset", None), *state_tensors(inner)) if isinstance(part, torch.Tensor)]


def device_name(device: str) -> str:
    """The processor's or card's own name."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return machine.cpu_name()


@dataclass(frozen=True)
class _Part:
    """Parameters of one name in every layer that are not quantized; `share` of all bytes that the model holds."""

    name: str
    dtype: str
    share: float
    sixteen_bit: bool
    matrix: bool


def _kept(model: PreTrainedModel) -> list[_Part]:
    """What is not in 4 bits, the largest first."""
    total, bytes_of, matrices = weights_bytes(model), Counter[tuple[str, str]](), set[str]()
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():
            short = LAYER.sub("*", name).removesuffix(".weight")
            bytes_of[short, dtype_name(parameter.dtype)] += parameter.nbytes
            if parameter.dim() > 1:
                matrices.add(short)
    return [_Part(name, dtype, count / total, dtype in ("bfloat16", "float16"), name in matrices) for (name, dtype), count in bytes_of.most_common()]


def _note(given: str | None, model: PreTrainedModel, kept: Iterable[_Part], stray: tuple[str, ...]) -> str | None:
    """What must be said wherever its answers are shown: what was given, what is not what its label says, what was left out."""
    ends = {id(part) for part in (model.get_input_embeddings(), model.get_output_embeddings())}
    usual = {name for name, module in model.named_modules() if id(module) in ends}
    wide = [part for part in kept if part.matrix and part.name not in usual]
    notes = [given] if given else []
    if (share := sum(part.share for part in wide)) >= MUCH:
        notes.append(f"{share:.0%} of the bytes are not in 4 bits: {_listed([f'{part.name} ({part.dtype})' for part in wide])}")
    if odd := sum(is_odd_rows(module) for module in model.modules()):
        notes.append(f"the rows of {odd} 4-bit layers are no whole number of blocks, which bitsandbytes computes wrongly on a processor and this lane does not")
    if stray:
        number = f"{len(stray)} tensors" if len(stray) > 1 else "1 tensor"
        notes.append(f"its files hold {number} for which the model has no place, so not used: {_listed(stray)}")
    return "; ".join(notes) or None


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")


def _origin(checkpoint: Checkpoint) -> Origin:
    tensors = tensors_of(checkpoint.folder)
    return Origin(tensors, Values(tensors))


def _files(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The names of the files that the model is made of: weights, their index, configurations."""
    folder = checkpoint.folder
    beside = ("config.json", "generation_config.json", "model.safetensors.index.json")
    weights = [file.name for file in weights_files(folder)]
    return tuple(name for name in (*beside, *weights) if (folder / name).exists() and (name != beside[2] or "model.safetensors" not in weights))


def _precision(four_bit: list[Any], floating: set[torch.dtype]) -> str:
    if four_bit:
        kinds = {module.weight.quant_type for _, module in four_bit}
        return "/".join(sorted(kinds)).upper()
    return {"float32": "FP32", "bfloat16": "BF16", "float16": "FP16"}.get(_names(floating), "mixed " + _names(floating))


def _quantization(four_bit: list[Any]) -> dict[str, Any] | None:
    if not four_bit:
        return None
    state = four_bit[0][1].weight.quant_state
    return {"type": state.quant_type, "double": bool(state.nested), "blocksize": state.blocksize, "layers": len(four_bit)}


def _names(dtypes: set[torch.dtype]) -> str:
    return "+".join(sorted(dtype_name(dtype) for dtype in dtypes))
