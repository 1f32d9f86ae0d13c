"""Which of a checkpoint's files are read. In: a folder. Out: paths. Standard library only."""

from __future__ import annotations

import json
from pathlib import Path

# the first of these that is there is what transformers reads; an index names its files
SINGLE_OR_INDEX = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")  # what peft writes
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")  # one of them is there once a download has ended


def weights_files(folder: Path) -> list[Path]:
    """The files that the model's weights are read from, as transformers chooses them; others beside them don't count."""
    chosen = next((folder / name for name in SINGLE_OR_INDEX if (folder / name).exists()), None)
    if chosen is None:
        return sorted(folder.glob("*.safetensors"))
    if chosen.suffix != ".json":
        return [chosen]
    return [folder / name for name in sorted(set(json.loads(chosen.read_text())["weight_map"].values()))]
