"""The page in headless Chromium over fake lanes: faults, hostile text, looks and what stays quiet."""

from __future__ import annotations

import pytest

from tests.support.browser_tab import LEFT, RIGHT, Tab

# ---- faults


def test_a_failing_lane_tells_its_sentence_and_the_other_completes(tab, fake_app):
    fake_app.script(cpu_nf4={"fail_at": 4}, cpu_fp32={"tokens": 12})
    tab.send()
    tab.wait_idle()
    assert (tab.status(LEFT), tab.sentence(LEFT)) == ("Failed", "The scripted lane failed here. Ask again.")
    assert tab.answer(LEFT).startswith("We have chicken"), "the text so far is kept"
    assert tab.status(RIGHT) == "Done"
    tab.wait(lambda: "No winner: 4-bit failed." in tab.verdict, "who won")
    assert "n/a" not in tab.page.locator(f"{LEFT} .tiles").text_content(), "the figures of the tokens that came are kept"
    fake_app.script()
    tab.send()
    tab.wait(lambda: tab.status(LEFT) == tab.status(RIGHT) == "Done", "the next prompt works")


@pytest.mark.parametrize(("lane", "column", "other"), [("cpu_nf4", LEFT, RIGHT), ("cpu_fp32", RIGHT, LEFT)])
def test_a_killed_lane_is_told_and_the_next_prompt_works(tab, fake_app, lane, column, other):
    fake_app.script(**{lane: {"die_at": 4}})
    tab.send()
    tab.wait_idle()
    assert "was killed (signal 9)" in tab.sentence(column) and tab.status(column) == "Failed"
    assert tab.answer(column).startswith("We have chicken")
    assert tab.status(other) == "Done"
    fake_app.script()
    tab.send()
    tab.wait(lambda: tab.status(LEFT) == tab.status(RIGHT) == "Done", "the next prompt works")


@pytest.mark.parametrize("said", ["<pad>", "  \n"])
def test_an_answer_without_text_is_a_fault_and_no_blank_box(tab, fake_app, said):
    fake_app.script(cpu_nf4={"say": said, "tokens": 5})
    tab.send()
    tab.wait_idle()
    assert tab.status(LEFT) == "No text" and not tab.answer(LEFT)
    assert tab.sentence(LEFT).startswith("No text produced. The model gave 5 tokens")
    assert tab.status(RIGHT) == "Done"
    tab.wait(lambda: "No winner: 4-bit failed." in tab.verdict, "no verdict over an answer without text")


# ---- text and looks


HOSTILE = '${alert(1)}${window.ran=1} <script>window.ran=1</script><img src=x onerror="window.ran=1"> $$x^2$$ &amp; **b** {{value}}'


def test_hostile_text_is_shown_and_does_not_run(tab, fake_app):
    dialogs = []
    hear = lambda dialog: dialogs.append(dialog.message) or dialog.dismiss()  # noqa: E731
    tab.page.on("dialog", hear)
    fake_app.script(both={"say": HOSTILE, "tokens": 1})
    tab.send(HOSTILE)
    tab.wait_idle()
    assert tab.answer(LEFT) == tab.answer(RIGHT) == HOSTILE
    tab.wait(lambda: HOSTILE in tab.page.locator(".board .asked").text_content(), "the prompt on the scoreboard")
    tab.page.remove_listener("dialog", hear)  # the shared tab lives on, and a page that has a history asks before it is left
    assert tab.page.evaluate("window.ran") is None and dialogs == []


def test_white_space_and_emoji_arrive_whole(tab, fake_app):
    text = "    indented\n\n\tdef f():\n        return 1  \n👨‍👩‍👧 한국어  "
    fake_app.script(both={"say": text, "tokens": 1})
    tab.send()
    tab.wait_idle()
    assert tab.answer(LEFT) == text
    style = "getComputedStyle(document.querySelector('[data-testid=bot] .message-content span')).whiteSpace"
    assert tab.page.evaluate(style).startswith("pre-wrap")


def test_the_style_sheet_reaches_the_page(tab):
    assert tab.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--gpu-vs-cpu-style').trim()") == "1"


def test_no_column_of_a_cpu_lane_speaks_of_a_gpu(tab):
    tab.send()
    tab.wait_idle()
    for lane, title in ((LEFT, "4-bit (NF4)"), (RIGHT, "Full precision (FP32)")):
        words = tab.page.locator(lane).inner_text()
        assert title in words and "CPU" in words and "GPU" not in words


def test_a_phone_needs_no_sideways_scroll(tab):
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.choose()
    tab.send("a" * 300)
    tab.wait_idle()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = "(part) => [...document.querySelectorAll(`.lane ${part}`)].map((one) => one.getBoundingClientRect().toJSON())"  # at once: it may be scrolling
    tops, answers = (tab.page.evaluate(boxes, part) for part in (".block.top", ".block.answer"))
    tab.page.set_viewport_size({"width": 1280, "height": 900})
    assert tops[0]["y"] == tops[1]["y"] and answers[1]["y"] >= answers[0]["y"] + answers[0]["height"], "figures side by side, answers stacked"


def test_every_button_has_a_name(tab):
    unnamed = "[...document.querySelectorAll('button')].filter(b => b.checkVisibility({visibilityProperty: true}) && !(b.innerText.trim() || b.ariaLabel || b.title)).map(b => b.outerHTML)"
    assert tab.page.evaluate(unnamed) == []


def test_an_idle_page_asks_nothing_of_the_server(open_tab):
    tab = open_tab()
    tab.wait(lambda: tab.status(LEFT) == "Ready", "ready")
    asked: list[str] = []
    tab.wait(lambda: asked.clear() or not _requests_during(tab, asked), "the timer to stop")


def _requests_during(tab: Tab, asked: list[str]) -> list[str]:
    listener = lambda request: asked.append(request.url)  # noqa: E731
    tab.page.on("request", listener)
    for _ in range(15):
        tab.page.wait_for_timeout(100)
    tab.page.remove_listener("request", listener)
    return asked


def test_prompts_do_not_go_to_local_storage(tab):
    tab.send("a secret prompt")
    tab.wait_idle()
    assert "a secret prompt" not in tab.page.evaluate("JSON.stringify(localStorage)")


def test_the_default_examples_begin_with_the_two_seed_prompts():
    import json

    from inference.host.child import ROOT

    prompts = json.loads((ROOT / "examples" / "prompts.json").read_text("utf-8"))
    assert prompts[:2] == ["hello good morning may i see the menu", "ok i want two chicken biryani with couple of drinks"]
