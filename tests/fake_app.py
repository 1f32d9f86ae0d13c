"""`app.py` as the main program, over fake lanes: `python tests/fake_app.py [flags of app.py]`."""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

if __name__ == "__main__":
    from page_fixtures import start_fake_lane

    from inference import process

    process.start_worker = start_fake_lane  # before app.py takes it for its default
    runpy.run_path(str(HERE.parent / "app.py"), run_name="__main__")
