"""A real page over a tiny model, asked for long, left in the middle and robbed of its lanes: `python tests/load/soak.py [prompts] [tabs] [kills]`
(`make load`), some minutes each, not in CI.

Out: what page and lanes held before and after, once all was quiet again; an AssertionError where threads, handles, processes or files did not come back,
memory grew by more than 30 MiB, or a prompt was neither answered nor told why not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.load.clients import served  # noqa: E402
from tests.load.readings import left_behind, settled, table  # noqa: E402
from tests.support.http_tab import JSON, HttpTab  # noqa: E402
from tests.support.page_fixtures import CHROMIUM, CHROMIUM_FLAGS  # noqa: E402
from tests.support.tiny import make_checkpoint  # noqa: E402
from tests.support.until import until  # noqa: E402

WARM_UP = 50  # prompts before the first reading
AT_ONCE = 4
LONG = 1500  # new tokens of an answer that is left in the middle
WAIT_S = 120.0


@dataclass(frozen=True)
class Site:
    """A page that is served: its address, its process, the folders that it writes to."""

    url: str
    pid: int
    folders: tuple[Path, ...]

    def lanes(self) -> list[psutil.Process]:
        """The processes of its lanes."""
        return [child for child in psutil.Process(self.pid).children() if any("lane.worker" in word for word in child.cmdline())]


def ask(site: Site, number: int, tokens: int = 12) -> dict[str, Any]:
    """One prompt by the page's endpoint over plain HTTP: the record, or {"error": the sentence}."""
    body = json.dumps({"data": [f"hello {number}", "", "chat", tokens]}).encode()
    call = f"{site.url.rstrip('/')}/gradio_api/call/compare"
    with urllib.request.urlopen(urllib.request.Request(call, body, JSON), timeout=WAIT_S) as answer:
        event = json.load(answer)["event_id"]
    with urllib.request.urlopen(f"{call}/{event}", timeout=WAIT_S) as events:
        lines = events.read().decode().splitlines()
    kind, data = lines[-3 if not lines[-1] else -2 :][:2]
    found = json.loads(data.removeprefix("data: "))
    return found[0] if kind == "event: complete" else {"error": str(found)}


def outcome(record: dict[str, Any]) -> str:
    """The word answered where both lanes did, or what was told instead."""
    wrong = [record["error"]] if "error" in record else [run["error"] for lane in record["lanes"].values() for run in lane["runs"] if run["error"]]
    return " / ".join(wrong) or "answered"


def ask_many(site: Site, count: int, at_once: int = AT_ONCE) -> Counter[str]:
    """So many prompts, some at once; how they ended."""
    with ThreadPoolExecutor(at_once) as pool:
        return Counter(pool.map(lambda number: outcome(ask(site, number)), range(count)))


def tell(ended: Counter[str]) -> None:
    """How often prompts ended in which way."""
    for words, often in ended.most_common():
        print(f"  {often} x {words}")


def prompts(site: Site, count: int) -> None:
    """`count` prompts by the endpoint; to some a model of random weights has no readable answer."""
    ended = ask_many(site, count)
    tell(ended)
    assert ended.total() == count and ended["answered"] > 0.95 * count


def tabs(site: Site, count: int) -> None:
    """`count` pages opened, asked, and closed in the middle of the answer: a tenth in Chromium, the rest by HTTP."""
    browsed = max(1, count // 10)
    in_chromium(site, browsed)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda number: leave_in_the_middle(site, number), range(count - browsed)))
    print(f"  {browsed} in Chromium, {count - browsed} by HTTP")
    assert outcome(ask(site, 0)) == "answered"


def in_chromium(site: Site, count: int) -> None:
    """Pages closed once both answers are being written."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        context = browser.new_context()
        for number in range(count):
            page = context.new_page()
            page.set_default_timeout(60_000)
            page.goto(f"{site.url.rstrip('/')}/?max_new_tokens={LONG}")
            page.locator("#prompt textarea").fill(f"hello {number}")
            page.locator("#send").click()
            page.locator("[data-testid=bot] .message-content").first.wait_for()
            page.close()
        browser.close()


def leave_in_the_middle(site: Site, number: int) -> None:
    """A tab without a browser that hangs up once its first words have come."""
    name = f"soak{number}-{time.monotonic_ns()}"
    tab = HttpTab(site.url, name, all_lanes=True)
    with urllib.request.urlopen(f"{tab.url}/heartbeat/{name}", timeout=WAIT_S) as alive:
        alive.readline()
        told = tab.press(f"hello {number}", ["", "chat", LONG, 0, 0, "auto"])
        assert "alert" not in told, told
        for stream in tab.streams:
            tab._post("queue/join", stream, [])
        with urllib.request.urlopen(f"{tab.url}/queue/data?session_hash={name}", timeout=WAIT_S) as events:
            next(line for line in events if b"process_generating" in line)


def kills(site: Site, count: int, every_s: float = 60.0) -> None:
    """Lanes killed one after the other, `count` times, while prompts go on; each prompt is answered or told why not.

    Not before both have answered since the kill before: one that dies three times in a row rests for a minute.
    """
    over, ended = threading.Event(), Counter[str]()

    def go_on() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            ended[outcome(ask(site, number))] += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    for number in range(count):
        over.wait(every_s)
        before = ended["answered"]
        until(lambda before=before: ended["answered"] > before, WAIT_S, "an answer by both lanes")
        lanes = site.lanes()
        lanes[number % len(lanes)].kill()
    over.wait(every_s)
    over.set()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "a prompt that is never answered"
    tell(ended)
    assert ended["answered"] and outcome(ask(site, 0)) == "answered"


PARTS: dict[str, tuple[Callable[[Site, int], None], int]] = {"prompts": (prompts, 1000), "tabs": (tabs, 200), "kills": (kills, 10)}


def measured(name: str, count: int, model: Path) -> None:
    """One part on a page of its own, with what it held before and after."""
    work, _ = PARTS[name]
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        folders = tuple(Path(folder, each) for each in ("tmp", "cache", "home"))
        for each in folders:
            each.mkdir()
        env = {"MODEL_ID": str(model), "LIMITS": "off", "TMPDIR": str(folders[0]), "CACHE_DIR": str(folders[1]), "HF_HOME": str(folders[2])}
        with served(**env) as (url, process):
            site = Site(url, process.pid, folders)
            ask_many(site, WARM_UP)
            if work is tabs:
                tabs(site, 20)  # what the first pages of a kind make is kept for all
            before, began = settled(site.pid, url, folders), time.perf_counter()
            work(site, count)
            took_s = time.perf_counter() - began
            after = settled(site.pid, url, folders)
    print(f"{name}, {count} of them, {took_s:.0f} s\n{table(before, after)}", flush=True)
    if wrong := left_behind(before, after):
        raise AssertionError(f"{name}: {'; '.join(wrong)}")


def main() -> int:
    """Each part that is named, all without a name; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--count", type=int, help="so many instead of 1,000 prompts, 200 tabs, 10 kills")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-model-") as folder:
        model = make_checkpoint(Path(folder), context=2048)
        for name in given.parts or PARTS:
            measured(name, given.count or PARTS[name][1], model)
    print("all as it should be")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("no_proxy", "127.0.0.1")
    sys.exit(main())
