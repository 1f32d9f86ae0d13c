"""More visitors than a page once streamed to: each is shown its place in the line and is answered, over HTTP and fake lanes."""

from __future__ import annotations

from tests.support.http_tab import HttpTab
from tests.support.until import until

VISITORS = 20


def test_the_twentieth_visitor_of_a_slow_lane_is_shown_its_place_and_is_answered(fake_app):
    fake_app.script(cpu_fp32={"hold_at": 2})
    visitors = [HttpTab(fake_app.url, f"visitor{number}") for number in range(VISITORS)]
    for visitor in visitors:
        visitor.begin()
    until(lambda: visitors[-1].saw(f"Waiting behind {VISITORS - 1}"), 30, what="the last one's place")
    fake_app.script()
    until(lambda: not any(visitor.is_alive() for visitor in visitors), 60, what="all answered")
    assert not any(visitor.saw("read already") or visitor.saw("is over") for visitor in visitors)
    assert all(visitor.saw("chicken") and visitor.saw("Cut at 3 tokens") for visitor in visitors)
