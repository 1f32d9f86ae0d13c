"""What `ui/private.py` relies on in Gradio, and that the page does without where a version has it no more."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import urllib.request

import gradio as gr
import pytest
import uvicorn
from gradio import component_meta, http_server, networking, queueing
from uvicorn.middleware.proxy_headers import _TrustedHosts

from inference.host.child import ROOT
from tests.support.http_tab import HttpTab
from tests.support.until import until
from ui import private
from ui.tabs import MOST_TABS


def test_gradio_s_queue_sleeps_as_long_as_it_is_told():
    with gr.Blocks() as demo:
        gr.Markdown("x")
    demo.queue()
    assert all(getattr(demo._queue, name) < value for name, value in private.QUEUE_SLEEPS.items()), "set by Gradio, and shorter"
    private.calm(demo)
    source = inspect.getsource(queueing)
    for name, value in private.QUEUE_SLEEPS.items():
        assert getattr(demo._queue, name) == value and f"sleep(self.{name})" in source


def test_gradio_s_queue_keeps_no_notes_of_who_asked_what(fake_app):
    queue = fake_app.demo._queue
    for name in ("first", "second"):
        tab = HttpTab(fake_app.url, name)
        tab.begin()
        tab.join(20)
    assert len(queue.event_analytics) <= 1 and queue.cached_event_analytics_summary == {"functions": {}}


def test_a_gradio_without_them_is_told_in_the_log_and_nothing_else(caplog):
    private.calm(object())
    assert caplog.text.count("this Gradio has no") == len(private.QUEUE_SLEEPS | private.QUEUE_NOTES)


def test_a_component_without_a_source_file_gets_no_stub(monkeypatch):
    def no_file(_):
        raise OSError

    monkeypatch.setattr(inspect, "getfile", no_file)
    assert component_meta.create_or_modify_pyi(gr.Textbox, "Textbox", []) is None


def test_gradio_comes_without_stubs_and_inspect_is_itself_again():
    code = (
        "import inspect, sys; own = inspect.getfile; from pathlib import Path\n"
        "asked = []; real = Path.read_text\n"
        "Path.read_text = lambda self, *a, **k: (asked.append(self), real(self, *a, **k))[1]\n"
        "import ui; assert inspect.getfile is own and 'gradio' in sys.modules\n"
        "print(sum(path.suffix in ('.py', '.pyi') and 'components' in path.parts for path in asked))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stdout + done.stderr


def test_the_page_is_imported_after_gradio_too():
    assert "gradio" in sys.modules
    private.import_gradio()
    with pytest.raises(TypeError):
        inspect.getfile(gr.Textbox())
    assert inspect.getfile(gr.Textbox).endswith("textbox.py")


def test_the_web_server_believes_a_forwarded_address_of_those_alone_that_are_named(monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    for proxies, chain, visitor in (
        ((), "", ""),
        (("127.0.0.1",), "8.8.8.8, 203.0.113.7", "203.0.113.7"),
        (("127.0.0.1", "10.0.0.0/8"), "8.8.8.8, 203.0.113.7, 10.1.2.3", "203.0.113.7"),
    ):
        private.believe(proxies)
        hosts = _TrustedHosts(uvicorn.Config("app").forwarded_allow_ips)
        assert ("127.0.0.1" in hosts) is bool(proxies) and not hosts.always_trust
        assert not chain or hosts.get_trusted_client_address(chain)[0] == visitor
    assert "forwarded_allow_ips" not in inspect.getsource(http_server), "Gradio leaves it to the variable"


def test_where_no_event_is_at_hand_nobody_has_left():
    assert private.left()() is False


def test_a_share_link_is_made_by_what_launch_makes_it_by():
    assert list(inspect.signature(networking.setup_tunnel).parameters) == [
        "local_host", "local_port", "share_token", "share_server_address", "share_server_tls_certificate"
    ]  # fmt: skip


def test_proxies_are_put_back_and_this_machine_is_asked_past_them(monkeypatch):
    proxies = dict.fromkeys(("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"), "")
    for name, value in {**proxies, "no_proxy": "example.org", "http_proxy": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    for _ in range(2):
        with private.unproxied():
            assert "http_proxy" not in os.environ
    assert os.environ["http_proxy"] == "http://127.0.0.1:9"
    assert os.environ["NO_PROXY"] == os.environ["no_proxy"] == "example.org,localhost,127.0.0.1,::1"


def test_a_session_keeps_no_copy_of_the_page_and_nothing_that_was_typed(fake_app):
    page = HttpTab(fake_app.url, "kept")
    page.press("my secret words", ["my system", "chat", 3, 0, 0, "together"])
    kept = fake_app.demo.state_holder.session_data["kept"]
    assert kept.config_values == {} and "my secret words" not in str(vars(kept)["state_data"])
    assert set(kept.blocks_config.blocks) == set(fake_app.demo.default_config.blocks), "what it is shown by is there"


def test_what_gradio_keeps_of_a_tab_goes_with_it(fake_app):
    page = HttpTab(fake_app.url, "leaves")
    with urllib.request.urlopen(f"{page.url}/heartbeat/leaves") as alive:
        alive.readline()
        page.press("hello")
        assert "leaves" in fake_app.demo.state_holder.session_data
    until(lambda: "leaves" not in fake_app.demo.state_holder.session_data, what="the tab forgotten")


def test_a_gradio_whose_sessions_are_made_in_another_way_keeps_them(caplog, monkeypatch):
    from gradio import state_holder

    class Theirs:
        def __init__(self, blocks):
            self.other = blocks.other

    monkeypatch.setattr(state_holder, "SessionState", Theirs)
    private.lean_sessions(object())
    assert state_holder.SessionState is Theirs and "keeps a copy" in caplog.text


def test_few_sessions_are_kept_of_those_who_never_say_that_they_leave(fake_app):
    assert fake_app.demo.state_holder.capacity == MOST_TABS
