"""A checkpoint on a lane -> (model, facts): asks transformers for it, then reads off what really came.

Refuses what would not fit before it reads a byte of weights, and what is not what its label would say after.
Knows no run and no process.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PretrainedConfig, PreTrainedModel

from inference import machine
from inference.errors import InferenceError, OutOfMemory
from inference.events import LaneFacts, Loading, Report
from inference.fast import FastWays, first_line
from inference.models import private
from inference.models.exact import computes_in_fp32, kept_as_stored, shrink, storage_label, stored_dtype
from inference.sources.at_hand import Checkpoint
from inference.sources.files import NO_ADAPTER
from inference.sources.headers import tensors_of

RAM_MARGIN = machine.GIB // 2
VRAM_MARGIN = machine.GIB
CONTEXT = 2048
NOT_TEXT = ("vision", "visual", "audio", "multi_modal", "image")


def compute_dtype(device: str) -> torch.dtype:
    """What a 4-bit lane computes in: bfloat16 where the hardware has it, else float32; never float16.

    float16 overflows in Gemma-3; a GPU emulates bfloat16 below compute capability 8.0.
    """
    if device == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float32
    from bitsandbytes.functional import has_avx512bf16

    return torch.bfloat16 if has_avx512bf16() else torch.float32


def model_arguments(lane: str) -> dict[str, Any]:
    """The keywords of `from_pretrained` for a lane; `plain` uses the same."""
    device, precision = lane.split(":")
    device_map = {"": 0} if device == "cuda" else "cpu"
    if precision == "nf4":
        dtype = compute_dtype(device)
        quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
        return {"device_map": device_map, "dtype": dtype, "quantization_config": quantization, **NO_ADAPTER}
    return {"device_map": device_map, "dtype": torch.float32 if precision == "fp32" else torch.bfloat16, **NO_ADAPTER}


def load(checkpoint: Checkpoint, lane: str, report: Report, ways: FastWays) -> PreTrainedModel:
    """The model on its device; raises InferenceError (Refused where it can't fit)."""
    check_fits(checkpoint.folder, lane, ways.may("compact"))
    try:
        with private.progress_bars(partial(_WeightsProgress, report)):
            return read(checkpoint.folder, lane, ways, checkpoint.id)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        raise OutOfMemory(f"The GPU ran out of memory while loading {checkpoint.id}. Free the card or set MODEL_ID to a smaller model.") from None
    except (OSError, ValueError, KeyError) as error:
        raise InferenceError(
            f"{checkpoint.id} could not be loaded ({first_line(error)}). Check that the folder is complete and made for text generation."
        ) from error


def read(folder: Path, lane: str, ways: FastWays, name: str = "") -> PreTrainedModel:
    """The checkpoint in `folder` as a model in the lane's dtype; a CPU lane's exact matrices in 16 bits where `ways` may."""
    arguments = model_arguments(lane)
    if ways.may("compact") and arguments["dtype"] != torch.float32:
        ways.refuse("compact", "this lane keeps 16-bit values as they are")
    with kept_as_stored(folder, ways) if lane == "cpu:fp32" and ways.may("compact") else contextlib.nullcontext():
        model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **arguments)
    _check_keys(name or str(folder), info)
    ways.attempt("compact", lambda: shrink(model))
    return model.eval()


def check_fits(folder: Path, lane: str, compact: bool = True) -> None:
    """Raise Refused when the weights, as this lane stores them, are more than what is free."""
    what = {"nf4": "This model in 4 bits", "fp32": "This model in full FP32", "bf16": "This model in bfloat16"}[lane.split(":")[1]]
    advice = (
        "Free the GPU or set MODEL_ID to a smaller model." if lane.startswith("cuda") else "Choose a smaller model (MODEL_ID), or hardware with more memory."
    )
    exact = compact and stored_dtype(folder) is not None
    machine.check_fits(what, needed_bytes(((name, shape) for name, shape, _ in tensors_of(folder)), lane, exact), free_bytes(lane), advice)


def needed_bytes(tensors: Iterable[tuple[str, Sequence[int]]], lane: str, exact: bool = False) -> int:
    """What (name, shape) tensors take on a lane once loaded, with a margin for the cache and the work on them.

    `exact`: the FP32 lane keeps matrices in the 16 bits of their file.
    """
    device, precision = lane.split(":")
    margin = VRAM_MARGIN if device == "cuda" else RAM_MARGIN
    kept = "bf16" if exact and lane == "cpu:fp32" else precision
    return margin + sum(_stored_bytes(name, shape, device, kept if len(shape) > 1 else precision) for name, shape in tensors)


def free_bytes(lane: str) -> int:
    """What is free where the lane's weights would go."""
    return torch.cuda.mem_get_info()[0] if lane.startswith("cuda") else machine.ram_available_bytes()


def _stored_bytes(name: str, shape: Sequence[int], device: str, precision: str) -> int:
    count = math.prod(shape)
    if precision == "nf4" and len(shape) == 2 and "embed" not in name and "head" not in name:
        return count // 2 + count // 16
    return count * (4 if precision == "fp32" or (precision == "nf4" and device == "cpu" and compute_dtype("cpu") == torch.float32) else 2)


def _check_keys(name: str, info: dict[str, Any]) -> None:
    wrong = [key for kind in ("missing_keys", "mismatched_keys") for key in info.get(kind, ())]
    text = [str(key) for key in wrong if not any(part in str(key) for part in NOT_TEXT)]
    if text:
        raise InferenceError(
            f"{name} lacks {len(text)} of the weights its architecture needs (the first: {sorted(text)[0]}), so its answers would be random. "
            "Save the fine-tune again with save_pretrained of the same class it was loaded with."
        )


def describe(model: PreTrainedModel, checkpoint: Checkpoint, lane: str, threads: int) -> LaneFacts:
    """Facts read off the loaded model; raises InferenceError when they contradict the lane's name."""
    four_bit = [(name, module) for name, module in model.named_modules() if any(kind.__name__ == "Linear4bit" for kind in type(module).__mro__)]
    floating = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    in_fp32 = computes_in_fp32(model)
    precision = "FP32" if in_fp32 and not four_bit else _precision(four_bit, floating)
    if precision.lower() != lane.split(":")[1]:
        raise InferenceError(
            f"The {lane} lane came out as {precision}, so it is not shown under that name. See the log, and check MODEL_ID's quantization settings."
        )
    device = str(model.device)
    compute = {module.compute_dtype for _, module in four_bit} if four_bit else {torch.float32} if in_fp32 else floating
    return LaneFacts(
        model_id=checkpoint.id, revision=checkpoint.revision, architecture=type(model).__name__,
        parameters=model.num_parameters(), device=device.split(":")[0], device_name=device_name(device), precision=precision,
        storage_dtype="uint8, two weights a byte" if four_bit else storage_label(model), compute_dtype=_names(compute),
        quantization=_quantization(four_bit), device_map=device, kernel="bitsandbytes" if four_bit else "torch",
        threads=threads if device == "cpu" else None, kept_16bit=_kept(model) if four_bit else (),
        weights_bytes=weights_bytes(model), context_length=context_length(model.config),
        has_chat_template=False, adapter=checkpoint.adapter, base=checkpoint.base, note=checkpoint.note,
    )  # fmt: skip


def context_length(config: PretrainedConfig) -> int:
    """Positions that a model was made for; CONTEXT where its configuration doesn't say."""
    return int(getattr(config.get_text_config(), "max_position_embeddings", 0) or CONTEXT)


def weights_bytes(model: PreTrainedModel) -> int:
    """Bytes of all parameters and buffers, the scales of 4-bit weights too, each storage once."""
    tensors = [*model.parameters(), *model.buffers()]
    for parameter in model.parameters():
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            tensors += [state.absmax, state.code]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def device_name(device: str) -> str:
    """The processor's or card's own name."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return machine.cpu_name()


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


def _kept(model: PreTrainedModel) -> tuple[str, ...]:
    kept = []
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.Tensor) and weight.is_floating_point() and weight.dim() > 1:
            kept.append(f"{name} ({_names({weight.dtype})})")
    return tuple(kept)


def _names(dtypes: set[torch.dtype]) -> str:
    return "+".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


class _WeightsProgress:
    """Stands in for transformers' tqdm: reports weights done of all, draws nothing."""

    def __init__(self, report: Report, iterable: Any = None, *_: Any, total: float | None = None, **__: Any) -> None:
        self._report, self._iterable = report, iterable
        self._total = total if total is not None else (len(iterable) if hasattr(iterable, "__len__") else None)
        self._done = 0.0

    def __iter__(self) -> Any:
        for item in self._iterable:
            yield item
            self.update(1)

    def __enter__(self) -> _WeightsProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def update(self, n: float = 1) -> None:
        self._done += n
        if self._done == self._total or int(self._done) % 16 == 0:
            self._report(Loading("reading weights", self._done, self._total, "weights"))

    def close(self) -> None:
        """Nothing is drawn, so nothing is to be closed."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("set_") or name in {"refresh", "reset", "clear", "display"}:
            return lambda *_, **__: None
        raise AttributeError(name)
