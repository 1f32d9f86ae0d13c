"""Who may ask and how often, on a fake clock: one run at a time, so many a minute, prompts and answers so long; no page."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from inference.errors import InferenceError
from inference.events import Request
from inference.settings import Settings
from tests.support.fakes import FakeClock
from ui import visitors
from ui.visitors import Visitors, address, trusted_proxies

SPACE = {"SPACE_ID": "owner/name"}
ASKED = Request("hi")


def caller(host: str | None = "203.0.113.7") -> SimpleNamespace:
    return SimpleNamespace(client=SimpleNamespace(host=host) if host is not None else None)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def page(clock) -> Visitors:
    return Visitors(Settings(limits="on", limit_a_minute=3), {}, clock)


def refusal(page: Visitors, *args, **more) -> str:
    with pytest.raises(InferenceError) as refused:
        page.enter(*args, **more)
    return str(refused.value)


@pytest.mark.parametrize(
    ("settings", "environ", "limited"),
    [
        (Settings(), {}, False),
        (Settings(host="0.0.0.0"), {}, False),
        (Settings(share=True), {}, True),
        (Settings(share=True, auth="me:pass"), {}, True),
        (Settings(), SPACE, True),
        (Settings(limits="on"), {}, True),
        (Settings(share=True, limits="off"), SPACE, False),
    ],
)
def test_there_are_limits_where_strangers_come_and_where_they_are_asked_for(settings, environ, limited):
    page = Visitors(settings, environ)
    assert page.limited is limited
    page.enter(caller(), ASKED)
    if limited:
        assert "One prompt at a time" in refusal(page, caller(), ASKED)
    else:
        assert page.enter(caller(), Request("x" * 100_000, max_new_tokens=4000), rows=1000) and len(page) == 0


def test_a_second_run_waits_until_the_first_is_over_and_another_visitor_s_does_not(page):
    running = [True]
    page.enter(caller(), ASKED).over = lambda: not running[0]
    assert "Try again when it has ended" in refusal(page, caller(), ASKED)
    page.enter(caller("203.0.113.8"), ASKED)
    running[0] = False
    page.enter(caller(), ASKED)


def test_a_run_that_ends_by_a_fault_is_over(page):
    with pytest.raises(ZeroDivisionError), page.visiting(caller(), ASKED):
        raise ZeroDivisionError
    page.enter(caller(), ASKED)


def test_after_so_many_a_minute_the_next_is_let_in_when_the_sentence_says(page, clock):
    for _ in range(3):
        page.enter(caller(), ASKED).end()
        clock.now += 10
    told = refusal(page, caller(), ASKED)
    wait_s = int(re.fullmatch(r"3 prompts a minute are the most here\. Try again in (\d+) s\.", told)[1])
    clock.now += wait_s - 1
    assert "Try again in 1 s." in refusal(page, caller(), ASKED), "a refusal counts for nothing"
    clock.now += 1
    page.enter(caller(), ASKED)


@pytest.mark.parametrize(
    ("asked", "rows", "words"),
    [
        (Request("x" * 3000, system="y" * 1001), 1, "The prompt has 4,001 characters, system prompt included; 4,000 are the most here. Shorten it"),
        (Request("hi", max_new_tokens=257), 1, "257 new tokens are more than may be asked for here, which is 256. Set fewer"),
        (ASKED, 21, "The file has 21 prompts; 20 are the most here. Split it."),
    ],
)
def test_what_is_too_long_is_refused_before_it_counts(page, asked, rows, words):
    assert words in refusal(page, caller(), asked, rows) and len(page) == 0
    page.enter(caller(), Request("x" * 4000, max_new_tokens=256), rows=20)


def test_zero_lifts_a_limit(clock):
    page = Visitors(Settings(limits="on", limit_a_minute=0, limit_characters=0, limit_new_tokens=0, limit_rows=0), {}, clock)
    for _ in range(100):
        page.enter(caller(), Request("x" * 9000, max_new_tokens=4000), rows=900).end()
    assert page.most_new_tokens(4096) == 4096


def test_visitors_are_forgotten_after_a_minute_unless_they_run_and_are_never_more_than_so_many(page, clock, monkeypatch):
    page.enter(caller("198.51.100.1"), ASKED)
    for number in range(50):
        page.enter(caller(f"203.0.113.{number}"), ASKED).end()
    clock.now += visitors.MINUTE_S
    page.enter(caller("198.51.100.2"), ASKED).end()
    assert len(page) == 2 and "One prompt at a time" in refusal(page, caller("198.51.100.1"), ASKED)
    monkeypatch.setattr(visitors, "MOST_VISITORS", 20)
    for number in range(50):
        page.enter(caller(f"203.0.113.{number}"), ASKED).end()
    assert len(page) <= 21 and "One prompt at a time" in refusal(page, caller("198.51.100.1"), ASKED)


@pytest.mark.parametrize(
    ("host", "who"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("a made up entry", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_visitor_is_an_address_and_of_ipv6_a_household_s(host, who):
    assert address(caller(host)) == who


@pytest.mark.parametrize(
    ("settings", "environ", "believed"),
    [
        (Settings(), {}, ()),
        (Settings(limits="on"), {}, ()),
        (Settings(trusted_proxies=("10.0.0.7",)), SPACE, ("10.0.0.7",)),
        (Settings(host="0.0.0.0"), SPACE, visitors.PRIVATE),
        (Settings(share=True), {}, visitors.PRIVATE),
        (Settings(share=True, host="0.0.0.0"), {}, visitors.LOOPBACK),
    ],
)
def test_a_forwarded_address_is_believed_only_of_a_proxy_that_is_known(settings, environ, believed):
    assert trusted_proxies(settings, environ) == believed
