"""Other formats -> a folder with safetensors, made once: a GGUF file, and a folder of pickles (pytorch_model.bin) where a setting allows it.

In: the file or folder. Out: a checkpoint in our cache and what its weights were. A pickle can run code while it is read: only tensors are
let through. Converting runs in the process that fetches; what a lane's process asks of a name is standard library only.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
import mmap
import re
import shutil
import struct
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.cache.made import Made
from inference.errors import InferenceError, Refused
from inference.events import Loading, Report
from inference.fast import first_line
from inference.host import machine
from inference.sources import files

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel

MAGIC = b"GGUF"
STRING, LIST = 8, 9  # kinds of values in a GGUF file's metadata; the others by their bytes
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
PART = re.compile(r"-\d{5}-of-\d{5}$")  # as llama-gguf-split names them
INDEX = "model.safetensors.index.json"
SPARE_BYTES = 64 * 2**20  # beside the weights: tokenizer, configuration
TOLD = 0.005  # of all weights; what fewer are stored as is not worth a word
DENSE = {"llama", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "starcoder2", "stablelm", "nemotron"}  # each tensor of theirs is one of the model's
IN_PART = {"phi3", "stablelm", "nemotron"}  # may rotate the first columns of a head only
BY_ROWS = {("gemma2", 46), ("gemma3", 62)}  # the 27B ones, told by their layers: no key says that their attention is scaled by hidden / heads


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Lets transformers, which reads a file's 49,152 words three times and builds the table of tensor names 397 times, do each once, of a sound file."""
    import gguf

    functions = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map") if hasattr(gguf, name)}
    for name, function in functions.items():
        setattr(gguf, name, functools.cache(functools.partial(_sound, function) if name == "GGUFReader" else function))
    try:
        yield
    finally:
        for name, function in functions.items():
            setattr(gguf, name, function)


def _sound(read: Callable[[str | Path], Any], file: str | Path) -> Any:
    """The file as `read` has it; raises ValueError for one that claims more than it holds, at which that would count for ever, or whose tensors overlap."""
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as held:
        try:
            at, _ = 24, struct.unpack_from("<4sI", held)
            for _ in range(struct.unpack_from("<Q", held, 16)[0]):
                at = _after(held, STRING, at)
                at = _after(held, struct.unpack_from("<I", held, at)[0], at + 4)
        except struct.error:
            raise ValueError("it claims more than it holds") from None
    found = read(file)
    places = sorted((int(tensor.data_offset), int(tensor.data_offset + tensor.n_bytes)) for tensor in found.tensors)
    if any(end > begin for (_, end), (begin, _) in pairwise(places)):
        raise ValueError("its tensors overlap")
    return found


def _after(held: mmap.mmap, kind: int, at: int) -> int:
    """Where a value of the metadata at `at` ends; raises struct.error past the file's end, ValueError for a kind that there is none of."""
    if kind in WIDTHS:
        at += WIDTHS[kind]
    elif kind == STRING:
        at += 8 + int(struct.unpack_from("<Q", held, at)[0])
    elif kind == LIST:
        inner, count = struct.unpack_from("<IQ", held, at)
        at += 12
        if inner in WIDTHS:
            at += WIDTHS[inner] * count
        else:
            for _ in range(count):
                at = _after(held, inner, at)
    else:
        raise ValueError(f"a value of the kind {kind}")
    struct.unpack_from("<0s", held, min(at, len(held) + 1))  # no further than the file
    return at


def check_gguf(name: str, file: Path) -> None:
    """Raise InferenceError where `file` is no GGUF file of a whole model."""
    with file.open("rb") as stream:
        start = stream.read(len(MAGIC))
    if start != MAGIC:
        what = "a Git LFS pointer, not the file itself; run `git lfs pull`" if start == b"vers" else "no GGUF file; download it again"
        raise InferenceError(f"{name} is {what}. MODEL_ID takes a model folder, a Hub id or a .gguf file.")
    if PART.search(file.stem):
        raise InferenceError(
            f"{name} is one of several parts of a model. Join them with llama.cpp's llama-gguf-split --merge and point MODEL_ID at the result."
        )


def write_gguf(name: str, file: Path, place: Made, report: Report) -> None:
    """Write the model in `file` to `place`, whose lock the caller holds, with a note of what it was; raises InferenceError."""
    import gguf

    try:
        with parsed_once():
            reader = gguf.GGUFReader(file)
            needed = 4 * sum(int(tensor.n_elements) for tensor in reader.tensors) + SPARE_BYTES
            machine.check_fits(f"Converting {name}", needed, machine.ram_available_bytes(), "Take the model's safetensors, or a smaller model.")
            with place.writing(needed) as out:
                model = convert_gguf(file, out, report)
                _check_whole(reader, model)
                settings = _put_in(reader, model.config, out)
                said = f"from a GGUF file, whose weights are {_kinds(reader)}; its tokenizer was rebuilt from that file"
                place.write_note(out, "; ".join(filter(None, [said, settings])))
    except (ValueError, KeyError, IndexError, NotImplementedError, RuntimeError, TypeError, ImportError) as error:
        raise InferenceError(
            f"{name} is a GGUF file that can't be read ({first_line(error)}). Copy it again if it may be cut short; "
            "of a kind that transformers doesn't know, point MODEL_ID at the model's safetensors instead."
        ) from error


def _kinds(reader: Any) -> str:
    """The types of a file's weights with their shares, the most frequent first."""
    counts = Counter[str]()
    for tensor in reader.tensors:
        counts[tensor.tensor_type.name] += int(tensor.n_elements)
    shares = [(kind, count / counts.total()) for kind, count in counts.most_common()]
    return ", ".join(kind if share > 1 - TOLD else f"{kind} ({100 * share:.0f} %)" for kind, share in shares if share >= TOLD)


def _put_in(reader: Any, config: PretrainedConfig, out: Path) -> str:
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
    architecture = _said(reader, "general.architecture")
    if architecture == "gpt-oss":  # of which transformers reads them
        return {}
    before: dict[str, Any] = dict(getattr(config, "rope_parameters", None) or {})
    parameters = copy.deepcopy(before)
    rotary = parameters.get("full_attention", parameters)  # windows are never stretched
    if "rope_theta" in rotary:
        rotary |= _rotated(reader, architecture, config, rotary)
    rotary |= _stretched(reader, architecture, rotary)
    found: dict[str, Any] = {} if parameters == before else {"rope_parameters": parameters}
    window = _said(reader, f"{architecture}.attention.sliding_window")
    if architecture == "phi3" and window and config.sliding_window != window:
        found["sliding_window"] = int(window)
    if (architecture, config.num_hidden_layers) in BY_ROWS:
        found["query_pre_attn_scalar"] = config.hidden_size // config.num_attention_heads
    return found


def _check_whole(reader: Any, model: PreTrainedModel) -> None:
    """Raise ValueError where the file has tensors that the model has no place for: biases, norms of heads."""
    import gguf

    architecture = _said(reader, "general.architecture")
    if architecture not in DENSE:
        return
    kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, model.config.num_hidden_layers)
    known = {names.get_name(name, (".weight", ".bias")) for name in model.state_dict()}
    left = sorted(tensor.name for tensor in reader.tensors if tensor.name not in known and not tensor.name.startswith("rope_f"))
    if left:
        raise ValueError(f"it has {len(left)} tensors that transformers leaves out, the first of them {left[0]}")


def _said(reader: Any, key: str) -> Any:
    """What the file says under `key`; None where it doesn't."""
    return reader.fields[key].contents() if key in reader.fields else None


def _rotated(reader: Any, architecture: str, config: PretrainedConfig, rotary: dict[str, Any]) -> dict[str, Any]:
    """The base of the frequencies, and the part of a head that is rotated, where they are others than in `rotary`."""
    found: dict[str, Any] = {}
    base, columns = (_said(reader, f"{architecture}.rope.{name}") for name in ("freq_base", "dimension_count"))
    if base and not math.isclose(base, rotary["rope_theta"], rel_tol=1e-6):
        found["rope_theta"] = float(base)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if architecture in IN_PART and columns and int(head * rotary.get("partial_rotary_factor", 1.0)) != columns:
        found["partial_rotary_factor"] = columns / head
    return found


def _stretched(reader: Any, architecture: str, rotary: dict[str, Any]) -> dict[str, Any]:
    """The rotary scaling, empty for none."""
    kind, factor = (_said(reader, f"{architecture}.rope.scaling.{name}") for name in ("type", "factor"))
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


def convert_gguf(file: Path, out: Path, report: Report, dtype: str | None = None) -> PreTrainedModel:
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


def pickled(folder: Path) -> bool:
    """Whether the weights that transformers would read from `folder` are pickles."""
    return any(file.suffix == ".bin" for file in files.weights_files(folder))


def pickles_refused(name: str) -> Refused:
    """The sentence for pickles where they are not allowed."""
    return Refused(
        f"{name} has its weights as pickle files (pytorch_model.bin), which can run code when they are read. Save it again as safetensors "
        "(from_pretrained, then save_pretrained), or set ALLOW_PICKLE=on if you trust whoever made it."
    )


def write_pickled(name: str, folder: Path, place: Made, report: Report) -> None:
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
