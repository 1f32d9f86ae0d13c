"""A GGUF file -> a checkpoint folder. In: the file. Out: a bf16 folder that transformers loads. Runs in the process that fetches."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from inference.events import Loading, Report


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Lets transformers, which reads a file's 49,152 words three times and builds the table of tensor names 397 times, do each once."""
    import gguf

    functions = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map") if hasattr(gguf, name)}
    for name, function in functions.items():
        setattr(gguf, name, functools.cache(function))
    try:
        yield
    finally:
        for name, function in functions.items():
            setattr(gguf, name, function)


def convert(gguf: Path, out: Path, report: Report) -> None:
    """Write the model in the file `gguf` as a bf16 checkpoint with its tokenizer to the folder `out`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with parsed_once():
        report(Loading("restoring its tokenizer (once)", 1, 3, "steps"))
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        report(Loading("restoring its weights (once)", 2, 3, "steps"))
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    report(Loading("saving it to the cache (once)", 3, 3, "steps"))
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
