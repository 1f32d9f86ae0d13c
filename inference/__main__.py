"""`python -m inference COMMAND`: see `cli/main.py`."""

import sys

from inference.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
