"""An answer as it looks: Markdown and code, and nothing of a model's that runs, loads or restyles anything; no browser."""

from __future__ import annotations

import re

import pytest

from ui.comparison.pretty import formatted


def test_markdown_is_shown_as_it_looks():
    shown = formatted("# Menu\n\n- **korma**\n- `naan`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n~~none~~")
    for markup in ("<h1>Menu</h1>", "<strong>korma</strong>", "<code>naan</code>", "<td>1</td>", "<s>none</s>"):
        assert markup in shown


def test_code_keeps_its_lines_and_its_indentation():
    shown = formatted("```python\ndef f():\n\n    return 1\n```")
    assert '<pre><code class="language-python">def f():\n\n    return 1\n</code></pre>' in shown


def test_lines_of_plain_text_stay_lines():
    assert "one<br />\ntwo" in formatted("one\ntwo")


HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<style>*{display:none}</style>", "<b style='position:fixed'>x</b>", "<!-- x -->",
    "![i](http://example.com/i.png)", "[l](javascript:alert(1))", "[l](http://example.com)", "<http://example.com>", "[l]\n\n[l]: http://example.com",
    "![i][r]\n\n[r]: http://example.com/i.png", "&lt;script&gt;", "```\n</code></pre><script>1</script>\n```", '```"><script>1</script>\nx\n```', "`<i>`",
]  # fmt: skip
HARMLESS = {"div", "p", "pre", "code", "br"}


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_of_a_model_runs_loads_or_links(text):
    shown = formatted(text)
    assert set(re.findall(r"</?([a-z0-9!-]+)", shown)) <= HARMLESS
    assert not re.search(r"<[^>]*\s(?!class=|dir=)[a-z-]+=", shown), "no attribute but a code's class and the direction"


@pytest.mark.parametrize("text", ["${alert(1)}", "`${alert(1)}`", "```\n${alert(1)} {{x}}\n```", "{% x %} \\n"])
def test_no_template_engine_finds_anything_to_read(text):
    assert not set("${}`\\") & set(formatted(text))


def test_text_has_its_own_direction_and_no_text_is_nothing():
    assert formatted("שלום עולם").startswith('<div class="formatted-text" dir="auto">')
    assert formatted("") == formatted(" \n ") == ""
