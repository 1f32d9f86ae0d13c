"""Many visitors at once on a real page over the default model, bounded: `python tests/load/clients.py` (`make load`), some minutes, not in CI.

In: how many clients, how many new tokens. Each has a prompt of its own, asked alone first; then all ask at once, most by the endpoint, the rest as
tabs of the page, of which half press Stop. Out: figures on stdout; an AssertionError where an answer is not its prompt's, a place in the line was not
shown, a Stop reached another, memory grew, or the limits' refusal is no sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from gradio_client import Client  # noqa: E402
from gradio_client.exceptions import AppError  # noqa: E402

from tests.support.http_tab import HttpTab, from_address  # noqa: E402
from tests.support.until import until  # noqa: E402

DISHES = [
    "soup",
    "salad",
    "rice",
    "lamb",
    "fish",
    "tea",
    "bread",
    "curry",
    "cake",
    "juice",
    "beans",
    "steak",
    "noodles",
    "coffee",
    "water",
    "omelette",
    "pizza",
    "lentils",
    "prawns",
    "duck",
    "honey",
    "yoghurt",
    "mango",
    "lemonade",
    "kebab",
    "dumplings",
    "sausage",
    "pancakes",
    "spinach",
    "chocolate",
]
WAIT_S = 300.0
MOST_GROWTH = 64 * 2**20  # bytes, of the page or a lane, from one round to the next
TABS = 5  # every fifth client is a tab of the page
Tokens = dict[str, list[int]]  # by lane


def prompt(number: int) -> str:
    """A prompt that no other client asks."""
    return f"Hello, this is table {number + 1}. How much is the {DISHES[number % len(DISHES)]}?"


def tokens_of(record: dict, number: int) -> Tokens:
    """Each lane's answer to a client's prompt as token ids."""
    assert record["request"]["prompt"] == prompt(number), "a record of another's prompt"
    return {lane: part["runs"][0]["token_ids"] for lane, part in record["lanes"].items()}


def address(number: int) -> str:
    """Where a client comes from, as the proxy before the page says."""
    return f"198.51.100.{number + 1}"


@contextmanager
def served(**env: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """The page as a program of its own: its address, its process."""
    process = subprocess.Popen(
        [sys.executable, "app.py"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "GRADIO_ANALYTICS_ENABLED": "False", **env},
    )  # fmt: skip
    try:
        assert process.stdout
        yield process.stdout.readline().split()[1], process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def memory(process: subprocess.Popen) -> list[int]:
    """RSS of the page and of each of its lanes, in bytes."""
    page = psutil.Process(process.pid)
    return [each.memory_info().rss for each in (page, *sorted(page.children(recursive=True), key=lambda child: child.pid))]


@dataclass
class Round:
    """What the clients of one round saw."""

    answers: dict[int, Tokens] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    saw_place: set[int] = field(default_factory=set)
    took_s: float = 0.0


class Clients:
    """All clients of one page; `tokens` is the most that an answer may have."""

    def __init__(self, url: str, count: int, tokens: int) -> None:
        self.url, self.count, self.tokens = url, count, tokens
        self.clients = {number: self.client(number) for number in range(count) if number % TABS}

    def client(self, number: int) -> Client:
        """A client of the endpoint, who comes from an address of its own."""
        return Client(self.url, headers=from_address(address(number)), verbose=False)

    def ask(self, number: int, found: Round) -> None:
        """One client's prompt, to its end."""
        (self._ask_the_endpoint if number in self.clients else self._ask_the_page)(number, found)

    def _ask_the_endpoint(self, number: int, found: Round) -> None:
        job = self.clients[number].submit(prompt(number), max_new_tokens=self.tokens, api_name="/compare")
        while not job.done():
            status = job.status()
            told = "".join(unit.desc or "" for unit in status.progress_data or ())
            if status.rank or re.search(r"\d+ runs? before this one", told):  # Gradio's own line, or the engine's
                found.saw_place.add(number)
            time.sleep(0.05)
        found.answers[number] = tokens_of(job.result(), number)

    def _ask_the_page(self, number: int, found: Round) -> None:
        tab = HttpTab(self.url, f"tab{number}-{time.monotonic_ns()}", from_address(address(number)), all_lanes=True)
        tab.begin(prompt(number), ["", "chat", self.tokens, 0, 0, "auto"])
        if number % (2 * TABS):
            until(lambda: tab.saw("Waiting behind") or not tab.is_alive(), WAIT_S, "a place in the line")
            for listener in ("stop", "stop_1"):
                tab.call(listener)
            found.stopped.add(number)
        tab.join(WAIT_S)
        if tab.saw("Waiting behind") or tab.saw("behind "):
            found.saw_place.add(number)
        if number not in found.stopped:
            found.answers[number] = tokens_of(json.loads(tab.exported()), number)

    def all_at_once(self, also: Callable[[], None] | None = None) -> Round:
        """Every client asks at the same moment; `also` is done meanwhile."""
        found, begin, failed = Round(), threading.Barrier(self.count + 1), list[BaseException]()

        def one(number: int) -> None:
            begin.wait()
            self.ask(number, found)

        with ThreadPoolExecutor(self.count) as pool:
            jobs = [pool.submit(one, number) for number in range(self.count)]
            begin.wait()
            began = time.perf_counter()
            if also:
                also()
            failed += [error for job in jobs if (error := job.exception())]
        found.took_s = time.perf_counter() - began
        assert not failed, failed
        return found


def check(found: Round, alone: dict[int, Tokens], count: int) -> None:
    """Raise AssertionError where a client got what is not its own, or was not shown its place."""
    wrong = [number for number, answer in found.answers.items() if answer != alone[number]]
    assert not wrong, f"answers that are not those asked alone, or were cut by another's Stop: {wrong}"
    assert len(found.answers) + len(found.stopped) == count
    assert len(found.saw_place) >= count // 2, f"only {len(found.saw_place)} of {count} saw their place"
    distinct = len({json.dumps(answer) for answer in alone.values()})
    print(f"  {count} at once: {found.took_s:.1f} s, {len(found.answers)} answers as alone ({distinct} distinct), "
          f"{len(found.stopped)} pressed Stop, {len(found.saw_place)} saw their place", flush=True)  # fmt: skip


def without_limits(count: int, tokens: int) -> dict[int, Tokens]:
    """Two rounds with the limits off; gives each prompt's answer as asked alone."""
    with served(LIMITS="off") as (url, process):
        clients = Clients(url, count, tokens)
        one = clients.client(0)
        one.predict(prompt(0), max_new_tokens=tokens, api_name="/compare")  # loads both lanes
        began = time.perf_counter()
        alone = {number: tokens_of(one.predict(prompt(number), max_new_tokens=tokens, api_name="/compare"), number) for number in range(count)}
        print(f"limits off\n  {count} one after the other: {time.perf_counter() - began:.1f} s", flush=True)
        sizes = [memory(process)]
        for _ in range(3):
            check(clients.all_at_once(), alone, count)
            sizes.append(memory(process))
        for size in sizes:
            print("  RSS of page and lanes, MiB: " + ", ".join(f"{each / 2**20:.0f}" for each in size), flush=True)
        assert all(after - before < MOST_GROWTH for before, after in zip(sizes[-2], sizes[-1], strict=True)), "memory grows"
    return alone


def with_limits(count: int, tokens: int, alone: dict[int, Tokens]) -> None:
    """One round with the limits on, visitors told apart by a proxy's header; then refusals."""
    with served(LIMITS="on", TRUSTED_PROXIES="127.0.0.1", LIMIT_A_MINUTE="2") as (url, _):
        clients = Clients(url, count, tokens)
        clients.client(count + 1).predict(prompt(0), max_new_tokens=1, api_name="/compare")  # loads both lanes
        refused: list[str] = []

        def second() -> None:
            """Meanwhile one more visitor has a run under way, and asks for another in a second tab."""
            HttpTab(url, "first", from_address(address(count))).begin()
            refused.append(HttpTab(url, "second", from_address(address(count))).press("hi"))

        def ask_again() -> None:
            try:
                clients.client(1).predict("hi", max_new_tokens=1, api_name="/compare")
            except AppError as error:
                refused.append(str(error))

        print("limits on, visitors told apart by X-Forwarded-For", flush=True)
        check(clients.all_at_once(second), alone, count)
        for _ in range(3):
            ask_again()
        print("  refused: " + " | ".join(dict.fromkeys(refused)), flush=True)
        assert any("One prompt at a time" in words for words in refused) and re.search(r"Try again in \d+ s\.", " ".join(refused))


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=16)
    given = parser.parse_args()
    alone = without_limits(given.clients, given.tokens)
    with_limits(given.clients, given.tokens, alone)
    print("all as it should be")


if __name__ == "__main__":
    main()
