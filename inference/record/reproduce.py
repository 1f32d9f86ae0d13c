"""The code that reproduces a lane's loading, written from the record: what the model was loaded with, in today's API.

In: a record. Out: Python source and the command line, as text. Runs nothing.
"""

from __future__ import annotations

import shlex

from inference import fast
from inference.lanes import DTYPES
from inference.record.model import LaneRecord, Record, RequestRecord
from inference.record.verdict import REFERENCE


def load_call(lane: LaneRecord) -> str:
    """The `from_pretrained` call of a lane, in one line; empty where the lane was never loaded."""
    if not lane.precision:
        return ""
    dtype = _dtype(lane)
    device_map = '{"": 0}' if lane.on_gpu else '"cpu"'
    parts = [_source(lane), f"device_map={device_map}", f"dtype=torch.{dtype}"]
    if found := lane.quantization:
        double = ", bnb_4bit_use_double_quant=True" if found.get("double") else ""
        parts.append(
            f'quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="{found.get("type")}", bnb_4bit_compute_dtype=torch.{dtype}{double})'
        )
    return f"AutoModelForCausalLM.from_pretrained({', '.join(parts)})"


def _source(lane: LaneRecord) -> str:
    """The name to load from, as a literal; a shape's weights have none but the folder that they were written to."""
    name = lane.model_id or ""
    return _literal(name.replace("shape:", "folder/of/shape-", 1) if name.startswith("shape:") else name)


def _dtype(lane: LaneRecord) -> str:
    if lane.quantization:
        return str(lane.compute_dtype).split(",")[0].split()[0]
    return DTYPES.get((lane.precision or "").lower(), "float32")


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def script(record: Record, lane: LaneRecord) -> str:
    """A whole program for one lane: load, ask, print. It decodes the plain way and prints the text that the lane shows of these ids."""
    tokenizer = lane.tokenizer or "AutoTokenizer"
    names = ["AutoModelForCausalLM", tokenizer, *(["BitsAndBytesConfig"] if lane.quantization else []), "GenerationConfig"]
    return "\n".join(
        [
            *([f"# {lane.note}"] if lane.note else []),
            "import torch",
            f"from transformers import {', '.join(names)}",
            "",
            f"tokenizer = {tokenizer}.from_pretrained({_source(lane)})",
            f"model = {load_call(lane)}",
            *_inputs(record.request, lane),
            f"settings = GenerationConfig(max_new_tokens={record.request.max_new_tokens}, do_sample=False, eos_token_id={list(lane.end_ids) if lane.end_ids else None}, pad_token_id=0)",
            "model.generation_config = settings  # the checkpoint's own settings are left out",
            "output = model.generate(**inputs, generation_config=settings)",
            f"marks = {list(lane.hidden_ids or ())}  # of the beginning, the end and the turns",
            'answer = [token for token in output[0, inputs["input_ids"].shape[1]:].tolist() if token not in marks]',
            "print(tokenizer.decode(answer, clean_up_tokenization_spaces=False))",
        ]
    )


def _inputs(request: RequestRecord, lane: LaneRecord) -> list[str]:
    """The lines that make `inputs`: by the tokenizer's own call where that gives the run's ids, else the ids themselves."""
    if lane.shown_run and lane.shown_run.prompt_ids:
        ids = f"torch.tensor([{list(lane.shown_run.prompt_ids)}], device=model.device)"
        return [
            f"ids = {ids}  # those of the run: the tokenizer's own call may give others",
            'inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}',
        ]
    if request.format == "chat":
        system = f'{{"role": "system", "content": {request.system!r}}}, ' if request.system else ""
        messages = f'[{system}{{"role": "user", "content": {request.prompt!r}}}]'
        ids = f'tokenizer.apply_chat_template({messages}, add_generation_prompt=True, return_dict=True, return_tensors="pt")'
    else:
        text = f"{request.system}\n{request.prompt}" if request.system else request.prompt
        ids = f'tokenizer({text!r}, return_tensors="pt")'
    return [f"inputs = {ids}.to(model.device)"]


def command(record: Record) -> str:
    """The command line that makes this comparison again."""
    request = record.request
    words = ["python", "-m", "inference", "compare", f"--prompt={request.prompt}", "--lanes", ",".join(record.lanes)]
    words += ["--max-new-tokens", str(request.max_new_tokens), "--mode", request.mode]
    for flag, key, default in (
        ("--system", "system", ""),
        ("--format", "format", "chat"),
        ("--temperature", "temperature", 0),
        ("--seed", "seed", 0),
        ("--repeats", "repeats", 1),
    ):
        if (value := getattr(request, key)) != default:
            words.append(f"{flag}={value}")
    if model := record.model.id:
        words.append(f"--model={model}")
    full = record.lanes[REFERENCE].model_id if REFERENCE in record.lanes else None
    separate = f"CPU_MODEL_ID={shlex.quote(full)} " if full and full != model else ""
    return separate + _switch(record) + shlex.join(words)


def _switch(record: Record) -> str:
    """FAST as it stood: the ways of these lanes less those that were switched off; nothing where none was."""
    off = {name for lane in record.lanes.values() for name, reason in (lane.fast_why_not or {}).items() if reason == fast.OFF}
    allowed = [name for name, way in fast.WAYS.items() if name not in off and not record.lanes.keys().isdisjoint(way.lanes)]
    return f"FAST={','.join(allowed) or 'none'} " if off else ""
