"""Our C library as Python calls it: its structures field by field, a team of threads, and single products for layers of torch's.

In: tensors and sizes. Out: tensors. Every call runs on torch's number of threads; nothing here knows a model.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, c_float, c_int, c_long, c_void_p
from pathlib import Path

import torch

from inference.cpu import build
from inference.cpu.build import NoLibrary
from inference.errors import OutOfMemory

VECTOR = 16  # a matrix's columns are a multiple of it
F32, BF16, F16, NF4 = range(4)
KINDS = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16}
GoOn = ctypes.CFUNCTYPE(c_int, c_long)


class CMatrix(Structure):
    """`struct matrix`."""

    _fields_ = [("data", c_void_p), ("scales", c_void_p), ("levels", c_void_p), ("bias", c_void_p),
                ("rows", c_long), ("columns", c_long), ("block", c_long), ("kind", c_int)]  # fmt: skip


class CLayer(Structure):
    """`struct layer`."""

    _fields_ = [
        *((name, CMatrix) for name in ("q", "k", "v", "o", "gate", "up", "down")),
        *((name, c_void_p) for name in ("before_attention", "after_attention", "before_mlp", "after_mlp", "q_norm", "k_norm")),
        *((name, c_long) for name in ("q_norm_width", "k_norm_width", "window", "rotary")),
    ]


class CModel(Structure):
    """`struct model`."""

    _fields_ = [
        ("layers", POINTER(CLayer)), ("head", CMatrix), ("embed", CMatrix), ("final_norm", c_void_p),
        *((name, c_long) for name in ("layer_count", "hidden", "head_dim", "q_heads", "kv_heads", "rotated", "widest")),
        *((name, c_float) for name in ("eps", "embed_scale", "attention_scale", "attention_cap", "residual_scale", "logit_scale", "logit_cap")),
        ("activation", c_int),
    ]  # fmt: skip


class CRun(Structure):
    """`struct run`."""

    _fields_ = [("model", POINTER(CModel)), ("team", c_void_p), ("keys", c_void_p), ("values", c_void_p), ("cosines", POINTER(c_void_p)),
                ("sines", POINTER(c_void_p)), ("work", c_void_p), ("positions", c_long), ("block", c_long)]  # fmt: skip


class CStep(Structure):
    """`struct step`."""

    _fields_ = [("run", POINTER(CRun)), ("ids", POINTER(c_long)), ("rows", c_void_p), ("count", c_long), ("start", c_long), ("logits", c_void_p), ("go_on", GoOn), ("ask_ns", c_long),
                ("best", c_long), ("done", c_long)]  # fmt: skip


class _CProduct(Structure):
    _fields_ = [("w", POINTER(CMatrix)), ("x", c_void_p), ("y", c_void_p), ("rows", c_long), ("work", c_void_p)]


class Library:
    """The built library; raises NoLibrary where it can't be loaded."""

    def __init__(self, path: Path) -> None:
        try:
            self._lib = ctypes.CDLL(str(path))
            self._lib.team_make.restype = c_void_p
            for name in ("team_size", "work_floats", "tile_positions", "product_floats"):
                getattr(self._lib, name).restype = c_long
            self.tile = int(self._lib.tile_positions())
        except (OSError, AttributeError) as error:
            raise NoLibrary(f"the C library can't be used ({error})") from error
        self._teams: dict[int, c_void_p] = {}

    def team(self) -> c_void_p:
        """The team of torch's number of threads: made once and kept."""
        threads = torch.get_num_threads()
        if threads not in self._teams:
            made = self._lib.team_make(c_long(threads))
            if made is None:
                raise OutOfMemory("There is no memory for the lane's threads. Free some, then ask again.")
            self._teams[threads] = c_void_p(made)
        return self._teams[threads]

    def work_floats(self, model: CModel, block: int) -> int:
        """Room of a run that reads `block` rows together."""
        threads = self._lib.team_size(self.team())
        return int(self._lib.work_floats(ctypes.byref(model), c_long(block), c_long(threads)))

    def step(self, step: CStep) -> None:
        """One call of the step: see `model.h`."""
        self._lib.step(ctypes.byref(step))

    def product(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """x (..., k) FP32 times weight (n, k) of 16 or 32 bits, whose k is a multiple of VECTOR -> (..., n) FP32."""
        return self.multiply(x, CMatrix(weight.data_ptr(), None, None, pointer(bias), *weight.shape, 0, KINDS[weight.dtype]))

    def multiply(self, x: torch.Tensor, matrix: CMatrix) -> torch.Tensor:
        """x (..., columns) FP32 times a matrix -> (..., rows) FP32; raises TypeError or ValueError for any other x, which would be read past its end."""
        if x.dtype != torch.float32:
            raise TypeError(f"a product of {x.dtype}, which is no FP32")
        if x.shape[-1] != matrix.columns:
            raise ValueError(f"a product of rows of {x.shape[-1]} columns with a matrix of {matrix.columns}")
        x, rows, team = x.contiguous(), x.numel() // matrix.columns, self.team()
        y = x.new_empty(*x.shape[:-1], matrix.rows)
        work = floats(int(self._lib.product_floats(team, c_long(rows), c_long(matrix.columns))))
        self._lib.product(team, ctypes.byref(_CProduct(ctypes.pointer(matrix), x.data_ptr(), y.data_ptr(), rows, work.data_ptr())))
        return y


def pointer(tensor: torch.Tensor | None) -> int | None:
    """Where a tensor's values lie; NULL for none."""
    return None if tensor is None else tensor.data_ptr()


def floats(count: int) -> torch.Tensor:
    """So many floats, not written and, if many, not yet there in memory; raises OutOfMemory."""
    try:
        return torch.empty(count)
    except RuntimeError as error:
        raise OutOfMemory(
            f"There is no memory for a run of this length ({count * 4 / 2**20:.0f} MiB). Shorten the prompt or ask for fewer new tokens."
        ) from error


def load(folder: Path, isa: str = "") -> Library:
    """The library from `folder`, built there if need be, also where it is damaged; raises NoLibrary where that can't be."""
    return _opened(build.built(folder, isa))


_opened = functools.cache(Library)  # a model that is loaded anew finds the threads of the one before
