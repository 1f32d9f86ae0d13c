"""A configuration and the names of a checkpoint's tensors -> the model they are of, without weights, and which tensor goes where.

Of a multimodal checkpoint it is the text model: vision and audio parts have no place in it. In: configuration, names. Out: an empty
model on the meta device as a lane would fill it. Reads no weights.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from inference.errors import InferenceError, Refused
from inference.fast import first_line
from inference.models import private

NO_WRITERS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "RewardModel")
NOT_TEXT = ("vision", "visual", "audio", "multi_modal", "mm_projector", "image", "connector.")
# of a multimodal checkpoint's names: as the Hub has them (language_model.model.layers), and as transformers 5 saves them (model.language_model.layers)
TEXT_PART = re.compile(r"^(?:model\.)?(?:language_model|text_model)\.(?:model\.)?")
# what bitsandbytes saves beside a 4-bit weight
STATE_OF_4_BIT = re.compile(r"(?<=\.weight)\.(absmax|quant_map|nested_absmax|nested_quant_map|quant_state\..*)$")
LAYER = re.compile(r"^(?P<stack>.*?)\.(?P<number>\d+)\.(?P<rest>.*)$")


@dataclass(frozen=True)
class Skeleton:
    """A model without weights; `renamed`: the file's name of each tensor to the name it is given to the model by; `places`: to the parameter it becomes,
    or becomes a part of; `left`: those without a place, by their names in the file.
    """

    model: PreTrainedModel
    config: PretrainedConfig
    renamed: dict[str, str]
    places: dict[str, str]
    left: tuple[str, ...]

    @property
    def stray(self) -> tuple[str, ...]:
        """What is left over and is no part of another modality."""
        return tuple(name for name in self.left if not any(part in name for part in NOT_TEXT))


def skeleton(config: PretrainedConfig, names: Iterable[str], dtype: torch.dtype, quantization: Any = None) -> Skeleton:
    """The empty model of `config` whose parameters have `dtype`, its 4-bit layers those of `quantization` if given.

    Raises InferenceError where transformers has no model that generates text from such a configuration.
    """
    names = list(names)
    text = _text_config(config)
    if text is not None:
        renamed = {name: _text_name(name) for name in names}
        found = _fitted(text, renamed, dtype, quantization)
        if not names or any(place.endswith(_embedding(found.model)) for place in found.places.values()):
            return found
    return _fitted(copy.deepcopy(config), {name: name for name in names}, dtype, quantization)


def model_class(config: PretrainedConfig) -> type[PreTrainedModel]:
    """The class that generates text; raises InferenceError where there is none."""
    try:
        found: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except KeyError:
        raise InferenceError(
            f"transformers has no model of the type {config.model_type} that generates text, so it can't be compared here. Choose a text model."
        ) from None
    return found[0] if isinstance(found, tuple) else found


def check_purpose(config: PretrainedConfig, name: str) -> None:
    """Raise Refused for a model that was saved to do something else than go on with a text, though one that does could be made of its weights."""
    if getattr(config, "is_encoder_decoder", False):
        raise Refused(f"{name} reads its prompt by an encoder ({config.model_type}), and the lanes are for models that go on with it. Choose a text model.")
    classes = [str(one) for one in getattr(config, "architectures", None) or ()]
    if classes and all(one.endswith(NO_WRITERS) for one in classes):
        raise Refused(f"{name} was saved as {classes[0]}, which judges a text and doesn't go on with it, so it has no answers. Choose a text model.")


def whole_layers_left(found: Skeleton) -> tuple[str, ...]:
    """The layers that the files have whole and the model has no place for: with them it would be another model."""
    places: dict[str, dict[str, set[str]]] = {}
    for name in [*found.places, *found.stray]:
        if parts := LAYER.match(name):
            places.setdefault(parts["stack"], {}).setdefault(parts["number"], set()).add(parts["rest"])
    stray = set(found.stray)
    whole = []
    for stack, layers in places.items():
        kept = {number: rests for number, rests in layers.items() if any(f"{stack}.{number}.{rest}" not in stray for rest in rests)}
        whole += [f"{stack}.{number}" for number, rests in layers.items() if number not in kept and any(rests >= other for other in kept.values())]
    return tuple(sorted(whole))


def _fitted(config: PretrainedConfig, renamed: dict[str, str], dtype: torch.dtype, quantization: Any) -> Skeleton:
    model_class(config)
    private.own_attention(config)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except Exception as error:  # a model's own code reads what no check of the configuration has seen
        raise InferenceError(
            f"No {config.model_type} model can be made by this config.json ({first_line(error)}). Correct it, or save the model again with save_pretrained."
        ) from error
    if quantization is not None:
        private.quantized_modules(model, quantization, dtype)
    known = set(model.state_dict())
    places: dict[str, str] = {}
    targets = private.places(model, {STATE_OF_4_BIT.sub("", name) for name in renamed.values()})
    for name, given in renamed.items():
        place = targets[STATE_OF_4_BIT.sub("", given)]
        if place in known:
            places[name] = place
    ignored = private.ignored_names(model)
    left = tuple(name for name, given in renamed.items() if name not in places and not (ignored and ignored.search(given)))
    return Skeleton(model, config, renamed, places, left)


def _text_config(config: PretrainedConfig) -> PretrainedConfig | None:
    """A copy of the text part's own configuration, where it has one and a class of its own; what the whole says of it goes along."""
    part = getattr(config, "text_config", None)
    if not isinstance(part, PretrainedConfig) or part is config or type(part) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    text = copy.deepcopy(part)
    text.tie_word_embeddings = getattr(config, "tie_word_embeddings", text.tie_word_embeddings)
    for name in ("bos_token_id", "eos_token_id"):  # its padding is its own: the whole's (SmolVLM's) may be a row that the text part doesn't have
        if getattr(config, name, None) is not None:
            setattr(text, name, getattr(config, name))
    if getattr(config, "quantization_config", None) is not None:
        text.quantization_config = config.quantization_config
    return text


def _text_name(name: str) -> str:
    """The name that a text model has for a tensor of a multimodal checkpoint; others as they are."""
    short, found = TEXT_PART.subn("", name)
    return name if not found else short if short.startswith("lm_head") else f"model.{short}"


def _embedding(model: PreTrainedModel) -> str:
    embedding = model.get_input_embeddings()
    return next((f"{name}.weight" for name, module in model.named_modules() if module is embedding), "")
