"""What a checkpoint's files say before its weights are read: refused in a sentence, or named where nothing follows it."""

import base64
import io
import json

import pytest
import sentencepiece
from transformers import GenerationConfig

from inference.errors import InferenceError
from inference.events import Request
from inference.lane import config, tokens
from inference.lane.lane import Lane
from inference.lane.scoring import score
from inference.lane.source import Source
from inference.score_events import ScoreRequest
from inference.settings import Settings
from tests.support.real import answer, loaded_lane
from tests.support.tiny import TEXTS, make_checkpoint, make_tokenizer

LANES = ("cpu:fp32", "cpu:nf4")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "m")


@pytest.fixture
def folder(tiny, tmp_path):
    """A copy of the small checkpoint whose files a test may spoil; its weights are linked."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tiny.iterdir():
        (copy / file.name).symlink_to(file) if file.suffix == ".safetensors" else (copy / file.name).write_bytes(file.read_bytes())
    return copy


def change(file, **values):
    file.write_text(json.dumps({**(json.loads(file.read_text()) if file.exists() else {}), **values}))


def source_of(folder, lane="cpu:fp32"):
    return Source(lane, Settings(model_id=str(folder)))


def refusal(folder, lane="cpu:fp32"):
    with pytest.raises(InferenceError) as raised:
        source_of(folder, lane).read(lambda _: None)
    return str(raised.value)


@pytest.fixture
def nobody_is_asked(monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("somebody was asked on the command pipe"))


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("kind", ["own_llm", "clip"], ids=["not known", "known, but not to write text"])
def test_code_of_a_models_own_is_never_run_and_nobody_is_asked(folder, lane, kind, nobody_is_asked):
    """It once asked on the command pipe for a minute, then told something else."""
    change(folder / "config.json", model_type=kind, auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})
    (folder / "own.py").write_text("raise SystemExit('it was run')")
    told = refusal(folder, lane)
    assert f"needs code of its own (auto_map in its config.json, model type {kind}), which is never run here" in told


def test_a_model_type_that_is_not_known_is_named_with_the_version(folder, nobody_is_asked):
    change(folder / "config.json", model_type="gemma9")
    assert "model type gemma9, which is not known to transformers 5." in refusal(folder) and "Upgrade" in refusal(folder)


def test_a_configuration_without_a_model_type_is_said_to_have_none(folder):
    file = folder / "config.json"
    file.write_text(json.dumps({key: value for key, value in json.loads(file.read_text()).items() if key != "model_type"}))
    assert "names no model_type" in refusal(folder)


@pytest.mark.parametrize("lane", LANES)
def test_a_known_model_loads_with_an_auto_map_left_in_its_configuration(folder, lane, nobody_is_asked):
    change(folder / "config.json", auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})
    change(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tokenizer", None]})
    (folder / "own.py").write_text("raise SystemExit('it was run')")
    assert answer(loaded_lane(lane, str(folder)), Request("hi", max_new_tokens=2)).token_ids


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_git_lfs_pointer_is_named(folder, name):
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    told = refusal(folder)
    assert told.startswith(f"{name} of ") and "a Git LFS pointer" in told and "git lfs pull" in told


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize(("part", "words"), [(0.5, "cut off or damaged"), (0, "empty")])
def test_a_file_that_is_cut_is_named(folder, name, part, words):
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw[: int(len(raw) * part)])
    told = refusal(folder)
    assert told.startswith(f"{name} of ") and words in told


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_told(folder, name, encoding):
    """An editor on Windows had set one in generation_config.json: its ends and its settings were passed over without a word."""
    file = folder / name
    file.write_bytes((file.read_text() if file.exists() else '{"repetition_penalty": 1.3}').encode(encoding))
    assert f"{name} of {folder} is not saved as plain UTF-8 but with a byte order mark" in refusal(folder)


def test_a_tokenizer_model_alone_names_the_packages_that_read_it(folder, monkeypatch):
    """Another package was named once, which does not read it either."""

    def without_packages(*_, **__):
        raise ImportError("tiktoken is required to read a `tiktoken` file")

    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).unlink()
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02")
    monkeypatch.setattr(tokens.AutoTokenizer, "from_pretrained", without_packages)
    monkeypatch.setattr(tokens, "is_sentencepiece_available", lambda: False)
    monkeypatch.setattr(tokens, "is_protobuf_available", lambda: False)
    assert "tokenizer.model only" in refusal(folder) and "pip install sentencepiece protobuf" in refusal(folder)


def test_the_ids_of_a_tokenizer_model_alone_are_sentencepiece_s(folder):
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 20),
        model_writer=written,
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
    )
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(written.getvalue())
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    found, itself = source_of(folder), sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    found.read(lambda _: None)
    for text in (*TEXTS[:2], "two drinks 12 é"):
        assert found.encode(Request(text, format="raw")).ids == itself.encode(text)
    assert tokens.read(folder)[1] is None


@pytest.mark.parametrize("rule", [{"add_dummy_prefix": False}, {"normalization_rule_name": "nmt_nfkc"}], ids=str)
def test_rules_of_a_tokenizer_model_that_transformers_leaves_out_are_told(folder, rule):
    """Its class has rules of its own, whatever the file says: the model got other ids than it was trained on, without a word."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 20),
        model_writer=written,
        vocab_size=300,
        byte_fallback=True,
        minloglevel=2,
        hard_vocab_limit=False,
        **{"model_type": "bpe", "normalization_rule_name": "identity", **rule},
    )
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(written.getvalue())
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    _, note = tokens.read(folder)
    assert note.startswith("LlamaTokenizer of transformers gives other ids than the folder's tokenizer.model")
    assert tokens.rebuilt(note) == "AutoTokenizer"


def test_a_tokenizer_model_of_tiktoken_s_is_not_held_against_sentencepiece(folder):
    words = [bytes([byte]) for byte in range(256)]
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_text("".join(f"{base64.b64encode(word).decode()} {rank}\n" for rank, word in enumerate(words)))
    assert tokens.unlike_its_model(folder, make_tokenizer()) is None


# ---- ids that the model has no row for


@pytest.fixture
def larger(tmp_path):
    """A checkpoint whose tokenizer knows one token more than its embedding has rows."""
    tokenizer = make_tokenizer()
    made = make_checkpoint(tmp_path / "larger")
    tokenizer.add_tokens([f"filler{n}" for n in range(512 - len(tokenizer))] + ["<dish>"])
    tokenizer.save_pretrained(made)
    return made


@pytest.mark.parametrize("lane", LANES)
def test_a_token_that_the_embedding_has_no_row_for_is_refused_by_name_before_anything_runs(larger, lane):
    """It was an IndexError in the middle of a run; prompts without the token go on."""
    made = Lane(lane, Settings(model_id=str(larger)))
    for _ in range(2):  # before the weights are read, and after
        made.source.read(lambda _: None)
        with pytest.raises(InferenceError, match=r"token <dish> \(id 512\), and this model's embedding has 512 rows"):
            made.source.encode(Request("one <dish> please"))
        if not made.loaded:
            made.load(lambda _: None)
    assert answer(made, Request("one please", max_new_tokens=2)).token_ids
    with pytest.raises(InferenceError, match="<dish>"):
        score(made.model, made.source, lane, "s", ScoreRequest(text="one <dish> please"))


def test_a_template_with_such_a_token_leaves_raw_prompts_their_way(larger):
    (larger / "chat_template.jinja").write_text("<dish>{% for m in messages %}{{ m['content'] }}{% endfor %}")
    lane = loaded_lane("cpu:fp32", str(larger))
    with pytest.raises(InferenceError, match="<dish>"):
        lane.source.encode(Request("hi"))
    assert answer(lane, Request("hi", format="raw", max_new_tokens=2)).token_ids


def test_a_vocabulary_of_other_letters_is_warmed_up_all_the_same(folder):
    file = folder / "tokenizer.json"
    rules = json.loads(file.read_text())
    rules["model"]["vocab"] = {name: n for name, n in rules["model"]["vocab"].items() if n < 5} | {"Ġ": 5, "x": 6}
    file.write_text(json.dumps(rules | {"model": {**rules["model"], "merges": []}}))
    lane = loaded_lane("cpu:fp32", str(folder))
    assert answer(lane, Request("xx", max_new_tokens=2)).token_ids
    with pytest.raises(InferenceError, match="no token for anything"):
        lane.source.encode(Request("Hello"))


# ---- generation settings of the checkpoint's own


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"repetition_penalty": 1.3}, "repetition_penalty=1.3"),
        ({"do_sample": True, "top_k": 64, "top_p": 0.95}, "do_sample=true, top_k=64, top_p=0.95"),
        ({"no_repeat_ngram_size": 1}, "no_repeat_ngram_size=1"),
        ({"bad_words_ids": [[n] for n in range(99)]}, "bad_words_ids"),
        ({"forced_eos_token_id": 0}, "forced_eos_token_id=0"),
        ({"suppress_tokens": [7]}, "suppress_tokens=[7]"),
        ({"min_new_tokens": 1}, "min_new_tokens=1"),
        ({"use_cache": False}, "use_cache=false"),
        ({}, None),
        ({"temperature": 1.0, "repetition_penalty": 1.0, "use_cache": True, "max_length": 99, "eos_token_id": [1, 4], "cache_implementation": "hybrid"}, None),
    ],
)  # fmt: skip
def test_settings_that_would_choose_other_tokens_are_named_and_no_others(settings, words):
    found = config.ignored(None, GenerationConfig(**settings))
    assert found == (f"the checkpoint's own generation settings are left out on every side: {words}" if words else None)


def test_a_cache_that_the_configuration_alone_switches_off_is_named(folder):
    change(folder / "config.json", use_cache=False)
    change(folder / "generation_config.json", eos_token_id=1)
    assert "use_cache=false" in loaded_lane("cpu:fp32", str(folder)).facts.note


@pytest.mark.parametrize("lane", LANES)
def test_a_lane_says_which_settings_it_leaves_out(folder, lane):
    change(folder / "generation_config.json", repetition_penalty=1.3)
    assert "left out on every side: repetition_penalty=1.3" in loaded_lane(lane, str(folder)).facts.note
