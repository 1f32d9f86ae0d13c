"""A PEFT adapter and its base -> one checkpoint, merged by peft in FP32, stored in the base's dtypes. Runs in the process that fetches.

The base is read in its own dtype (in FP32, if it has several), and one matrix at a time is widened, merged, held against the adapter's own
answer and rounded back: bit for bit what peft's merge of the whole base in FP32 gives once it is rounded. What the rounding lost is measured.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import peft
import torch
from peft import PeftConfig, PeftModel, PeftModelForCausalLM
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import ModulesToSaveWrapper
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from inference.cache.made import Made
from inference.errors import InferenceError
from inference.events import Loading, Report
from inference.fast import first_line
from inference.host import machine
from inference.sources import files
from inference.sources.adapter import APART, CONFIG, ROWS_NOW, WEIGHTS, Adapter, check_shapes, copy_texts
from inference.sources.headers import tensors_in, tensors_of

log = logging.getLogger(__name__)
NAME = "default"
DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
ROWS = 4  # of the input on which a merged matrix is held against its adapter
AGREE = 1e-3  # the largest difference allowed, as a share of the largest value
SPARE_BYTES = 64 * 2**20  # beside the weights: tokenizer, configuration


class _Rounding:
    """How much the merge changed, and what storing it in fewer bits lost of that."""

    def __init__(self) -> None:
        self.change = self._lost = 0.0

    def add(self, before: torch.Tensor, exact: torch.Tensor, stored: torch.Tensor) -> None:
        """Count one matrix; all but `stored` in FP32."""
        self.change += float(torch.linalg.vector_norm(exact - before)) ** 2
        self._lost += float(torch.linalg.vector_norm(stored.float() - exact)) ** 2

    @property
    def share(self) -> float:
        """The norm of what was lost over the norm of the change, all matrices together."""
        return math.sqrt(self._lost / self.change) if self.change else 0.0


@torch.no_grad()
def merge(adapter: Adapter, base: Path, place: Made, report: Report) -> None:
    """Write the adapter merged into the base in folder `base` to `place`, whose lock the caller holds; raises InferenceError."""
    check_shapes(adapter, tensors := tensors_of(base))
    kept = {name: DTYPES[tensor.dtype] for name, tensor in tensors.items() if tensor.dtype in DTYPES}
    dtype = next(iter(kept.values())) if len(set(kept.values())) == 1 else torch.float32
    needed = dtype.itemsize * sum(tensor.count for tensor in tensors.values()) + (adapter.folder / WEIGHTS).stat().st_size + SPARE_BYTES
    machine.check_fits(f"Merging {adapter.id} into {adapter.base}", needed, machine.ram_available_bytes(), "Merge it where there is more memory (RAM).")
    report(Loading("reading the adapter's base"))
    model, rounding = _read_base(adapter, base, dtype), _Rounding()
    rows, tied = model.get_input_embeddings().weight.shape[0], model.config.tie_word_embeddings
    merged = _merged(adapter, _put_on(adapter, model), rounding, report)
    now = merged.get_input_embeddings().weight.shape[0]
    vocabulary = [f"{ROWS_NOW} {now} rows" if now != rows else "", APART if tied and not merged.config.tie_word_embeddings else ""]
    with place.writing(needed) as out:
        report(Loading("saving the merged checkpoint (once)"))
        merged.save_pretrained(out)
        _store_as(out, kept)
        copy_texts(adapter.folder, base, out)
        place.write_note(out, "; ".join(filter(None, [_note(adapter, set(kept.values()), rounding), *vocabulary])))


def _note(adapter: Adapter, dtypes: set[torch.dtype], rounding: _Rounding) -> str:
    names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
    lost = f"storing it in {names} lost {100 * rounding.share:.2g} % of its change" if rounding.share else f"stored in {names}, nothing of its change was lost"
    if not rounding.change and adapter.config.get("bias", "none") == "none":
        lost = "it changes nothing (what it adds is all zeros, as before any training), so the answers are the base's"
    unknown = ", ".join(_unknown_fields(adapter))
    left_out = f"its settings {unknown} are not known to peft {peft.__version__} and left out" if unknown else ""
    return "; ".join(filter(None, [f"adapter {adapter.id} merged into {adapter.base}", lost, left_out]))


def _unknown_fields(adapter: Adapter) -> list[str]:
    """The settings of an adapter that this peft, older than the one it was made with perhaps, would pass over without a word; those that are off don't matter."""
    known = {field.name for field in dataclasses.fields(type(_peft_config(adapter)))} | {"peft_version"}
    return sorted(files.quoted(f"{name}={value}") for name, value in adapter.config.items() if value and name not in known)


def _read_base(adapter: Adapter, base: Path, dtype: torch.dtype) -> PreTrainedModel:
    try:
        usual = {"_attn_implementation": "eager", **files.NO_ADAPTER}  # its configuration may name one that needs a package; nothing is computed by it
        model, info = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, output_loading_info=True, trust_remote_code=False, **usual)
    except Exception as error:  # a configuration that transformers doesn't check raises many kinds
        raise InferenceError(f"{adapter.base}, the base of {adapter.id}, could not be loaded ({first_line(error)}). Check BASE_MODEL_ID.") from error
    if missing := sorted(map(str, info["missing_keys"])):
        raise InferenceError(f"{adapter.base}, the base of {adapter.id}, lacks {len(missing)} of its weights (the first: {missing[0]}). Fetch it again.")
    return model.eval()


def _put_on(adapter: Adapter, model: PreTrainedModel) -> PeftModel:
    """The base with the adapter's layers around its own, every tensor of the adapter in place; raises InferenceError where one isn't used."""
    _fit_vocabulary(adapter, model)
    own = {id(parameter) for parameter in model.parameters()}
    try:
        config, mapping = _config_for(adapter, model)
        tuned = PeftModelForCausalLM(model, config, NAME)
        for parameter in tuned.parameters():
            if id(parameter) not in own and parameter.is_floating_point():
                parameter.data = parameter.data.float()  # before the adapter's values come: none may be rounded
        result = tuned.load_adapter(str(adapter.folder), NAME, torch_device="cpu", key_mapping=mapping)
    except (ValueError, KeyError, RuntimeError, TypeError, NotImplementedError, ImportError, AttributeError) as error:
        raise InferenceError(
            f"{adapter.id} does not fit {adapter.base} ({first_line(error)}). Set BASE_MODEL_ID to the model that it was trained over."
        ) from error
    for keys, words in ((_without_copies(adapter, result.unexpected_keys), "has no place for"), (result.missing_keys, "would need")):
        if keys:
            raise InferenceError(
                f"{adapter.id} does not fit {adapter.base}, which {words} {len(keys)} tensors (the first: {sorted(keys)[0]}). "
                "Set BASE_MODEL_ID to the model that it was trained over."
            )
    return tuned.eval()


def _without_copies(adapter: Adapter, keys: list[str]) -> list[str]:
    """`keys` without those of tensors that peft saves twice where the vocabulary has grown: whole embeddings and heads, the trained tokens of a tied head."""
    tensors = load_file(adapter.folder / WEIGHTS) if keys else {}
    twins = {key: [name for name in tensors.keys() - set(keys) if _meant(name) == _meant(key)] for key in keys}
    return [key for key, names in twins.items() if not any(torch.equal(tensors[key], tensors[name]) for name in names)]


def _meant(key: str) -> str:
    """What a tensor's name means: of a module that is saved whole the module, of trained tokens the same whoever shares them."""
    before, trained, after = key.partition(".token_adapter.trainable_")
    return trained + after or before.replace(".modules_to_save.", ".")


def _config_for(adapter: Adapter, model: PreTrainedModel) -> tuple[PeftConfig, dict[str, str]]:
    """The adapter's configuration and how its tensors' names become the model's: one of a text model goes on to a multimodal base's text part."""
    config = _peft_config(adapter)
    text = _name_of(model, model.get_decoder())
    of_text_alone = "." in text and not any(f".{text.rpartition('.')[2]}." in key for key in tensors_in(adapter.folder / WEIGHTS))
    if not of_text_alone:
        return config, getattr(model, "_checkpoint_conversion_mapping", {})
    for field in ("target_modules", "exclude_modules", "rank_pattern", "alpha_pattern"):  # a pattern that no longer matches would be left out silently
        if named := getattr(config, field, None):
            setattr(config, field, _named_below(text, named))
    beside = rf"(?!{re.escape(text)}\.|lm_head).*"
    own = config.exclude_modules or ()
    config.exclude_modules = "|".join([beside, own] if isinstance(own, str) else [beside, *(rf"(.*\.)?{re.escape(name)}" for name in own)])
    return config, {r"^model\.": f"{text}."}


def _named_below(text: str, named: Any) -> Any:
    """Modules of a text model (a name, a pattern, several, or what is set for each) as a multimodal model calls them, whose text is `text`."""
    if isinstance(named, str):
        return re.sub(r"^(\^?)model(?=\\?\.)", rf"\g<1>{text}", named)
    below = {_named_below(text, name): name for name in named}
    return {name: named[own] for name, own in below.items()} if isinstance(named, dict) else set(below)


def _peft_config(adapter: Adapter) -> PeftConfig:
    try:
        return PeftConfig.from_pretrained(str(adapter.folder))
    except Exception as error:  # each kind of adapter checks its own fields
        raise InferenceError(
            f"{adapter.id} is a {adapter.config['peft_type']} adapter whose {CONFIG} peft {peft.__version__} can't read ({first_line(error)}). "
            "Upgrade it (pip install -U peft), or merge the adapter where it was trained."
        ) from error


def _fit_vocabulary(adapter: Adapter, model: PreTrainedModel) -> None:
    """Give the embeddings as many rows as the adapter brings; raises InferenceError where it doesn't bring all the new ones."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    names = {"embed": _name_of(model, embedding), "head": _name_of(model, head)}
    rows = {part: _rows(adapter, name) for part, name in names.items() if name}
    wanted = max((count for count in rows.values() if count), default=0)
    have = embedding.weight.shape[0]
    if wanted in (0, have):
        return
    tied = head is None or head.weight is embedding.weight
    if not rows.get("embed") or not (tied or rows.get("head")):
        raise InferenceError(
            f"{adapter.id} needs {wanted} tokens, {adapter.base} has {have}, and the adapter does not hold all the new rows. "
            "Save it again with save_embedding_layers=True."
        )
    model.resize_token_embeddings(wanted, mean_resizing=False)


def _name_of(model: nn.Module, module: nn.Module | None) -> str:
    return next((name for name, found in model.named_modules() if found is module), "") if module is not None else ""


def _rows(adapter: Adapter, name: str) -> int:
    """How many rows the adapter's own copy of the embedding called `name` has; 0 where it brings none."""
    part = f".{name.rpartition('.')[2]}."
    tensors = tensors_in(adapter.folder / WEIGHTS)
    return max((own.shape[0] for key, own in tensors.items() if part in key and key.endswith(".weight") and "lora_" not in key), default=0)


def _merged(adapter: Adapter, tuned: PeftModel, rounding: _Rounding, report: Report) -> PreTrainedModel:
    """peft's merge_and_unload, each matrix widened while it is merged."""
    model = tuned.get_base_model()
    tied = model.config.tie_word_embeddings
    layers = [layer for layer in tuned.modules() if isinstance(layer, BaseTunerLayer)]
    for number, layer in enumerate(layers, 1):
        told = partial(report, Loading("merging the adapter (once)", number, len(layers), "matrices"))
        layer.merge = partial(_merge_layer, layer, layer.merge, rounding, told)  # type: ignore[method-assign]
    replaced = {
        f"{name}.{part}": parameter.data
        for name, module in model.named_modules() if isinstance(module, ModulesToSaveWrapper)
        for part, parameter in module.original_module.named_parameters()
    }  # fmt: skip
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tied embeddings, which are taken care of below
            merged = tuned.merge_and_unload()
    except (ValueError, RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
        raise InferenceError(f"peft can't merge {adapter.what} ({first_line(error)}). Merge it where it was trained, or train a LoRA adapter.") from error
    for name, before in replaced.items():
        _round(merged.get_parameter(name), before, rounding)
    if tied:
        _tie_or_not(merged)
    return merged


def _tie_or_not(model: PreTrainedModel) -> None:
    """Let a head that the base shares with the embedding be one with it again if they are still equal, else say that they are two."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if head.weight is embedding.weight:
        return
    equal = torch.equal(head.weight, embedding.weight)
    if equal:
        head.weight = embedding.weight
    for config in (model.config, model.config.get_text_config()):
        config.tie_word_embeddings = equal


def _merge_layer(layer: Any, merge: Callable[..., None], rounding: _Rounding, told: Callable[[], None], *given: Any, **arguments: Any) -> None:
    """One layer's own `merge` in FP32; a matrix that others share (a tied head) becomes this layer's own."""
    base = layer.get_base_layer()
    before = {name: parameter.data for name, parameter in base.named_parameters(recurse=False) if parameter.is_floating_point()}
    for name, data in before.items():
        setattr(base, name, nn.Parameter(data.to(torch.float32, copy=True), requires_grad=False))  # merges add in place
    tried = _input_of(base)
    wanted = layer(tried) if tried is not None else None
    merge(*given, **arguments)
    base = layer.get_base_layer()  # a whole norm (LN_TUNING) takes the place of its own
    if wanted is not None:
        _check_same(wanted, base(tried))
    for name, data in before.items():
        _round(getattr(base, name), data, rounding)
    told()


def _round(parameter: nn.Parameter, before: torch.Tensor, rounding: _Rounding) -> None:
    exact, parameter.data = parameter.data, parameter.data.to(before.dtype)
    if exact.shape == before.shape:
        rounding.add(before.float(), exact, parameter.data)


def _input_of(base: nn.Module) -> torch.Tensor | None:
    """Something to try a layer on; None where its kind is not known here."""
    if isinstance(base, nn.Embedding):
        return torch.arange(min(base.num_embeddings, 64))
    if not isinstance(base, (nn.Linear, Conv1D)):
        return None
    width = base.in_features if isinstance(base, nn.Linear) else base.weight.shape[0]
    return torch.randn(ROWS, width, generator=torch.Generator().manual_seed(0))


def _check_same(wanted: torch.Tensor, got: torch.Tensor) -> None:
    if not torch.isfinite(wanted).all():
        raise ValueError("its numbers, or its base's, are not finite")
    difference, size = float((wanted - got).abs().max()), float(wanted.abs().max())
    if not difference <= AGREE * size:
        raise ValueError(f"a merged matrix answers otherwise than the adapter did, by {difference:.2g} of {size:.2g}")


def _store_as(folder: Path, dtypes: dict[str, torch.dtype]) -> None:
    """Store each tensor of a checkpoint in the dtype that `dtypes` gives for its name; rewrites only files where one differs."""
    for file in files.weights_files(folder):
        tensors = load_file(file)
        narrowed = {name: tensor.to(dtypes.get(name, tensor.dtype)) for name, tensor in tensors.items()}
        if any(narrowed[name].dtype != tensor.dtype for name, tensor in tensors.items()):
            save_file(narrowed, file.with_suffix(".new"), {"format": "pt"})
            file.with_suffix(".new").replace(file)
