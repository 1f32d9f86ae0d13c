"""What a GGUF file says and transformers leaves out: settings are put into the checkpoint, tensors without a place are refused."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.gguf.reader import said

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


DENSE = {"llama", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "starcoder2", "stablelm", "nemotron"}  # each tensor of theirs is one of the model's
IN_PART = {"phi3", "stablelm", "nemotron"}  # may rotate the first columns of a head only
BY_ROWS = {("gemma2", 46), ("gemma3", 62)}  # the 27B ones, told by their layers: no key says that their attention is scaled by hidden / heads


def check_whole(reader: Any, model: PreTrainedModel) -> None:
    """Raise ValueError where the file has tensors that the model has no place for: biases, norms of heads."""
    import gguf

    architecture = said(reader, "general.architecture")
    if architecture not in DENSE:
        return
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, model.config.num_hidden_layers)
    known = {names.get_name(name, (".weight", ".bias")) for name in model.state_dict()}
    left = sorted(tensor.name for tensor in reader.tensors if tensor.name not in known and not tensor.name.startswith("rope_f"))
    if left:
        raise ValueError(f"it has {len(left)} tensors that transformers leaves out, the first of them {left[0]}")


def put_in(reader: Any, config: PretrainedConfig, out: Path) -> str:
    """Give the checkpoint in `out` the file's settings that transformers leaves out, and say so; raises ValueError for one that isn't known here."""
    found = _left_out(reader, config)
    if not found:
        return ""
    saved = json.loads((out / "config.json").read_text("utf-8")) | found
    (out / "config.json").write_text(json.dumps(saved, indent=2), encoding="utf-8")
    named = "; ".join(f"{name}={json.dumps(value)}" for name, value in found.items())  # read again by `record/reproduce.py`
    return f"its settings that transformers leaves out are put in: {named}"


def _left_out(reader: Any, config: PretrainedConfig) -> dict[str, Any]:
    """The settings of the file that `config` has otherwise; raises ValueError for a rotary scaling that isn't known here."""
    architecture = said(reader, "general.architecture")
    if architecture == "gpt-oss":  # of which transformers reads them
        return {}
    before: dict[str, Any] = dict(getattr(config, "rope_parameters", None) or {})
    parameters = copy.deepcopy(before)
    rotary = parameters.get("full_attention", parameters)  # windows are never stretched
    if "rope_theta" in rotary:
        rotary |= _rotated(reader, architecture, config, rotary)
    rotary |= _stretched(reader, architecture, rotary)
    found: dict[str, Any] = {} if parameters == before else {"rope_parameters": parameters}
    window = said(reader, f"{architecture}.attention.sliding_window")
    if architecture == "phi3" and window and config.sliding_window != window:
        found["sliding_window"] = int(window)
    if (architecture, config.num_hidden_layers) in BY_ROWS:
        found["query_pre_attn_scalar"] = config.hidden_size // config.num_attention_heads
    return found


def _rotated(reader: Any, architecture: str, config: PretrainedConfig, rotary: dict[str, Any]) -> dict[str, Any]:
    """The base of the frequencies, and the part of a head that is rotated, where they are others than in `rotary`."""
    found: dict[str, Any] = {}
    base, columns = (said(reader, f"{architecture}.rope.{name}") for name in ("freq_base", "dimension_count"))
    if base and not math.isclose(base, rotary["rope_theta"], rel_tol=1e-6):
        found["rope_theta"] = float(base)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if architecture in IN_PART and columns and int(head * rotary.get("partial_rotary_factor", 1.0)) != columns:
        found["partial_rotary_factor"] = columns / head
    return found


def _stretched(reader: Any, architecture: str, rotary: dict[str, Any]) -> dict[str, Any]:
    """The rotary scaling, empty for none."""
    kind, factor = (said(reader, f"{architecture}.rope.scaling.{name}") for name in ("type", "factor"))
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if "rope_factors_long.weight" in tensors or kind not in (None, "none", "linear"):
        raise ValueError(f"its rotary scaling ({kind or 'longrope'}) is not known here")
    if "rope_freqs.weight" in tensors:
        return _llama3(tensors["rope_freqs.weight"].data.tolist(), rotary.get("rope_theta", 0))
    return {"rope_type": "linear", "factor": float(factor)} if kind != "none" and factor not in (None, 0, 1) else {}


def _llama3(divisors: list[float], theta: float) -> dict[str, Any]:
    """Llama 3's scaling whose divisors, one a frequency, a file holds; raises ValueError where they are none."""
    scaling = {"factor": max(divisors), "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    if max(divisors) == 1:
        return {}
    for n, divisor in enumerate(divisors):
        turns = 8192 / (2 * math.pi * theta ** (n / len(divisors))) if theta else 0.0
        part = min(1.0, max(0.0, (turns - 1) / 3))
        if abs(divisor * ((1 - part) / scaling["factor"] + part) - 1) > 1e-3:
            raise ValueError("its rotary scaling (rope_freqs) is not Llama 3's")
    return {"rope_type": "llama3", **scaling}
