"""What is told where this Python can't run the program: it is too old, or a package isn't installed for it, as where another's than `make run`'s is taken.

Imported before all else, so it imports next to nothing, and reads in an older Python too.
"""

from __future__ import annotations

import sys
from types import TracebackType

OLDEST = (3, 11)
HOW = "Use the one that make run installs into (source .venv/bin/activate)"


def told() -> None:
    """End this process where its Python is too old; from now on a package that isn't there ends it with a sentence in the place of a trace."""
    if sys.version_info < OLDEST:
        sys.exit("This is Python %d.%d (%s), and 3.11 or newer is needed. %s, or a newer one." % (*sys.version_info[:2], sys.executable, HOW))  # noqa: UP031
    sys.excepthook = _tell


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not name or name in sys.stdlib_module_names or name in ("inference", "ui"):
        sys.__excepthook__(kind, error, trace)
        return
    print(f"The package {name} is not installed for this Python ({sys.executable}). {HOW}, or run: pip install -r requirements.txt", file=sys.stderr)
