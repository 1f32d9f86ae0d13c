"""`python tied.py COMMAND ...`: a command in this process's group, all of which is ended once its input closes: whoever started it is gone, however.

Run by its path and by itself (`build.py`): a compiler starts programs of its own, which no signal to the one that was started reaches.
"""

import os
import signal
import subprocess
import sys
import threading


def _end_with_input() -> None:
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.exit(subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL))
