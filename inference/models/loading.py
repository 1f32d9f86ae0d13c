"""A checkpoint on a lane -> its model: asks transformers for it a tensor at a time.

Refuses what would not fit, and what the lane's label would not be true of, before it reads a byte of weights. What the model then really is, `facts.py`
reads off it. Knows no run and no process.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

from inference.errors import InferenceError, Refused, short_of_memory
from inference.events import Report
from inference.fast import FastWays, first_line
from inference.host import machine
from inference.models import facts, fits, private, quantized_already
from inference.models.arguments import arguments_for, compute_dtype, model_arguments, quantization_of
from inference.models.exact import in_fp32, install, kept_as_stored, shrink
from inference.models.facts import context_length, describe, held, state_tensors, weights_bytes
from inference.models.progress import WeightsProgress
from inference.models.skeleton import NOT_TEXT, Skeleton, check_purpose, skeleton, whole_layers_left
from inference.models.weights import Weights
from inference.sources.at_hand import Checkpoint
from inference.sources.headers import Stored, tensors_of

__all__ = [
    "check_fits",
    "compute_dtype",
    "context_length",
    "describe",
    "free_bytes",
    "held",
    "load",
    "model_arguments",
    "read",
    "state_tensors",
    "weights_bytes",
]
RAM_MARGIN = machine.GIB // 2
VRAM_MARGIN = machine.GIB
AGAIN = "Save the model again with save_pretrained, its config.json with it."


@dataclass(frozen=True)
class Plan:
    """All that is known of a checkpoint on a lane before its weights are read."""

    name: str
    lane: str
    tensors: Mapping[str, Stored]
    config: PretrainedConfig
    arguments: Mapping[str, Any]
    found: Skeleton
    need: fits.Need


def load(checkpoint: Checkpoint, lane: str, report: Report, ways: FastWays, on_host: bool = False) -> PreTrainedModel:
    """The model on its device; raises InferenceError (Refused where it can't fit). `on_host`: in the computer's memory, for the caller to put there."""
    planned = _plan(checkpoint.folder, lane, ways, checkpoint.id)
    check_fits(planned.need, lane)
    if on_host:
        planned = replace(planned, arguments={**planned.arguments, "device_map": "cpu"})
    try:
        with private.progress_bars(partial(WeightsProgress, report)):
            return _read(checkpoint.folder, planned, ways)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        if short_of_memory(error):
            raise
        raise InferenceError(
            f"{checkpoint.id} could not be loaded ({first_line(error)}). Check that the folder is complete and made for text generation."
        ) from error


def read(folder: Path, lane: str, ways: FastWays, name: str = "") -> PreTrainedModel:
    """The checkpoint in `folder` as a model in the lane's dtype; a CPU lane's exact matrices in 16 bits where `ways` may."""
    return _read(folder, _plan(folder, lane, ways, name or str(folder)), ways)


def check_fits(need: fits.Need, lane: str) -> None:
    """Raise Refused when what the load takes at most, with a margin for the cache and the work, is more than what is free."""
    what = {"nf4": "This model in 4 bits", "fp32": "This model in full FP32", "bf16": "This model in bfloat16"}[lane.split(":")[1]]
    advice = (
        "Free the GPU or set MODEL_ID to a smaller model." if lane.startswith("cuda") else "Choose a smaller model (MODEL_ID), or hardware with more memory."
    )
    machine.check_fits(what, need.peak_bytes + margin_bytes(lane), free_bytes(lane), advice)


def margin_bytes(lane: str) -> int:
    """What is kept free beside a load's own need, for the cache and the work."""
    return VRAM_MARGIN if lane.startswith("cuda") else RAM_MARGIN


def free_bytes(lane: str) -> int:
    """What is free where the lane's weights would go."""
    if not lane.startswith("cuda"):
        return machine.ram_available_bytes()
    try:
        return torch.cuda.mem_get_info()[0]
    except RuntimeError as error:
        if not short_of_memory(error):
            raise
        return 0  # other programs have so much of the card that this process can't even begin there


def _plan(folder: Path, lane: str, ways: FastWays, name: str) -> Plan:
    tensors = tensors_of(folder)
    return plan(name, AutoConfig.from_pretrained(folder, trust_remote_code=False), tensors, lane, ways)


def plan(name: str, config: PretrainedConfig, tensors: Mapping[str, Stored], lane: str, ways: FastWays, capability: tuple[int, int] | None = None) -> Plan:
    """What would be loaded, from configuration and headers alone, on a GPU of `capability` if it is not this machine's.

    Raises InferenceError (Refused) where the label would not be true of it.
    """
    check_purpose(config, name)
    quantized_already.check(config, tensors, lane, name)
    layers = getattr(config.get_text_config(), "num_hidden_layers", None) or 0
    if layers > len(tensors):  # said before so many are made
        raise InferenceError(f"{name} has {len(tensors)} tensors in its files and {layers} layers by its config.json. Correct num_hidden_layers there.")
    arguments = arguments_for(config, lane, capability)
    if ways.may("compact") and arguments["dtype"] != torch.float32:
        if lane.startswith("cuda"):
            ways.leave_out("compact")
        else:
            ways.refuse("compact", "this lane keeps 16-bit values as they are")
    found = skeleton(config, tensors, arguments["dtype"], arguments.get("quantization_config"))
    if lane.endswith(":nf4") and not any(map(private.is_four_bit, found.model.modules())):
        raise Refused(
            f"{name} has no layer that bitsandbytes puts in 4 bits ({type(found.model).__name__} has its own kinds), so there is no 4-bit lane of it. "
            "Ask the full-precision lane alone: LANES=cpu:fp32."
        )
    if whole := whole_layers_left(found):
        raise InferenceError(
            f"{name} has {len(whole)} layer{'s' * (len(whole) > 1)} more in its files than its configuration has (the first: {whole[0]}), so it would be loaded as another model. "
            "Correct num_hidden_layers in config.json, or save the model again with save_pretrained."
        )
    if not quantization_of(config):
        check_tensors(name, tensors, found)
    return Plan(name, lane, tensors, config, arguments, found, fits.need_of(found, tensors, lane, arguments, ways.may("compact")))


def check_tensors(name: str, tensors: Mapping[str, Stored], found: Skeleton) -> None:
    """Raise InferenceError (Refused) for a tensor that is no values of the parameter it would become: of whole numbers, of another shape, or one of two."""
    parameters = dict(found.model.named_parameters(remove_duplicate=False))
    seen: dict[str, str] = {}
    for key, place in found.places.items():
        if place not in parameters:
            continue
        if tensors[key].dtype not in quantized_already.FLOATING:
            raise Refused(
                f"{name} is quantized already: {key} is stored as {tensors[key].dtype}, though config.json doesn't say so. {quantized_already.INSTEAD}"
            )
        if not f".{place}".endswith(f".{found.renamed[key]}") and not f".{found.renamed[key]}".endswith(f".{place}"):
            continue  # it is made into its parameter by more than another name
        if tensors[key].shape != (wanted := private.stored_shape(found.model, place)):
            raise InferenceError(f"{name}: {key} has the shape {list(tensors[key].shape)} in its file, and by config.json {list(wanted)}. {AGAIN}")
        if place in seen:
            raise InferenceError(f"{name} has {place} twice in its files, as {seen[place]} and as {key}, so it can't be told which is meant. {AGAIN}")
        seen[place] = key


def _read(folder: Path, plan: Plan, ways: FastWays) -> PreTrainedModel:
    found, arguments = plan.found, dict(plan.arguments)
    on_cpu = plan.lane.startswith("cpu")
    exact = on_cpu and ways.may("compact")
    parts = Counter(found.places.values())
    passing = [name for name, place in found.places.items() if on_cpu and (parts[place] > 1 or _is_quantized(found, place))]
    weights = Weights(plan.tensors, {name: given for name, given in found.renamed.items() if name in found.places}, passing, exact, arguments["dtype"])
    config = found.config
    if quantization_of(config):
        config.quantization_config = arguments.pop("quantization_config").to_dict()
    with kept_as_stored(ways) if exact else contextlib.nullcontext(), private.one_tensor_at_a_time():
        model, info = type(found.model).from_pretrained(
            None, config=config, state_dict=weights.lazy, output_loading_info=True, trust_remote_code=False, **arguments
        )
    _check_keys(plan, info)
    model.config.name_or_path = model.name_or_path = str(folder)
    try:
        model.generation_config = private.generation_config(folder)
    except Exception as error:  # its own checks raise many kinds
        raise InferenceError(f"The generation_config.json of {plan.name} can't be used ({first_line(error)}). Correct it, or take it away.") from error
    for module in model.modules():
        state = getattr(getattr(module, "weight", None), "quant_state", None)
        if state is not None:
            state.dtype = arguments["dtype"]  # a checkpoint in 4 bits names its own, which may be float16
    if plan.lane == "cpu:nf4":
        from inference.models import odd_rows  # brings bitsandbytes, which an FP32 lane does without

        odd_rows.mend(model)
    ways.attempt("compact", lambda: shrink(model))
    if not on_cpu and "compact" in ways.used:  # the CPU's products are chosen later
        install(model, in_fp32)
    facts.remember(model, facts.Origin(plan.tensors, weights.values, found.stray, weights.mapped))
    return model.eval()


def _is_quantized(found: Skeleton, place: str) -> bool:
    """Whether the parameter at `place` is put in 4 bits while it is loaded."""
    module = found.model.get_submodule(place.rpartition(".")[0])
    return private.is_four_bit(module) and place.endswith(".weight") and not quantization_of(found.config)


def _check_keys(plan: Plan, info: dict[str, Any]) -> None:
    wrong = [key for kind in ("missing_keys", "mismatched_keys") for key in info.get(kind, ())]
    text = sorted(str(key) for key in wrong if not any(part in str(key) for part in NOT_TEXT))
    if not text:
        return
    advice = "Save the fine-tune again with save_pretrained of the same class it was loaded with."
    if text == ["lm_head.weight"]:
        advice = "If its head is its embedding, set tie_word_embeddings to true in config.json; else save it again by the class that it was trained as."
    stray = f"; {len(plan.found.stray)} of its own have no place in it (the first: {plan.found.stray[0]})" if plan.found.stray else ""
    raise InferenceError(
        f"{plan.name} lacks {len(text)} of the weights its architecture needs (the first: {text[0]}), so its answers would be random{stray}. {advice}"
    )
