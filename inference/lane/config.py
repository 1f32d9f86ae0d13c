"""A checkpoint's small files -> its configuration, or the sentence why it can't be one. Knows no tokenizer and no model.

Code of a checkpoint's own is never run, and nobody is asked whether it may be: a lane's input is its command pipe.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, GenerationConfig, PretrainedConfig

from inference.errors import InferenceError
from inference.fast import first_line
from inference.sources import files
from inference.sources.at_hand import Checkpoint

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
SMALL = (CONFIG, "generation_config.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
# generation settings that say nothing of which token comes next, and those that do nothing at 1
NO_EFFECT = {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "max_length", "max_new_tokens", "transformers_version"}
MECHANICS = ("_", "cache", "output_", "return_", "compile_config", "disable_compile")
NEUTRAL_AT_ONE = {
    "temperature", "top_p", "typical_p", "repetition_penalty", "encoder_repetition_penalty", "length_penalty", "num_beams", "num_beam_groups",
    "num_return_sequences", "guidance_scale",
}  # fmt: skip


def read_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """The configuration; raises InferenceError for a model that transformers doesn't know by itself, and for a file that is not what it should be."""
    found = files.json_object(checkpoint.folder / CONFIG, checkpoint.id)
    kind, own_code = found.get("model_type"), found.get("auto_map") or {}
    needs_own_code = InferenceError(
        f"{checkpoint.id} needs code of its own (auto_map in its config.json, model type {files.quoted(kind)}), which is never run here. "
        "Choose a model whose type transformers knows by itself."
    )
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        if own_code:
            raise needs_own_code
        if kind is None:
            raise InferenceError(f"The config.json of {checkpoint.id} names no model_type. Save the model again with save_pretrained.")
        raise InferenceError(
            f"{checkpoint.id} is of the model type {files.quoted(kind)}, which is not known to transformers {transformers.__version__}. "
            "Upgrade it (pip install -U transformers), or choose another model."
        )
    try:
        config = AutoConfig.from_pretrained(checkpoint.folder, trust_remote_code=False)
    except Exception as error:  # a configuration's own checks raise many kinds
        raise InferenceError(f"The config.json of {checkpoint.id} can't be used ({first_line(error)}). Save the model again with save_pretrained.") from error
    if "AutoModelForCausalLM" in own_code and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise needs_own_code
    return config


def check_files(checkpoint: Checkpoint, *names: str) -> None:
    """Raise InferenceError, naming it, for a file of `names` that is a Git LFS pointer, empty, or no whole JSON object."""
    for path in (checkpoint.folder / name for name in names):
        if path.exists() and (path.suffix == ".json" or path.read_bytes().startswith(files.LFS_POINTER)):
            files.json_object(path, checkpoint.id)


def otherwise(folder: Path, asked: Any, model: Any) -> list[str]:
    """What plain code would do with a whole model's folder that no lane does: put an adapter on it that lies beside, compute its attention by a package.

    `asked` is the configuration as it was read, before the lane chose; `record/reproduce.py` reads these words.
    """
    found = []
    if files.is_whole(folder) and (folder / files.ADAPTER[0]).exists():
        found.append(f"an adapter lies beside the whole weights ({files.ADAPTER[0]}) and is left out, as one that was merged into them; plain code puts it on")
    wanted, used = (getattr(config, "_attn_implementation", None) for config in (asked.get_text_config(), model.config.get_text_config()))
    if wanted and wanted != used:
        found.append(f"its configuration names the attention {files.quoted(wanted)}, which needs a package of its own, so it is computed by {used}")
    return found


def ignored(config: Any, generation: GenerationConfig) -> str | None:
    """What must be said of a checkpoint's own generation settings, none of which is applied on any side; None where there are none."""
    found = generation.to_diff_dict()
    found["use_cache"] = found.get("use_cache") is not False and getattr(config, "use_cache", True) is not False
    named = [f"{name}={_short(value)}" if _short(value) else name for name, value in sorted(found.items()) if name.isidentifier() and _changes(name, value)]
    return f"the checkpoint's own generation settings are left out on every side: {', '.join(named)}" if named else None


def _changes(name: str, value: Any) -> bool:
    """Whether a setting, so set, would make `generate` choose another token, or choose it without its cache."""
    if value is None or name in NO_EFFECT or name.startswith(MECHANICS):
        return False
    if name == "use_cache":
        return value is False
    if name in NEUTRAL_AT_ONE:
        return value != 1
    return bool(value) or name.startswith("forced_")


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 24 else ""
