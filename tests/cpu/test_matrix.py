"""The C products of `matrix.h`, as built for this processor, for AVX2 and for any, against FP64 on the same weights."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bitsandbytes.functional import get_4bit_type

from inference import cpu
from inference.cpu.build import FLAGS
from inference.machine import c_compiler, cpu_flags

SOURCE = Path(cpu.__file__).with_name("products.c")
BUILDS = {"native": "-march=native", "avx2": "-march=x86-64-v3", "any": None}
KINDS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "nf4": None}
LEVELS = get_4bit_type("nf4", device="cpu").float()
CLOSE = 1e-12  # the squared error of FP32 sums over the squared result
UNTOUCHED = 12345.0


class Matrix(ctypes.Structure):
    """`struct matrix`."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("data", "scales", "levels", "bias")),
        *((name, ctypes.c_long) for name in ("rows", "columns", "block")),
        ("kind", ctypes.c_int),
    ]


@pytest.fixture(scope="module", params=BUILDS)
def lib(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    found, march = c_compiler(), BUILDS[request.param]
    if found is None:
        pytest.skip("no C compiler is installed")
    if request.param == "avx2" and "avx2" not in cpu_flags():
        pytest.skip("this processor has no AVX2")
    path = tmp_path_factory.mktemp("products") / "products.so"
    subprocess.run([found, *FLAGS, *([march] if march else []), "-Wall", "-Wextra", "-Werror", SOURCE, "-o", path], check=True)
    library = ctypes.CDLL(str(path))
    library.packed_floats.restype = library.scratch_floats.restype = ctypes.c_size_t
    yield library


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@functools.cache  # the builds share them
def stored(kind: str, rows: int, columns: int, block: int = 16, bias: bool = True) -> SimpleNamespace:
    """A matrix as `struct matrix` has it, and what it means in FP64."""
    offset = numbers(3, rows) if bias else None
    keep = SimpleNamespace(bias=offset, wide_bias=0.0 if offset is None else offset.double().numpy(), rows=rows, columns=columns)
    if kind == "nf4":
        keep.data = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (rows, columns // 2), dtype=np.uint8))
        keep.scales = numbers(2, rows, columns // block)
        codes = torch.stack([keep.data >> 4, keep.data & 15], -1).reshape(rows, columns).long()
        keep.wide = (LEVELS[codes] * keep.scales.repeat_interleave(block, 1)).double().numpy()
    else:
        keep.data, keep.scales = numbers(1, rows, columns).to(KINDS[kind]), None
        keep.wide = keep.data.double().numpy()
    pointers = [pointer(t) for t in (keep.data, keep.scales, LEVELS, keep.bias)]
    keep.matrix = Matrix(*pointers, rows, columns, block, list(KINDS).index(kind))
    return keep


def pointer(tensor: torch.Tensor | None, offset: int = 0) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr() + 4 * offset)


def long(number: int) -> ctypes.c_long:
    return ctypes.c_long(number)


def one(lib: ctypes.CDLL, w: SimpleNamespace, x: torch.Tensor, first: int, last: int) -> torch.Tensor:
    y = torch.full((w.rows,), UNTOUCHED)
    lib.multiply_row(ctypes.byref(w.matrix), pointer(x), pointer(y), long(first), long(last))
    return y


def many(lib: ctypes.CDLL, w: SimpleNamespace, x: torch.Tensor, first: int, last: int, parts: int = 3) -> torch.Tensor:
    """With gaps between the rows of x and y, at no round address, as small as the contract allows."""
    m, k, gap = len(x), w.columns, 5
    spread, y = torch.full((m, k + gap), torch.nan), torch.full((m, w.rows + gap), UNTOUCHED)
    spread[:, :k] = x
    packed = torch.full((lib.packed_floats(long(m), long(k)) + 1,), torch.nan)
    scratch = torch.full((lib.scratch_floats(long(m)) + 1,), UNTOUCHED)
    packed[-1] = scratch[-1] = UNTOUCHED
    for part in range(parts):
        lib.pack_rows(pointer(spread), long(k + gap), long(m), long(k), pointer(packed), long(part), long(parts))
    lib.multiply_rows(ctypes.byref(w.matrix), pointer(packed), long(m), pointer(y), long(w.rows + gap), long(first), long(last), pointer(scratch))
    assert packed[-1] == scratch[-1] == UNTOUCHED and (y[:, w.rows :] == UNTOUCHED).all()
    return y[:, : w.rows]


def check(y: torch.Tensor, w: SimpleNamespace, x: torch.Tensor, first: int, last: int) -> None:
    """y (m, rows) is right from first to last, and untouched elsewhere; one number can be near 0: its terms' squares count."""
    wide, part = x.double().numpy(), slice(first, last)
    exact, size = wide @ w.wide.T + w.wide_bias, wide**2 @ w.wide.T**2 + w.wide_bias**2
    assert ((y[:, part].double().numpy() - exact[:, part]) ** 2).sum() <= CLOSE * size[:, part].sum()
    assert (y[:, :first] == UNTOUCHED).all() and (y[:, last:] == UNTOUCHED).all()


def ranges(rows: int) -> list[tuple[int, int]]:
    return sorted({(0, rows), (0, rows // 2), (rows // 3, rows), (rows // 2, rows // 2)})


def blocks(columns: int) -> list[int]:
    return [block for block in (16, 48, 64, 256) if columns % block == 0]


def cases(kind: str, rows: int, columns: int) -> Iterator[SimpleNamespace]:
    for i, block in enumerate(blocks(columns) if kind == "nf4" else [16, 16]):
        yield stored(kind, rows, columns, block, bias=i % 2 == 0)


@pytest.mark.parametrize("columns", [16, 48, 64, 80, 576, 1536, 2560])
@pytest.mark.parametrize("rows", [1, 7, 33])
@pytest.mark.parametrize("kind", KINDS)
def test_one_row_is_that_of_fp64_in_any_range_and_touches_no_other(lib, kind, rows, columns):
    x = numbers(100, 1, columns)
    for w in cases(kind, rows, columns):
        for first, last in ranges(rows):
            check(one(lib, w, x, first, last)[None], w, x, first, last)


@pytest.mark.parametrize("columns", [16, 80, 576, 1536])
@pytest.mark.parametrize("rows", [1, 7, 33])
@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_are_those_of_fp64_in_any_range_and_touch_no_other(lib, kind, rows, columns):
    for w in cases(kind, rows, columns):
        for m in (1, 2, 3, 17, 38, 100):
            x = numbers(100 + m, m, columns)
            for first, last in ranges(rows):
                check(many(lib, w, x, first, last), w, x, first, last)


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_past_every_block_is_right(lib, kind):
    w = stored(kind, 290, 5120, 64)
    for m in (1, 9, 40):
        x = numbers(100 + m, m, w.columns)
        for first, last in ((0, 290), (13, 281)):
            check(many(lib, w, x, first, last), w, x, first, last)
            check(one(lib, w, x[0], first, last)[None], w, x[:1], first, last)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_every_16_bit_value_is_converted_exactly_denormals_too(lib, kind):
    every = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(KINDS[kind])
    every = every[torch.isfinite(every)]
    w = stored(kind, len(every) // 16, 16, bias=False)
    w.data.copy_(every[: w.rows * 16].view(-1, 16))
    for x in (torch.eye(16), torch.eye(16)[:1]):
        assert torch.equal(many(lib, w, x, 0, w.rows), w.data[:, : len(x)].float().T)
    for i, x in enumerate(torch.eye(16)):
        assert torch.equal(one(lib, w, x, 0, w.rows), w.data[:, i].float())


@pytest.mark.parametrize("kind", KINDS)
def test_every_4_bit_weight_is_level_times_scale_and_fp32_denormals_are_kept(lib, kind):
    w = stored(kind, 33, 64, 64, bias=False)
    for x in torch.eye(64) * 2.0**-130 if kind == "f32" else torch.eye(64):
        exact = torch.from_numpy(w.wide @ x.double().numpy()).float()
        assert torch.equal(one(lib, w, x, 0, 33), exact) and exact.count_nonzero() > 16
        assert torch.equal(many(lib, w, x.expand(9, 64), 0, 33), exact.expand(9, 33))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_in_x_shows_in_every_result_of_its_row_alone(lib, kind, bad):
    w, x = stored(kind, 33, 96, 32), numbers(100, 6, 96)
    w.data[w.data == 7 if kind == "nf4" else w.data == 0] = 1
    x[3, 70] = bad
    y = many(lib, w, x, 0, 33)
    assert not torch.isfinite(y[3]).any() and torch.isfinite(y[[0, 1, 2, 4, 5]]).all()
    assert not torch.isfinite(one(lib, w, x[3], 0, 33)).any()
