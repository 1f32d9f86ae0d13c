"""The tensors of a checkpoint, each read when the model asks for it and not before, so that no second copy of the weights lies in memory.

What stays as the file has it is mapped: its memory is the file's own pages. What is converted, quantized or sent to a card is read by
itself and given back. In: what the files' headers say. Out: the lazy tensors that `from_pretrained(state_dict=...)` takes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from inference.models.exact import IN_A_FILE, SIXTEEN_BIT, exact_dtype
from inference.models.skeleton import STATE_OF_4_BIT
from inference.models.values import Values
from inference.sources.headers import Stored

DTYPES = IN_A_FILE | {
    "F64": torch.float64, "F32": torch.float32, "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip

SAMPLE_BYTES = 2**14


def exact_dtype_in(stored: Stored) -> torch.dtype:
    """The dtype in which a lane in FP32 will keep a matrix; of FP32 values in a file that is here it is told by the first and the last of them."""
    if stored.dtype != "F32" or stored.file is None or not stored.count:
        return IN_A_FILE.get(stored.dtype, torch.float32)
    with stored.file.open("rb") as file:
        file.seek(stored.offset)
        start = file.read(min(stored.bytes, SAMPLE_BYTES))
        file.seek(stored.offset + stored.bytes - len(start))
        return exact_dtype(torch.frombuffer(bytearray(start + file.read(len(start))), dtype=torch.float32)[None])


class Weights:
    """All tensors of a checkpoint, `lazy`, under the names that the model is given them by."""

    def __init__(
        self, tensors: Mapping[str, Stored], renamed: Mapping[str, str], passing: Collection[str] = (), exact: bool = False, dtype: torch.dtype | None = None
    ) -> None:
        """`renamed`: the model's name of each tensor that is wanted; `passing`: those (by their file's name) that only others are made of.

        `exact`: a 16-bit dtype that is asked for means the one that holds the values exactly, else FP32. `dtype`: what the model's floating
        tensors are to be where transformers asks for none, as in a checkpoint that is in 4 bits.
        """
        self.values = Values(tensors)
        self.exact, self.dtype = exact, dtype
        self.packed = {name for name in tensors if f"{name}.quant_map" in tensors}  # two weights a byte, whatever dtype the bytes are stored as
        self.lazy = {given: LazyTensor(self, name, tensors[name], name in passing) for name, given in renamed.items()}
        self._maps: dict[Path, Any] = {}
        self.mapped: dict[Path, os.stat_result] = {}  # each file as it was when its pages became the model's

    def map(self, name: str, file: Path) -> torch.Tensor:
        """The tensor in the file's own pages."""
        if file not in self._maps:
            self.mapped[file] = file.stat()
            self._maps[file] = safe_open(file, "pt")
        found: torch.Tensor = self._maps[file].get_tensor(name)
        return found


class LazyTensor:
    """One tensor of a file in the place of a safetensors slice: transformers takes `[...]` of it, then `to`."""

    def __init__(self, weights: Weights, name: str, stored: Stored, passing: bool) -> None:
        self._weights, self._name, self._stored, self._passing = weights, name, stored, passing

    def __getitem__(self, _: Any) -> LazyTensor:
        return self

    def get_shape(self) -> list[int]:
        """As a safetensors slice tells it."""
        return list(self._stored.shape)

    def get_dtype(self) -> str:
        """As a safetensors slice tells it."""
        return self._stored.dtype

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The tensor where and as it is wanted; bytes of 4-bit weights, which may be stored as values of another dtype (bnb_4bit_quant_storage), as bytes."""
        if self._name in self._weights.packed:
            return self._as_stored(device, None).view(torch.uint8).reshape(-1, 1)
        own = DTYPES[self._stored.dtype]
        if dtype is None and own.is_floating_point and not STATE_OF_4_BIT.search(self._name):
            dtype = self._weights.dtype
        if dtype in SIXTEEN_BIT and self._weights.exact:
            return self._exactly(own)
        return self._as_stored(device, None if dtype == own else dtype)

    def _as_stored(self, device: Any, dtype: torch.dtype | None) -> torch.Tensor:
        on_cpu = device is None or torch.device(device).type == "cpu"
        if on_cpu and not self._passing and dtype is None:
            return self._mapped()
        return self._read().to(device=device, dtype=dtype)

    def _exactly(self, own: torch.dtype) -> torch.Tensor:
        if own in SIXTEEN_BIT:
            return self._mapped()
        tensor = self._read()
        dtype = exact_dtype(tensor) if own == torch.float32 else torch.float32
        if dtype == own:
            return self._mapped()
        self._weights.values.note(tensor)
        return tensor.to(dtype)

    def _mapped(self) -> torch.Tensor:
        assert self._stored.file is not None
        return self._weights.map(self._name, self._stored.file)

    def _read(self) -> torch.Tensor:
        """In pages of its own, which go when the tensor does."""
        stored = self._stored
        assert stored.file is not None
        if not stored.count:
            return torch.empty(stored.shape, dtype=DTYPES[stored.dtype])
        start = stored.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        skipped = stored.offset - start
        with stored.file.open("rb") as file:
            pages = mmap.mmap(file.fileno(), skipped + stored.bytes, access=mmap.ACCESS_COPY, offset=start)
        return torch.frombuffer(pages, dtype=DTYPES[stored.dtype], count=stored.count, offset=skipped).reshape(stored.shape)
