"""Text arrives whole and in order whatever the ids; prompts become the same ids for every lane."""

import random

import pytest

from inference.errors import InferenceError
from inference.events import Request
from inference.lane.text import TextStream, check_length, encode, end_ids
from tests.support.tiny import make_tokenizer

TEXTS = [
    "plain words", "a rocket 🚀 and a family 👩‍👩‍👧‍👦 here", "안녕하세요 메뉴 주세요", "مرحبا بكم", "def f(x):\n    if x:\n        return 1\n\n", "two\n\nlines", "trailing   ", "  leading",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def pieces(tokenizer, ids):
    stream = TextStream(tokenizer)
    parts = [stream.add(token) for token in ids]
    return [*parts, stream.finish()], stream


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_and_together_the_one_shot_text(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    parts, stream = pieces(tokenizer, ids)
    assert "".join(parts) == stream.text == tokenizer.decode(ids, skip_special_tokens=True) == text
    assert not any("\ufffd" in part for part in parts)


def test_a_genuine_replacement_character_does_not_stall_the_stream(tokenizer):
    ids = tokenizer("a\ufffd" + "b" * 20)["input_ids"]
    parts, _ = pieces(tokenizer, ids)
    assert "".join(parts) == "a\ufffd" + "b" * 20
    assert "b" in "".join(parts[:12])


def test_stopping_inside_an_emoji_gives_the_one_shot_text(tokenizer):
    ids = tokenizer("hi 🚀")["input_ids"][:-2]
    parts, _ = pieces(tokenizer, ids)
    assert "".join(parts) == tokenizer.decode(ids, skip_special_tokens=True)


def test_random_ids_give_the_one_shot_text(tokenizer):
    generator = random.Random(0)
    for _ in range(300):
        ids = [generator.randrange(len(tokenizer)) for _ in range(40)]
        parts, stream = pieces(tokenizer, ids)
        assert stream.text == tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert "".join(parts) == stream.text


def test_special_tokens_are_hidden(tokenizer):
    ids = [*tokenizer("yes")["input_ids"], tokenizer.convert_tokens_to_ids("<end_of_turn>")]
    assert pieces(tokenizer, ids)[1].text == "yes"


def test_chat_and_raw_differ_and_say_what_was_used(tokenizer):
    chat, used = encode(tokenizer, Request("hi"))
    raw, used_raw = encode(tokenizer, Request("hi", format="raw"))
    assert (used, used_raw) == ("chat", "raw") and len(chat) > len(raw)
    assert chat[0] == tokenizer.bos_token_id and chat.count(tokenizer.bos_token_id) == 1


def test_without_a_template_chat_falls_back_to_raw_and_says_so():
    plain = make_tokenizer(with_template=False)
    assert encode(plain, Request("hi"))[1] == "raw"


def test_the_turn_end_is_an_end_even_without_a_generation_config(tokenizer):
    ends = end_ids(tokenizer)
    assert {tokenizer.convert_tokens_to_ids("<eos>"), tokenizer.convert_tokens_to_ids("<end_of_turn>")} <= ends


def test_end_ids_are_joined_from_lists_and_numbers(tokenizer):
    class Config:
        eos_token_id = [7, 8]

    assert {7, 8} <= end_ids(tokenizer, Config())


def test_a_prompt_longer_than_the_context_less_the_answer_is_refused():
    check_length(462, 50, 512)
    with pytest.raises(InferenceError, match="463 tokens"):
        check_length(463, 50, 512)
