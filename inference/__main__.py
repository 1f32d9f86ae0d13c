"""`python -m inference COMMAND`: see `cli/main.py`."""

from inference.host import missing, stopping

if __name__ == "__main__":
    missing.told()
    stopping.whole_streams()
    stopping.at_once()
    import sys

    from inference.cli.main import main

    code = main()
    stopping.at_once()  # all is written and ended; what is left is Python's own end
    sys.exit(code)
