"""The program where strangers come, and behind proxies: what it says at the start, its share link, its end while that hangs."""

from __future__ import annotations

import json
import signal
import socket
import stat
import urllib.request
from collections.abc import Iterator

import pytest
from gradio import tunneling

from inference.settings import Settings
from tests.support.program import Program
from tests.support.until import until
from ui import private, sharing
from ui.sharing import OPEN_TO_ALL, notices

SPACE = {"SPACE_ID": "owner/name"}
NO_PROXY = dict.fromkeys(("no_proxy", "NO_PROXY", "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), "")
PAST_PROXIES = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that takes connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def comes_up(program: Program) -> bool:
    return "compare" in json.dumps(json.load(PAST_PROXIES.open(f"{program.url()}config")))


@pytest.mark.parametrize(
    "proxy",
    [
        {"http_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"},
        {"http_proxy": "http://[::1"},
        {"SSL_CERT_FILE": "/no/such/file.pem", "SSLKEYLOGFILE": "/no/such/keys"},
    ],
)
def test_the_page_comes_up_whatever_proxy_or_file_of_certificates_is_set(start, proxy):
    program = start(**{**NO_PROXY, **proxy})
    assert comes_up(program)
    program.process.send_signal(signal.SIGINT)
    code, errors = program.output(timeout_s=8)
    assert code == 0 and "Traceback" not in errors, errors


def test_ctrl_c_ends_the_page_while_its_share_link_hangs(start, silent, tmp_path):
    program = start("--share", **{**NO_PROXY, "HTTPS_PROXY": f"http://{silent}", "HF_HOME": str(tmp_path)})
    assert comes_up(program), "before the link"
    lanes = program.lanes()
    program.process.send_signal(signal.SIGINT)
    code, errors = program.output(timeout_s=8)  # it hung for half a minute
    assert code == 0 and "Traceback" not in errors and OPEN_TO_ALL in errors, errors
    until(lambda: not any(lane.is_running() for lane in lanes), 3, "no lane left")


@pytest.fixture
def tunnel(tmp_path) -> dict[str, str]:
    """Variables by which Gradio finds a tunnel's client that needs no network."""
    client = tmp_path / "gradio" / "frpc" / tunneling.BINARY_FILENAME
    client.parent.mkdir(parents=True)
    client.write_text('#!/bin/sh\necho "start proxy success: http://abc.example.org"\nexec sleep 60\n')
    client.chmod(client.stat().st_mode | stat.S_IEXEC)
    return {"HF_HOME": str(tmp_path), "GRADIO_SHARE_SERVER_ADDRESS": "127.0.0.1:9"}


def test_the_share_link_is_printed_after_the_page_and_ends_with_it(start, tunnel):
    program = start("--share", "--auth", "me:password", **tunnel)
    program.url()
    assert program.process.stdout.readline() == "Share link, good for a week: https://abc.example.org\n"
    until(lambda: any("sleep" in child.name() for child in program.lanes()), 3, "the tunnel's client, which is a shell until it has said the link")
    children = program.lanes()
    program.process.send_signal(signal.SIGINT)
    code, errors = program.output(timeout_s=8)
    assert code == 0 and OPEN_TO_ALL not in errors and "6 prompts a minute" in errors, errors
    until(lambda: not any(child.is_running() for child in children), 3, "no lane and no tunnel left")


def test_on_a_space_no_link_is_made_and_that_is_said(monkeypatch):
    monkeypatch.setattr(sharing.threading, "Thread", None)
    sharing.open_link(object(), Settings(share=True), "http://127.0.0.1:7860/", SPACE)
    assert notices(Settings(share=True), SPACE)[0] == sharing.ON_A_SPACE


@pytest.mark.parametrize(
    ("settings", "environ", "words"),
    [
        (Settings(), {}, []),
        (Settings(auth="me:password", host="0.0.0.0"), {}, []),
        (Settings(share=True), {}, ["for a week", "6 prompts a minute"]),
        (Settings(share=True, limits="off"), {}, ["for a week"]),
        (Settings(share=True, auth="me:password", limit_a_minute=0, limit_rows=0), {}, ["and at most 4,000 characters a prompt, 256 new tokens an answer."]),
        (Settings(), SPACE, ["one run at a time"]),
    ],
)
def test_what_is_said_at_the_start(settings, environ, words):
    said = notices(settings, environ)
    assert len(said) == len(words) and all(word in sentence for word, sentence in zip(words, said, strict=True))


def test_a_link_that_can_not_be_made_is_told_in_a_sentence(monkeypatch, capsys):
    def no_link(_):
        raise RuntimeError("Could not get share link from Gradio API Server.\nMore of it.")

    monkeypatch.setattr(private, "share_link", no_link)
    sharing.open_link(object(), Settings(share=True), "http://127.0.0.1:7860/", {})
    told = ""

    def heard() -> str:
        nonlocal told
        told += capsys.readouterr().err
        return told

    until(heard, 5, "the sentence")
    assert told.startswith("There is no share link (Could not get") and "--share" in told and told.count("\n") == 1
