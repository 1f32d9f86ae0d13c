"""The tab "Decide" in headless Chromium over fake lanes: a decision, what flips it, a refusal, the report, and its looks on a phone."""

from __future__ import annotations

from tests.support.tab_pages import compare, decide, open_page, save


def test_a_decision_from_the_visitor_s_own_comparisons(open_tab, fake_app):
    fake_app.script(both={"tokens": 3})
    tab = open_tab()
    page, told, rests = tab.page, tab.page.locator("#decision .told"), tab.page.locator("#decide-rests")
    open_page(tab, "Decide")
    assert "Nothing was measured in this browser tab yet" in rests.text_content() and page.locator("#decide-report").is_disabled()
    open_page(tab, "One prompt")
    compare(tab)
    open_page(tab, "Decide")
    tab.wait(lambda: "It rests on 2 runs of 1 prompt" in rests.text_content(), "what it rests on")
    decide(tab, "0.8", "0.1")
    assert told.text_content().startswith("Serve FP32 on the CPU: $73.00 a month")
    tab.wait(lambda: "Serve FP32" in page.locator("#said").text_content(), "the decision is read out")
    decide(tab, "0.05", "0.1")
    assert told.text_content().startswith("Serve 4-bit NF4 on the CPU: $36.50 a month")
    tab.wait(lambda: page.evaluate("document.querySelector('.verdict').getBoundingClientRect().bottom < innerHeight"), "in view")
    name, text = save(tab, "#decide-report")
    assert name == "decision.html" and "Serve 4-bit NF4 on the CPU: $36.50 a month" in text

    limit = page.get_by_label("First word within (s)")
    limit.fill("soon")
    page.locator("#decide-button").click()
    page.get_by_text("The limit on the first word must be a number, such as 20 or 0.5, not “soon”.").wait_for()
    tab.wait(lambda: limit.evaluate("field => field === document.activeElement"), "the focus in the field")
    assert limit.input_value() == "soon" and told.text_content().startswith("Serve 4-bit"), "nothing is lost"

    page.set_viewport_size({"width": 390, "height": 844})
    page.locator(".more > summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.get_by_role("tab").count() == 4, "all tabs are in sight"


def test_a_hardware_fills_its_price_in_and_a_typed_one_stays(tab):
    open_page(tab, "Decide")
    price = tab.page.locator("#decide-form .price input:not([role])").last
    hardware = tab.page.locator("#decide-form .price input[role]").last
    price.fill("0.5")
    hardware.click()
    tab.page.get_by_role("option", name="CPU Upgrade: $0.03 an hour").click()
    tab.wait(lambda: price.input_value() == "0.03", "the price")
    hardware.click()
    tab.page.get_by_role("option", name="Type a price").click()
    tab.page.wait_for_timeout(100)
    assert price.input_value() == "0.03"
    price.fill("")
    open_page(tab, "One prompt")
