"""Our C library in the cache: a damaged one is built anew, another way of building has another key, and every fault is a reason."""

import shutil

import pytest
import torch

from inference.cache import disk
from inference.cpu import library as c_library
from inference.cpu.library import FILE, NoLibrary


def answers(found):
    x = torch.randn(1, 64)
    return torch.allclose(found.product(x, torch.eye(64), None), x)


@pytest.fixture
def built(library, kernels, tmp_path):
    """A folder that holds the built library, and its file there."""
    folder = shutil.copytree(kernels, tmp_path / "kernels")
    return folder, next(folder.glob(f"*/{FILE}"))


@pytest.mark.parametrize("kept", [0, 10, 0.5])
def test_a_library_that_is_cut_is_told_and_built_anew_once(built, kept, caplog):
    folder, file = built
    whole = file.read_bytes()
    file.unlink()  # so that what this process has mapped isn't cut under it
    file.write_bytes(whole[: int(kept * len(whole)) if kept < 1 else kept])
    assert answers(c_library.load(folder)) and "damaged" in caplog.text
    stamp = file.stat().st_mtime_ns
    assert file.stat().st_size == len(whole) and answers(c_library.load(folder)) and file.stat().st_mtime_ns == stamp


def test_a_damaged_library_without_a_compiler_is_a_reason(built, monkeypatch):
    folder, file = built
    monkeypatch.setattr(c_library, "compiler", lambda: None)
    place = file.parent.rename(folder / f"cpu-kernels-{c_library._key(None)}")
    (place / FILE).unlink()
    with pytest.raises(NoLibrary, match="no C compiler"):
        c_library.load(folder)


def test_a_library_built_with_other_flags_is_another(monkeypatch):
    before = c_library._key("cc")
    for name in ("FLAGS", "EXTRA_FLAGS"):
        with monkeypatch.context() as changed:
            changed.setattr(c_library, name, ("-O2",))
            assert c_library._key("cc") != before


def test_a_disk_without_room_for_it_is_the_reason_why_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "free_bytes", lambda _: 0)
    monkeypatch.setattr(c_library, "compiler", lambda: "/bin/true")
    with pytest.raises(NoLibrary, match="can't be used.*disk is full"):
        c_library.load(tmp_path / "kernels")


def test_a_cache_that_is_no_folder_is_the_reason_why_there_is_none(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr(c_library, "compiler", lambda: "/bin/true")
    with pytest.raises(NoLibrary, match="can't be used"):
        c_library.load(tmp_path / "cache" / "kernels")
