"""README and docs: short enough to be read, no link that leads nowhere, no figure without its machine and command."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from inference.cli import parser
from inference.host.child import ROOT

README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *DOCS]
MOST_LINES, MOST_COLUMNS, FIRST_SCREEN = 250, 120, 20
FIGURE = re.compile(r"(?<![\w.-])(\d(?:[\d.,]*\d)?)( (?:tok/s|ms|s|GiB|MiB|nat|%))?(?! bits?\b)(?![\w-])")


def text_of(page: Path) -> str:
    """A page without the front matter that a Space reads."""
    return re.sub(r"\A---\n.*?\n---\n", "", page.read_text("utf-8"), flags=re.S)


def tokens(page: Path) -> Iterator[Token]:
    for token in MarkdownIt("commonmark").enable("table").parse(text_of(page)):
        yield token
        yield from token.children or ()


def links(page: Path) -> list[str]:
    """Where everything on a page leads to, pictures too."""
    found = [str(token.attrGet("href") or token.attrGet("src") or "") for token in tokens(page) if token.type in ("link_open", "image")]
    return found + [link for token in tokens(page) if token.type.startswith("html") for link in re.findall(r'(?:src|href)="([^"]+)"', token.content)]


def anchors(page: Path) -> set[str]:
    """What GitHub calls a page's headings."""
    seen: Counter[str] = Counter()
    found = set()
    for line in (line for line in re.sub(r"```.*?```", "", text_of(page), flags=re.S).splitlines() if re.match(r"#+ ", line)):
        slug = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def figures(text: str) -> set[str]:
    """Every number in a text, and with its unit where it has one."""
    return {figure for number, unit in FIGURE.findall(text.replace("*", "")) for figure in (number, number + unit)}


def test_the_readme_can_be_read():
    lines = README.read_text("utf-8").splitlines()
    assert len(lines) < MOST_LINES
    assert not [f"{number}: {line}" for number, line in enumerate(lines, 1) if len(line) > MOST_COLUMNS]


def test_its_first_screen_says_what_it_is_shows_it_starts_it_and_has_a_result():
    first = "\n".join(text_of(README).strip().splitlines()[:FIRST_SCREEN])
    places = [first.find(part) for part in ("# ", "A page that", "docs/page.png", "\nmake run ", "\nmake test ", "\n**Measured**", "\n**Decided**")]
    assert -1 not in places and places == sorted(places)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    lost = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert not lost


@pytest.mark.parametrize("page", [README, *DOCS], ids=lambda page: page.name)
def test_every_command_told_can_be_given(page):
    text = text_of(page).replace("\\\n", " ")
    told = re.findall(r"^python -m inference ([a-z].*)", text, re.M) + re.findall(r"`python -m inference ([a-z][^`]*)`", text)
    for command in told:
        parser.parse(shlex.split(command, comments=True))


def test_the_readme_leads_to_every_page_of_docs():
    assert {f"docs/{page.name}" for page in DOCS} <= {link.partition("#")[0] for link in links(README)}


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_of_docs_says_first_what_it_is_for(page):
    title, empty, first, *_ = text_of(page).splitlines()
    assert title.startswith("# ") and not empty and first[:1].isalpha()


def test_no_figure_stands_in_the_readme_alone():
    result, rest = text_of(README).split("\n**Measured**")[1].split("\n\n", 1)
    told = figures(result) | figures(rest.split("\n## Measured\n")[1].split("\n## ")[0])
    assert {"697 tok/s", "0.55 nat", "66 %"} <= told <= set().union(*(figures(text_of(page)) for page in DOCS))
