"""What a lane does to score given ids: one forward over all of them, then the head on a few positions at a time.

In: a loaded lane and a `ScoreRequest`. Out: `Scored`. Log-softmax in FP32 over the whole vocabulary, divergence in FP64;
only a block of positions is ever held, whatever the vocabulary. Knows no process and no other lane, only its file.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from inference.errors import InferenceError
from inference.lane.source import Source
from inference.lane.text import TextStream
from inference.score_events import TOP, Scored, ScoreRequest, nameless
from inference.units import size

BLOCK_NUMBERS = 2**23  # logits held at once: 32 MiB in float32, 64 in float64
SPARE_BYTES = 2**28


@dataclass
class _Columns:
    """The figures so far, one entry a position."""

    nll: list[float] = field(default_factory=list)
    best: list[int] = field(default_factory=list)
    top_ids: list[int] = field(default_factory=list)
    top_logprobs: list[float] = field(default_factory=list)
    kld: list[float] = field(default_factory=list)


def score(
    model: PreTrainedModel | None, source: Source, lane: str, run_id: str, request: ScoreRequest, should_stop: Callable[[], bool] = lambda: False
) -> Scored:
    """Score on a loaded lane; raises InferenceError for ids that don't fit, logits that are not finite, another vocabulary."""
    tokenizer = source.tokenizer
    if request.text:
        ids = source.encoder.plain_text(request.text)
        source.check_rows(ids)
        return Scored(run_id, tuple(ids), start_mark=tokenizer.bos_token_id)
    if model is None:
        raise InferenceError(f"{lane} is answered by another program here, which can't score. Use another lane.")
    if len(request.ids) > source.context_length:
        raise InferenceError(f"{len(request.ids)} tokens are to be scored at once; this model takes {source.context_length}. Score a shorter text.")
    _check_rows(model, tokenizer, request.ids)
    columns, vocabulary = _Columns(), 0
    with _stops_at_any_layer(should_stop):
        for start, logits in logit_blocks(model, request.ids, request.first, request.last):
            _check_finite(logits, lane, start)
            vocabulary = logits.shape[-1]
            _reduce(logits, request, start, columns)
    texts = Pieces(tokenizer, source.hidden_ids)
    scored = request.ids[request.first : request.last]
    return Scored(
        run_id, scored, tuple(columns.nll), tuple(columns.best), tuple(columns.top_ids), tuple(columns.top_logprobs), tuple(columns.kld), vocabulary, len(request.ids),
        pieces=texts.stream(scored) if request.pieces else (), top_pieces=texts.each(columns.top_ids) if request.pieces else (),
    )  # fmt: skip


@contextlib.contextmanager
def _stops_at_any_layer(should_stop: Callable[[], bool]) -> Iterator[None]:
    """One forward over a long text takes a CPU many seconds: a stop need not wait for its end."""

    def look(*_: object) -> None:
        if should_stop():
            raise InferenceError("The scoring was stopped.")

    hook = register_module_forward_pre_hook(look)
    try:
        yield
    finally:
        hook.remove()


@torch.inference_mode()
def logit_blocks(model: PreTrainedModel, ids: tuple[int, ...], first: int, last: int) -> Iterator[tuple[int, torch.Tensor]]:
    """(index of the first token it is about, logits (rows, vocabulary) FP32) for the tokens `first` to `last`, block by block.

    The model's own forward gives them, head and all that follows it; its trunk runs once, on all ids.
    """
    trunk = model.base_model
    if trunk is model:
        raise InferenceError(f"{type(model).__name__} has no trunk apart from its head, so it can't be scored here. Compare the answers instead.")
    inputs = torch.tensor([ids], device=model.device)
    output = trunk(input_ids=inputs, use_cache=False)
    vocabulary = model.get_output_embeddings().weight.shape[0]
    blocks = -(-(last - first) * vocabulary // BLOCK_NUMBERS)
    for part in np.array_split(np.arange(first, last), blocks):
        low, high = int(part[0]) - 1, int(part[-1])
        with _trunk_gives(trunk, type(output)(last_hidden_state=output.last_hidden_state[:, low:high])):
            yield low + 1, model(input_ids=inputs[:, low:high], use_cache=False).logits[0].float()


@contextlib.contextmanager
def _trunk_gives(trunk: torch.nn.Module, output: object) -> Iterator[None]:
    own = trunk.__dict__.get("forward")
    trunk.forward = lambda *_, **__: output
    try:
        yield
    finally:
        del trunk.forward
        if own is not None:
            trunk.forward = own


def _check_rows(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ids: tuple[int, ...]) -> None:
    rows, largest = model.get_input_embeddings().weight.shape[0], max(ids)
    if largest >= rows:
        name = tokenizer.convert_ids_to_tokens(largest)
        raise InferenceError(
            f"Token {largest}{f' ({name!r})' if name else ''} is to be scored, and this model has {rows} rows of embeddings, so it knows no such token. "
            "Use models with the same added tokens."
        )


def _check_finite(logits: torch.Tensor, lane: str, start: int) -> None:
    fine = torch.isfinite(logits).all(-1)
    if not bool(fine.all()):
        position = start + int((~fine).nonzero()[0])
        raise InferenceError(
            f"{lane} gave logits that are not finite numbers at position {position} of the scored tokens, so no figure would mean anything. "
            "Check the checkpoint in this precision, or use another lane."
        )


@torch.inference_mode()
def _reduce(logits: torch.Tensor, request: ScoreRequest, start: int, columns: _Columns) -> None:
    """Turn a block of logits (rows, vocabulary) into figures; exchange its log-probabilities with the file."""
    rows, vocabulary = logits.shape
    logprobs = torch.log_softmax(logits, -1)
    own = torch.tensor(request.ids[start : start + rows], device=logits.device)
    columns.nll += (-logprobs.gather(1, own[:, None])[:, 0]).tolist()
    columns.best += logprobs.argmax(-1).tolist()
    top = logprobs.topk(TOP, -1)
    columns.top_ids += top.indices.flatten().tolist()
    columns.top_logprobs += top.values.flatten().tolist()
    shape = (request.last - request.first, vocabulary)
    done = start - request.first
    if request.write:
        block = _block(Path(request.write), shape, done, rows, new=done == 0)
        block[:] = logprobs.cpu().numpy()
    if request.read:
        reference = torch.from_numpy(_block(Path(request.read), shape, done, rows)).to(logits.device)
        columns.kld += divergence(reference, logprobs).tolist()


def divergence(reference: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """sum_v p(v) ln(p(v)/q(v)) for each row of two (rows, vocabulary) FP32 log-probabilities, in nats, FP64."""
    left = reference.double()
    return (left.exp() * (left - other)).sum(-1)


def _block(file: Path, shape: tuple[int, int], start: int, rows: int, new: bool = False) -> np.ndarray:
    """`rows` rows of the file from `start` on, mapped into memory for as long as the array lives."""
    whole = shape[0] * shape[1] * 4
    if new:
        _check_room(file, whole)
        with file.open("wb") as stream:
            stream.truncate(whole)
    elif (found := file.stat().st_size) != whole:
        raise InferenceError(
            f"The lanes' vocabularies differ: {found // (4 * shape[0])} tokens in the reference lane, {shape[1]} in this one, so their "
            "probabilities can't be compared. Use models of one vocabulary."
        )
    return np.memmap(file, np.float32, "r+", start * shape[1] * 4, (rows, shape[1]))


def _check_room(file: Path, need: int) -> None:
    free = shutil.disk_usage(file.parent).free
    if need + SPARE_BYTES > free:
        takes = f"The log-probabilities of one window take {size(need)}, and {size(SPARE_BYTES)} are to stay free"
        raise InferenceError(f"{takes}; {size(free)} is free in {file.parent}. Set TMPDIR to a larger disk.")


class Pieces:
    """Texts of ids, for showing."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, hidden: frozenset[int]) -> None:
        """`hidden`: ids that are no text of an answer; they are shown by their names all the same."""
        self._tokenizer, self._hidden = tokenizer, hidden

    def stream(self, ids: tuple[int, ...]) -> tuple[str, ...]:
        """What each id adds to the text; empty while a character is incomplete; a hidden mark's own name, the number of an id without one."""
        stream = TextStream(self._tokenizer, self._hidden)
        pieces = [self._alone(token) if token in self._hidden or not self._named(token) else stream.add(token) for token in ids]
        rest = stream.finish()
        if rest and pieces:
            pieces[-1] += rest
        return tuple(pieces)

    def each(self, ids: list[int]) -> tuple[str, ...]:
        """Each id by itself."""
        known = {token: self._alone(token) for token in set(ids)}
        return tuple(known[token] for token in ids)

    def _alone(self, token: int) -> str:
        return str(self._tokenizer.decode([token])) if self._named(token) else nameless(token)

    def _named(self, token: int) -> bool:
        return self._tokenizer.convert_ids_to_tokens(token) is not None
