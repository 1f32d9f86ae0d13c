"""How a process of ours starts another one: the environment in which `python -m inference...` finds this code. Standard library only."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(**more: str) -> dict[str, str]:
    """This process's environment, in which a child finds our packages wherever it is started, and `more`."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, **more}
