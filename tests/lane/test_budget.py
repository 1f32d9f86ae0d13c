"""A chat template that would never end, fill the memory, or read what is not its own is refused in a sentence; ordinary ones may multiply."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from inference.errors import InferenceError
from inference.events import Request
from inference.lane import budget, template
from inference.lane.text import Encoder
from tests.support.tiny import TEMPLATE, make_tokenizer

LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a %}{% endfor %}{% endfor %}"
DOUBLES = "{% set n = namespace(x='abcdefgh' * 4096) %}{% for a in range(40) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}"
CALLS = "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}"
REFUSED = {
    "a range that is too long": ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
    "loops without end": (LOOPS, "did not come to its end in 0.1 s"),
    "a text that doubles": (DOUBLES, "its text does not come to an end"),
    "a macro that calls itself": (CALLS, "recursion"),
    "one huge text": ("{{ 'x' * 10**10 }}", "\\* of something that large"),
    "one huge list": ("{{ (10**10 * [1]) | length }}", "\\* of something that large"),
    "one huge number": ("{{ 7 ** (10**9) }}", "\\*\\* of something that large"),
    "a file": ("{% include '/etc/passwd' %}", "no loader"),
    "a class": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    "a module": ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", "unsafe"),
    "a thing that it changes": ("{{ messages.append(1) }}", "not safely callable|unsafe"),
}


def encoder(chat_template: str) -> Encoder:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = chat_template
    return Encoder(tokenizer)


def here(work):
    return work()


def in_a_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("where", [here, in_a_thread])
def test_a_template_that_goes_too_far_is_refused_and_nothing_is_left_of_it(what, where, monkeypatch):
    written, words = REFUSED[what]
    if written == LOOPS:
        monkeypatch.setattr(template.budget, "bounded", partial(budget.bounded, 0.1))

    def refused():
        before = sys.gettrace()
        with pytest.raises(InferenceError, match=f"chat template refused the prompt .*(?:{words})"):
            encoder(written + TEMPLATE).encode(Request("hello"))
        assert sys.gettrace() is before

    handler = signal.getsignal(signal.SIGVTALRM)
    where(refused)
    assert signal.getsignal(signal.SIGVTALRM) == handler and signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_a_template_may_multiply_and_take_powers():
    ordinary = encoder("{{ '-' * 20 }}{{ 3 * 4 }}{{ 2 ** 10 }}{{ 1.5 * 2 }}" + TEMPLATE).encode(Request("hello"))
    assert "--------------------12" in encoder(TEMPLATE)._tokenizer.decode(ordinary.ids).replace(" ", "")
