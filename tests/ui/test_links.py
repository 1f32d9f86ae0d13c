"""A link that opens the page filled in: what it may hold, and the button that makes one; what a link shows before it is opened."""

from __future__ import annotations

import json
import re
import urllib.request
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from inference.errors import InferenceError
from tests.support.browser_tab import Tab
from tests.support.page_fixtures import FakeApp
from ui import links
from ui.api import build_request

SET = {"prompt": "a & b + c? #1 <b>\n{x} ${y}", "system": "be brief", "format": "raw", "max_new_tokens": 7, "temperature": 0.3, "seed": 11, "mode": "together"}
FIELDS = {"max_new_tokens": "Max new tokens", "temperature": "Temperature", "seed": "Seed"}
EVIL = '"><img src=x onerror="window.hurt=1">${window.hurt=2}<script>window.hurt=3</script>'


# ---- reading one


def test_a_link_sets_everything_and_other_parameters_mean_nothing():
    found = links.read({**{name: str(value) for name, value in SET.items()}, "__theme": "dark", "utm_source": "x"})
    assert found.values == SET and not found.fault
    assert found.note == "The link sets the system prompt, prompt format, token limit, temperature, seed and mode too: look under Settings before you send."
    assert links.read({"__theme": "dark"}) == links.Linked({})


def test_what_a_visitor_can_see_is_not_told_of():
    assert links.read({"prompt": "hi", "max_new_tokens": "50", "mode": "auto"}).note == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("max_new_tokens", text) for text in ("0", "4097", "-1", "1e2", "5.5", "many", "٣", "1_0", " 7", "9" * 5000)),
        *(("temperature", text) for text in ("2.1", "-0.1", "nan", "inf", "1e-3", "0,5", "0x1", ".")),
        *(("seed", text) for text in ("-1", str(2**53), "1.0")),
        *((name, text) for name in ("format", "mode") for text in ("poem", "Chat", EVIL)),
    ],
)
def test_a_bad_value_is_left_out_with_a_sentence_that_holds_nothing_of_it(name, text):
    found = links.read({"prompt": "hi", name: text})
    assert found.values == {"prompt": "hi"} and found.fault.startswith(f"{name} in the link must be ") and found.fault.endswith("; it was left as it is.")
    assert len(found.fault) < 120 and "<" not in found.fault


def test_a_long_text_is_cut_and_told():
    found = links.read({"prompt": "x" * 9000, "system": "y" * 7000, "seed": "no"})
    assert len(found.values["prompt"]) == len(found.values["system"]) == links.MOST_CHARACTERS
    assert "prompt in the link was cut to its first 7,000 characters." in found.fault and "system" not in found.fault and "seed in the link" in found.fault


def test_what_a_link_may_set_is_what_a_request_may_have():
    """The bounds stand in two places: a value that one takes the other takes too."""
    for name, texts in {"max_new_tokens": ("0", "1", "4096", "4097"), "temperature": ("0", "2", "2.01"), "seed": ("0", str(2**53 - 1), str(2**63))}.items():
        for text in texts:
            settings = {"max_new_tokens": 50, "temperature": 0, "seed": 0, name: float(text) if "." in text else int(text)}
            try:
                build_request("hi", "", "chat", **settings)
                taken = True
            except InferenceError:
                taken = False
            assert (name in links.read({name: text}).values) == taken, text


# ---- on the page


def visit(tab: Tab, **query: object) -> None:
    with tab.page.expect_response("**/run/predict*"):
        tab.page.goto(f"{tab.app.url}/?{urlencode(query)}")
    tab.page.locator("#send").wait_for()


def filled(tab: Tab) -> dict[str, object]:
    """What the composer holds."""
    page = tab.page
    numbers = {name: page.locator("#settings").get_by_label(label).input_value() for name, label in FIELDS.items()}
    chosen = [page.locator(f"#settings input[type=radio][value={value}]").is_checked() for value in ("raw", "together")]
    return {"prompt": tab.prompt.input_value(), "system": page.locator("#system textarea").input_value(), **numbers, "chosen": chosen}


def copied(tab: Tab) -> str:
    """The link that the button puts on the clipboard."""
    tab.page.evaluate("() => { window.taken = ''; navigator.clipboard.writeText = async (text) => { window.taken = text; }; }")
    tab.page.locator("#copy-link").click()
    tab.wait(lambda: tab.page.evaluate("window.taken"), "a copy")
    return tab.page.evaluate("window.taken")


def test_a_link_fills_the_page_and_sends_nothing_and_the_button_makes_the_same_link(open_tab, submitted):
    tab = open_tab()
    visit(tab, **SET)
    tab.wait(lambda: tab.prompt.input_value() == SET["prompt"], "the prompt")
    tab.wait(lambda: filled(tab)["chosen"] == [True, True], "the choices")
    assert filled(tab) == {"prompt": SET["prompt"], "system": "be brief", "max_new_tokens": "7", "temperature": "0.3", "seed": "11", "chosen": [True, True]}
    assert tab.page.locator("#hint .note[role=status]").text_content().startswith("The link sets the system prompt, ")
    link = urlsplit(copied(tab))
    assert f"{link.scheme}://{link.netloc}" == tab.app.url and {name: value for name, (value,) in parse_qs(link.query).items()} == {
        name: str(value) for name, value in SET.items()
    }
    assert not submitted and tab.page.locator(".board[data-state=empty]").count()


def test_the_link_holds_what_is_filled_in_now_less_what_is_as_it_comes(open_tab):
    tab = open_tab()
    visit(tab, __theme="dark", __sign="secret", prompt="first")
    tab.wait(lambda: tab.prompt.input_value() == "first", "the prompt")
    tab.prompt.fill("second one")
    assert copied(tab) == f"{tab.app.url}/?prompt=second%20one"
    tab.prompt.fill("")
    assert copied(tab) == f"{tab.app.url}/"


def test_a_copy_is_told_by_the_button_and_to_a_screen_reader_and_moves_nothing(open_tab):
    tab = open_tab()
    visit(tab)
    button = tab.page.get_by_role("button", name="Copy link", exact=True)
    before = tab.page.locator("#examples").bounding_box(), button.bounding_box()
    copied(tab)
    tab.wait(lambda: tab.page.locator("#copy-link").text_content() == "Copied", "the words")
    assert tab.page.locator("#said").text_content() == "Link copied"
    assert (tab.page.locator("#examples").bounding_box(), tab.page.locator("#copy-link").bounding_box()) == before
    button.wait_for()


def test_without_the_browser_s_leave_the_link_is_shown_to_be_copied_by_hand(open_tab):
    tab = open_tab()
    visit(tab, prompt="hello")
    tab.wait(lambda: tab.prompt.input_value() == "hello", "the prompt")
    tab.page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }")
    tab.page.locator("#copy-link").click()
    field = tab.page.get_by_label("The browser allows no copy. The link:")
    field.wait_for()
    assert field.input_value() == f"{tab.app.url}/?prompt=hello"
    assert tab.page.evaluate("document.activeElement.selectionEnd - document.activeElement.selectionStart") == len(field.input_value())
    tab.page.locator("#link-close").click()
    assert not field.is_visible() and tab.page.evaluate("document.activeElement.id") == "copy-link"


def test_what_is_too_long_for_a_link_is_told(open_tab):
    tab = open_tab()
    visit(tab)
    tab.prompt.fill("long " * 2000)
    tab.page.locator("#copy-link").click()
    tab.page.get_by_text(re.compile(r"Too long for a link: it would have 1\d,\d{3} characters, and 7,000 are the most\.")).first.wait_for()
    assert not tab.page.locator("#link-shown input").is_visible()


def test_nothing_in_a_link_is_run_as_html_or_script(open_tab, submitted):
    tab = open_tab()
    visit(tab, prompt=EVIL, system=EVIL, format=EVIL, mode=EVIL, seed=EVIL, temperature=EVIL, max_new_tokens=EVIL)
    tab.wait(lambda: tab.prompt.input_value() == EVIL, "the prompt, as text")
    tab.wait(lambda: tab.page.locator("#hint [role=alert]").count(), "the sentence")
    assert tab.page.locator("#system textarea").input_value() == EVIL and filled(tab)["max_new_tokens"] == "50"
    assert copied(tab).startswith(tab.app.url) and tab.page.evaluate("window.hurt") is None and not submitted
    assert tab.page.locator("#hint img, #link-row img").count() == 0


def served_as_a_space(page, app: FakeApp) -> None:
    """The Hub's page of a Space with the Space's own host in a frame, both as the browser alone sees them."""

    def proxied(route) -> None:
        if "/heartbeat/" in route.request.url:  # a stream without an end: `fetch` would wait for it, into the next test
            return
        there = route.request.url.replace("https://someone-menu.hf.space", app.url)
        sent = {**route.request.headers, "x-forwarded-host": "someone-menu.hf.space", "x-forwarded-proto": "https"}
        route.fulfill(response=route.fetch(url=there, headers=sent))

    frame = '<link rel="icon" href="data:,"><iframe src="https://someone-menu.hf.space/" style="width: 100%; height: 700px"></iframe>'
    page.route("https://huggingface.co/**", lambda route: route.fulfill(content_type="text/html", body=frame))
    page.route("https://someone-menu.hf.space/**", proxied)


def test_in_a_space_s_page_the_link_is_that_page_s(open_tab):
    """The Space stands in a frame of another origin there, whose own address nobody sees."""
    tab = open_tab()
    served_as_a_space(tab.page, tab.app)
    tab.page.goto("https://huggingface.co/spaces/someone/menu")  # logs that a frame may not take the focus
    frame = tab.page.frames[1]
    frame.locator("#copy-link").wait_for()
    frame.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.taken = text; }; }")
    told = json.loads(re.search(r"\.\.\.(\{.*\})\}\}", links.to_script({"SPACE_ID": "someone/menu"}))[1])
    for space, page in (("someone/menu", "https://huggingface.co/spaces/someone/menu"), ("", "https://someone-menu.hf.space/")):
        frame.evaluate("(detail) => document.dispatchEvent(new CustomEvent('copy-link', {detail}))", {**told, "values": ["hello"], "space": space})
        tab.page.wait_for_timeout(50)
        assert frame.evaluate("window.taken") == f"{page}?prompt=hello"
    tab.errors.clear()


# ---- before it is opened


def tags(url: str, **headers: str) -> dict[str, str]:
    page = urllib.request.urlopen(urllib.request.Request(url, headers=headers)).read().decode()
    return dict(re.findall(r'<meta (?:property|name)="([^"]+)" content="([^"]*)"', page))


def test_a_shared_link_shows_our_title_sentence_and_picture(shared_app):
    found = tags(f"{shared_app.url}/?prompt=hello")
    assert found["og:title"] == "Does 4-bit cost you speed or quality?" and found["twitter:card"] == "summary_large_image"
    assert found["og:description"] == found["description"] and "One prompt" in found["description"] and found["og:image:alt"]
    picture = urllib.request.urlopen(found["og:image"])
    data = picture.read()
    assert found["og:image"].startswith(shared_app.url) and picture.headers["content-type"] == "image/png" and data.startswith(b"\x89PNG")
    assert (int(found["og:image:width"]), int(found["og:image:height"])) == (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big"))


def test_behind_a_proxy_the_picture_s_address_is_the_visitor_s(shared_app):
    found = tags(shared_app.url, **{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "someone-menu.hf.space"})
    assert found["og:image"] == "https://someone-menu.hf.space/preview.png" and found["og:url"] == "https://someone-menu.hf.space/"
    evil = tags(shared_app.url, **{"X-Forwarded-Host": 'x"><script>', "X-Forwarded-Proto": 'javascript"'})
    assert evil["og:image"].startswith(shared_app.url)
