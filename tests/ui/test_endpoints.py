"""The endpoints from outside: by gradio_client and by plain HTTP in two calls."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from inference.host.child import ROOT
from inference.progress import Progress
from tests.support.page_fixtures import FakeApp
from tests.support.records import same_of
from tests.support.until import until
from ui.programs.calls import FULL, MOST_BYTES
from ui.programs.endpoints import NAMES, Endpoints, frames, signatures


@pytest.fixture(scope="session")
def client(shared_app: FakeApp) -> Client:
    return Client(shared_app.url, verbose=False)


def post(app: FakeApp, call: str, body: Any) -> dict[str, Any]:
    """The first of the two calls; raises HTTPError."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{app.url}/gradio_api/call/{call}", data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=20))


def heard(app: FakeApp, call: str, body: Any) -> list[tuple[str, Any]]:
    """Both calls: what the second one streams, as (event, data)."""
    url = f"{app.url}/gradio_api/call/{call.removeprefix('v2/')}/{post(app, call, body)['event_id']}"
    lines = urllib.request.urlopen(url, timeout=20).read().decode().splitlines()
    events = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    return list(zip(events, [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")], strict=True))


def refused(app: FakeApp, call: str, body: Any) -> str:
    """The sentence by which the first call is refused."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(app, call, body)
    assert caught.value.code == 422
    return json.load(caught.value)["error"]


@pytest.mark.parametrize("name", ["compare", "v2/ask"])
def test_a_call_for_which_the_queue_has_no_place_is_told_as_every_other_fault(shared_app, name, monkeypatch):
    monkeypatch.setattr(shared_app.demo._queue, "max_size", 0)
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(shared_app, name, {"prompt": "hello"} if "v2" in name else {"data": ["hello"]})
    assert caught.value.code == 503 and caught.value.headers["Retry-After"] and json.load(caught.value) == {"error": FULL}


# ---- what is offered


def test_three_endpoints_are_offered_and_no_listener_of_the_page(client, shared_app):
    offered = client.view_api(return_format="dict")
    assert set(offered["named_endpoints"]) == {f"/{name}" for name in NAMES} and not offered["unnamed_endpoints"]
    config = json.loads(urllib.request.urlopen(f"{shared_app.url}/config").read())
    listeners = [listener for listener in config["dependencies"] if listener["api_name"] not in NAMES]
    assert listeners and all(listener["api_visibility"] == "private" for listener in listeners)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_typed_and_described_with_its_default(name, client):
    from gradio.utils import get_function_description  # what an MCP client is told is made by it

    words, parameters, returns = get_function_description(getattr(Endpoints, name))
    assert words.endswith(".") and returns
    offered = client.view_api(return_format="dict")["named_endpoints"][f"/{name}"]["parameters"]
    assert [each["parameter_name"] for each in offered] == list(signatures()[name].parameters)
    for each in offered:
        assert each["type"] and parameters[each["parameter_name"]].endswith(".")
        default = each["parameter_default"]
        if each["parameter_has_default"] and not isinstance(default, bool):
            assert (str(default) or "empty").removesuffix(".0") in parameters[each["parameter_name"]]


# ---- /compare


def test_compare_returns_the_record(fake_app, client):
    record = client.predict("hello good morning", api_name="/compare")
    assert record["schema"] == "gpu-vs-cpu/2"
    assert record["request"]["prompt"] == "hello good morning" and record["request"]["max_new_tokens"] == 50
    assert set(record["lanes"]) == {"cpu:nf4", "cpu:fp32"}
    for lane in record["lanes"].values():
        (run,) = lane["runs"]
        assert run["text"].startswith("We have chicken biryani") and run["finish_reason"] == "stop"
        assert run["decode_path"] == "eager", "under this name: gradio_client would fetch a text `path` as a file"
    json.dumps(record)


def test_compare_takes_settings_by_name(fake_app, client):
    record = client.predict("hello", max_new_tokens=3, seed=7, format="raw", mode="together", api_name="/compare")
    assert record["request"] | {"max_new_tokens": 3, "seed": 7, "mode": "together"} == record["request"]
    assert all(lane["runs"][0]["finish_reason"] == "length" for lane in record["lanes"].values())


def test_two_visitors_at_once_get_their_own_records(fake_app, client, shared_app):
    clients = [client, Client(shared_app.url, verbose=False)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [pool.submit(one.predict, f"hello {number}", api_name="/compare") for number, one in enumerate(clients)]
        records = [one.result(timeout=20) for one in asked]
    assert [record["request"]["prompt"] for record in records] == ["hello 0", "hello 1"]
    assert all(len(lane["runs"]) == 1 for record in records for lane in record["lanes"].values())


def test_a_lane_that_fails_is_told_in_its_part_of_the_record_and_the_other_answers(fake_app, client):
    fake_app.script(cpu_fp32={"fail_at": 3})
    lanes = client.predict("hello", api_name="/compare")["lanes"]
    assert lanes["cpu:fp32"]["runs"][0]["error"] == "The scripted lane failed here." and lanes["cpu:nf4"]["runs"][0]["error"] is None


# ---- /ask


def test_ask_streams_one_lane_s_text_and_ends_with_its_record(fake_app, client):
    fake_app.script(both={"token_s": 0.05})
    frames = list(client.submit("hello", lane="cpu:fp32", api_name="/ask"))
    texts = [frame["text"] for frame in frames]
    assert all(later.startswith(earlier) for earlier, later in zip(texts, texts[1:], strict=False)) and len(set(texts)) > 3
    assert [frame["record"] is None for frame in frames] == [True] * (len(frames) - 1) + [False]
    lanes, last = frames[-1]["record"]["lanes"], frames[-1]
    assert set(lanes) == {"cpu:fp32"} == {last["lane"]} and last["phase"] == "done"
    assert lanes["cpu:fp32"]["runs"][0]["text"] == last["text"] and lanes["cpu:fp32"]["runs"][0]["new_tokens"] == last["new_tokens"] == 12


def test_a_server_that_counts_its_tokens_only_at_the_end_is_streamed_too(monkeypatch):
    """A client of /ask saw nothing of such an answer until it was complete."""
    now = iter(range(100))
    monkeypatch.setattr("ui.programs.endpoints.time.perf_counter", lambda: next(now))
    done = Progress(0.0, "done", "Two biryanis.", 4)
    steps = [Progress(0.0, "prefill"), *(Progress(0.0, "decode", text) for text in ("Two", "Two", "Two biryanis", "Two biryanis.")), done]
    shown = [(step.phase, step.text) for step in frames((step for step in steps), threading.Event())]
    assert shown == [("prefill", ""), *(("decode", text) for text in ("Two", "Two biryanis", "Two biryanis.")), ("done", "Two biryanis.")]


@pytest.mark.parametrize("name", ["", "auto:nf4", "cpu:nf4"])
def test_ask_knows_a_lane_by_its_configured_name_and_by_its_own(fake_app, client, name):
    assert client.predict("hello", lane=name, api_name="/ask")["lane"] == "cpu:nf4"


def test_a_client_that_cancels_a_stream_stops_its_lane(fake_app, client):
    fake_app.script(both={"hold_at": 3})
    job = client.submit("hello", lane="cpu:fp32", api_name="/ask")
    until(lambda: any(frame["new_tokens"] for frame in job.outputs()), what="a token")
    job.cancel()
    until(lambda: all(lane.state != "busy" for lane in fake_app.engine.status()), what="the lane at rest")


# ---- /quality


def test_quality_gives_the_figures_and_each_token_of_the_full_precision_answer(fake_app, client):
    fake_app.script(cpu_nf4={"fork_at": 4})
    found = client.predict("hello", api_name="/quality")
    quality, run = found["record"]["quality"], found["record"]["lanes"]["cpu:fp32"]["runs"][0]
    assert quality["reference"] == "cpu:fp32" and quality["other"] == "cpu:nf4" and quality["first_divergence"]["index"] == 3
    assert [place["id"] for place in found["positions"]] == run["token_ids"] and "".join(place["text"] for place in found["positions"]) == run["text"]
    assert sum(place["kld"] for place in found["positions"]) / len(run["token_ids"]) == pytest.approx(quality["kld_mean"])
    same = [place["likeliest_reference"]["id"] == place["likeliest_other"]["id"] for place in found["positions"]]
    assert sum(same) / len(same) == pytest.approx(quality["top1_agreement"])
    assert client.predict("hello", positions=False, api_name="/quality")["positions"] is None


# ---- faults


BAD = [
    ({"prompt": " "}, "The prompt is empty"),
    ({"prompt": "x", "max_new_tokens": 0}, "Max new tokens must be from 1"),
    ({"prompt": "x", "temperature": 3}, "Temperature must be"),
    ({"prompt": "x", "temperature": "hot"}, "must be a number"),
    ({"prompt": "x", "seed": 1.5}, "must be a whole number"),
    ({"prompt": "x", "format": "poem"}, "Unknown prompt format 'poem'"),
]


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [*((name, *bad) for name in NAMES for bad in BAD), ("compare", {"prompt": "x", "mode": "fast"}, "Unknown mode 'fast'"), ("ask", {"prompt": "x", "lane": "tpu"}, "no lane 'tpu'"),
     *(("compare", {"prompt": "x", "quality": value}, f"^quality must be true or false, not {value!r}.$") for value in ("false", "no", 2, 0)),
     ("quality", {"prompt": "x", "positions": "no"}, "^positions must be true or false, not 'no'.$")],
)  # fmt: skip
def test_a_bad_value_gives_the_same_sentence_by_client_and_by_http(fake_app, client, name, settings, words):
    with pytest.raises(AppError, match=words) as caught:
        client.predict(**settings, api_name=f"/{name}")
    ((event, data),) = heard(fake_app, f"v2/{name}", settings)
    assert event == "error" and data["error"] == str(caught.value)


@pytest.mark.parametrize("name", ["ask", "quality"])
def test_a_lane_s_failure_is_the_sentence_that_client_and_http_get(fake_app, client, name):
    fake_app.script(both={"fail_at": 3})
    lane = "cpu:nf4" if name == "ask" else "cpu:(nf4|fp32)"
    with pytest.raises(AppError, match=f"^{lane}: The scripted lane failed here"):
        client.predict("hello", api_name=f"/{name}")
    event, data = heard(fake_app, name, {"data": ["hello"]})[-1]
    assert event == "error" and "The scripted lane failed here" in data["error"]


def test_a_fault_that_nobody_foresaw_is_a_sentence_and_its_trace_stays_in_the_log(fake_app, client, monkeypatch, caplog):
    monkeypatch.setattr(fake_app.engine, "submit", lambda *_: 1 / 0)
    for name in ("ask", "compare"):
        with pytest.raises(AppError, match="^Something went wrong in the page itself; its log has the trace"):
            client.predict("hello", api_name=f"/{name}")
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("call", "body", "words"),
    [
        ("compare", b"hello", "must be a JSON object"),
        ("compare", {"prompt": "hello"}, 'must be a JSON object: {"data": [...]}'),
        ("compare", {"data": []}, "missing a required argument: 'prompt'"),
        ("ask", {"data": list(range(9))}, "too many positional arguments"),
        ("v2/quality", {"prompt": "hello", "temprature": 1}, "unexpected keyword argument 'temprature'"),
        ("v2/ask", ["hello"], "must be a JSON object"),
    ],
)
def test_a_call_that_fits_no_parameter_is_refused_with_a_sentence(shared_app, call, body, words):
    told = refused(shared_app, call, body)
    assert words in told and (body == b"hello" or "JSON" in told or "It takes: prompt, " in told)


def test_a_body_past_the_limit_is_refused_before_it_is_there(shared_app):
    host, _, port = shared_app.url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.putrequest("POST", "/gradio_api/call/compare")
    connection.putheader("Content-Length", str(10 * MOST_BYTES))
    connection.endheaders()
    try:
        connection.send(b" " * (MOST_BYTES + 1))
        answer = connection.getresponse()
        assert answer.status == 422 and "more than 4 MiB" in json.load(answer)["error"]
    finally:
        connection.close()


# ---- plain HTTP


def test_plain_http_in_two_calls_gives_the_record_that_the_client_gets(fake_app, client):
    asked = {"prompt": "hello good morning", "max_new_tokens": 5, "seed": 3}
    by_client = client.predict(**asked, api_name="/compare")
    ((event, (placed,)),) = heard(fake_app, "compare", {"data": ["hello good morning", "", "chat", 5, 0, 3]})
    assert event == "complete"
    ((event, (named,)),) = heard(fake_app, "v2/compare", asked)
    assert event == "complete"
    assert same_of(placed) == same_of(named) == same_of(by_client)


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_the_calls_of_the_documentation_can_be_given_as_they_stand(fake_app):
    (told,) = re.findall(r"```bash\n(PAGE=.*?)```", (ROOT / "docs" / "api.md").read_text("utf-8"), re.S)
    done = subprocess.run(["bash", "-c", told.replace("http://127.0.0.1:7860", fake_app.url)], capture_output=True, text=True, timeout=30, check=True)
    event, data, *_ = done.stdout.splitlines()
    assert event == "event: complete" and json.loads(data.removeprefix("data: "))[0]["request"]["prompt"].startswith("hello good morning")
