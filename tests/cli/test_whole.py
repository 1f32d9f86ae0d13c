"""Files that are written whole or not at all, and results that are not lost at the last step: a full disk, Ctrl+C, a link, a pipe, a mounted file."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading

import pytest

from inference.cli import output, whole
from inference.host.child import ROOT

pytestmark = pytest.mark.usefixtures("temporary")

OLD, NEW = b"old " * 1000, "new"
TOO_MUCH = "x" * 2_000_000  # for the small disk


def held(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def interrupted(*_):
    raise KeyboardInterrupt


def test_a_full_disk_leaves_the_file_that_was_there_and_the_result_is_kept_elsewhere(small_disk, temporary, capsys):
    (small_disk / "a.json").write_bytes(OLD)
    assert output.put(str(small_disk / "a.json"), TOO_MUCH) is False
    assert output.put(str(small_disk / "b.csv"), TOO_MUCH) is False
    assert held(small_disk) == {"a.json": OLD}
    kept = {path.suffix: path for path in temporary.iterdir()}
    assert set(kept) == {".json", ".csv"} and all(path.read_text() == TOO_MUCH for path in kept.values())
    told = capsys.readouterr().err
    assert "a.json can't be written (No space left on device). It is kept in " in told and all(str(path) in told for path in kept.values())


def test_where_the_temporary_folder_is_full_too_that_is_told_and_nothing_is_left(small_disk, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    assert output.put(str(small_disk / "a.json"), TOO_MUCH) is False
    assert not held(small_disk) and "It could not be kept in the temporary folder either (No space left on device)." in capsys.readouterr().err


def test_ctrl_c_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_bytes(OLD)
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        whole.write(str(tmp_path / "a.json"), b"new")
    assert held(tmp_path) == {"a.json": OLD}


def test_a_link_keeps_its_place_and_a_file_its_permissions(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(OLD)
    (tmp_path / "real" / "a").chmod(0o640)
    (tmp_path / "link").symlink_to("real/a")
    (tmp_path / "dangling").symlink_to("real/b")
    before = os.umask(0o027)
    try:
        assert output.put(str(tmp_path / "link"), NEW) and output.put(str(tmp_path / "dangling"), NEW)
    finally:
        os.umask(before)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "dangling").is_symlink()
    assert held(tmp_path / "real") == {"a": b"new", "b": b"new"}
    assert [oct((tmp_path / "real" / name).stat().st_mode & 0o777) for name in "ab"] == ["0o640", "0o640"]


def test_a_pipe_is_written_as_it_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()), daemon=True)
    reader.start()
    assert output.put(str(tmp_path / "pipe"), NEW)
    reader.join(10)
    assert got == [b"new"] and (tmp_path / "pipe").is_fifo()


def test_a_device_is_written_as_it_is(tmp_path):
    """One of our own: never the system's, which a fault here would replace."""
    try:
        os.mknod(tmp_path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        (tmp_path / "null").write_bytes(b"")
    except PermissionError as error:
        pytest.skip(f"no device can be made here: {error}")
    assert output.put(str(tmp_path / "null"), NEW) and (tmp_path / "null").is_char_device()
    assert [path.name for path in tmp_path.iterdir()] == ["null"]


@pytest.mark.parametrize("fault", [errno.EBUSY, errno.EPERM, errno.EXDEV])
def test_a_file_that_can_not_be_moved_over_is_written_in_place_or_put_back(fault, small_disk, temporary, monkeypatch):
    def fail(*_):
        raise OSError(fault, os.strerror(fault))

    path = small_disk / "mounted"
    path.write_bytes(OLD)
    monkeypatch.setattr(os, "replace", fail)
    number = path.stat().st_ino
    assert output.put(str(path), NEW) and held(small_disk) == {"mounted": b"new"} and path.stat().st_ino == number
    monkeypatch.setattr(os, "access", lambda *_: False)  # as where the folder takes no other file
    path.write_bytes(OLD)
    assert output.put(str(path), TOO_MUCH) is False and held(small_disk) == {"mounted": OLD}
    assert [kept.read_text() for kept in temporary.iterdir()] == [TOO_MUCH]


def test_text_that_no_file_can_hold_is_written_as_an_escape(tmp_path):
    assert output.put(str(tmp_path / "a"), '{"model": "caf\udce9"}')
    assert (tmp_path / "a").read_bytes() == b'{"model": "caf\\udce9"}'


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_result_that_can_not_be_shown_is_kept(error, temporary, capsys):
    with pytest.raises(error), output.never_lost(lambda: '{"a": 1}'):
        raise error
    (kept,) = temporary.iterdir()
    assert kept.suffix == ".json" and kept.read_text() == '{"a": 1}' and f"It is kept in {kept}." in capsys.readouterr().err


PROGRAM = "import sys; from inference import terminal; from inference.cli import output; sys.exit(terminal.delivering(lambda: int(not ({})), 1))"


def shell(what, redirect, folder):
    command = f'{sys.executable} -c "$PROGRAM" {redirect}'
    return subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONUNBUFFERED": "", "PROGRAM": PROGRAM.format(what), "TMPDIR": str(folder)},
    )


@pytest.mark.parametrize("json", [None, "the json"])
def test_what_stdout_can_not_take_is_kept_and_told_without_a_trace(json, temporary):
    done = shell(f"output.show('the tables', {json!r})", "> /dev/full", temporary)
    (kept,) = temporary.iterdir()
    assert done.returncode == 1 and done.stderr == f"The result can't be printed (No space left on device). It is kept in {kept}.\n"
    assert kept.read_text() == (json or "the tables")


def test_a_text_that_is_still_buffered_when_the_disk_is_full_is_told_once(tmp_path):
    done = shell("print('help') or True", "> /dev/full", tmp_path)
    assert done.returncode == 1 and done.stderr == "Not all could be printed (No space left on device).\n"


@pytest.mark.parametrize("name", ["/dev/stdout", "{}/out"])
def test_a_file_that_is_our_stdout_holds_the_tables_too(name, tmp_path):
    done = shell(f"output.show('the tables') and output.put('{name.format(tmp_path)}', 'the json')", f"> {tmp_path}/out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text() == "the tables\nthe json"
