"""How the page looks, and what the browser does by itself: style sheets and scripts, each file put into the page's head."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
OUTER = FOLDER / "outer.css"


def css_paths() -> list[Path]:
    """The style sheets of what is inside Gradio's container, by name: their order means nothing, for each styles parts of its own."""
    return [path for path in sorted(FOLDER.glob("*.css")) if path != OUTER]


def head() -> str:
    """The outer sheet, and the scripts, each in a scope of its own, as HTML; written by us alone, nothing of a visitor's or of a model's is in it."""
    scripts = (f"<script>(() => {{\n{path.read_text('utf-8')}\n}})();</script>" for path in sorted(FOLDER.glob("*.js")))
    return "\n".join([f"<style>{OUTER.read_text('utf-8')}</style>", *scripts])
