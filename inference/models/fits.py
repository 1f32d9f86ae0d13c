"""What a checkpoint takes on a lane, from its configuration and its files' headers alone: the need by which a load is admitted.

The model is built without weights, and what the load will do is done to it: 4-bit layers put in by transformers' own rule, matrices kept
in 16 bits where the files have them so. In: configuration, headers, a lane. Out: bytes at rest, by dtype, and at most. Reads no weights
but a sample of those in FP32, where they are on this machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import PretrainedConfig

from inference.models import exact, private
from inference.models.arguments import arguments_for
from inference.models.skeleton import Skeleton, skeleton
from inference.models.weights import exact_dtype_in
from inference.sources.headers import Stored

WORK_PER_VALUE = 10  # bytes that bitsandbytes takes beside an FP32 matrix while it quantizes it on the CPU; of another it makes an FP32 copy first
BLOCK = 64  # bitsandbytes' own, where it names none
NESTED_BLOCK = 256  # scales quantized themselves share a scale in blocks of so many
CODE_BYTES, NESTED_CODE_BYTES = 16 * 4, 256 * 4
BESIDE_BYTES = 72 * 2**20  # a CPU lane's process takes so much more in a load, of whatever model: code first touched, buffers, its tokenizer
FOUR_BIT = "4-bit"


@dataclass(frozen=True)
class Need:
    """`weights_bytes` once loaded, `peak_bytes` at most while loading; `kept`: the bytes at rest by dtype, packed weights as "4-bit"."""

    weights_bytes: int
    peak_bytes: int
    kept: dict[str, int] = field(default_factory=dict)


def need(config: PretrainedConfig, tensors: Mapping[str, Stored], lane: str, compact: bool) -> Need:
    """What the model of `config` takes on `lane` whose files hold `tensors`; `compact`: 16-bit matrices of a lane in FP32 end in 16 bits.

    Raises InferenceError where transformers has no such model.
    """
    arguments = arguments_for(config, lane)
    return need_of(skeleton(config, tensors, arguments["dtype"], arguments.get("quantization_config")), tensors, lane, arguments, compact)


def need_of(found: Skeleton, tensors: Mapping[str, Stored], lane: str, arguments: Mapping[str, Any], compact: bool) -> Need:
    """`need` of a skeleton that is there already, made with `arguments`."""
    model, dtype, on_cpu = found.model, arguments["dtype"], lane.startswith("cpu")
    sources: dict[str, list[Stored]] = {}
    for name, place in found.places.items():
        sources.setdefault(place, []).append(tensors[name])
    stored = [(id(parameter), name) for name, parameter in model.named_parameters(remove_duplicate=False) if name in sources]
    names, copies = dict(stored), Counter(key for key, _ in stored)
    kept, most, twice, mapped, wider = Counter[str](), 0, 0, 0, 0
    fp32 = private.kept_in_fp32(model, dtype)
    for parameter, places, matrix in exact.holders(model):
        name = names.get(id(parameter), "")
        files = sources.get(name, [])
        if private.is_four_bit(places[0][0]) and places[0][1] == "weight":
            kept += _four_bit(parameter, arguments["quantization_config"])
            most = max(most, _while_quantized(parameter.numel(), files, dtype, on_cpu))
            continue
        held = read = torch.float32 if name in fp32 else parameter.dtype
        if compact and dtype == held == torch.float32 and matrix:
            held = _exact(files)
        if on_cpu:  # a GPU reads them all in FP32 and then makes them smaller, one after the other
            read = held
        elif held != read:
            wider += parameter.numel() * (read.itemsize - held.itemsize)
            most = max(most, parameter.numel() * held.itemsize)
        kept[exact.dtype_name(held)] += parameter.numel() * held.itemsize
        twice += max(0, copies[id(parameter)] - 1) * parameter.numel() * read.itemsize  # compared with one another, and both kept if they differ
        most = max(most, reading := _while_read(parameter.numel(), files, read, on_cpu))
        mapped += parameter.numel() * held.itemsize * (on_cpu and bool(files) and not reading)
    for buffer in {id(buffer): buffer for buffer in model.buffers()}.values():
        kept[exact.dtype_name(buffer.dtype)] += buffer.nbytes
    # what stays in the file's own pages takes memory only once it is used, which is after the last matrix was worked on
    peak = kept.total() + wider + max(0, most - mapped) + twice + BESIDE_BYTES * on_cpu
    return Need(kept.total(), peak, dict(kept))


def _four_bit(parameter: nn.Parameter, quantization: Any) -> Counter[str]:
    """The bytes of a 4-bit matrix with its scales."""
    count = parameter.numel()
    blocks = -(-count // (getattr(parameter, "blocksize", None) or BLOCK))
    kept = Counter({FOUR_BIT: -(-count // 2), "float32": CODE_BYTES})
    if quantization.bnb_4bit_use_double_quant:
        return kept + Counter({"uint8": blocks, "float32": -(-blocks // NESTED_BLOCK) * 4 + NESTED_CODE_BYTES + 4})
    return kept + Counter({"float32": blocks * 4})


def _exact(files: Sequence[Stored]) -> torch.dtype:
    """The 16-bit dtype that holds all of `files`; FP32 where there is none."""
    found = {exact_dtype_in(stored) for stored in files}
    return found.pop() if len(found) == 1 else torch.float32


def _while_quantized(count: int, files: Sequence[Stored], dtype: torch.dtype, on_cpu: bool) -> int:
    """Beside what stays: the matrix as the file has it, in the dtype it is quantized from, and the work on it."""
    if sum(stored.count for stored in files) != count:  # it is in 4 bits already
        return 0
    converted = sum(stored.bytes for stored in files if exact.IN_A_FILE.get(stored.dtype, torch.float32) != dtype)
    work = WORK_PER_VALUE + (0 if dtype == torch.float32 else torch.float32.itemsize)
    return converted * on_cpu + count * (dtype.itemsize + work * on_cpu)


def _while_read(count: int, files: Sequence[Stored], held: torch.dtype, on_cpu: bool) -> int:
    """Beside what stays: the file's own bytes where they are converted, and the parts of what is put together."""
    if len(files) > 1:
        return 2 * count * held.itemsize
    return sum(stored.bytes for stored in files if on_cpu and exact.IN_A_FILE.get(stored.dtype, torch.float32) != held)
