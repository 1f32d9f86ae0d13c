"""Whatever is sent to the page over HTTP is answered, a fault in a sentence and without a trace; the page answers the next good call as ever."""

from __future__ import annotations

import http.client
import json
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hostile import NASTY, changed, damaged, numbers, texts, tries, values
from ui.bodies import TOO_LARGE

QUICK = {"load_s": 0, "first_s": 0.001, "token_s": 0.001, "tokens": 3}
CALL = {"data": ["hello", "", "chat", 5, 0.0, 0, "auto", False]}
NAMED = {"prompt": "hello", "format": "chat", "seed": 3}
JOIN = {"data": ["hello"], "fn_index": 60, "session_hash": "a", "event_data": None, "trigger_id": 3}
API = "/gradio_api/"
FILE = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
words = st.one_of(st.sampled_from(["compare", "ask", "quality", "press", "no-such"]), st.sampled_from([word for word in NASTY if word.isalnum()]))
names = st.sampled_from(["call/{}", "call/v2/{}", "run/{}", "api/{}"]).flatmap(lambda way: words.map(way.format))
posted = st.one_of(names, st.sampled_from(["queue/join", "cancel", "reset", "upload", "run/predict"]))
got = st.sampled_from(["call/ask/{}", "call/v2/{}/x", "queue/data?session_hash={}", "file={}", "upload_progress?upload_id={}", "heartbeat/"]).flatmap(
    lambda way: st.sampled_from(["", "none", "%00", "..%2f..%2fapp.py", "x" * 300, "%ff"]).map(way.format)
)
bodies = st.one_of(
    st.binary(max_size=60), values.map(json.dumps).map(str.encode), damaged(json.dumps(CALL).encode()), changed(CALL).map(json.dumps).map(str.encode),
    st.one_of(changed(NAMED), changed(JOIN)).map(json.dumps).map(str.encode), st.lists(st.one_of(numbers, texts, st.just(FILE)), max_size=9).map(lambda data: json.dumps({"data": data}).encode()),
)  # fmt: skip


@pytest.fixture
def page(fake_app):
    fake_app.script(both=QUICK)
    return urlsplit(fake_app.url).netloc


def asked(page: str, method: str, way: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, str]:
    """The status and the text of an answer, of a stream its first 2,000 bytes."""
    connection = http.client.HTTPConnection(page, timeout=30)
    try:
        connection.request(method, API + quote(way, "/?=&%"), body, {"Content-Type": kind} if body is not None else {})
        answer = connection.getresponse()
        return answer.status, "" if way == "heartbeat/" else answer.read(2000).decode("utf-8", "replace")
    finally:
        connection.close()


def answers(page: str) -> bool:
    """Whether a good call is answered by a lane."""
    _, told = asked(page, "POST", "call/ask", json.dumps({"data": ["hello"]}).encode())
    connection = http.client.HTTPConnection(page, timeout=60)
    connection.request("GET", f"{API}call/ask/{json.loads(told)['event_id']}")
    stream = connection.getresponse().read()
    connection.close()
    return b"event: complete" in stream


@given(st.one_of(st.tuples(st.just("POST"), posted, bodies), st.tuples(st.just("GET"), got, st.none())))
@tries(40)
def test_whatever_is_sent_is_answered_without_a_trace(page, asks):
    status, told = asked(page, *asks)
    assert "Traceback" not in told and 'File "' not in told
    if asks[1].startswith("call/"):  # the other doors are Gradio's, for its own page
        assert status < 500 and (status < 400 or told.strip())


def test_after_all_that_the_page_answers(page):
    for body in (b"", b"[" * 100_000, b"NaN", b'{"data": [NaN]}', json.dumps({"data": [[FILE]]}).encode(), b'{"data":' + b"9" * 5000 + b"}"):
        for way in ("call/ask", "call/v2/compare", "queue/join", "cancel"):
            status, told = asked(page, "POST", way, body)
            assert status in (400, 422) and 0 < len(told) < 500, (way, body[:20])
    assert answers(page)


@pytest.mark.parametrize("way", ["call/nothing", "call/v2/nothing", "call/press"])
def test_an_endpoint_that_is_not_there_is_told_with_those_that_are(page, way):
    status, told = asked(page, "POST", way, b'{"data": []}')
    assert status == 404 and "There are: compare, ask, quality." in json.loads(told)["error"]


def test_who_listens_to_no_event_is_told_by_a_whole_answer(page):
    status, told = asked(page, "GET", "call/ask/none")
    assert status == 404 and "There is no such event" in json.loads(told)["error"]
    status, told = asked(page, "GET", "queue/data?session_hash=none")
    assert status == 200 and json.loads(told.removeprefix("data: "))["session_not_found"] is True


def test_fifty_megabytes_are_refused_and_the_page_answers(page):
    status, told = asked(page, "POST", "queue/join", b'{"data": ["' + b"x" * (50 * 2**20) + b'"]}')
    assert status == 413 and told == TOO_LARGE
    assert asked(page, "POST", "call/ask", b'{"data": ["' + b"x" * (5 * 2**20) + b'"]}')[0] == 422
    assert answers(page)
