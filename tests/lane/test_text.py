"""Text arrives whole and in order whatever the ids; prompts become the same ids for every lane."""

import random
from types import SimpleNamespace

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from inference import ends
from inference.errors import InferenceError
from inference.events import Request
from inference.lane.text import Encoder, TextStream, check_length
from inference.lane.tokens import end_ids, hidden_ids
from tests.lane.test_tokens import STYLES
from tests.support.tiny import make_tokenizer

TEXTS = [
    "plain words", "a rocket 🚀 and a family 👩‍👩‍👧‍👦 here", "안녕하세요 메뉴 주세요", "مرحبا بكم", "def f(x):\n    if x:\n        return 1\n\n", "two\n\nlines", "trailing   ", "  leading",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def hidden(tokenizer):
    return hidden_ids(tokenizer, end_ids(tokenizer), Encoder(tokenizer).turn_marks)


def one_shot(tokenizer, ids):
    """All that is not hidden, decoded at once."""
    return tokenizer.decode([token for token in ids if token not in hidden(tokenizer)], clean_up_tokenization_spaces=False)


def pieces(tokenizer, ids):
    stream = TextStream(tokenizer, hidden(tokenizer))
    parts = [stream.add(token) for token in ids]
    return [*parts, stream.finish()], stream


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_are_whole_and_together_the_one_shot_text(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    parts, stream = pieces(tokenizer, ids)
    assert "".join(parts) == stream.text == tokenizer.decode(ids, skip_special_tokens=True) == text
    assert not any("\ufffd" in part for part in parts)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("text", [*TEXTS, "🚀🚀🚀", "é🚀", "a 🚀é b", "니하오你好"])
def test_characters_that_are_bytes_in_a_row_come_whole(style, text):
    """Where a character is a token a byte, the first one of two was once shown, then replacement characters to the answer's end."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=STYLES[style]())
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    parts, stream = pieces(tokenizer, ids)
    assert "".join(parts) == stream.text == tokenizer.decode(ids) and "\ufffd" not in stream.text


@pytest.mark.parametrize("style", STYLES)
def test_bytes_that_never_become_a_character_are_shown_and_decoded_a_few_at_a_time(style):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=STYLES[style]())
    byte = tokenizer("🚀", add_special_tokens=False)["input_ids"][-1]
    decoded, plain = [], tokenizer.decode
    tokenizer.decode = lambda ids, **more: decoded.append(len(ids)) or plain(ids, **more)
    stream = TextStream(tokenizer)
    parts = [stream.add(byte) for _ in range(500)]
    assert max(decoded) < 80 and "".join(parts) == "\ufffd" * 497
    assert stream.finish() == "\ufffd" * 3


def test_a_genuine_replacement_character_does_not_stall_the_stream(tokenizer):
    ids = tokenizer("a\ufffd" + "b" * 20)["input_ids"]
    parts, _ = pieces(tokenizer, ids)
    assert "".join(parts) == "a\ufffd" + "b" * 20
    assert "b" in "".join(parts[:12])


def test_stopping_inside_an_emoji_gives_the_one_shot_text(tokenizer):
    ids = tokenizer("hi 🚀")["input_ids"][:-2]
    parts, _ = pieces(tokenizer, ids)
    assert "".join(parts) == one_shot(tokenizer, ids)


@pytest.mark.parametrize("own", [(), ("<refuse>", "<|order|>", "[DONE]")])
def test_random_ids_give_the_one_shot_text(own):
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken(mark, special=True) for mark in own])
    generator = random.Random(0)
    kept = hidden(tokenizer)
    for _ in range(300):
        ids = [generator.choice((generator.randrange(len(tokenizer)), len(tokenizer) - 1)) for _ in range(40)]
        parts, stream = pieces(tokenizer, ids)
        shown = tokenizer.decode([token for token in ids if token not in kept], clean_up_tokenization_spaces=False)
        assert stream.text == shown == stream.whole(ids) and "".join(parts) == stream.text


@pytest.mark.parametrize("mark", ["<end_of_turn>", "<start_of_turn>", "<bos>", "<eos>", "<pad>"])
def test_the_marks_of_ends_turns_and_padding_are_hidden(tokenizer, mark):
    ids = [*tokenizer("yes")["input_ids"], tokenizer.convert_tokens_to_ids(mark)]
    assert pieces(tokenizer, ids)[1].text == "yes"


@pytest.mark.parametrize("special", [True, False])
def test_a_mark_of_the_fine_tunes_own_is_text(special):
    """An answer that was such a mark alone was once called a fault of the lane."""
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([AddedToken("<refuse>", special=special), AddedToken("<|order|>", special=special)])
    ids = tokenizer.convert_tokens_to_ids(["<refuse>", "<|order|>", "<end_of_turn>"])
    text = pieces(tokenizer, ids)[1].text
    assert text == "<refuse><|order|>" and ends.readable(text)


def test_filling_that_no_name_of_the_tokenizer_tells_is_hidden_by_its_own():
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    tokenizer.add_tokens([AddedToken("<unused7>", special=True)])
    ids = tokenizer.convert_tokens_to_ids(["<pad>", "<unused7>"])
    assert pieces(tokenizer, ids)[1].text == ""


def test_chat_and_raw_differ_and_say_what_was_used(tokenizer):
    chat, used, _ = Encoder(tokenizer).encode(Request("hi"))
    raw, used_raw, _ = Encoder(tokenizer).encode(Request("hi", format="raw"))
    assert (used, used_raw) == ("chat", "raw") and len(chat) > len(raw)
    assert chat[0] == tokenizer.bos_token_id and chat.count(tokenizer.bos_token_id) == 1


def test_a_system_prompt_is_a_line_of_its_own_in_a_raw_one(tokenizer):
    assert Encoder(tokenizer).encode(Request("hi", system="Be brief.", format="raw")).ids == tokenizer("Be brief.\nhi")["input_ids"]


def test_without_a_template_chat_falls_back_to_raw_and_says_so():
    assert Encoder(make_tokenizer(with_template=False)).encode(Request("hi")).format == "raw"


def test_the_turn_end_is_an_end_even_without_a_generation_config(tokenizer):
    ends = end_ids(tokenizer)
    assert {tokenizer.convert_tokens_to_ids("<eos>"), tokenizer.convert_tokens_to_ids("<end_of_turn>")} <= ends


def test_end_ids_are_joined_from_lists_and_numbers(tokenizer):
    class Config:
        eos_token_id = [7, 8]

    assert {7, 8} <= end_ids(tokenizer, Config())


@pytest.mark.parametrize("wrong", ["1", [[1, 4]], 1.5])
def test_an_end_that_is_no_id_is_told(tokenizer, wrong):
    with pytest.raises(InferenceError, match="eos_token_id is .* Correct it in config.json or generation_config.json"):
        end_ids(tokenizer, SimpleNamespace(eos_token_id=wrong))


def test_a_message_that_another_follows_is_no_end_where_answers_have_a_mark_of_their_own():
    """gpt-oss thinks in a message of its own: its answers ended before they had begun."""
    ends = {}
    for marks in (["<|end|>"], ["<|end|>", "<|return|>"]):
        fresh = make_tokenizer()
        fresh.add_special_tokens({"extra_special_tokens": marks})
        ends[len(marks)] = fresh.convert_tokens_to_ids("<|end|>") in end_ids(fresh)
    assert ends == {1: True, 2: False}


def test_a_prompt_longer_than_the_context_less_the_answer_is_refused():
    check_length(462, 50, 512)
    with pytest.raises(InferenceError, match="463 tokens"):
        check_length(463, 50, 512)


def spelled(letters):
    """A tokenizer that knows these letters, and drops all others without a word."""
    tokenizer = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize("style", ["chat", "raw"])
def test_a_prompt_that_the_tokenizer_has_no_token_for_is_refused(style):
    """Raw it was no ids at all; in a chat it was the answer to an empty turn."""
    tokenizer = spelled("helo:")
    tokenizer.chat_template = "{% for m in messages %}: {{ m['content'] }} :{% endfor %}"
    with pytest.raises(InferenceError, match="no token for anything in the prompt"):
        Encoder(tokenizer).encode(Request("안녕", format=style))
    assert Encoder(tokenizer).encode(Request("안녕 " * 400 + "hello", format=style)).ids


def test_a_raw_prompt_of_start_marks_alone_is_one(tokenizer):
    """Each was once taken off by a copy of all others: 14 s for the longest prompt that is taken."""
    ids = Encoder(tokenizer).encode(Request("<bos>" * 40_000, format="raw")).ids
    assert ids == [tokenizer.bos_token_id]
    assert Encoder(tokenizer).encode(Request("<bos><bos><bos>Hi", format="raw")).ids == tokenizer("<bos>Hi")["input_ids"]
