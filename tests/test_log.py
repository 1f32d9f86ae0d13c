"""A log obeys no text and holds no secret, whoever writes it: our own lines, a library's warning, a trace that nobody caught."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import traceback

import pytest

from inference import log
from inference.host.child import ROOT

TOKEN, KEY, PASSWORD = "hf_AbCdEfGhIjKlMnOp", "sk-endpoint-key-1", "open-sesame-1"
SECRETS = {"HF_TOKEN": TOKEN, "ENDPOINT_VLLM_KEY": KEY, "AUTH": f"me:{PASSWORD}"}
HOSTILE = "name\x1b[2J\x1b]8;;http://evil\x07\r\x08\x9b31m\u202eabc\u2066"
NEVER = "\x1b\x07\r\x08\x9b\u202e\u2066"


def written(write) -> str:
    stream = io.StringIO()
    write(log.Log(stream, log.secrets_of(SECRETS)))
    return stream.getvalue()


def through_a_handler(stream) -> None:
    logger = logging.Logger("test")
    logger.addHandler(logging.StreamHandler(stream))
    logger.error("asked with %s by %s: %s", TOKEN, PASSWORD, HOSTILE)


def a_trace(stream) -> None:
    try:
        raise ValueError(f"{HOSTILE} {KEY}")
    except ValueError:
        traceback.print_exc(file=stream)


@pytest.mark.parametrize("write", [through_a_handler, a_trace, lambda stream: print(HOSTILE, *SECRETS.values(), file=stream)])
def test_nothing_of_it_is_obeyed_and_no_secret_is_there(write):
    said = written(write)
    assert "name" in said and "\\x1b[2J" in said and "***" in said
    assert not set(NEVER) & set(said)
    assert not any(secret in said for secret in (TOKEN, KEY, PASSWORD))


def test_what_is_too_short_to_be_a_secret_blanks_out_no_words():
    assert log.secrets_of({"MY_TOKEN": "a", "KEYBOARD": "us-layout", "AUTH": "me:pw"}) == ["a", "pw"]


def test_a_password_is_a_secret_without_the_quotes_that_are_taken_off():
    assert log.secrets_of({"AUTH": '"me:open-sesame"'}) == ["open-sesame"]


def test_passwords_in_addresses_are_secrets():
    """Of a proxy, or of a mirror of the Hub: every request's address was logged."""
    places = {
        "HF_ENDPOINT": "https://me:mirror-pass@hub.example/hf",
        "https_proxy": "http://me:proxy-pass@proxy:3128",
        "A": "http://no-one@x",
        "B": "http://x:80/@",
    }
    assert set(log.secrets_of(places)) - {""} == {"mirror-pass", "proxy-pass"}
    stream = io.StringIO()
    log.Log(stream, ["a", "pw"]).write("a lane")
    assert stream.getvalue() == "a lane"


@pytest.mark.parametrize("begin", ["from inference.host.child import log_to_stderr; log_to_stderr(True)", "from inference import log; log.begin()"])
def test_a_process_of_ours_keeps_it_so_to_its_last_word(begin):
    program = f"{begin}; import logging, os; logging.error(os.environ['HF_TOKEN'] + {HOSTILE!r}); raise SystemError({HOSTILE!r} + os.environ['HF_TOKEN'])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, **SECRETS}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.count("\\x1b[2J") >= 2 and TOKEN not in done.stderr
    assert not set(NEVER) & set(done.stderr)
