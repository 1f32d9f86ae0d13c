"""One decode step of a model, compiled ahead of time into a file: made in one process, loaded in another.

A step takes a token id, its position and the cache's rows up to it, and gives the logits. The weights stay outside the file
and are handed over at load, without a copy. Loading needs no compiler; a step fits any prompt, so nothing is compiled twice.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from inference import machine
from inference.cache.cache import Entry
from inference.cpu import products, row_cache
from inference.cpu.row_cache import RowLayer
from inference.models import exact, private

TRACED_ROWS = 21
MAX_ROWS = 2**17


class CompiledStep:
    """A compiled step with a model's weights; raises RuntimeError or KeyError where file and model don't fit."""

    def __init__(self, path: Path, model: PreTrainedModel) -> None:
        tensors: dict[str, torch.Tensor] = {f"model.{name}": p.detach() for name, p in model.named_parameters(remove_duplicate=False)}
        tensors |= {f"model.{name}": buffer for name, buffer in model.named_buffers(remove_duplicate=False)}
        self._package = private.Package(path, tensors)
        Entry(path).note_use()

    def logits(self, token: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Logits (1, vocabulary) after `token` (1, 1), whose keys and values are added to the cache."""
        layers: list[RowLayer] = cache.layers
        end = layers[0].seen + 1
        rows = [layer.keys[:end] for layer in layers] + [layer.values[:end] for layer in layers]
        logits = self._package.run([token, torch.tensor([end - 1]), *rows])[0]
        for layer in layers:
            layer.seen = end
        return logits


class _Rows(RowLayer):
    """A layer of the cache inside the traced step: full but for the last row, which is written."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, position: torch.Tensor) -> None:
        super().__init__(keys.shape[0])
        self.keys, self.values, self.position = keys, values, position
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys.index_copy_(0, self.position, key_states[0].transpose(0, 1))
        self.values.index_copy_(0, self.position, value_states[0].transpose(0, 1))
        return self.keys.transpose(0, 1)[None], self.values.transpose(0, 1)[None]

    def get_seq_length(self) -> int:
        return self.keys.shape[0] - 1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.keys.shape[0], 0


class _Step(nn.Module):
    def __init__(self, model: PreTrainedModel, cache_name: str) -> None:
        super().__init__()
        self.model, self.cache_name = model, cache_name
        self.kinds = sorted(set(getattr(model.config.get_text_config(), "layer_types", None) or ()))

    def forward(self, token: torch.Tensor, position: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> torch.Tensor:
        cache = Cache(layers=[_Rows(k, v, position) for k, v in zip(keys, values, strict=True)])
        # one row may look at all rows there are, up to the sliding window: the caller keeps to it
        mask = torch.ones(1, 1, 1, keys[0].shape[0], dtype=torch.bool)
        masks: Any = dict.fromkeys(self.kinds, mask) if len(self.kinds) > 1 else mask
        arguments = {"input_ids": token, "position_ids": position[None], "attention_mask": masks, "use_cache": True, self.cache_name: cache}
        return self.model(**arguments).logits[:, -1]


def make(model: PreTrainedModel, cache: Cache, cache_name: str, path: Path) -> None:
    """Compile the decode step of `model` into `path`; `cache` is one of its row caches after a forward, for the shapes."""
    exact.install(model, products.traced)
    rows = torch.export.Dim("rows", min=2, max=MAX_ROWS)
    example = [[torch.zeros(TRACED_ROWS, *t.shape[1:]) for t in kind] for kind in zip(*((r.keys, r.values) for r in cache.layers), strict=True)]
    dynamic = [{0: rows}] * len(cache.layers)
    with torch.no_grad():
        program = torch.export.export(
            _Step(model, cache_name), (torch.zeros(1, 1, dtype=torch.long), torch.tensor([TRACED_ROWS - 1]), *example),
            dynamic_shapes=(None, None, dynamic, dynamic), strict=False,
        )  # fmt: skip
    # the wrapper is one long function that only calls kernels: optimizing it takes minutes and gains nothing
    options = {"aot_inductor.package_constants_in_so": False, "aot_inductor.compile_wrapper_opt_level": "O0"}
    private.package(program, path, options)


def file_for(model: PreTrainedModel, folder: Path, threads: int) -> Path:
    """Where the step of this model is kept: named by all that it depends on."""
    config = {key: value for key, value in model.config.to_dict().items() if not key.startswith("_name")}
    dtypes = [str(parameter.dtype) for parameter in model.parameters()]
    source = "".join(Path(str(module.__file__)).read_text() for module in (exact, private, products, row_cache)) + Path(__file__).read_text()
    parts = [source, type(model).__name__, config, dtypes, threads, torch.__version__, transformers.__version__, machine.cpu_flags()]
    return folder / f"step-{hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:20]}.pt2"
