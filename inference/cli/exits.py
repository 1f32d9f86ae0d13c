"""The exit codes of every command. In: nothing. Out: the numbers; 0 is all done."""

from inference.host.stopping import STOPPED as STOPPED

FAILED = 1  # something was not measured, or could not be written
WRONG = 2  # arguments that can't be used; argparse ends with it too
