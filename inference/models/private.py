"""What we take from torch and transformers that they don't promise to keep: every such reach is here and nowhere else.

In: their private parts. Out: the same under our names, or None (a no-op, an error that the caller's slower way answers) where a
version has it no more. `tests/models/test_private.py` says of each what it relies on, so that an upgrade which breaks one is seen.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel

from inference.errors import InferenceError

ASYNC_OFF = "HF_DEACTIVATE_ASYNC_LOAD"


def cache_argument(model: PreTrainedModel) -> str:
    """The name under which `model` takes its cache: transformers 5.24 renamed it, and the old name is gone in 5.40.

    `cache_params` is Mamba's old name. Raises InferenceError for a model that takes it under none: handed on by another name it would be dropped without a word.
    """
    taken = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values", "cache_params"):
        if name in taken:
            return name
    raise InferenceError(f"{type(model).__name__} keeps its state in no cache that this lane knows, so it can't be answered with. Choose another model.")


def state_keepers(model: PreTrainedModel) -> list[nn.Module]:
    """The modules of `model` that keep a state beside its cache (RecurrentGemma's), which its code leaves to the next run where that has one token."""
    return [module for module in model.modules() if "conv1d_state" in vars(module)]


def read_again_after(model: PreTrainedModel) -> int | None:
    """The length after which `generate` reads prompt and answer anew, once, as all rotary frequencies change there (Phi-3's LongRoPE); None for most models."""
    own = inspect.getsource(type(model).prepare_inputs_for_generation)
    length = getattr(model.config, "original_max_position_embeddings", None)
    return length if type(length) is int and "original_max_position_embeddings" in own else None


@contextlib.contextmanager
def dtype_plan_with(exceptions: Callable[[PreTrainedModel], dict[str, torch.dtype]]) -> Iterator[None]:
    """While open, `from_pretrained(dtype=...)` loads the parameters that `exceptions(model)` names in the dtypes that it gives.

    Where transformers has no such plan all comes in the dtype asked for.
    """
    plan = getattr(PreTrainedModel, "_get_dtype_plan", None)
    if plan is None:
        yield
        return

    def with_exceptions(self: PreTrainedModel, asked: torch.dtype) -> dict[str, torch.dtype]:
        return {**plan(self, asked), **exceptions(self)}

    PreTrainedModel._get_dtype_plan = with_exceptions
    try:
        yield
    finally:
        PreTrainedModel._get_dtype_plan = plan


@contextlib.contextmanager
def one_tensor_at_a_time() -> Iterator[None]:
    """While open, `from_pretrained` has each tensor read when its parameter is made, by transformers' own switch; else four threads read ahead."""
    before = os.environ.get(ASYNC_OFF)
    os.environ[ASYNC_OFF] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ASYNC_OFF]
        else:
            os.environ[ASYNC_OFF] = before


def places(model: PreTrainedModel, names: Iterable[str]) -> dict[str, str]:
    """For each name of a tensor in a checkpoint, the parameter of `model` that `from_pretrained` makes of it, or makes it a part of.

    Where transformers has no such conversion (any more), a name means itself, with or without the prefix of the base model.
    """
    known = dict.fromkeys(model.state_dict(), True)
    prefix = model.base_model_prefix
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

        conversions = get_model_conversion_mapping(model)
        renamings = [entry for entry in conversions if isinstance(entry, WeightRenaming)]
        converters = [entry for entry in conversions if isinstance(entry, WeightConverter)]
        renamed = {name: rename_source_key(name, renamings, converters, prefix, known)[0] for name in sorted(names)}  # type: ignore[arg-type]
    except (ImportError, TypeError, AttributeError):
        renamed = {name: name for name in names}
    for name, place in renamed.items():
        if place not in known:
            renamed[name] = next((other for other in (name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")) if other in known), place)
    return renamed


def own_attention(config: PretrainedConfig) -> None:
    """Forget an attention named by `config` that needs a package of its own (flash-attn, the Hub's kernels): transformers then takes its usual one."""
    for part in (config, config.get_text_config()):
        if getattr(part, "_attn_implementation", None) not in (None, "eager", "sdpa"):
            part._attn_implementation = None


def ignored_names(model: PreTrainedModel) -> re.Pattern[str] | None:
    """The names in a checkpoint that its class leaves out on purpose, and what older versions saved and newer compute."""
    patterns = [*(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()), r"rotary_emb\.inv_freq$", r"(^|\.)position_ids$", r"attn\.(masked_)?bias$"]
    return re.compile("|".join(f"({pattern})" for pattern in patterns))


def quantized_modules(model: PreTrainedModel, quantization: Any, dtype: torch.dtype) -> None:
    """Put into `model`, empty, the layers that `from_pretrained(quantization_config=quantization)` would fill."""
    from transformers.quantizers import AutoHfQuantizer

    quantizer = AutoHfQuantizer.from_config(copy.deepcopy(quantization), pre_quantized=False)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)  # which new layers' biases take, as in `from_pretrained`
    try:
        quantizer.preprocess_model(model=model, dtype=dtype, device_map={"": "cpu"}, checkpoint_files=None, use_kernels=False)
    finally:
        torch.set_default_dtype(before)


def generation_config(folder: Path) -> GenerationConfig:
    """The settings of `generate` that `from_pretrained` gives the model in `folder`: of their own file, else of the configuration."""
    try:
        return GenerationConfig.from_pretrained(folder)
    except OSError:
        return GenerationConfig.from_pretrained(folder, config_file_name="config.json", _from_model_config=True)


def is_four_bit(module: nn.Module) -> bool:
    """Whether it is bitsandbytes' 4-bit layer, or ours made of it; asked by name, so that an FP32 lane needs no bitsandbytes."""
    return any(kind.__name__ == "Linear4bit" for kind in type(module).__mro__)


def is_odd_rows(module: nn.Module) -> bool:
    """Whether it is a 4-bit layer that is computed by `odd_rows`; asked by name, as above."""
    return type(module).__name__ == "OddRowsLinear"


def stored_shape(model: PreTrainedModel, name: str) -> tuple[int, ...]:
    """The shape that the parameter `name` has in a file: GPT-2's layers are stored the other way round than the 4-bit ones made of them."""
    shape = tuple(model.get_parameter(name).shape)
    source = getattr(model.get_submodule(name.rpartition(".")[0]), "source_cls", None)
    return shape[::-1] if getattr(source, "__name__", "") == "Conv1D" and name.endswith(".weight") else shape


def kept_in_fp32(model: PreTrainedModel, dtype: torch.dtype) -> set[str]:
    """The parameters of `model` that are loaded in FP32 whatever `dtype` is asked for."""
    plan: dict[str, torch.dtype] = getattr(model, "_get_dtype_plan", lambda _: {})(dtype)
    patterns = [re.compile(name.replace("*", ".*")) for name, kept in plan.items() if kept == torch.float32]
    return {name for name, _ in model.named_parameters() if any(pattern.search(name) for pattern in patterns)}


@contextlib.contextmanager
def progress_bars(stand_in: Callable[..., Any]) -> Iterator[None]:
    """While open, transformers calls `stand_in` where it would make a tqdm bar; without the hook nothing is told of a load's progress."""
    set_hook = getattr(transformers.logging, "set_tqdm_hook", lambda hook: None)
    before = set_hook(lambda factory, args, kwargs: stand_in(*args, **kwargs))
    try:
        yield
    finally:
        set_hook(before)


def compile_also_quantized(model: PreTrainedModel) -> None:
    """Let `generate` compile a quantized model too, which it otherwise never does; nothing happens to one that isn't quantized."""
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is not None:
        type(quantizer).is_compileable = property(lambda _: True)
