"""A model's description as the C step takes it, and runs over it: ids at positions -> logits, over a cache of their own.

In: `ModelParts`, our C library. Out: logits; NotUnderstood for sizes that the kernels don't take. Weights are used where they lie. Knows no
request and no sampling.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_long, c_void_p

import torch
from torch import nn

from inference.cpu.library import KINDS, NF4, VECTOR, CLayer, CMatrix, CModel, CRun, CStep, GoOn, Library, floats, pointer
from inference.decode.sampling import NO_ID
from inference.models import private
from inference.models.exact import SCALED_EMBEDDING, ExactEmbedding
from inference.parts.description import LayerParts, Matrix, ModelParts, NotUnderstood, scales_of
from inference.parts.forms import rotary_tables

FOUR_BIT_BLOCK = 64  # as bitsandbytes makes them unless told otherwise
ASK_S = 0.05
BLOCK = 256  # rows of a prompt that are read together
MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
NORMS = ("before_attention", "after_attention", "before_mlp", "after_mlp", "q_norm", "k_norm")
GoesOn = Callable[[int], bool]  # told how many layers of a block are done


def check(parts: ModelParts) -> None:
    """Raise NotUnderstood for sizes and forms of matrices that the kernels don't take, as far as a model without weights can tell."""
    for matrix in (parts.head, *(getattr(layer, name) for layer in parts.layers for name in MATRICES)):
        _check_matrix(matrix)
    if parts.head_dim % VECTOR or parts.q_heads % parts.kv_heads:
        raise NotUnderstood(f"its {parts.q_heads} and {parts.kv_heads} heads of {parts.head_dim} columns are not what our step takes")


def _check_matrix(matrix: Matrix) -> None:
    weight, state, block = matrix.module.weight, matrix.state, VECTOR
    if state is not None:
        block = state.blocksize
        if state.quant_type != "nf4" or block % VECTOR or getattr(state, "packing_format_for_cpu", False):
            raise NotUnderstood(f"a matrix is in 4 bits of another form ({state.quant_type}, blocks of {block})")
    elif private.is_four_bit(matrix.module):  # not filled yet
        block = FOUR_BIT_BLOCK
    elif weight.dtype not in KINDS:
        raise NotUnderstood(f"a matrix is stored as {weight.dtype}")
    if matrix.columns % block:
        raise NotUnderstood(f"a matrix has {matrix.columns} columns, which is no multiple of {block}")


class Stepper:
    """A description for the C step, its tensors kept alive; `begin` makes a run."""

    def __init__(self, parts: ModelParts, library: Library) -> None:
        check(parts)
        self.parts, self.library = parts, library
        self._kept: list[torch.Tensor] = []
        self._tables: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._kinds = sorted({layer.rotary for layer in parts.layers if layer.rotary is not None})
        self._layers = (CLayer * len(parts.layers))(*map(self._layer, parts.layers))
        self.vocabulary = parts.head.rows
        self.ids = min(self.vocabulary, getattr(parts.embed, "num_embeddings", self.vocabulary))  # the C code reads rows of the embedding unasked
        self.model = CModel(
            layers=self._layers, head=self._matrix(parts.head), embed=self._embedding(), final_norm=self._norm(parts.final_norm),
            layer_count=len(parts.layers), hidden=parts.hidden, head_dim=parts.head_dim, q_heads=parts.q_heads, kv_heads=parts.kv_heads, rotated=parts.rotated,
            widest=max(layer.gate.rows for layer in parts.layers), eps=parts.norm.eps, embed_scale=parts.embed_scale * embedding_scale(parts.embed),
            attention_scale=parts.attention_scale, attention_cap=parts.attention_cap, residual_scale=parts.residual_scale, logit_scale=parts.logit_scale, logit_cap=parts.logit_cap,
            activation=parts.activation,
        )  # fmt: skip

    def begin(self, positions: int) -> Run:
        """A run with an empty cache for `positions`; raises OutOfMemory."""
        return Run(self, positions)

    def rotary(self, positions: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Cosines and sines of `positions` at least, by the number of their kind."""
        have = len(self._tables[0][0]) if self._tables else 0
        if self._kinds and have < positions:
            found = rotary_tables(self.parts, max(positions, 2 * have))
            self._tables = [found[kind] for kind in self._kinds]
        return self._tables

    def embedded(self, ids: list[int]) -> torch.Tensor | None:
        """Rows [ids, hidden] FP32; None where the C code knows the embedding."""
        if self.model.embed.data:
            return None
        rows: torch.Tensor = self.parts.embed(torch.tensor([ids]))[0].float() * self.parts.embed_scale
        return rows.contiguous()

    def _embedding(self) -> CMatrix:
        embed = self.parts.embed
        known = type(embed) in (nn.Embedding, ExactEmbedding) or type(embed).__name__ == SCALED_EMBEDDING
        if not known or embed.weight.dtype not in KINDS or getattr(embed, "max_norm", None) is not None:
            return CMatrix()
        return CMatrix(data=self._keep(embed.weight.data.contiguous()), kind=KINDS[embed.weight.dtype])

    def _layer(self, layer: LayerParts) -> CLayer:
        norms = {name: getattr(layer, name) for name in NORMS}
        return CLayer(
            **{name: self._matrix(getattr(layer, name)) for name in MATRICES},
            **{name: None if norm is None else self._norm(norm) for name, norm in norms.items()},
            **{f"{name}_width": 0 if norms[name] is None else len(norms[name]) for name in ("q_norm", "k_norm")},
            window=layer.window, rotary=-1 if layer.rotary is None else self._kinds.index(layer.rotary),
        )  # fmt: skip

    def _keep(self, tensor: torch.Tensor) -> int:
        self._kept.append(tensor)
        return tensor.data_ptr()

    def _norm(self, weight: torch.Tensor) -> int:
        return self._keep((self.parts.norm.offset + weight.detach().float()).contiguous())

    def _matrix(self, matrix: Matrix) -> CMatrix:
        bias = None if matrix.bias is None else self._keep(matrix.bias.detach().float().contiguous())
        sizes = {"rows": matrix.rows, "columns": matrix.columns, "bias": bias}
        state = matrix.state
        if state is None:
            weight = matrix.weight
            if not weight.is_contiguous():
                raise NotUnderstood("a matrix doesn't lie row by row")
            return CMatrix(data=self._keep(weight), kind=KINDS[weight.dtype], **sizes)
        first = matrix.first * matrix.columns
        codes, scales = matrix.module.weight.data.view(-1).view(torch.uint8), scales_of(state)
        return CMatrix(
            data=self._keep(codes[first // 2 :]), scales=self._keep(scales[first // state.blocksize :]), levels=self._keep(state.code.float()),
            block=state.blocksize, kind=NF4, **sizes,
        )  # fmt: skip


def embedding_scale(embed: object) -> float:
    """The factor that an embedding applies itself (Gemma's)."""
    return float(getattr(embed, "embed_scale", 1.0))


class Run:
    """One run: its cache, and the room to work in."""

    def __init__(self, stepper: Stepper, positions: int) -> None:
        library, parts = stepper.library, stepper.parts
        self._stepper = stepper
        self.positions = -(-positions // library.tile) * library.tile
        size = len(parts.layers) * parts.kv_heads * self.positions * parts.head_dim
        self._keys, self._values = floats(size), floats(size)
        block = min(BLOCK, self.positions)
        self._work = floats(library.work_floats(stepper.model, block) + VECTOR)
        self._tables = stepper.rotary(self.positions)
        cosines, sines = ((c_void_p * len(self._tables))(*(pointer(kind[part]) for kind in self._tables)) for part in (0, 1))
        self._run = CRun(
            model=ctypes.pointer(stepper.model), team=library.team(), keys=pointer(self._keys), values=pointer(self._values),
            cosines=cosines, sines=sines, work=-(-self._work.data_ptr() // 64) * 64, positions=self.positions, block=block,
        )  # fmt: skip
        self._logits = floats(stepper.vocabulary)
        self.best = NO_ID  # by the logits last given: what `sampling.greedy` gives

    def run(self, ids: list[int], start: int) -> torch.Tensor:
        """Put the ids at `start`, `start` + 1, ...; logits [vocabulary], float32, after the last."""
        logits = self.try_run(ids, start, None)
        assert logits is not None
        return logits.clone()

    @torch.inference_mode()
    def try_run(self, ids: list[int], start: int, goes_on: GoesOn | None) -> torch.Tensor | None:
        """The same, asking some twenty times a second whether to go on; None where it was told not to. The next run overwrites the logits."""
        if not ids or start + len(ids) > self.positions or not 0 <= min(ids) <= max(ids) < self._stepper.ids:
            raise ValueError(f"{len(ids)} ids at {start} are not for this run of {self.positions} positions, or not of this model")
        rows, asking = self._stepper.embedded(ids), _Asking(goes_on)
        step = CStep(
            run=ctypes.pointer(self._run), ids=(c_long * len(ids))(*ids), rows=pointer(rows), count=len(ids), start=start, logits=self._logits.data_ptr(),
            go_on=GoOn(asking) if goes_on else GoOn(0), ask_ns=int(ASK_S * 1e9),
        )  # fmt: skip
        self._stepper.library.step(step)
        if asking.error is not None:
            raise asking.error
        self.best = step.best
        return self._logits if step.done else None


class _Asking:
    """Asks for the C code; an error in the answer ends the step and is raised after it."""

    def __init__(self, goes_on: GoesOn | None) -> None:
        self._goes_on = goes_on
        self.error: BaseException | None = None

    def __call__(self, layers: int) -> int:
        assert self._goes_on is not None
        try:
            return int(self._goes_on(layers))
        except BaseException as error:  # noqa: BLE001 - raised again by `try_run`: nothing may pass through C
            self.error = error
            return 0
