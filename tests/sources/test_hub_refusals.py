"""Each refusal of the Hub has its reason, told with the token set or not, and the log has its trace without the token."""

import subprocess
import sys

import pytest
from huggingface_hub import constants

from inference.host import child
from tests.support.false_hub import COMMIT, answers, redirects, serving
from tests.support.tiny_hub import GATED, NAME, NO_REPO, fetch, refusal

REASONS = [
    # token, status, headers, words
    (None, 401, NO_REPO, "shows no model owner/tiny to somebody without a token"),
    (None, 401, {}, "shows no model owner/tiny to somebody without a token"),
    ("hf_wrong", 401, {"X-Error-Message": "Invalid credentials in Authorization header"}, "does not accept the token that is set"),
    ("hf_wrong", 401, {}, "does not accept the token that is set"),
    ('"hf_wrong"', 401, {}, "does not accept the token that is set (401): it stands in quotes"),
    (None, 401, GATED, "is locked, and no token was given"),
    ("hf_right", 403, GATED, "this token's account may not read it. Accept its licence"),
    ("hf_right", 403, GATED | {"X-Error-Message": "Your request is awaiting a review from the repo authors."}, "still awaits its authors' review"),
    ("hf_right", 403, {"X-Error-Message": "Please enable access to public gated repositories in your fine-grained token settings"}, "lacks a permission"),
    ("hf_right", 403, {}, "lacks a permission"),
    (None, 403, {}, "or a proxy before it, refuses owner/tiny"),
    ("hf_right", 403, {"X-Error-Message": "Access to this resource is disabled."}, "has been disabled"),
    (None, 404, NO_REPO, "knows no model owner/tiny, or it is private: then set the secret HF_TOKEN"),
    (None, 404, {}, "knows no model owner/tiny, or it is private: then set the secret HF_TOKEN"),
    ("hf_right", 404, NO_REPO, "knows no model owner/tiny, or it is private and this token's account may not see it"),
    (None, 404, {"X-Error-Code": "RevisionNotFound"}, "has no revision main"),
    (None, 410, {"X-Error-Message": "gone for good"}, "refuses owner/tiny (410: gone for good)"),
    (None, 429, {"Retry-After": "77"}, "429: it was asked too often; it may be asked again in 77 s; with a token"),
    ("hf_right", 429, {"RateLimit": '"api";r=0;t=55'}, "asked again in 55 s), and"),
    (None, 503, {}, "503: a fault of its own), and owner/tiny is not on this machine. Ask again later"),
]


@pytest.mark.parametrize(("token", "status", "headers", "words"), REASONS)
@pytest.mark.parametrize("part", ["/api/", "/resolve/"])
def test_each_refusal_has_its_reason_and_the_log_its_trace_without_the_token(tiny_hub, monkeypatch, caplog, part, token, status, headers, words):
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
        headers = {**headers, "X-Request-Id": f"echoes {token}"}
    tiny_hub.tokens = {"hf_right", "hf_wrong", '"hf_wrong"'}
    tiny_hub.does[part] = answers(status, headers)
    sentence = refusal()
    assert words in sentence and "Traceback" in caplog.text and f"{status}" in caplog.text
    assert not token or (token not in sentence and token not in caplog.text and "***" in caplog.text)


def test_a_locked_model_is_told_although_its_list_is_public(tiny_hub, monkeypatch):
    tiny_hub.repositories[NAME].gated = True
    assert "is locked, and no token was given" in refusal()
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert fetch().name == COMMIT


def test_a_revision_that_is_not_there_is_named(tiny_hub):
    assert "owner/tiny has no revision v9" in refusal(revision="v9")


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_a_refusal_on_the_way_is_told_by_its_number(tiny_hub, status):
    tiny_hub.does["model.safetensors"] = answers(status)
    assert "The download of owner/tiny broke off (" in refusal() and f"{status}" in refusal()


def test_what_is_no_hub_is_told(tiny_hub, monkeypatch):
    tiny_hub.does["/api/"] = answers(200, body=b"<html>Please log in</html>")
    assert "is not the Hub, perhaps a proxy or a page to log in" in refusal()
    tiny_hub.does["/api/"] = answers(200, body=b"[]")
    assert "is not the Hub" in refusal()
    tiny_hub.does["/api/"] = redirects(tiny_hub.url + "/api/models/owner/tiny")
    assert "sends from one address to the next without end" in refusal()
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 refuses the connection" in refusal()
    monkeypatch.setattr(constants, "ENDPOINT", "http://no-such-host.invalid")
    assert "there is no address for http://no-such-host.invalid" in refusal()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "may not be asked (HF_HUB_OFFLINE is set), and owner/tiny is not on this machine" in refusal()


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"http_proxy": "socks5://127.0.0.1:9"}, "is a SOCKS one, which this Python can't use"),
        ({"http_proxy": "http://[::1"}, "the address of the proxy that is set, or HF_ENDPOINT, is none"),
        ({"HF_TOKEN": "hf_s\u00e9same"}, "HF_TOKEN holds a character that no token has"),
        ({"HF_ENDPOINT": ""}, "HF_ENDPOINT (set, and empty) is no address: it must begin with https://"),
        ({"HF_ENDPOINT": "hub.example"}, "HF_ENDPOINT (hub.example) is no address"),
        ({"HF_ENDPOINT": "http://me:the-same-secret@127.0.0.1:9"}, "http://127.0.0.1:9 refuses the connection"),
        ({"HF_TOKEN_PATH": "/"}, "/, where the token is kept, can't be read (Is a directory): set HF_TOKEN"),
        ({"SSL_CERT_FILE": "/no/such/file.pem"}, "no file of certificates where SSL_CERT_FILE says (/no/such/file.pem: No such file or directory)"),
        ({"SSL_CERT_FILE": "/etc/passwd"}, "no file of certificates where SSL_CERT_FILE says (/etc/passwd)"),
        ({"SSLKEYLOGFILE": "/no/such/keys"}, "no keys can be written where SSLKEYLOGFILE says (/no/such/keys"),
    ],
)
def test_variables_that_the_library_can_t_use_are_named(variables, words, tmp_path):
    """The proxy of a shell (ALL_PROXY=socks5://...) ended the default model's load with a trace, where PyPI would have given it."""
    unset = dict.fromkeys(("NO_PROXY", "no_proxy", "http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"), "")
    program = "import sys; from inference.sources import hub\ntry: hub.listing('owner/tiny', None)\nexcept hub.InferenceError as error: print(error)"
    with serving() as running:
        environment = child.environment(**{"HF_ENDPOINT": running.url, "HF_HUB_CACHE": str(tmp_path), **unset, **variables})
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert words in done.stdout, done.stderr
    assert "same" not in done.stdout
