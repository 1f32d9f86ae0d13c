"""A page that was started with every secret there is, from outside: none of them stands in what it serves, prints, logs or starts."""

from __future__ import annotations

import http.client
import json
import urllib.parse

from tests.support.until import until

PASSWORD = "open-sesame-1234"
SECRETS = {
    "HF_TOKEN": "hf_AbCdEfGhIjKlMnOpQrSt", "AUTH": f"me:{PASSWORD}", "ENDPOINT_FAR_KEY": "sk-very-secret-0123456789", "ENDPOINT_FAR_URL": "http://hidden.example:8123/v1",
    "OPENAI_API_KEY": "sk-another-9876543210",
}  # fmt: skip
NEVER = [*SECRETS.values(), PASSWORD, "hidden.example"]
PAGES = (
    "/", "/config", "/gradio_api/info", "/gradio_api/openapi.json", "/gradio_api/startup-events", "/theme.css", "/manifest.json", "/gradio_api/app_id",
    "/gradio_api/queue/status", "/gradio_api/user", "/monitoring/summary", "/nowhere",
)  # fmt: skip


def get(url: str, path: str, cookie: str = "", body: str | None = None, kind: str = "application/json") -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=20)
    connection.request("GET" if body is None else "POST", path, body, {"Content-Type": kind, "Cookie": cookie})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode("utf-8", "replace"), answer.headers
    connection.close()
    return found


def logged_in(url: str) -> str:
    form = urllib.parse.urlencode({"username": "me", "password": PASSWORD})
    status, _, headers = get(url, "/login", body=form, kind="application/x-www-form-urlencoded")
    assert status == 200
    return "; ".join(value.partition(";")[0] for value in headers.get_all("set-cookie") or [])


def test_no_secret_is_served_printed_logged_or_on_a_command_line(start):
    page = start("--auth", SECRETS["AUTH"], LANES="cpu:nf4,endpoint:far", **{name: value for name, value in SECRETS.items() if name != "AUTH"})
    url = page.url()
    said = [get(url, path)[1] for path in PAGES]
    assert get(url, "/config")[0] == 401, "nothing but the way in without a password"
    cookie = logged_in(url)
    said += [get(url, path, cookie)[1] for path in PAGES]
    until(lambda: len(page.lanes()) >= 2, 30, "both lanes")
    said += [" ".join(lane.cmdline()) for lane in page.lanes()]
    call = get(url, "/gradio_api/call/compare", cookie, json.dumps({"data": ["hi", "", "chat", 2]}))
    said.append(get(url, f"/gradio_api/call/compare/{json.loads(call[1])['event_id']}", cookie)[1])
    assert '"lanes"' in said[-1], "a record"
    for body in ("{", json.dumps({"data": ["hi"] * 99}), json.dumps({"data": [{"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}], "fn_index": 0})):
        said += [get(url, f"/gradio_api/{way}", cookie, body)[1] for way in ("call/compare", "run/predict", "queue/join")]  # each leaves a trace in the log
    page.process.terminate()
    code, log = page.output()
    assert code == 0 and "settings: " in log and "Traceback" in log
    for secret in NEVER:
        assert not [text for text in [*said, log] if secret in text], secret
