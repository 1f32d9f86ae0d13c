"""The page as axe-core and a screen reader find it, in headless Chromium over fake lanes: light and dark, every tab, empty and finished."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.support.browser_tab import LEFT, RIGHT, Tab
from tests.support.tab_pages import decide

BAD = ("serious", "critical")
TABS = ("One prompt", "Prompts file", "History", "Decide")


def found(tab: Tab, where: str) -> list[str]:
    """What is serious, with the parts that it is about."""
    tab.page.wait_for_timeout(200)  # colours fade in
    response = Axe().run(tab.page).response
    return [
        f"{where}: {each['id']}: {node['target']} {node['failureSummary']}"
        for each in response["violations"]
        if each["impact"] in BAD
        for node in each["nodes"]
    ]


def found_in_tabs(tab: Tab, where: str) -> list[str]:
    told: list[str] = []
    for name in TABS:
        tab.page.get_by_role("tab", name=name).click()
        told += found(tab, f"{where}, {name}")
    tab.page.get_by_role("tab", name=TABS[0]).click()
    return told


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_audit_finds_nothing_serious(open_tab, fake_app, theme):
    tab = open_tab()
    tab.page.goto(f"{tab.app.url}/?__theme={theme}")
    tab.page.locator("#send").wait_for()
    told = found_in_tabs(tab, f"{theme}, empty")
    tab.send()
    tab.wait_idle()
    tab.page.locator("#details button").first.click()
    decide(tab, "0.8", "0.1")
    told += found_in_tabs(tab, f"{theme}, finished")
    tab.page.locator("#settings-open").click()
    told += found(tab, f"{theme}, settings")
    tab.page.keyboard.press("Escape")
    fake_app.script(cpu_nf4={"fail_at": 4})
    tab.send()
    tab.wait_idle()
    told += found(tab, f"{theme}, failed")
    assert not told, "\n".join(told)


HEARD = """() => { window.heard = []; new MutationObserver(() => window.heard.push(document.querySelector('#said').textContent))
    .observe(document.querySelector('#said'), {childList: true, characterData: true, subtree: true}); }"""


def test_each_phase_is_announced_once_and_no_token(tab, fake_app):
    fake_app.script(both={"tokens": 30, "token_s": 0.02})
    tab.wait(lambda: tab.page.locator("#said[role=status][aria-live=polite]").count(), "the live region")
    tab.page.evaluate(HEARD)
    tab.choose("Together")
    tab.send()
    tab.wait_idle()
    tab.wait(lambda: any("writes" in words or "Equally" in words for words in tab.page.evaluate("window.heard")), "who won is read out")
    heard = tab.page.evaluate("window.heard")
    of_lanes = [part for words in heard for part in words.split(". ") if part.startswith(("4-bit (NF4): ", "Full precision (FP32): "))]
    assert {f"{name}: {phase}" for name in ("4-bit (NF4)", "Full precision (FP32)") for phase in ("Writing", "Done")} <= set(of_lanes)
    assert len(of_lanes) == len(set(of_lanes)), "each once"
    assert not any("chicken" in words or "–" in words for words in heard)


def heard(tab: Tab, words: str) -> list[str]:
    """All that was read out, once these words were; nothing of it is told again."""
    tab.wait(lambda: any(words in each for each in tab.page.evaluate("window.heard")), f"{words!r} is read out")
    return tab.page.evaluate("window.heard.splice(0)")


def test_what_a_scoring_and_a_decision_come_to_is_read_out_the_same_as_before_or_not(tab):
    tab.send()
    tab.wait_idle()
    tab.page.evaluate(HEARD)
    tab.page.locator("#fork-button:enabled").click()
    heard(tab, "both lanes had the same first choice")
    decide(tab, "0.8", "0.1")
    heard(tab, "Serve FP32 on the CPU")
    tab.page.get_by_role("textbox", name="Answers a day").fill("1001")
    decide(tab, "0.8", "0.1")
    heard(tab, "Serve FP32 on the CPU")
    decide(tab, "much", "0.1")
    tab.page.wait_for_timeout(300)
    assert not tab.page.evaluate("window.heard"), "the field's own sentence is"
    tab.page.locator("#decide-form .price input:not([role])").first.fill("")
    tab.changed = True


def test_where_nobody_won_the_reason_is_read_out_and_no_dash(tab, fake_app):
    tab.page.evaluate(HEARD)
    fake_app.script(both={"fail_at": 4})
    tab.send()
    tab.wait_idle()
    assert not any("–" in words for words in heard(tab, "No winner"))


def test_an_answer_is_not_read_out_as_it_comes_and_has_its_lanes_name(tab):
    tab.send()
    tab.wait_idle()
    for lane, name in ((LEFT, "4-bit (NF4)"), (RIGHT, "Full precision (FP32)")):
        log = tab.page.locator(f"{lane} [role=log]")
        tab.wait(lambda log=log: log.get_attribute("aria-live") == "off", "the answer's log")
        assert log.get_attribute("aria-label") == f"Answer of {name}"
    assert not tab.page.locator(".lane [aria-live]:not([aria-live=off])").count()
