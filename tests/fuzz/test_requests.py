"""Whatever a program or a form sends is a request that any lane can take, or a sentence; and a setting is one that can be used, or a sentence."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference.errors import InferenceError, WrongArguments
from inference.events import MOST_CHARACTERS, Request, request_of
from inference.settings import VARIABLES, Settings, from_env
from tests.support.hostile import changed, damaged, numbers, texts, tries, values
from ui.api import build_request
from ui.programs import calls, endpoints

SIGNATURES = endpoints.signatures()
CALL = {"data": ["hello", "", "chat", 50, 0.0, 0, "auto", False]}
likely = st.one_of(st.sampled_from(["hello", "chat", "raw"]), texts, values)


def sentence(error: BaseException) -> bool:
    """Whether a fault is told as a person can read it: some words, in a line or two that are not the input's own length."""
    text = str(error)
    return bool(text.strip()) and "Traceback" not in text and "object at 0x" not in text


@given(likely, likely, likely, st.one_of(numbers, values), st.one_of(numbers, values), st.one_of(numbers, values))
@tries(80)
def test_loose_values_are_a_request_that_crosses_to_a_lane_or_a_sentence(prompt, system, format, most, temperature, seed):
    try:
        request = build_request(prompt, system, format, most, temperature, seed)
    except InferenceError as error:
        assert sentence(error)
        return
    assert request.prompt.strip() and len(request.prompt + request.system) <= MOST_CHARACTERS
    (request.prompt + request.system).encode("utf-8")
    assert request_of("generate", json.loads(json.dumps(asdict(request), allow_nan=False))) == request


@given(texts, texts, st.integers(), st.floats(), st.integers())
@tries(80)
def test_a_request_is_checked_whole(prompt, system, most, temperature, seed):
    request = Request(prompt, system, "chat", most, temperature, seed)
    try:
        request.check()
    except WrongArguments as error:
        assert sentence(error)
    else:
        assert 1 <= most <= 4096 and 0 <= temperature <= 2 and 0 <= seed < 2**63


bodies = st.one_of(st.binary(max_size=60), changed(CALL).map(lambda call: json.dumps(call).encode()), damaged(json.dumps(CALL).encode()))


@given(bodies, st.sampled_from(sorted(SIGNATURES)), st.booleans())
@tries(80)
def test_the_body_of_a_call_is_completed_or_refused(body, name, by_name):
    try:
        call = json.loads(calls.completed(body, name, SIGNATURES[name], by_name))
    except WrongArguments as error:
        assert sentence(error)
        return
    assert len(call if by_name else call["data"]) == len(SIGNATURES[name].parameters)


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"data":' * 100_000, b'{"data": [' + b"9" * 5000 + b"]}"])
def test_a_call_that_python_can_not_read_is_refused(deep):
    with pytest.raises(WrongArguments, match="must be a JSON object"):
        calls.completed(deep, "ask", SIGNATURES["ask"], False)


@given(values)
@tries(40)
def test_a_mode_is_one_of_them_or_a_sentence(mode):
    try:
        assert endpoints.checked(mode) in ("auto", "together", "in-turn")
    except InferenceError as error:
        assert sentence(error)


likely_words = st.sampled_from(
    ["0", "1", "on", "none", "all", "cpu:fp32", "cuda:bf16", "endpoint:far", "10.0.0.0/8", "http://[::1]:8000/v1", "a:b", "shape:x", "auto"]
)
set_to = st.one_of(texts, numbers.map(str), st.lists(st.one_of(likely_words, texts), min_size=1, max_size=3).map(",".join)).filter(
    lambda text: "\x00" not in text
)
NAMES = [*VARIABLES.values(), "ENDPOINT_FAR_URL", "ENDPOINT_FAR_KEY", "ENDPOINT_FAR_TIMEOUT", "ENDPOINT__URL", "GRADIO_SHARE", "SPACE_ID"]


@given(st.dictionaries(st.sampled_from(sorted(NAMES)), set_to, min_size=1, max_size=4))
@example({"LIMIT_A_MINUTE": "0"})
@tries(80)
def test_the_environment_is_settings_or_a_sentence(environment):
    try:
        found = from_env(environment)
        found.check_shapes()
    except InferenceError as error:
        assert sentence(error)
    else:
        assert isinstance(found, Settings) and from_env(found.to_env()) == found
