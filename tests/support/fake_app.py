"""`app.py` as the main program, over fake lanes: `python tests/support/fake_app.py [flags of app.py]`."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

if __name__ == "__main__":
    from inference.engine import process
    from tests.support.page_fixtures import start_fake_lane

    process.start_worker = start_fake_lane  # before app.py takes it for its default
    runpy.run_path(str(ROOT / "app.py"), run_name="__main__")
