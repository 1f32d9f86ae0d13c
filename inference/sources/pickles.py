"""A folder with pickled weights (pytorch_model.bin) -> one with safetensors, made once where a setting allows it.

A pickle can run code while it is read: only tensors are let through. Reading runs in the process that fetches; what a lane's process asks
of a name is standard library only.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

from inference.cache.made import Made
from inference.errors import InferenceError, Refused
from inference.events import Loading, Report
from inference.fast import first_line
from inference.sources import files

INDEX = "model.safetensors.index.json"
SPARE_BYTES = 64 * 2**20  # beside the weights: tokenizer, configuration


def pickled(folder: Path) -> bool:
    """Whether the weights that transformers would read from `folder` are pickles."""
    return any(file.suffix == ".bin" for file in files.weights_files(folder))


def pickles_refused(name: str) -> Refused:
    """The sentence for pickles where they are not allowed."""
    return Refused(
        f"{name} has its weights as pickle files (pytorch_model.bin), which can run code when they are read. Save it again as safetensors "
        "(from_pretrained, then save_pretrained), or set ALLOW_PICKLE=on if you trust whoever made it."
    )


def write(name: str, folder: Path, place: Made, report: Report) -> None:
    """Write the model in `folder` to `place`, whose lock the caller holds, tensor for tensor; raises InferenceError for what isn't tensors alone."""
    import torch
    from safetensors.torch import save_file

    sources = files.weights_files(folder)
    with place.writing(sum(file.stat().st_size for file in sources) + SPARE_BYTES) as out:
        weight_map: dict[str, str] = {}
        for number, source in enumerate(sources, 1):
            report(Loading("converting pickled weights (once)", number, len(sources), "files"))
            try:
                found = torch.load(source, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(source))
                tensors = {key: value.contiguous().clone() for key, value in found.items()}
            except Exception as error:  # unpickling raises whatever the file makes it
                raise InferenceError(
                    f"{source.name} of {name} holds more than tensors, or is damaged, and was not read ({first_line(error)}). Save it again as safetensors."
                ) from error
            file = f"model-{number:05}-of-{len(sources):05}.safetensors"
            save_file(tensors, out / file, {"format": "pt"})
            weight_map |= dict.fromkeys(tensors, file)
        (out / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        for text in files.beside_weights([file.name for file in folder.iterdir()]):
            shutil.copy(folder / text, out / text)
        place.write_note(out, "from pickle files (.bin), read as tensors only")
