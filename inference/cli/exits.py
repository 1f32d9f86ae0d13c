"""The exit codes of every command. In: nothing. Out: the numbers; 0 is all done."""

FAILED = 1  # something was not measured, or could not be written
WRONG = 2  # arguments that can't be used; argparse ends with it too
STOPPED = 130  # as a shell has it for Ctrl+C
