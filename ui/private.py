"""What we take from Gradio that it doesn't promise to keep: every such reach is here and nowhere else.

In: its private parts. Out: a page that starts sooner and idles quieter; where a version has such a part no more, the page does without.
`tests/ui/test_private.py` says of each what it relies on, so that an upgrade which breaks one is seen.
"""

from __future__ import annotations

import inspect
import logging
import sys
from typing import TYPE_CHECKING, Any

from inference.child import on_zero_gpu

if TYPE_CHECKING:
    import gradio as gr

log = logging.getLogger(__name__)
# ZeroGPU counts a run on the quota of the visitor whom the browser names in a header, which Gradio's page sends with queued events alone
IDENTIFIED: dict[str, Any] = {"queue": True, "concurrency_limit": 16} if on_zero_gpu() else {}
# seconds between two looks; the second is for progress bars, of which there are none
QUEUE_SLEEPS = {"sleep_when_free": 0.1, "progress_update_sleep_when_free": 1.0}


def import_gradio() -> None:
    """Import Gradio, unless that was done, without the editor stubs (.pyi files) that it would work out anew for each of its components.

    Half of its import time, seconds on a small machine. For a component whose source file `inspect` can't find it makes none.
    """
    if "gradio" in sys.modules:
        return
    getfile = inspect.getfile

    def getfile_but_for_components(thing: Any) -> str:
        if isinstance(thing, type) and thing.__module__.startswith("gradio."):
            raise OSError("no stub wanted")
        return getfile(thing)

    inspect.getfile = getfile_but_for_components  # type: ignore[assignment]
    try:
        import gradio  # noqa: F401
    finally:
        inspect.getfile = getfile


def calm(demo: gr.Blocks) -> None:
    """Let Gradio look at its queue 10 times a second, not 1,000: that took 6 % of a core while idle.

    A run begins when `begin` submits it, which is not queued; only its first frame may come 0.1 s later.
    """
    queue = getattr(demo, "_queue", None)
    for name, value in QUEUE_SLEEPS.items():
        if hasattr(queue, name):
            setattr(queue, name, value)
        else:
            log.warning("this Gradio has no %s: an idle page takes some percents of a core", name)
