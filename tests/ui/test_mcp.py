"""The page as an MCP server: what its tools are, and that they answer as the endpoints do. Skipped where the package mcp is not there."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client

from inference.errors import WrongArguments
from inference.host.child import ROOT
from inference.settings import Settings
from tests.support.page_fixtures import FakeApp
from tests.support.records import same_of
from tests.ui.test_endpoints import heard
from ui import private
from ui.programs.endpoints import NAMES


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeApp]:
    pytest.importorskip("mcp", reason="no package mcp here (requirements-mcp.txt)")
    served = FakeApp(tmp_path_factory.mktemp("mcp") / "script.json", Settings(mcp=True))
    yield served
    served.close()


def with_session(app: FakeApp, use: Any) -> Any:
    """What `use` returns of a session of the package's own client with this page."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    async def connected() -> Any:
        async with streamablehttp_client(f"{app.url}/gradio_api/mcp/") as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            return await use(session)

    with ThreadPoolExecutor(1) as pool:  # the browser's tests leave a loop running in this thread
        return pool.submit(asyncio.run, connected()).result()


def called(app: FakeApp, tool: str, **values: Any) -> tuple[bool, str]:
    """Whether a tool failed, and its text."""
    result = with_session(app, lambda session: session.call_tool(tool, values))
    return result.isError, result.content[0].text


def test_the_tools_are_the_three_endpoints_and_every_parameter_is_described(app):
    tools = with_session(app, lambda session: session.list_tools()).tools
    assert [tool.name for tool in tools] == list(NAMES)
    for tool in tools:
        assert "Returns: " in tool.description and tool.inputSchema["required"] == ["prompt"]
        for schema in tool.inputSchema["properties"].values():
            assert schema["description"].endswith(".") and ("type" in schema or "enum" in schema)


def test_client_plain_http_and_mcp_get_the_same_record(app):
    app.script(cpu_nf4={"fork_at": 3})
    asked = {"prompt": "hello good morning", "max_new_tokens": 5, "seed": 3, "quality": True}
    failed, text = called(app, "compare", **asked)
    ((_, (by_http,)),) = heard(app, "v2/compare", asked)
    by_client = Client(app.url, verbose=False).predict(**asked, api_name="/compare")
    by_mcp = json.loads(text)
    assert not failed and by_mcp["lanes"]["cpu:nf4"]["runs"][0]["token_ids"] == [11, 12, 113, 114, 115]
    assert same_of(by_mcp) == same_of(by_http) == same_of(by_client)
    assert by_mcp.keys() == by_client.keys() and by_mcp["verdict"]["first_divergence"] == 2 and by_mcp["quality"]["positions"] == 5


def test_ask_and_quality_answer_in_json_too(app):
    app.script()
    failed, text = called(app, "ask", prompt="hello", lane="cpu:fp32")
    assert not failed and set(json.loads(text)["record"]["lanes"]) == {"cpu:fp32"}
    failed, text = called(app, "quality", prompt="hello")
    assert not failed and len(json.loads(text)["positions"]) == 12


def test_a_fault_is_a_sentence(app):
    app.script(both={"fail_at": 2})
    assert called(app, "ask", prompt="hello") == (True, "cpu:nf4: The scripted lane failed here. Ask again.")
    assert called(app, "compare", prompt=" ") == (True, "The prompt is empty. Type a question, or pick one of the examples.")
    failed, text = called(app, "press", prompt="hello")
    assert failed and "Unknown tool" in text, "a listener of the page is no tool"


def test_a_page_that_was_not_asked_to_be_one_is_no_mcp_server(shared_app):
    assert not shared_app.demo.mcp_server


@pytest.mark.parametrize(("version", "words"), [("", "it is not here"), ("2.3.0", "mcp 2.3.0 is here")])
def test_without_the_package_or_with_another_version_the_start_says_what_to_install(monkeypatch, version, words):
    def find(_: str) -> str:
        if not version:
            raise metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(private.metadata, "version", find)
    with pytest.raises(WrongArguments, match=words) as caught:
        private.check_mcp()
    assert "pip install -r requirements-mcp.txt" in str(caught.value) and Path(ROOT, "requirements-mcp.txt").is_file()


def test_mcp_behind_a_password_is_refused():
    done = subprocess.run([sys.executable, "app.py", "--mcp", "--auth", "me:secret"], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and done.stderr.startswith("MCP clients give no password") and "secret" not in done.stderr
