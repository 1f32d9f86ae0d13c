"""The source of the kernels of our own step, and what they must know of a model when they are compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from inference.cuda.packed import whole_norms
from inference.parts.description import ModelParts

_FILES = ("memory.cuh", "common.cu", "{weights}.cu", "products.cu", "rows.cu", "attention.cu", "prefill.cu")


class Ready(Protocol):
    """A launch that was prepared: where it starts, then the start itself."""

    def at(self, x: int, y: int, stream: int) -> None: ...

    def on(self, stream: int) -> None: ...

    def __call__(self) -> None: ...


class Launcher(Protocol):
    """What `DeviceCode` offers; the tests have one that runs the kernels on the CPU."""

    multiprocessors: int
    shared_limit: int

    def launch(self, name: str, grid: Any, threads: int, shared_bytes: int, *arguments: Any) -> None: ...

    def prepare(self, name: str, threads: int, shared_bytes: int, *arguments: Any) -> Ready: ...

    def stream(self) -> int: ...


def source(macros: dict[str, object]) -> str:
    """The CUDA source of all kernels that these macros are for."""
    weights = "weights4_wide" if macros["WIDE"] else f"weights{macros['WEIGHT_BITS']}"
    folder = Path(__file__).parent
    return "".join((folder / name.format(weights=weights)).read_text() for name in _FILES)


def macros(parts: ModelParts, bits: int, wide: bool, head_bits: int = 16) -> dict[str, object]:
    """For a model, or one without weights; `bits` of a stored weight, and of one of the head; `wide`: float32 activations."""
    return {
        "HEAD_DIM": parts.head_dim, "Q_HEADS": parts.q_heads, "KV_HEADS": parts.kv_heads, "ROTATED": parts.rotated or parts.head_dim,
        "NORM_OFFSET": f"{parts.norm.offset}.f", "NORM_ROUNDS": int(parts.norm.rounds), "WHOLE_NORM": int(whole_norms(parts)),
        "ACTIVATION": parts.activation, "ATTENTION_CAP": f"{parts.attention_cap!r}f", "RESIDUAL_SCALE": f"{parts.residual_scale!r}f",
        "LOGIT_SCALE": f"{parts.logit_scale!r}f", "LOGIT_CAP": f"{parts.logit_cap!r}f", "WEIGHT_BITS": bits, "HEAD_BITS": head_bits, "WIDE": int(wide),
    }  # fmt: skip
