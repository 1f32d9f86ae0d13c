"""The page: layout, wiring and words. Imports gradio and `inference`'s torch-free modules; never torch.

Gradio is imported here first, without the editor stubs (.pyi files) that it would work out anew for each of its
components at every start: half of its import time, seconds on a small machine.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any


def _import_gradio() -> None:
    getfile = inspect.getfile

    def getfile_but_for_components(thing: Any) -> str:
        if isinstance(thing, type) and thing.__module__.startswith("gradio."):
            raise OSError("no stub wanted")  # what Gradio takes for a component without a source file
        return getfile(thing)

    inspect.getfile = getfile_but_for_components  # type: ignore[assignment]
    try:
        import gradio  # noqa: F401
    finally:
        inspect.getfile = getfile


if "gradio" not in sys.modules:
    _import_gradio()
