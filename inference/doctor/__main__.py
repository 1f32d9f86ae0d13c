"""`python -m inference.doctor`: the report of `report.py`, or a sentence where the libraries that it looks with can't be imported."""

import logging
import sys

from inference import log, terminal
from inference.errors import BROKEN
from inference.fast import first_line

try:
    from inference.doctor.report import main
except Exception as error:
    logging.basicConfig(stream=log.of_stderr())
    logging.getLogger(__name__).exception("doctor can't look")
    terminal.tell(BROKEN.format(first_line(error)))
    sys.exit(1)

if __name__ == "__main__":
    sys.exit(main())
