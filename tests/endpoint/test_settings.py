"""Where a server is stands in the environment alone, is checked where a lane uses it, and is in no text made of the settings."""

from __future__ import annotations

import pytest

from inference.endpoints import Endpoint, endpoints_of
from inference.errors import InferenceError, WrongArguments
from inference.lanes import LaneName
from inference.settings import Settings, from_env
from tests.support.false_server import KEY

URL = "https://far.example:8443/v1"
FAR = {
    "LANES": "endpoint:far-one,cpu:fp32",
    "ENDPOINT_FAR_ONE_URL": URL,
    "ENDPOINT_FAR_ONE_MODEL": "m",
    "ENDPOINT_FAR_ONE_TITLE": "Far",
    "ENDPOINT_FAR_ONE_KEY": KEY,
}


def test_a_server_is_read_from_its_variables_and_survives_the_trip_to_a_child_process():
    settings = from_env({**FAR, "ENDPOINT_FAR_ONE_TIMEOUT": "90", "ENDPOINT_OTHER_URL": "no address"})
    assert settings.endpoint("endpoint:far-one") == Endpoint("far-one", URL, "m", "Far", KEY, 90)
    assert settings.servers == ("endpoint:far-one",) and settings.title_of("endpoint:far-one") == "Far" and not settings.title_of("cpu:fp32")
    assert from_env(settings.to_env()) == settings


def test_neither_address_nor_key_is_in_a_text_made_of_settings():
    settings = from_env(FAR)
    for text in (str(settings), repr(settings), repr(settings.endpoints)):
        assert KEY not in text and "far.example" not in text and "Far" in text


@pytest.mark.parametrize(("variables", "words"), [
    ({"ENDPOINT_FAR_ONE_URL": ""}, "needs ENDPOINT_FAR_ONE_URL"),
    ({"ENDPOINT_FAR_ONE_URL": "far.example/v1"}, "ENDPOINT_FAR_ONE_URL must be a whole address"),
    ({"ENDPOINT_FAR_ONE_URL": "file:///etc/passwd"}, "ENDPOINT_FAR_ONE_URL must be a whole address"),
    ({"ENDPOINT_FAR_ONE_URL": "http://[::1/v1"}, "ENDPOINT_FAR_ONE_URL must be a whole address"),
    ({"ENDPOINT_FAR_ONE_URL": f"https://me:{KEY}@far.example/v1"}, "Put the key into ENDPOINT_FAR_ONE_KEY"),
    ({"ENDPOINT_FAR_ONE_KEY": "sk-with\na-line"}, "ENDPOINT_FAR_ONE_KEY holds signs"),
    ({"ENDPOINT_FAR_ONE_TIMEOUT": "soon"}, "ENDPOINT_FAR_ONE_TIMEOUT must be from 1"),
    ({"LANES": "endpoint:Far_One"}, "Unknown lane"),
])  # fmt: skip
def test_what_can_not_be_used_is_refused_by_its_variable_and_without_its_value(variables, words):
    with pytest.raises(WrongArguments, match=words) as refused:
        from_env({**FAR, **variables})
    assert KEY not in str(refused.value) and "far.example" not in str(refused.value)


def test_a_server_that_no_lane_uses_is_not_looked_at():
    assert from_env({"ENDPOINT_FAR_ONE_URL": "nonsense"}).servers == ()
    assert [endpoint.name for endpoint in endpoints_of({"ENDPOINT__URL": "x", "ENDPOINT_A__B_URL": "x", "ENDPOINT_A_B_URL": "x"})] == ["a-b"]


def test_a_lane_that_is_a_server_has_its_name_and_no_device_or_precision_of_ours():
    lane = LaneName.parse("endpoint:far-one")
    assert lane.elsewhere and str(lane) == "endpoint:far-one" and lane.server == "far-one"
    assert not (lane.four_bit or lane.full or lane.on_cpu or lane.on_gpu or lane.automatic)
    for text in ("endpoint:", "endpoint:-a", "endpoint:a-", "endpoint:A", "endpoint:a_b", "endpoint:http://x", "endpoint:" + "a" * 41, "endpoint:a:b"):
        with pytest.raises(InferenceError, match="endpoint:NAME"):
            LaneName.parse(text)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://localhost", True),
        ("http://0.0.0.0:8000", True),
        ("http://127.0.0.1.example", False),
        (URL, False),
    ],
)
def test_an_address_of_this_machine_is_known(url, here):
    assert Endpoint("a", url).on_this_machine is here


def test_a_child_s_text_can_be_freed_of_secrets():
    assert Endpoint("a", URL, key=KEY).without_secrets(f"POST {URL}/chat with {KEY} at far.example:8443") == "POST ***/chat with *** at ***"
    assert Settings().servers == ()
