"""Ask a page from a program: both lanes' answers and their figures, the first lane's while it is written.

    python examples/client.py "hello good morning may i see the menu" --page http://127.0.0.1:7860

A Space is named OWNER/NAME. Needs gradio_client; the page is `python app.py`, here or elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

try:
    from gradio_client import Client
    from gradio_client.client import Job
    from gradio_client.exceptions import AuthenticationError
except ModuleNotFoundError as missing:
    sys.exit(f"{missing.name} is not installed for this Python ({sys.executable}). Run: pip install gradio_client")

# what raises the faults of the network: which of them depends on the versions of gradio_client and huggingface_hub
NETWORK = {"httpx", "httpx2", "httpcore", "httpcore2"}


def main(argv: Sequence[str] | None = None) -> int:
    """Ask, and print what came back; returns the exit code."""
    parser = argparse.ArgumentParser(description="Ask a page from a program.")
    parser.add_argument("prompt", nargs="?", default="hello good morning may i see the menu")
    parser.add_argument("--page", default="http://127.0.0.1:7860", help="the page's address, or a Space's OWNER/NAME (default: %(default)s)")
    parser.add_argument("--max-new-tokens", type=int, default=50, help="where an answer is cut off (default: %(default)s)")
    parser.add_argument("--stream", metavar="LANE", help="ask this lane alone, such as cpu:fp32, and print its answer as it is written")
    options = parser.parse_args(argv)
    try:
        client = Client(options.page, verbose=False)
    except AuthenticationError as error:
        return failed(error)
    except Exception as error:  # noqa: BLE001 - whatever it met instead of a page
        return failed(f"No page at {options.page}: start it with python app.py, or check --page. ({reason(error)})")
    try:
        if options.stream:
            stream(client, options.prompt, options.stream, options.max_new_tokens)
        else:
            compare(client, options.prompt, options.max_new_tokens)
    except ValueError as error:  # a value that can't be used or a lane that failed (AppError), an endpoint that this page does not have
        return failed(error)
    except Exception as error:
        if not isinstance(error, CancelledError) and type(error).__module__.partition(".")[0] not in NETWORK:
            raise
        return failed(f"The page at {options.page} went away. Ask again. ({reason(error)})")
    return 0


def failed(told: object) -> int:
    """Tell it; returns the exit code."""
    print(told, file=sys.stderr)
    return 1


def reason(error: Exception) -> str:
    """What went wrong, in one line."""
    return textwrap.shorten(str(error), 200) or type(error).__name__


def compare(client: Client, prompt: str, max_new_tokens: int) -> None:
    """Both answers, then how the lanes compare."""
    record = client.predict(prompt, max_new_tokens=max_new_tokens, api_name="/compare")
    for name, lane in record["lanes"].items():
        run = lane["runs"][0]
        print(f"{name}\n  {run['error'] or run['text'].strip()}\n  {figures(run)}\n")
    for pair in record["verdict"]["pairs"]:
        if pair["decode"]:
            print(f"{pair['other']} writes {pair['decode']:.2f} times as fast as {pair['reference']}.")


def stream(client: Client, prompt: str, lane: str, max_new_tokens: int) -> None:
    """One lane's answer as it is written, then its figures."""
    shown = ""
    job = client.submit(prompt, lane=lane, max_new_tokens=max_new_tokens, api_name="/ask")
    for frame in frames(job):
        print(frame["text"][len(shown) :], end="", flush=True)
        shown = frame["text"]
    if shown:
        print()
    last = job.result()  # the frames end without a word where the call failed; this raises what went wrong
    for found in last["record"]["lanes"].values():
        print(figures(found["runs"][0]))


def frames(job: Job) -> Iterator[dict[str, Any]]:
    """Each frame as it comes. `for frame in job` does the same, but waits for ever where the page goes away meanwhile."""
    seen, over = 0, False
    while not over:
        over = job.done()
        found = job.outputs()[seen:]
        yield from found
        seen += len(found)
        time.sleep(0.02)


def figures(run: dict[str, Any]) -> str:
    """A run's figures in one line; what was not measured is left out."""
    words = (("first token {} s", run["ttft_s"]), ("{} tok/s", run["decode_tps"]), ("total {} s", run["total_s"]))
    return ", ".join([f"{run['new_tokens']} tokens", *(told.format(f"{value:.3g}") for told, value in words if value is not None)])


if __name__ == "__main__":
    sys.exit(main())
