"""`python -m inference COMMAND`: see `cli/main.py`."""

import sys

if __name__ == "__main__":
    try:
        from inference.cli.main import main

        sys.exit(main())
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(130)
