"""How the page looks, and what the browser does by itself: style sheets and scripts, each file put into the page's head."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def css_paths() -> list[Path]:
    """The style sheets, by name: their order means nothing, for each styles parts of its own."""
    return sorted(FOLDER.glob("*.css"))


def scripts() -> str:
    """The scripts as one piece of HTML, each in a scope of its own; written by us alone, nothing of a visitor's or of a model's is in it."""
    return "\n".join(f"<script>(() => {{\n{path.read_text('utf-8')}\n}})();</script>" for path in sorted(FOLDER.glob("*.js")))
