"""A temporary folder that goes with its process, and what killed ones left behind."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile

import pytest

from inference.errors import WrongArguments
from inference.host import temporary
from inference.host.child import ROOT

HOLDS = "import sys, time; from inference.host import temporary\nwith temporary.folder('ours-') as made:\n (made / 'a').write_text('a'); print(made, flush=True); time.sleep(600)"


def test_a_folder_is_its_owner_s_alone_and_gone_at_the_end(tmp_path):
    with temporary.folder("ours-", str(tmp_path)) as made:
        assert made.parent == tmp_path and stat.S_IMODE(made.stat().st_mode) == 0o700
        (made / "a").write_text("a")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_and_a_living_one_s_stays(tmp_path):
    started = [subprocess.Popen([sys.executable, "-c", HOLDS], cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}) for _ in range(2)]
    try:
        killed, living = (tmp_path / process.stdout.readline().decode().strip() for process in started)
        started[0].kill()
        started[0].wait()
        assert (killed / "a").exists()
        with temporary.folder("ours-", str(tmp_path)):
            assert not killed.exists() and (living / "a").exists()
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_a_folder_that_another_process_took_for_one_left_behind_is_made_anew(tmp_path, monkeypatch):
    own, made = tempfile.mkdtemp, []

    def taken_at_once(**given):
        made.append(own(**given))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", taken_at_once)
    with temporary.folder("ours-", str(tmp_path)) as found:
        assert str(found) == made[1] and found.is_dir()


def test_where_there_is_no_place_for_temporary_files_that_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", unusable)
    for place in (temporary.check, temporary.folder("ours-").__enter__):
        with pytest.raises(WrongArguments, match="no place for temporary files .*No usable.* Set TMPDIR"):
            place()
    (tmp_path / "file").write_text("")
    with pytest.raises(WrongArguments, match="Set GRADIO_TEMP_DIR"):
        temporary.folder("ours-", str(tmp_path / "file" / "below"), "GRADIO_TEMP_DIR").__enter__()


def unusable():
    raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")
