"""An answer as it looks: Markdown -> HTML that is safe inside `gr.HTML`, code in monospace.

Nothing of a model's runs, loads or restyles anything: HTML in an answer stays text, pictures and links are shown as what was written.
"""

from __future__ import annotations

from markdown_it import MarkdownIt

from ui.badge import escape_template

_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable(["image", "link", "autolink", "reference"])


def formatted(text: str) -> str:
    """`text` as HTML, each block in its own direction."""
    return f'<div class="formatted-text" dir="auto">{escape_template(_MARKDOWN.render(text))}</div>' if text.strip() else ""
