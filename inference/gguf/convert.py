"""A GGUF file -> a folder with safetensors, by transformers. Converting runs in the process that fetches; `check` is standard library only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from inference.cache.made import Made
from inference.errors import InferenceError
from inference.events import Loading, Report
from inference.fast import first_line
from inference.gguf import left_out
from inference.gguf.reader import kinds, parsed_once
from inference.host import machine

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


MAGIC = b"GGUF"
PART = re.compile(r"-\d{5}-of-\d{5}$")  # as llama-gguf-split names them
SPARE_BYTES = 64 * 2**20  # beside the weights: tokenizer, configuration


def check(name: str, file: Path) -> None:
    """Raise InferenceError where `file` is no GGUF file of a whole model."""
    with file.open("rb") as stream:
        start = stream.read(len(MAGIC))
    if start != MAGIC:
        own = file.suffix == ".gguf"
        what = f"no GGUF file; {'download it again' if own else 'name the folder that it is in, if it is part of a model'}"
        if start == b"vers":
            what = "a Git LFS pointer, not the file itself; run `git lfs pull`"
        raise InferenceError(f"{name} is {what}. MODEL_ID takes a model folder, a Hub id or a .gguf file.")
    if PART.search(file.stem):
        raise InferenceError(
            f"{name} is one of several parts of a model. Join them with llama.cpp's llama-gguf-split --merge and point MODEL_ID at the result."
        )


def write(name: str, file: Path, place: Made, report: Report) -> None:
    """Write the model in `file` to `place`, whose lock the caller holds, with a note of what it was; raises InferenceError."""
    import gguf

    try:
        with parsed_once():
            reader = gguf.GGUFReader(file)
            needed = 4 * sum(int(tensor.n_elements) for tensor in reader.tensors) + SPARE_BYTES
            machine.check_fits(f"Converting {name}", needed, machine.ram_available_bytes(), "Take the model's safetensors, or a smaller model.")
            with place.writing(needed) as out:
                model = convert(file, out, report)
                left_out.check_whole(reader, model)
                settings = left_out.put_in(reader, model.config, out)
                said = f"from a GGUF file, whose weights are {kinds(reader)}; its tokenizer was rebuilt from that file"
                place.write_note(out, "; ".join(filter(None, [said, settings])))
    except (ValueError, KeyError, IndexError, NotImplementedError, RuntimeError, TypeError, ImportError) as error:
        raise InferenceError(
            f"{name} is a GGUF file that can't be read ({first_line(error)}). Copy it again if it may be cut short; "
            "of a kind that transformers doesn't know, point MODEL_ID at the model's safetensors instead."
        ) from error


def convert(file: Path, out: Path, report: Report, dtype: str | None = None) -> PreTrainedModel:
    """Write the model in `file` as a checkpoint with its tokenizer to `out`, in `dtype` or the smallest one that holds every value; the model."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with parsed_once():
        report(Loading("restoring its tokenizer (once)", 1, 3, "steps"))
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
        report(Loading("restoring its weights (once)", 2, 3, "steps"))
        read = getattr(torch, dtype) if dtype else torch.float32
        model, info = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False, dtype=read, output_loading_info=True)
    if info["missing_keys"]:
        raise ValueError(f"it lacks {sorted(info['missing_keys'])[0]}")
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    report(Loading("saving it to the cache (once)", 3, 3, "steps"))
    (model if dtype else model.to(_smallest(model))).save_pretrained(out)
    tokenizer.save_pretrained(out)
    return model


def _smallest(model: PreTrainedModel) -> torch.dtype:
    """The smallest dtype that holds every value of the model exactly."""
    import torch

    narrow = (torch.bfloat16, torch.float16)
    return next((dtype for dtype in narrow if all(torch.equal(one.to(dtype).float(), one) for one in model.parameters())), torch.float32)
