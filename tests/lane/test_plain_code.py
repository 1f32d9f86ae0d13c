"""The program that a record prints gives the text that the lane showed; plain generate gives the lane's tokens."""

import contextlib
import io
import json
import re

import pytest
from transformers import AutoTokenizer

from inference.bench.plain import Generate
from inference.bench.table import bench_table
from inference.events import Hello, Request
from inference.host.child import ROOT
from inference.lane.source import Source
from inference.lane.text import Encoder
from inference.progress import Progress
from inference.record.build import build_record
from inference.record.reproduce import script
from inference.record.table import text_table
from inference.settings import Settings
from inference.sources import files
from inference.status import LaneStatus
from inference.timing import Stopwatch
from tests.lane.test_template import ORDINARY, PARTS
from tests.lane.test_tokens import byte_level, write
from tests.support.adapters import lora, make_adapter
from tests.support.kinds import change_config
from tests.support.real import loaded_lane
from tests.support.says import make_says
from tests.support.tiny import TEXTS, make_checkpoint, make_tokenizer

LANES = ("cpu:fp32", "cpu:nf4")
ASKED = Request("hello good morning", max_new_tokens=12)


def record_of(lane, request):
    """The record of one run of a lane in this process."""
    run = Progress(0.0)
    for event in lane.generate("r", request, lambda: False):
        run = run.apply(event, 0.0)
    seen = LaneStatus(lane.name, lane.name, "ready", None, True, Hello(lane.name, "cpu", {}, {}), lane.facts, lane.now().load, None, 0)
    return build_record([seen], request, "in-turn", {lane.name: [run]})


def printed(record):
    """What the record's program for its one lane prints."""
    (lane,) = record.lanes.values()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(script(record, lane), {})
    return out.getvalue()[:-1]


def shown(record):
    (lane,) = record.lanes.values()
    return lane.runs[-1].text


def with_penalty(folder):
    made = make_checkpoint(folder)
    (made / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.3, "use_cache": False, "min_new_tokens": 9, "eos_token_id": 1}))
    return made, ASKED


def with_typed_marks(folder):
    return make_checkpoint(folder), Request("<bos>Hi<end_of_turn>", system="a <eos>", max_new_tokens=6)


def with_two_start_marks(folder):
    return make_checkpoint(folder), Request("<bos><bos>Hi", format="raw", max_new_tokens=6)


def with_parts(folder):
    made = make_checkpoint(folder)
    (made / "chat_template.jinja").write_text(PARTS)
    return made, ASKED


def with_an_old_class_name(folder):
    return write(make_checkpoint(folder), byte_level(), "GPT2Tokenizer"), Request("2023 12345", format="raw", max_new_tokens=6)


def with_a_start_mark_that_only_an_old_class_names(folder):
    """Its template began with nothing in the printed program, and with <bos> in the lane."""
    made = write(make_checkpoint(folder), byte_level(), "GemmaTokenizer")
    config = json.loads((made / "tokenizer_config.json").read_text())
    (made / "tokenizer_config.json").write_text(json.dumps({key: value for key, value in config.items() if key != "bos_token"}))
    return made, ASKED


def with_marks_of_its_own(folder):
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["<start_of_turn>", "<end_of_turn>", "<refuse>"]})
    tokenizer.add_tokens(["<|order|>"])
    marks = tokenizer.convert_tokens_to_ids(["<refuse>", "<|order|>", "<end_of_turn>"])
    return make_says(folder, tokenizer, [Encoder(tokenizer).encode(ASKED).ids[-1], *marks]), ASKED


def with_an_adapter_beside(folder):
    """As one merges into the training's own folder: transformers puts the adapter on top of the merged weights once more."""
    made = make_checkpoint(folder / "base")
    make_adapter(folder / "adapter", made, lora(r=8, lora_alpha=256))
    for name in files.ADAPTER:
        (folder / "adapter" / name).rename(made / name)
    return made, ASKED


def with_another_attention(folder):
    return change_config(make_checkpoint(folder), _attn_implementation="flash_attention_2"), ASKED


KINDS = (
    with_penalty,
    with_typed_marks,
    with_two_start_marks,
    with_parts,
    with_an_old_class_name,
    with_a_start_mark_that_only_an_old_class_names,
    with_marks_of_its_own,
    with_an_adapter_beside,
    with_another_attention,
)


@pytest.fixture(scope="module", params=LANES)
def name(request):
    return request.param


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def made(request, name, tmp_path_factory):
    """A checkpoint, what it was asked, and the record of its answer on one lane."""
    folder, asked = request.param(tmp_path_factory.mktemp("made") / "m")
    return folder, asked, record_of(loaded_lane(name, str(folder)), asked)


def test_the_printed_program_gives_the_shown_text(made):
    *_, record = made
    assert shown(record) and printed(record) == shown(record)


def test_plain_generate_gives_the_lanes_tokens_text_and_note(made, name):
    folder, asked, record = made
    (lane,) = record.lanes.values()
    source, way, watch = Source(name, Settings(model_id=str(folder))), Generate(name), Stopwatch()
    source.read(lambda _: None)
    facts = source.complete(way.load(source, lambda _: None)[0], way.model)
    watch.start()
    answer = way.answer(source, asked, source.encode(asked).ids, watch)
    assert (answer.token_ids, answer.text, answer.finish_reason) == (lane.runs[0].token_ids, lane.runs[0].text, lane.runs[0].finish_reason)
    assert facts.note == lane.note and way.model.generation_config.use_cache


def test_a_mark_that_is_the_whole_answer_is_an_answer(tmp_path):
    """`<refuse>` was once "No text produced ... a fault of the lane", and never what was expected."""
    folder, request = with_marks_of_its_own(tmp_path / "m")
    for name in LANES:
        (lane,) = record_of(loaded_lane(name, str(folder)), request).lanes.values()
        (run,) = lane.runs
        assert (run.text, run.finish_reason, run.error, run.new_tokens) == ("<refuse><|order|>", "stop", None, 3)


def test_settings_left_out_stand_in_the_record_its_table_and_the_bench(tmp_path):
    folder, request = with_penalty(tmp_path / "m")
    record = record_of(loaded_lane("cpu:fp32", str(folder)), request)
    (lane,) = record.lanes.values()
    assert "repetition_penalty=1.3" in lane.note and "use_cache=false" in lane.note and record.model.note == lane.note
    assert "repetition_penalty=1.3" in " ".join(text_table(record).split())
    figures = {"path": "eager", "n": 1}
    result = {"plain": figures, "ours": figures, "peers": {}, "ratio": {}, "tokens_equal": True,
              "tokens_against": "plain generate", "fork": None, "distinct_tokens": 3, "note": lane.note}  # fmt: skip
    assert "left out on every side: min_new_tokens=9, repetition_penalty=1.3" in " ".join(bench_table({"lanes": {"cpu:fp32": result}}).split())


def test_an_ordinary_prompt_is_printed_by_the_tokenizers_own_call(tmp_path):
    folder = make_checkpoint(tmp_path / "m")
    record = record_of(loaded_lane("cpu:fp32", str(folder)), ASKED)
    (lane,) = record.lanes.values()
    assert lane.runs[0].prompt_ids is None and lane.tokenizer == "AutoTokenizer" and "tokenizer.apply_chat_template(" in script(record, lane)


def test_the_default_models_prompts_have_the_ids_of_its_own_template(default_folder):
    tokenizer = AutoTokenizer.from_pretrained(default_folder)
    encoder = Encoder(tokenizer)
    prompts = json.loads((ROOT / "examples" / "prompts.json").read_text("utf-8"))
    for prompt in [*prompts, *ORDINARY, *TEXTS]:
        messages = [{"role": "user", "content": prompt}]
        assert encoder.encode(Request(prompt)) == (
            tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"],
            "chat",
            True,
        )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (with_an_adapter_beside, "an adapter lies beside the whole weights .* plain code puts it on"),
        (with_another_attention, "flash_attention_2.* computed by sdpa"),
    ],
)
def test_what_plain_code_would_do_otherwise_is_told(kind, words, tmp_path):
    folder, _ = kind(tmp_path / "m")
    assert re.search(words, loaded_lane("cpu:fp32", str(folder)).facts.note)
