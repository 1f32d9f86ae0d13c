"""A folder -> the tokenizer that gives the ids of the folder's own tokenizer.json, and which of its ids are marks. Knows no prompt and no model.

For an old class name transformers 5 builds a tokenizer anew out of the vocabulary and leaves the file's other rules out. So the file is
read as it stands, and where AutoTokenizer gives other ids, or writes them otherwise, that is said.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import is_protobuf_available, is_sentencepiece_available

from inference import ends
from inference.errors import InferenceError
from inference.fast import first_line

log = logging.getLogger(__name__)
TURN_ENDS = ("<|im_end|>", "<end_of_turn>", "<turn|>", "<|eot_id|>", "<|end|>", "<|eom_id|>", "<|endoftext|>", "</s>")
MESSAGE_END, ANSWER_END = "<|end|>", "<|return|>"  # gpt-oss thinks in a message of its own: where the second is known, the first ends no answer
NAMED = ("bos_token", "eos_token", "pad_token", "unk_token")
AS_SHOWN = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
PROBES = (
    "hello good morning, may i see the menu?", "2023 12345 1,234.50", "  two  spaces\tand a tab ", "first\nsecond\n\n\nlast\r\n", "def f(x):\n    return x[0] != 'a'\n",
    "It's we'll DON'T", "café cafe\u0301 Ａ ﬁ naïve ÅÄÖ", "안녕하세요 메뉴 你好，世界 مرحبا नमस्ते", "🚀 👩‍👩‍👧‍👦 \u200b\u00a0x", "snake_case camelCase a1b2 #@$%^&*() <tag> {{x}}", "x" * 40,
)  # fmt: skip
PLAIN = (PROBES[0], PROBES[1], PROBES[6])  # with no space that is read otherwise here and there by everybody
SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
BY_AUTO = "the ids are those of that class"


def read(folder: Path) -> tuple[PreTrainedTokenizerBase, str | None]:
    """The tokenizer, and what must be said of it; raises whatever tokenizers and transformers raise for a folder without a usable one."""
    if not (folder / "tokenizer.json").exists():
        found = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        return found, unlike_its_model(folder, found)
    try:
        auto = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - code of its own, a class that is gone: the file itself decides
        log.warning("AutoTokenizer can't read %s: %s", folder, error)
        return PreTrainedTokenizerFast.from_pretrained(
            folder
        ), f"AutoTokenizer can't read this folder ({first_line(error)}); the ids are those of its tokenizer.json"
    if type(auto) is PreTrainedTokenizerFast:  # it has read the file itself
        return auto, None
    own = PreTrainedTokenizerFast.from_pretrained(folder)
    for name in NAMED:  # a class has names of its own for marks
        token = getattr(auto, name, None)
        if token and not getattr(own, name, None) and token in own.get_vocab():
            setattr(own, name, token)
    other = _differs(own, auto)
    if not other:
        return own, None
    return own, f"AutoTokenizer gives other {other} (as {type(auto).__name__}) than the folder's tokenizer.json; the {other} are those of the file"


def unlike_its_model(folder: Path, found: PreTrainedTokenizerBase) -> str | None:
    """What must be said where transformers, which builds a tokenizer of a sentencepiece file anew, leaves rules of that file out; None for nothing."""
    file = next((folder / name for name in SENTENCEPIECE if (folder / name).exists()), None)
    if file is None or not is_sentencepiece_available():
        return None
    import sentencepiece

    try:
        itself = sentencepiece.SentencePieceProcessor(model_file=str(file))
    except RuntimeError:  # one of tiktoken's has that name too
        return None
    known = [text for text in PLAIN if itself.unk_id() not in itself.encode(text)]  # of an unknown letter it gives the letter as a piece
    if all(found.tokenize(text) == itself.encode(text, out_type=str) for text in known):
        return None
    return f"{type(found).__name__} of transformers gives other ids than the folder's {file.name}; {BY_AUTO}"


def lent_names(tokenizer: PreTrainedTokenizerBase, note: str | None) -> bool:
    """Whether a tokenizer of which `note` must be said has names for its marks that the class that reads these ids in plain code doesn't know."""
    return rebuilt(note) != "AutoTokenizer" and any(getattr(tokenizer, name, None) and name not in tokenizer.init_kwargs for name in NAMED)


def lacking(folder: Path) -> list[str]:
    """The packages that aren't here and without which the folder's tokenizer can't be read: those for one that is a tokenizer.model only."""
    if (folder / "tokenizer.json").exists() or not (folder / "tokenizer.model").exists():
        return []
    return [name for name, here in (("sentencepiece", is_sentencepiece_available()), ("protobuf", is_protobuf_available())) if not here]


def _differs(own: PreTrainedTokenizerBase, other: PreTrainedTokenizerBase) -> str:
    """What `other` gives otherwise than `own` (ids, or texts of the same ids) for texts of many kinds, all added tokens of `own` among them; empty for nothing."""
    names = [token.content for token in own.added_tokens_decoder.values()]
    texts = (*PROBES, "a" + " b".join(names), "a" + "b".join(names) + "b")  # right after a mark, a class may set a space of its own
    try:
        if any(other(text)["input_ids"] != own(text)["input_ids"] for text in texts):
            return "ids"
        answers = [own(text, add_special_tokens=False)["input_ids"] for text in texts]
        return "texts" if any(other.decode(ids, **AS_SHOWN) != own.decode(ids, **AS_SHOWN) for ids in answers) else ""
    except Exception as error:  # noqa: BLE001 - what was rebuilt may lack the unknown token that its class counts on
        log.warning("%s can't read every text: %s", type(other).__name__, error)
        return "ids"


def rebuilt(note: str | None) -> str:
    """The class that gives the same ids in plain code, for a tokenizer of which `note` must be said."""
    return "PreTrainedTokenizerFast" if note and not note.endswith(BY_AUTO) else "AutoTokenizer"


def special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id of a special token."""
    return frozenset(tokenizer.all_special_ids) | {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}


def end_ids(tokenizer: PreTrainedTokenizerBase, *configs: Any) -> frozenset[int]:
    """Every id that ends an answer: the tokenizer's, the configs' and the turn-end marks in the vocabulary. Raises InferenceError for ids that are none."""
    found: set[int] = set()
    for source in (tokenizer, *configs):
        value = getattr(source, "eos_token_id", None)
        ids = value if isinstance(value, list | tuple) else [] if value is None else [value]
        if not all(type(token_id) is int for token_id in ids):
            raise InferenceError(f"The model's eos_token_id is {value!r}, no id nor a list of ids. Correct it in config.json or generation_config.json.")
        found.update(ids)
    special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
    vocabulary = tokenizer.get_added_vocab()
    marks = [mark for mark in TURN_ENDS if mark != MESSAGE_END or ANSWER_END not in vocabulary]
    found.update(vocabulary[mark] for mark in marks if mark in vocabulary and vocabulary[mark] in special)
    return frozenset(found)


def hidden_ids(tokenizer: PreTrainedTokenizerBase, end: frozenset[int], turn: frozenset[int]) -> frozenset[int]:
    """Ids that are no text of an answer: ends, turn marks, start and padding. A special token of the fine-tune's own is text."""
    named = {tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id} - {None}
    filling = {token_id for token_id in special_ids(tokenizer) if not ends.readable(tokenizer.convert_ids_to_tokens(token_id) or "")}
    return frozenset(end | turn | named | filling)
