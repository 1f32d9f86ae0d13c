"""Starts the page: flags and environment -> settings -> engine -> page -> web server, until Ctrl+C, SIGTERM or a closed terminal.

`python app.py` is the program, here and on a Space; `gradio app.py` runs it with hot reload, for which `demo` is at
module level. Importing this file starts no process and no thread. Gradio is imported only once the settings are
known to be good, since it reads some of the same variables and fails less politely.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # which Python leaves out where it is told to (PYTHONSAFEPATH, -P, -I)

from inference.host import missing, stopping

if __name__ == "__main__":
    missing.told()
    stopping.whole_streams()
    stopping.at_once()

from inference.host.child import on_zero_gpu

if on_zero_gpu():
    import spaces  # noqa: F401 - the platform's own package, which must come before torch, gradio and whatever else touches CUDA

import atexit
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from inference import log as plain
from inference import terminal
from inference.cli.exits import FAILED, STOPPED, WRONG
from inference.cli.parser import Parser
from inference.engine.dispatch import Starter
from inference.engine.engine import Engine
from inference.engine.process import start_worker
from inference.errors import InferenceError, WrongArguments
from inference.host import temporary
from inference.host.machine import check_platform, check_threads
from inference.settings import VARIABLES, Settings, from_env

if TYPE_CHECKING:
    import gradio as gr

log = logging.getLogger(__name__)
FLAGS: dict[str, tuple[str, str]] = {
    "--share": ("share", "make a public link, good for a week; give --auth as well (default: no)"),
    "--auth": ("auth", "user:password that visitors must give (default: none)"),
    "--mcp": ("mcp", "be an MCP server too, with the tools compare, ask and quality; needs requirements-mcp.txt (default: no)"),
    "--host": ("host", "address to listen on, 0.0.0.0 for every network (default: 127.0.0.1)"),
    "--port": ("port", "port to listen on (default: the first free one from 7860 up)"),
    "--model": ("model_id", "Hub id, folder, .gguf file or shape:NAME (default: menu, the packaged one)"),
    "--lanes": ("lanes", "lanes to show, separated by commas (default: auto:nf4,cpu:fp32)"),
}
_engines: list[Engine] = globals().get("_engines", [])  # outlives a hot reload, which runs this file again


def read_settings(argv: list[str]) -> Settings:
    """Settings from the environment, each flag overriding its variable; raises InferenceError."""
    parser = Parser(
        "python app.py", "Serve the page: one prompt, answered by the model in 4 bits and in full precision, side by side, measured.", "[options]",
        ("python app.py", "python app.py --model you/your-fine-tune --port 8000", "python app.py --share --auth user:password"),
    )  # fmt: skip
    for flag, (name, words) in FLAGS.items():
        words += f"; the variable {VARIABLES[name]} sets it too"
        if flag in ("--share", "--mcp"):
            parser.add_argument(flag, dest=name, action="store_const", const="1", help=words)
        else:
            parser.add_argument(flag, dest=name, help=words, metavar=flag[2:].upper())
    given = {VARIABLES[name]: value for name, value in vars(parser.parse_args(argv)).items() if value is not None}
    settings = from_env({**os.environ, **given})
    settings.check_shapes()
    check_threads(settings)
    return settings


def build_page(settings: Settings, starter: Starter = start_worker) -> tuple[gr.Blocks, Engine, Callable[[], None]]:
    """The page, its engine, and the function that starts the engine; nothing is started yet. Raises InferenceError where none can run."""
    check_platform()
    temporary.check()
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    if not settings.port:
        os.environ.pop("GRADIO_SERVER_PORT", None)  # Gradio would take a zero there for a port
    from ui.private import check_mcp, check_variables

    check_variables()
    from ui.build import build

    if settings.mcp:
        check_mcp()
    engine = Engine(settings, starter)
    _engines.append(engine)
    start = start_once(engine, _engines)
    return build(engine, start), engine, start


def lane_starter(settings: Settings) -> Starter:
    """How lanes are started here: as processes, but on ZeroGPU, whose GPU lanes are put on the card now, in the main thread, before the page opens."""
    if not on_zero_gpu():
        return start_worker
    from inference.space.zero import ZeroStarter  # brings torch, which the page's process does without everywhere else

    begin_log(settings)
    starter = ZeroStarter(settings)
    starter.place()
    return starter


def begin_log(settings: Settings) -> None:
    """Log to stderr from now on."""
    plain.begin(settings.auth.partition(":")[2])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    plain.hush_clients(logging.WARNING)


def start_once(engine: Engine, others: Iterable[Engine] = ()) -> Callable[[], None]:
    """A function that starts `engine` at its first call, and ends the others: those of pages that a hot reload replaced."""
    lock, started = threading.Lock(), threading.Event()

    def start() -> None:
        with lock:
            if started.is_set():
                return
            started.set()
            atexit.register(engine.close)
            engine.start()
        for other in others:
            if other is not engine:
                other.close()

    return start


def check_address(settings: Settings) -> None:
    """Raise WrongArguments if the host can't be listened on, or the port asked for is taken."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:  # the second: a name that no host can have
        where = f"{settings.host}, port {settings.port}" if settings.port else settings.host
        raise WrongArguments(
            f"Can't listen on {where} ({getattr(error, 'strerror', None) or error}). Choose another with --port or --host, or end the program that uses it."
        ) from error


def main(argv: list[str] | None = None, starter: Starter | None = None) -> int:
    """Serve the page until told to end; returns the exit code."""
    global demo
    terminal.prepare()
    try:
        settings = read_settings(sys.argv[1:] if argv is None else argv)
        reloading = threading.current_thread() is not threading.main_thread()
        if not reloading:
            check_address(settings)
        demo, engine, start = build_page(settings, starter or lane_starter(settings))
    except InferenceError as error:
        terminal.tell(error)
        return WRONG if isinstance(error, WrongArguments) else FAILED
    except KeyboardInterrupt:  # before the page is up; after that it is how the page ends
        terminal.say("\nStopped.", sys.stderr)
        return STOPPED
    return 0 if reloading else serve(demo, engine, start, settings)


def serve(page: gr.Blocks, engine: Engine, start: Callable[[], None], settings: Settings) -> int:
    """Open the page, then start the lanes, and wait for Ctrl+C or SIGTERM; leaves no process behind."""
    from ui.build import launch
    from ui.sharing import notices, open_link

    begin_log(settings)
    log.info("settings: %s", settings)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, *stopping.hang_up()):
        signal.signal(number, lambda *_: ended.set())
    try:
        url = launch(page, settings)
    except OSError as error:
        terminal.tell(f"The page can't be served: {error}")
        return FAILED
    terminal.say(f"Open {url}")
    if page.mcp_error:  # Gradio goes on without it, and says so only where it is not quiet
        terminal.say(page.mcp_error, sys.stderr)
    for sentence in notices(settings):
        terminal.say(sentence, sys.stderr)
    open_link(page, settings, url)
    start()
    while not ended.wait(0.5):
        pass
    terminal.say("Ending the lanes.")
    engine.close()
    return 0


if __name__ == "__main__":
    code = main()
    if code:  # a hot reload must not exit
        sys.exit(code)
else:
    demo = build_page(from_env())[0]
