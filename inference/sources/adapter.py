"""A PEFT adapter: what it says of itself, what it is to be merged into, where the merged checkpoint is kept, and the texts that go with it.

In: a folder, settings. Out: an adapter that `merge.py` can merge, or the sentence why it can't be one. Standard library only, so that a
lane's process finds a merged checkpoint before its heavy imports.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.cache import made, manifest
from inference.cache.cache import Cache
from inference.cache.made import Made
from inference.errors import InferenceError
from inference.sources import files
from inference.sources.headers import Stored, tensors_in

FORMAT = 3  # of what `merge.py` writes
ROWS_NOW, APART = "its vocabulary has", "its head is no longer its embedding"  # in a note; `record/reproduce.py` reads them there
CONFIG, WEIGHTS = files.ADAPTER
PROMPTS = {"PROMPT_TUNING", "MULTITASK_PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "CPT", "ADAPTION_PROMPT", "CARTRIDGE"}
MIXED = {"XLORA", "POLY"}
QUANTIZED = re.compile(r"(-unsloth)?-bnb-\dbit$|-(GPTQ|AWQ|FP8|[48]bit)\b.*$", re.IGNORECASE)
TEMPLATE, GENERATION, TOKENIZER_CONFIG = "chat_template.jinja", "generation_config.json", "tokenizer_config.json"
TOKENIZER_FILES = (*files.TOKENIZERS, TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json", "merges.txt")
CHANGED_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")  # these begin by taking something out of the base


@dataclass(frozen=True)
class Adapter:
    """An adapter's folder; `base` is the name that MODEL_ID would give its base."""

    id: str
    folder: Path
    revision: str | None
    base: str
    config: dict[str, Any]

    @property
    def what(self) -> str:
        """Which adapter this is and of what kind, in a line."""
        rank = f", rank {files.quoted(self.config['r'])}" if self.config.get("r") else ""
        return f"{self.id}{'@' + self.revision if self.revision else ''} ({files.quoted(self.config['peft_type'])}{rank})"


def is_adapter(folder: Path) -> bool:
    """Whether the folder is an adapter; a merged model beside which its configuration was left is none."""
    return (folder / CONFIG).exists() and not files.is_whole(folder)


def read(name: str, folder: Path, revision: str | None, base: str) -> Adapter:
    """The adapter in `folder`; `base` is the one that the settings name, if any. Raises InferenceError for what can't be merged right."""
    config = files.json_object(folder / CONFIG, name)
    kind = str(config.get("peft_type") or "").upper()
    if not kind:
        raise InferenceError(f"{CONFIG} of {name} names no peft_type. Save the adapter again with save_pretrained.")
    _check_kind(name, files.quoted(kind), config)
    if not (folder / WEIGHTS).exists():
        raise InferenceError(_no_weights(name, folder))
    tensors = tensors_in(folder / WEIGHTS)  # a pointer or a cut file is told at once
    if empty := sorted(key for key, stored in tensors.items() if not stored.count):
        raise InferenceError(
            f"{WEIGHTS} of {name} holds tensors without a value ({len(empty)}, the first: {empty[0]}), as DeepSpeed's ZeRO-3 leaves them. "
            "Save the adapter again with its weights gathered (stage3_gather_16bit_weights_on_model_save)."
        )
    return Adapter(name, folder, revision, _base(name, config, base), {**config, "peft_type": kind})


def _check_kind(name: str, kind: str, config: dict[str, Any]) -> None:
    if kind in PROMPTS:
        raise InferenceError(f"{name} is a {kind} adapter: it changes the prompt, not the weights, so there is nothing to merge. Train a LoRA adapter instead.")
    if kind in MIXED or config.get("alora_invocation_tokens") or config.get("arrow_config"):
        raise InferenceError(f"{name} is a {kind} adapter that acts on some tokens only, which merged weights can't. Use one that acts on all of them.")
    if config.get("task_type") not in (None, "CAUSAL_LM"):
        raise InferenceError(
            f"{name} was trained for {files.quoted(config['task_type'])}, not for writing text (CAUSAL_LM). Point MODEL_ID at an adapter of a text model."
        )
    if config.get("layer_replication"):
        raise InferenceError(f"{name} uses its base's layers several times (layer_replication), which can't be merged. Use an adapter without it.")
    start = config.get("init_lora_weights")
    if isinstance(start, str) and start.lower().startswith(CHANGED_BASE):
        raise InferenceError(
            f"{name} was trained over a changed base (init_lora_weights: {files.quoted(start)}), which is not the one that it names. "
            "Save it as a plain LoRA adapter (save_pretrained with path_initial_model_for_weight_conversion), or merge it where it was trained."
        )


def _no_weights(name: str, folder: Path) -> str:
    if (folder / "adapter_model.bin").exists():
        return (
            f"{name} has its weights as adapter_model.bin only, a pickle file, which can run code when it is read. "
            f"Save them again as {WEIGHTS} (save_pretrained with safe_serialization=True)."
        )
    return f"{name} has an {CONFIG} but no {WEIGHTS}. Copy the weights there, or point MODEL_ID at a complete folder."


def _base(name: str, config: dict[str, Any], asked: str) -> str:
    """The name of the base: the one asked for, else the one that the adapter's configuration gives."""
    revision = config.get("revision")
    said = config.get("base_model_name_or_path")
    if said and not files.at(str(said)):  # a Hub id; only that has a revision
        said = str(said).rstrip("/") + (f"@{revision}" if revision else "")
    base = asked or said
    if not base:
        raise InferenceError(f"{CONFIG} of {name} does not say which model it adapts. Set BASE_MODEL_ID to it.")
    if base == name:
        raise InferenceError(f"{name} is an adapter and can't be its own base. Set BASE_MODEL_ID to the model that it was trained over.")
    stem, _, _ = str(base).partition("@")
    if not asked and QUANTIZED.search(stem) and not files.at(stem):  # known before gigabytes are fetched
        full = QUANTIZED.sub("", stem)
        raise InferenceError(
            f"{name} is an adapter over {files.quoted(base)}, whose weights are quantized; it is merged into full-precision ones. "
            f"Set BASE_MODEL_ID to the original ({files.quoted(full)}, if that is its name)."
        )
    return str(base)


def check_base(adapter: Adapter, folder: Path) -> None:
    """Raise InferenceError where `folder` is no base to merge into: quantized, or an adapter."""
    if is_adapter(folder):
        raise base_is_adapter(adapter)
    config = files.json_object(folder / "config.json", adapter.base)
    text = config.get("text_config")
    if quantization := config.get("quantization_config") or (text.get("quantization_config") if isinstance(text, dict) else None):
        method = quantization.get("quant_method", "unknown") if isinstance(quantization, dict) else quantization
        raise InferenceError(
            f"{adapter.base}, the base of {adapter.id}, is quantized (quantization_config in its config.json: {files.quoted(method)}); an adapter is merged into "
            "full-precision weights. Set BASE_MODEL_ID to the full-precision original."
        )


def check_shapes(adapter: Adapter, base: Mapping[str, Stored]) -> None:
    """Raise InferenceError where a matrix of the adapter is for one of another width than the base's tensor of that name has."""
    for name, stored in tensors_in(adapter.folder / WEIGHTS).items():
        module, part, _ = name.removeprefix("base_model.model.").partition(".lora_A.weight")
        matrix = base.get(f"{module}.weight") if part else None
        if matrix and len(stored.shape) == len(matrix.shape) == 2 and stored.shape[1] not in matrix.shape:
            raise InferenceError(
                f"{adapter.id} does not fit {adapter.base}: it adapts {module} at a width of {stored.shape[1]}, and that one is "
                f"{matrix.shape[0]} x {matrix.shape[1]}. Set BASE_MODEL_ID to the model that it was trained over."
            )


def base_is_adapter(adapter: Adapter) -> InferenceError:
    """The sentence for an adapter over an adapter."""
    return InferenceError(f"{adapter.base}, the base of {adapter.id}, is an adapter itself. Merge that one first and set BASE_MODEL_ID to the result.")


def no_base(adapter: Adapter, error: InferenceError) -> InferenceError:
    """The sentence for a base that can't be had."""
    return type(error)(
        f"{adapter.id} is an adapter, and its base {files.quoted(adapter.base)} can't be had. Set BASE_MODEL_ID to it (a Hub id or a folder). ({error})"
    )


def merged(adapter: Adapter, base: Path, base_revision: str | None, cache: Cache) -> Made:
    """Where the adapter merged into the base in folder `base` is kept, there or not."""
    texts = files.beside_weights([file.name for file in adapter.folder.iterdir()])
    own = {name: manifest.digest(adapter.folder / name) for name in (*texts, WEIGHTS)}
    key = [FORMAT, own, adapter.base, base_revision, files.identity(base), importlib.metadata.version("peft")]
    return made.place(cache, "merged", adapter.id, [str(adapter.folder.resolve()), adapter.base], key)


def copy_texts(adapter: Path, base: Path, out: Path) -> None:
    """Copy the tokenizer, the chat template and generation_config.json to `out`, each from the adapter where it has its own, else from the base."""
    tokenizer = adapter if any((adapter / name).exists() for name in files.TOKENIZERS) else base
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, out / name)
    if (template := _template(adapter) or _template(base)) and (text := _ordinary(template)):
        (out / TEMPLATE).write_text(text, encoding="utf-8")
    (out / GENERATION).unlink(missing_ok=True)
    for folder in (adapter, base):
        if (folder / GENERATION).exists():
            shutil.copy(folder / GENERATION, out / GENERATION)
            break


def _template(folder: Path) -> Any:
    """The chat template that a folder holds, or several, in a file of its own or in the tokenizer's configuration; None where it holds none."""
    if (folder / TEMPLATE).exists():
        return (folder / TEMPLATE).read_text(encoding="utf-8")
    if not (folder / TOKENIZER_CONFIG).exists():
        return None
    return files.json_object(folder / TOKENIZER_CONFIG, folder.name).get("chat_template")


def _ordinary(template: Any) -> str | None:
    """Of several templates, each with its name as older versions save them, the one for an ordinary conversation; None where none is called so."""
    if isinstance(template, list):
        template = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None
