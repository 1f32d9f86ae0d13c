"""A server's lane beside another one, in processes of their own: what the record, the page and the log say, and the secrets that none of them holds."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from inference.endpoints import Endpoint
from inference.engine.compare import compare, read_all
from inference.engine.engine import Engine
from inference.engine.process import start_worker
from inference.events import Request
from inference.host.child import ROOT, environment
from inference.lanes import LaneName
from inference.record.export import ENDINGS, export
from inference.record.model import Record
from inference.record.table import text_table
from inference.record.verdict import summary_lines, verdict_text
from inference.series.overall import facts, lane_titles
from inference.series.series import medians
from inference.settings import Settings
from tests.support.false_server import KEY, FalseServer, good, piece
from tests.support.page_fixtures import start_fake_lane
from tests.support.until import until
from ui.comparison import board, chart, render

ASKED = Request("two biryanis", max_new_tokens=8)
FAR, FP32 = "endpoint:far", "cpu:fp32"


@pytest.fixture(scope="module")
def server() -> Iterator[FalseServer]:
    found = FalseServer()
    yield found
    found.close()


@pytest.fixture(scope="module")
def engine(server) -> Iterator[Engine]:
    def start(lane: str, settings: Settings):
        return (
            start_worker(lane, settings) if LaneName.parse(lane).elsewhere else start_fake_lane(lane, settings, FAKE_LANE='{"*": {"say": "Two ", "tokens": 3}}')
        )

    endpoint = Endpoint("far", server.url, "menu-4bit", "vLLM <4-bit>", KEY, 5)
    settings = Settings(model_id="nobody/has-its-tokenizer", lanes=(FAR, FP32), endpoints=(endpoint,))
    with Engine(settings, start) as engine:
        yield engine


@pytest.fixture(autouse=True)
def well(server) -> None:
    server.script = good


def shown(record: Record) -> str:
    """All that is written or drawn of a record."""
    files = [export([record], format) for format in ENDINGS]
    page = [board.board(record), *board.copied(record), chart.measured(record)]
    return "\n".join([*files, *page, text_table(record), verdict_text(record), str(summary_lines(record)), str(facts([record], medians([record])))])


def holds_no_secret(text: str, server: FalseServer) -> None:
    for secret in (KEY, server.url, f"127.0.0.1:{server.server_address[1]}"):
        assert secret not in text


def test_a_comparison_with_a_server_says_what_is_known_and_why_the_rest_is_not(engine, server):
    record = compare(engine, ASKED, mode="together")
    far, pair = record.lanes[FAR], record.verdict.pairs[0]
    assert (far.server, far.model_id, far.n, far.load, far.weights_bytes) == ("vLLM <4-bit>", "menu-4bit", 1, None, None)
    (run,) = far.runs
    assert (run.text, run.token_ids, run.new_tokens, run.counted_by, run.alone, run.path) == ("Two biryanis.", None, 4, "the server", None, "server")
    assert (pair.identical, pair.first_divergence, pair.load, pair.memory) == (False, None, None, None) and pair.total
    assert record.model.id == "fake/model"
    text = shown(record)
    holds_no_secret(text, server)
    assert "a server elsewhere" in text and "network" in text and "are different texts" in text
    assert "vLLM &lt;4-bit&gt;" in text and lane_titles(record)[FAR] == "vLLM <4-bit>"
    assert "ENDPOINT_FAR_URL=... ENDPOINT_FAR_MODEL=menu-4bit python -m inference compare" in text


def test_equality_with_a_server_is_of_the_texts(engine, server):
    server.script = lambda handler: (handler.begin(), handler.say(*[piece("Two ")] * 3, piece(reason="stop"), "[DONE]"), handler.end())
    record = compare(engine, ASKED, mode="together")
    assert record.verdict.identical and "The same, word for word" in str(board.board(record))
    (run,) = record.lanes[FAR].runs
    assert run.new_tokens is None and "no count of tokens" in shown(record)


def test_a_server_killed_in_its_answer_keeps_what_came_and_the_other_lane_goes_on(engine, server):
    server.script = lambda handler: (handler.begin(), handler.say(piece("Two "), piece("biry")), threading.Event().wait(0.1), handler.break_off())
    record = compare(engine, ASKED, mode="together")
    (run,), (other,) = record.lanes[FAR].runs, record.lanes[FP32].runs
    assert (run.finish_reason, run.text, other.finish_reason) == ("failed", "Two biry", "stop")
    assert "broke before the answer was complete" in run.error and record.lanes[FAR].available
    holds_no_secret(shown(record), server)
    server.script = good
    assert compare(engine, ASKED, mode="together").lanes[FAR].n == 1  # the lane itself is well


@pytest.mark.parametrize("words", ["CUDA out of memory. Tried to allocate 2.00 GiB.", "DefaultCPUAllocator: can't allocate memory"])
def test_memory_that_a_server_lacks_is_not_taken_for_this_machine_s(words, engine, server):
    """It was told as the RAM of this computer, with the advice to shorten the prompt."""
    server.script = lambda handler: handler.status(500, {"error": {"message": words}})
    (run,) = compare(engine, ASKED, mode="together").lanes[FAR].runs
    assert run.error == f'The server failed (500): "{words.rstrip(".")}".'


def test_nothing_is_said_to_be_kept_of_an_answer_of_which_nothing_came(engine, server):
    server.script = lambda handler: (handler.begin(), handler.say(piece("")), handler.end())
    (run,) = compare(engine, ASKED, mode="together").lanes[FAR].runs
    assert run.error == "The server's answer ended before the server said that it was complete."


def test_the_page_s_card_shows_a_server_by_its_title_and_what_it_serves(engine, server):
    comparison = engine.submit(ASKED, (FAR,))
    progress = read_all(engine, comparison)[FAR]
    status = next(status for status in engine.status() if status.key == FAR)
    line = render.run_line(progress, status, 0.0, 8)
    card = render.top(status, line, progress) + render.foot(status, line, progress)
    assert "<h2>vLLM &lt;4-bit&gt;" in card and "server · menu-4bit" in card and "7 tokens in, 4 out" in card and "times are taken here" in card
    holds_no_secret(card, server)


def test_a_stopped_run_ends_and_the_server_hears_of_it(engine, server):
    def never_done(handler):
        handler.begin()
        handler.say(piece("Two "))
        handler.stay()

    server.script = never_done
    server.went_away.clear()
    comparison = engine.submit(ASKED, (FAR,))
    stop = threading.Event()
    runs = read_all(engine, comparison, lambda _, progress: stop.set() if progress.text else None, stop)
    assert runs[FAR].phase == "stopped" and runs[FAR].text == "Two " and server.went_away.wait(5)


def test_a_server_on_this_machine_is_measured_in_turn(engine):
    assert compare(engine, ASKED).request.mode == "in-turn"


@pytest.mark.parametrize("verbose", [False, True])
def test_neither_the_output_nor_the_log_of_its_process_holds_a_secret(verbose, server):
    settings = Settings(lanes=(FAR,), endpoints=(Endpoint("far", server.url, "", "", KEY, 5),), quiet=not verbose)
    server.script = lambda handler: handler.status(500, {"error": KEY})  # huggingface_hub names the address in its own words for it
    server.listing = lambda handler: handler.status(401, {"error": f"Incorrect API key {KEY} for {server.url}"})
    ask = '{"do": "generate", "run_id": "r1", "request": {"prompt": "hi", "max_new_tokens": 4}}\n'
    child = subprocess.Popen(
        [sys.executable, "-m", "inference.endpoint.worker", FAR], env=environment(**settings.to_env()), cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        lines = talk(child, ['{"do": "load"}\n'], "failed")
        assert "does not take the key in ENDPOINT_FAR_KEY" in lines[-1]
        server.listing = lambda handler: handler.status(404)
        lines += talk(child, [ask], "failed")
        assert "The server failed (500)" in lines[-1]
        child.stdin.write('{"do": "generate", "run_id": "r2", "request": {"prompt": 7, "nonsense": 1}}\n')  # a fault of our own, with its trace
        lines += talk(child, [], "failed")
        child.stdin.close()
        log = child.stderr.read()
        assert child.wait(10) == 0
    finally:
        child.kill()
    assert "Traceback" in log
    holds_no_secret("".join(lines) + log, server)


def talk(child: subprocess.Popen, messages: list[str], until_event: str) -> list[str]:
    """Send; the lines up to an event of that name."""
    for message in messages:
        child.stdin.write(message)
    child.stdin.flush()
    lines = []
    for line in child.stdout:
        lines.append(line)
        if f'"event": "{until_event}"' in line:
            return lines
    raise AssertionError("the process ended: " + "".join(lines))


def test_the_process_of_a_server_s_lane_imports_no_torch():
    code = "import sys; import inference.endpoint.worker; import huggingface_hub; print(sorted({'torch', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]", done.stderr


def test_a_server_that_is_not_there_fails_its_lane_and_is_asked_again_by_the_next_prompt(server):
    endpoint = Endpoint("far", server.url, "", "", KEY, 5)
    server.listing = lambda handler: handler.status(503, "")
    with Engine(Settings(lanes=(FAR,), endpoints=(endpoint,))) as engine:
        until(lambda: engine.status()[0].state == "failed", 20)
        assert "not ready (503)" in engine.status()[0].reason and engine.status()[0].available
        server.listing = lambda handler: handler.status(404)
        assert compare(engine, ASKED).lanes[FAR].n == 1


def test_a_file_of_certificates_that_is_not_there_is_named_where_it_is_needed_and_no_matter_elsewhere(server, monkeypatch, tmp_path):
    """What conda leaves behind in SSL_CERT_FILE: "The libraries can't be used here (No such file or directory)", for a server on this machine too."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    far = Endpoint("far", "https://far.example/v1", "", "", KEY, 5)
    with Engine(Settings(lanes=(FAR,), endpoints=(replace(far, url=server.url),))) as engine:
        assert compare(engine, ASKED).lanes[FAR].n == 1
    with Engine(Settings(lanes=(FAR,), endpoints=(far,))) as engine:
        until(lambda: engine.status()[0].reason, 20)
        told = f"no file of certificates where SSL_CERT_FILE says ({tmp_path}/gone.pem: No such file or directory). Correct that variable or unset it"
        assert told in engine.status()[0].reason and not engine.status()[0].available


def test_a_model_change_does_not_hang_on_a_server(server):
    endpoint = Endpoint("far", "http://127.0.0.1:9", "", "", KEY, 5)
    settings = Settings(lanes=(FAR, FP32), endpoints=(endpoint,))
    with Engine(settings, lambda lane, s: start_worker(lane, s) if "endpoint" in lane else start_fake_lane(lane, s)) as engine:
        until(lambda: engine.status()[0].state == "failed", 20)
        engine.change_model("another/model")
        until(lambda: engine.status()[0].state == "failed", 20)
        assert engine.model().phase == "kept" and engine.model().name == "another/model"
        assert replace(settings, model_id="x").endpoints == settings.endpoints
