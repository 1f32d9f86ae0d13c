"""The C products of `matrix.h`, as built for this processor, for AVX2 and for any, against FP64 on the same weights."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from bitsandbytes.functional import get_4bit_type

from inference.cpu.library import CMatrix
from tests.support.compiled import BUILDS, FOLDER, compiled, long, pointer

SOURCE = FOLDER / "products.c"
KINDS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "nf4": None}
LEVELS = get_4bit_type("nf4", device="cpu").float()
CLOSE = 1e-12  # the squared error of FP32 sums over the squared result
UNTOUCHED = 12345.0


@pytest.fixture(scope="module", params=BUILDS)
def lib(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    library = compiled(SOURCE, request.param, tmp_path_factory.mktemp("products"))
    library.packed_floats.restype = library.scratch_floats.restype = ctypes.c_size_t
    yield library


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


@functools.cache  # the builds share them
def stored(kind: str, rows: int, columns: int, block: int = 16, bias: bool = True) -> SimpleNamespace:
    """A matrix as `struct matrix` has it, and what it means in FP64."""
    offset = numbers(3, rows) if bias else None
    keep = SimpleNamespace(bias=offset, wide_bias=0.0 if offset is None else offset.double().numpy(), rows=rows, columns=columns, truths={})
    if kind == "nf4":
        keep.data = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (rows, columns // 2), dtype=np.uint8))
        keep.scales = numbers(2, rows, columns // block)
        codes = torch.stack([keep.data >> 4, keep.data & 15], -1).reshape(rows, columns).long()
        keep.wide = (LEVELS[codes] * keep.scales.repeat_interleave(block, 1)).double().numpy()
    else:
        keep.data, keep.scales = numbers(1, rows, columns).to(KINDS[kind]), None
        keep.wide = keep.data.double().numpy()
    pointers = [pointer(t) for t in (keep.data, keep.scales, LEVELS, keep.bias)]
    keep.matrix = CMatrix(*pointers, rows, columns, block, list(KINDS).index(kind))
    return keep


def one(lib: ctypes.CDLL, w: SimpleNamespace, x: torch.Tensor, first: int, last: int) -> torch.Tensor:
    y = torch.full((w.rows,), UNTOUCHED)
    lib.multiply_row(ctypes.byref(w.matrix), pointer(x), pointer(y), long(first), long(last))
    return y


def many(lib: ctypes.CDLL, w: SimpleNamespace, x: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """With gaps between the rows of x and y, at no round address, as small as the contract allows."""
    m, k, gap = len(x), w.columns, 5
    spread, y = torch.full((m, k + gap), torch.nan), torch.full((m, w.rows + gap), UNTOUCHED)
    spread[:, :k] = x
    packed = torch.full((lib.packed_floats(long(m), long(k)) + 1,), torch.nan)
    scratch = torch.full((lib.scratch_floats(long(m)) + 1,), UNTOUCHED)
    packed[-1] = scratch[-1] = UNTOUCHED
    for start, end in ((0, m // 3), (m // 3, m)):
        lib.pack_rows(pointer(spread), long(k + gap), long(m), long(k), pointer(packed), long(start), long(end))
    lib.multiply_rows(ctypes.byref(w.matrix), pointer(packed), long(m), pointer(y), long(w.rows + gap), long(first), long(last), pointer(scratch))
    assert packed[-1] == scratch[-1] == UNTOUCHED and (y[:, w.rows :] == UNTOUCHED).all()
    return y[:, : w.rows]


def truth(w: SimpleNamespace, x: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The product in FP64, and the squares of its terms summed; kept for the other ranges and builds."""
    key, wide = x.numpy().tobytes(), x.double().numpy()
    if key not in w.truths:
        w.truths[key] = wide @ w.wide.T + w.wide_bias, wide**2 @ w.wide.T**2 + w.wide_bias**2
    return w.truths[key]


def check(y: torch.Tensor, w: SimpleNamespace, x: torch.Tensor, first: int, last: int) -> None:
    """y (m, rows) is right from first to last, and untouched elsewhere; one number can be near 0: its terms' squares count."""
    part, (exact, size) = slice(first, last), truth(w, x)
    assert ((y[:, part].double().numpy() - exact[:, part]) ** 2).sum() <= CLOSE * size[:, part].sum()
    assert (y[:, :first] == UNTOUCHED).all() and (y[:, last:] == UNTOUCHED).all()


def ranges(rows: int) -> list[tuple[int, int]]:
    return sorted({(0, rows), (0, rows // 2), (rows // 3, rows), (rows // 2, rows // 2)})


SIZES = [(1, 16), (7, 80), (33, 64), (33, 576), (7, 1536)]
BLOCKS = {(1, 16): [16], (7, 80): [16], (33, 64): [64, 16], (33, 576): [48, 64], (7, 1536): [256, 512]}  # of 4-bit codes: one STEP, several, parts of one


def cases(kind: str, size: tuple[int, int]) -> Iterator[SimpleNamespace]:
    for i, block in enumerate(BLOCKS[size] if kind == "nf4" else [16, 16]):
        yield stored(kind, *size, block, bias=i % 2 == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_is_that_of_fp64_in_any_range_and_touches_no_other(lib, kind):
    past_a_span = [stored(kind, 7, 4160, 64), stored(kind, 7, 4176, 48)]
    for w in [*past_a_span, *(w for size in SIZES for w in cases(kind, size))]:
        x = numbers(101, 1, w.columns)
        for first, last in ranges(w.rows):
            check(one(lib, w, x, first, last)[None], w, x, first, last)


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_are_those_of_fp64_in_any_range_and_touch_no_other(lib, kind):
    for size in SIZES:
        for w in cases(kind, size):
            for m in (2, 3, 38):
                x = numbers(100 + m, m, w.columns)
                for first, last in ranges(w.rows):
                    check(many(lib, w, x, first, last), w, x, first, last)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_of_rows_is_right(lib, kind):
    w = stored(kind, 33, 80)
    for m in (*range(1, 31), 100):
        x = numbers(100 + m, m, w.columns)
        check(many(lib, w, x, 0, w.rows), w, x, 0, w.rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_matrix_past_every_block_is_right(lib, kind):
    w = stored(kind, 290, 5120, 64)
    for m in (1, 2, 40):
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
