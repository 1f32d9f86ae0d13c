"""What we take from Gradio that it doesn't promise to keep: every such reach is here and nowhere else.

In: its private parts. Out: a page that starts sooner, idles quieter and is told of a client that has gone; where a version has such a part no more, the page does without.
`tests/ui/test_private.py` says of each what it relies on, so that an upgrade which breaks one is seen.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from importlib import metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from inference.errors import WrongArguments
from inference.host import certificates
from inference.host.child import on_zero_gpu

if TYPE_CHECKING:
    import gradio as gr

NUMBERS = {"GRADIO_NUM_PORTS": "0*[1-9][0-9]*", "GRADIO_DEFAULT_CONCURRENCY_LIMIT": "0*[1-9][0-9]*|none"}  # how Gradio can read them
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
log = logging.getLogger(__name__)
# ZeroGPU counts a run on the quota of the visitor whom the browser names in a header, which Gradio's page sends with queued events alone
IDENTIFIED: dict[str, Any] = {"queue": True, "concurrency_limit": 16} if on_zero_gpu() else {}
# seconds between two looks; the second is for progress bars, of which there are none
QUEUE_SLEEPS = {"sleep_when_free": 0.1, "progress_update_sleep_when_free": 1.0}
# of each visitor's last events, which Gradio makes a table of by pandas at the end of every one
QUEUE_NOTES = {"ANALYTICS_MAX_EVENTS": 1, "ANAYLTICS_CACHE_FREQUENCY": 2**62}


def import_gradio() -> None:
    """Import Gradio, unless that was done, without the editor stubs (.pyi files) that it would work out anew for each of its components.

    Half of its import time, seconds on a small machine. For a component whose source file `inspect` can't find it makes none.
    """
    if "gradio" in sys.modules:
        return
    getfile = inspect.getfile

    def getfile_but_for_components(thing: Any) -> str:
        if isinstance(thing, type) and thing.__module__.startswith("gradio."):
            raise OSError("no stub wanted")
        return getfile(thing)

    inspect.getfile = getfile_but_for_components  # type: ignore[assignment]
    try:
        with unproxied():
            import gradio  # noqa: F401
    finally:
        inspect.getfile = getfile


def check_variables(environ: MutableMapping[str, str] = os.environ) -> None:
    """Call it before Gradio is imported. Raise WrongArguments for a variable of Gradio's at whose value it would end with a trace.

    With GRADIO_DEBUG its launch would never come back: no lane would start, and no signal end the page.
    """
    environ.pop("GRADIO_DEBUG", None)
    for name, fits in NUMBERS.items():
        if (text := environ.get(name)) is not None and not re.fullmatch(fits, text):
            raise WrongArguments(f"{name}, a variable of Gradio's, must be a whole number above 0, not {text!r}. Set it to one, or unset it.")


def check_mcp() -> None:
    """Raise WrongArguments where Gradio could be no MCP server: its import of the package fails late, and of a version 2 silently."""
    try:
        version = metadata.version("mcp")
    except metadata.PackageNotFoundError:
        version = ""
    if not version.startswith("1."):
        here = f"mcp {version} is here" if version else "it is not here"
        raise WrongArguments(f"MCP needs the package mcp in a version 1, and {here}. Run: pip install -r requirements-mcp.txt")


def json_for_mcp() -> None:
    """Let MCP tools answer in JSON, not in Python's way of writing a dictionary, which no client can read back."""
    from gradio.mcp import GradioMCPServer

    theirs = GradioMCPServer.postprocess_output_data
    if theirs.__module__ == __name__:
        return

    def in_json(self: GradioMCPServer, data: Any, root_url: str) -> Any:
        return theirs(self, [json.dumps(each, ensure_ascii=False) if isinstance(each, dict) else each for each in data], root_url)

    GradioMCPServer.postprocess_output_data = in_json


def calm(demo: gr.Blocks) -> None:
    """Let Gradio look at its queue 10 times a second, not 1,000, which took 6 % of a core while idle, and keep no notes of who asked what.

    A run begins when `begin` submits it, which is not queued; only its first frame may come 0.1 s later.
    """
    queue = getattr(demo, "_queue", None)
    for name, value in (QUEUE_SLEEPS | QUEUE_NOTES).items():
        if hasattr(queue, name):
            setattr(queue, name, value)
        else:
            log.warning("this Gradio has no %s: the page takes more of a core, idle or not", name)


def fetch_nothing() -> None:
    """Let Gradio fetch no address that a visitor names as a file, of whatever size; on its own it would any public one."""
    import safehttpx
    from gradio import processing_utils

    async def refused(*_: object, **__: object) -> Any:
        raise ValueError("this page fetches no address")

    safehttpx.async_validate_url = refused  # asked before each address that is not on the next one's list
    processing_utils.async_ssrf_protected_get = refused


def lean_sessions(demo: gr.Blocks) -> None:
    """Let a session keep no copy of the page: 320 KiB for each tab and each call of an endpoint, what was typed among it, for links that this page does not make.

    Gradio keeps thousands of sessions, and half of an endpoint's time went into the copy.
    """
    from gradio import state_holder

    theirs = state_holder.SessionState
    if theirs.__module__ == __name__:
        return

    class LeanSession(theirs):  # type: ignore[misc, valid-type]
        config_values = property(lambda _: {}, lambda _, __: None)  # whatever is put there is gone

        def __init__(self, blocks: gr.Blocks) -> None:
            super().__init__(SimpleNamespace(default_config=blocks.default_config, blocks=()))  # copies only what is in `blocks`

        def _update_value_in_config(self, key: int, value: Any) -> None:
            """What was typed is kept nowhere."""

    try:
        LeanSession(demo)
    except (AttributeError, TypeError):
        log.warning("this Gradio's sessions are made in another way: each keeps a copy of the page")
    else:
        state_holder.SessionState = LeanSession  # type: ignore[misc]


def forget(demo: gr.Blocks, session: str) -> None:
    """Let go of what Gradio keeps of a tab that is closed: some of the parts that it was shown, by default for ever."""
    getattr(getattr(demo, "state_holder", None), "session_data", {}).pop(session, None)


def _event_at_hand() -> tuple[Any, Any]:
    """The queue and the event that a queued listener's thread works for; None for each that a version does not have."""
    from gradio.context import LocalContext

    queue: Any = getattr(LocalContext.blocks.get(None), "_queue", None)
    return queue, getattr(queue, "event_ids_to_events", {}).get(LocalContext.event_id.get(None))


def left() -> Callable[[], bool]:
    """Whether whoever asked for the event at hand has left or cancelled it, to be looked at from any thread; called in that of a listener that is queued.

    Gradio closes a generator of theirs once that yields; a plain function it lets go on to its end. False for ever where a version has no such event.
    """
    queue, event = _event_at_hand()
    if event is None:
        return lambda: False
    return lambda: not event.alive or not any(event in job for job in list(queue.active_jobs) if job)


def unread() -> Callable[[], object]:
    """What lies at the head of the messages for whoever asked for the event at hand, None where all were taken; called and looked at as `left` is.

    The same message twice means that nobody took one between the two looks. None for ever where a version has no such messages.
    """
    queue, event = _event_at_hand()
    messages: Any = getattr(getattr(queue, "pending_messages_per_session", {}).get(getattr(event, "session_hash", None)), "_queue", ())

    def head() -> object:
        try:
            return messages[0]  # in one step: another thread puts and takes meanwhile
        except IndexError:
            return None

    return head


def believe(proxies: Iterable[str]) -> None:
    """Let the web server take a visitor's address from X-Forwarded-For only where one of `proxies` is the peer, and from no other hop of it.

    Gradio makes the server by itself, which else believes whatever comes from this machine.
    """
    os.environ["FORWARDED_ALLOW_IPS"] = ",".join(proxies) or "none"


def has_messages(app: Any, session: str) -> bool:
    """Whether the app, a served page, has a place for messages to this session or event, which stays when all were read; a version that keeps them elsewhere is asked itself."""
    try:
        return session in app.get_blocks()._queue.pending_messages_per_session
    except AttributeError:
        return True


@contextmanager
def unproxied() -> Iterator[None]:
    """Gradio opens HTTP clients as it is imported, and asks the page whether it is there as that is opened: by no proxy, some can't even be used (SOCKS).

    Nor by a file of certificates, which may not be there. From then on what runs on this machine is asked past the proxies that are set.
    """
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    others = {name: os.environ[name] for name in certificates.VARIABLES if name in os.environ}
    for name in [*proxies, *others]:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(proxies | others)
        past = (proxies.get("no_proxy") or proxies.get("NO_PROXY") or "").split(",")
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys(filter(None, [*past, *THIS_MACHINE])))


def share_link(demo: gr.Blocks) -> str:
    """Open a tunnel to the page that is served, and give its public address; waits for minutes where the network is silent.

    Raises whatever went wrong on the way. `launch` would do the same, but not return before, and have the page's script fetched from elsewhere.
    """
    from gradio import networking

    found = networking.setup_tunnel(
        local_host=demo.server_name, local_port=demo.server_port, share_token=demo.share_token,
        share_server_address=None, share_server_tls_certificate=None,
    )  # fmt: skip
    demo.share_url = found.replace("http://", "https://", 1)
    return demo.share_url
