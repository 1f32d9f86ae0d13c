"""A shape: a model's configuration without its weights, filled with seeded random ones.

In: a JSON under `examples/shapes/` (`config` for transformers, `scale` for the weights, `seed`). Out: a checkpoint
folder with the small model's tokenizer, for measuring speed at that size; its text is noise and is marked so.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.cache import manifest
from inference.cache.cache import Cache, Entry
from inference.cache.manifest import State
from inference.errors import InferenceError
from inference.events import Loading
from inference.settings import no_shape, shape_file, shape_names

if TYPE_CHECKING:
    from torch import nn

MARK = "shape.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "vocab.json", "merges.txt")


def entry(name: str, cache: Cache) -> Entry:
    """Where shape `name`'s folder is, or will be; raises InferenceError if there is no such shape."""
    if name not in shape_names():
        raise InferenceError(no_shape(name))
    return cache.entry("shapes", name)


def state(folder: Path) -> State:
    """How the folder of the shape of that name is found."""
    return manifest.state(folder, _read(folder.name))


def write(entry: Entry, tokenizer: Path, report: Callable[[Loading], None]) -> None:
    """Make the checkpoint folder at `entry`, whose lock the caller holds; raises InferenceError where the disk is full."""
    name = entry.path.name
    shape = _read(name)
    report(Loading(f"writing random weights of {name}'s shape (once)"))
    with entry.building(_bytes(shape)) as temporary:
        out = temporary / name
        _random_model(shape).save_pretrained(out)
        for file in TOKENIZER_FILES:
            if (tokenizer / file).exists():
                shutil.copy(tokenizer / file, out / file)
        note = f"random weights of {name}'s shape (seed {shape['seed']}): for speed only, the text is noise"
        (out / MARK).write_text(json.dumps({"shape": name, "note": note}))
        manifest.seal(out, shape)
        entry.put(out)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shape_file(name).read_text())
    return found


def _bytes(shape: dict[str, Any]) -> int:
    """What the folder will take: two bytes a weight, and some for the tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**shape["config"]))
    return 2 * model.num_parameters() + 16 * 2**20


def _random_model(shape: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**shape["config"])
    torch.manual_seed(shape["seed"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    finally:
        torch.set_default_dtype(before)
    _spread(model, shape["scale"])
    return model.cpu()


def _spread(model: nn.Module, scale: dict[str, float]) -> None:
    """Make the random model's greedy answers vary: plain tied random weights repeat one token."""
    import torch
    from torch import nn

    with torch.no_grad():
        for name, module in model.named_modules():
            if "linear" in scale and isinstance(module, nn.Linear) and name != "lm_head":
                module.weight.mul_(scale["linear"])
            if "post_norm" in scale and name.endswith(("post_attention_layernorm", "post_feedforward_layernorm")):
                module.weight.fill_(scale["post_norm"])
            if "qk_norm" in scale and name.endswith(("q_norm", "k_norm")):
                module.weight.fill_(scale["qk_norm"])
