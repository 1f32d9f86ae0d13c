"""The report opened from a file in headless Chromium: hostile text is text, nothing is fetched, paper is light, a phone needs no scrolling sideways; and its colours."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest

from inference.decide.model import Turn
from inference.host.child import ROOT
from inference.record.model import Row
from inference.record.scores import NoQuality
from inference.report.decision import cost_lines
from inference.report.html import HERE, html_report
from tests.support.decided import COSTS, DECISION
from tests.support.records import ended, record_of, saying

EVIL = "</div></style></title><script>window.hurt=1</script><img src=http://127.0.0.1:9/x onerror='window.hurt=1'>\" onload=\"window.hurt=1 {{7*7}} <style>body{display:none}</style>"
CSS = (HERE / "report.css").read_text("utf-8")
BACKGROUNDS = """() => [...document.querySelectorAll('*')].map(part => getComputedStyle(part).backgroundColor).filter(colour => !colour.startsWith('rgba(0, 0, 0, 0'))
    .map(colour => colour.match(/\\d+/g).slice(0, 3).map(Number)).filter(([r, g, b]) => 0.3 * r + 0.6 * g + 0.1 * b < 150)"""
WORDS = """() => [...document.querySelectorAll('.plot text')].filter(part => part.textContent).map(part => part.getBoundingClientRect())
    .map(({left, right, top, bottom}) => [left, right, top + 2, bottom - 2])"""  # less the line's leading
TRY = """() => { document.body.insertAdjacentHTML('beforeend', '<p id=x style="position:fixed">x</p>');
    const script = document.createElement('script'); script.textContent = 'window.hurt = 1'; document.body.append(script);
    return [window.hurt ?? null, getComputedStyle(document.querySelector('#x')).position] }"""


def hostile() -> str:
    """A report all of whose texts would run or restyle the page, if they could, or break out of their line."""
    record = record_of(cuda_nf4=saying(EVIL + " one"), cpu_fp32=saying(EVIL + "\x00\ud800 " + "x" * 4000, ids=(1, 2, 4)))
    lanes = {name: replace(lane, model_id=EVIL, note=EVIL, reason=EVIL, available=False, compute_dtype=EVIL) for name, lane in record.lanes.items()}
    record = replace(
        record, model=replace(record.model, id=EVIL, note=EVIL), request=replace(record.request, prompt=EVIL, system=EVIL), lanes=lanes,
        environment=replace(record.environment, cpu=EVIL, gpu=EVIL), quality=NoQuality(EVIL), row=Row(2, EVIL),
    )  # fmt: skip
    decision = replace(DECISION, sentence=EVIL, model=EVIL, because=(EVIL,), turned_by=(EVIL,), remarks=(EVIL,))
    return html_report([record, record], decision, COSTS)


def test_hostile_text_is_inert_nothing_is_asked_for_and_paper_is_light(browser, tmp_path):
    (tmp_path / "r.html").write_text(hostile(), "utf-8")
    page = browser.new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto((tmp_path / "r.html").as_uri())
    assert page.evaluate("window.hurt ?? null") is None and page.locator("script, img, main style").count() == 0
    assert asked == [(tmp_path / "r.html").as_uri()] and said == []
    assert page.locator("h1").inner_text() == page.title().removesuffix(": which one to serve, measured") == EVIL
    assert page.locator(".said").first.inner_text() == EVIL + " one" and page.locator(".said").nth(1).inner_text().startswith(EVIL + "\ufffd\ufffd x")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, media="screen")
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert bool(page.evaluate(BACKGROUNDS)) == (scheme == "dark")
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate(BACKGROUNDS) == [] and page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 30, 38)"
    assert page.evaluate(TRY) == [None, "static"], "the file's own policy holds too"
    page.close()


def colours(text: str) -> dict[str, str]:
    """The colours that a style sheet names, by rule and variable."""
    found = re.findall(r"([.:][\w. -]+?) \{([^}]*)\}", text)
    return {f"{rule.strip()} {name}": value for rule, inside in found for name, value in re.findall(r"--([\w-]+): (#\w{6})", inside)}


def light(colour: str) -> float:
    """Relative luminance, as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return sum(
        weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4) for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
    )


def contrast(one: str, other: str) -> float:
    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_on_every_background(scheme):
    before, dark = CSS.split("@media screen and (prefers-color-scheme: dark)")
    found = {**colours(before), **(colours(dark.split("* { box-sizing")[0]) if scheme == "dark" else {})}
    inks = [value for name, value in found.items() if name.split()[-1] in ("ink", "muted", "good", "bad", "unsure", "link", "lane-ink")]
    assert len(inks) == 12
    for back in (found[":root back"], found[":root soft"]):
        assert min(contrast(ink, back) for ink in inks) >= 4.5
    assert contrast(found[":root found"], "#1b1e26") >= 4.5


def test_a_lane_has_the_colour_that_it_has_on_the_page():
    page = colours((ROOT / "ui" / "looks" / "colours.css").read_text("utf-8"))
    before, dark = CSS.split("@media screen and (prefers-color-scheme: dark)")
    ours = colours(before) | {f".dark {name}": value for name, value in colours(dark).items()}
    assert len(page) == 18 and {name: ours.get(name) for name in page} == page


def test_ordinary_text_keeps_its_lines_and_its_direction(browser, tmp_path):
    record = record_of(cpu_nf4=saying("نعم، لدينا دال.\nمرحبا"), cpu_fp32=ended(5))
    (tmp_path / "r.html").write_text(html_report([record]), "utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "r.html").as_uri())
    said = page.locator(".said").first
    assert said.evaluate("part => getComputedStyle(part).direction") == "rtl" and said.inner_text().count("\n") == 1
    page.close()


@pytest.mark.parametrize(("answers", "turns"), [(20_000, (6533,)), (20, (17, 19, 94_475)), (0.05, (6533, 1e8)), (1e9, ())])
def test_no_word_of_the_drawing_lies_on_another_or_outside_on_a_phone(browser, tmp_path, answers, turns):
    decision = replace(DECISION, asked=replace(DECISION.asked, answers_per_day=answers), turns=tuple(Turn(at, "cpu:fp32", "cuda:nf4") for at in turns))
    costs = cost_lines(decision, {"cuda:nf4": lambda answers: 584.0, "cpu:fp32": lambda answers: 21.9 * (1 + answers // 1633)})
    (tmp_path / "r.html").write_text(html_report([], decision, costs), "utf-8")
    page = browser.new_page()
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto((tmp_path / "r.html").as_uri())
    figure, boxes = page.locator("figure.costs").bounding_box(), page.evaluate(WORDS)
    page.close()
    assert len(boxes) > 6 and all(figure["x"] < left and right < figure["x"] + figure["width"] for left, right, _, _ in boxes)
    for one, other in combinations(boxes, 2):
        assert one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
