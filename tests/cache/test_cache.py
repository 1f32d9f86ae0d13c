"""The cache folder: an entry is whole or not there, whoever is killed; one process makes it; the least used goes first; a full disk is said."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from inference.cache import cache, manifest
from inference.cache.cache import Cache, Entry
from inference.cache.manifest import State
from inference.host import child
from inference.host.child import ROOT
from inference.settings import Settings
from inference.sources import default_model
from tests.support.tiny import make_checkpoint

WRITES = """
import sys, time
from pathlib import Path
from inference.cache.cache import Entry
entry = Entry(Path(sys.argv[1]))
with entry.locked(), entry.building() as work:
    (work / "half").write_bytes(bytes(5000))
    print("writing", flush=True)
    sys.stdin.read()
"""
USES = (
    "import sys; from pathlib import Path; from inference.cache.cache import Entry; Entry(Path(sys.argv[1])).use(); print('uses', flush=True); sys.stdin.read()"
)


@pytest.fixture
def place(tmp_path):
    return Cache(tmp_path, 10_000)


@contextmanager
def process(code, path):
    """Another process that runs `code` on an entry's path, from its first line on."""
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child.environment())
    try:
        assert other.stdout.readline()
        yield other
    finally:
        other.stdin.close()
        other.wait(10)
        other.stdout.close()


def made(place, kind, name, bytes_=10, used_at=None):
    entry = place.entry(kind, name)
    with entry.locked(), entry.building() as work:
        (work / "out").mkdir()
        (work / "out" / "data").write_bytes(bytes(bytes_))
        entry.put(work / "out")
    if used_at:
        os.utime(entry._file("use"), (used_at, used_at))
    return entry


def temporaries(place):
    return [path for kind in cache.KINDS for path in (place.root / kind).glob(".*")]


def test_what_a_killed_process_wrote_is_swept_and_what_a_living_one_writes_is_not(place):
    entry = place.entry("models", "a-b")
    with process(WRITES, entry.path) as other:
        place.tidy()
        assert [path.name for path in temporaries(place)[0].iterdir()] == ["half"]
        other.send_signal(signal.SIGKILL)
        other.wait(10)
        assert temporaries(place) and not entry.path.exists()
        place.tidy()
        assert not temporaries(place)


def test_a_folder_of_an_earlier_version_is_swept_once_nothing_in_it_moves(place):
    old, new = place.root / "quantized/.copy-x1", place.root / "models/.restore-x2"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "part").write_bytes(b"x")
    past = time.time() - 2 * cache.UNLOCKED_DEAD_S
    for path in (old / "part", old):
        os.utime(path, (past, past))
    place.tidy()
    assert temporaries(place) == [new]


def test_a_second_maker_waits_is_told_and_finds_the_entry(place):
    entry, told = place.entry("models", "m"), []
    with process(WRITES, entry.path) as other:
        assert entry.try_lock() is None

        def on_wait():
            told.append("waits")
            other.stdin.close()

        with entry.locked(on_wait):
            assert told == ["waits"] and not temporaries(place)


def test_a_fault_while_building_leaves_nothing_and_the_lock_free(place):
    entry = place.entry("models", "m")
    with pytest.raises(ZeroDivisionError), entry.locked(), entry.building() as work:
        (work / "half").write_text("x")
        raise ZeroDivisionError
    assert not temporaries(place) and entry.try_lock() is not None


def test_a_remade_entry_takes_the_old_one_s_place(place):
    made(place, "models", "m", 10)
    assert made(place, "models", "m", 20).bytes() == 20 and not temporaries(place)


@pytest.mark.parametrize("there", ["file", "link to a folder", "link to nothing"])
def test_an_entry_takes_the_place_of_whatever_is_there_and_a_link_s_folder_stays(place, tmp_path, there):
    entry = place.entry("models", "m")
    entry.path.parent.mkdir(parents=True)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (elsewhere / "mine").write_text("kept")
    if there == "file":
        entry.path.write_text("x")
    else:
        entry.path.symlink_to(elsewhere if there == "link to a folder" else tmp_path / "nothing")
    with entry.locked(), entry.building() as temporary:
        (out := temporary / "made").mkdir()
        entry.put(out)
    assert entry.path.is_dir() and not entry.path.is_symlink() and (elsewhere / "mine").read_text() == "kept"
    assert [path.name for path in entry.path.parent.iterdir()] == ["m"]


def test_beyond_the_limit_the_least_recently_used_goes_first_and_what_is_used_stays(place):
    oldest, used, older, newest = (made(place, "shapes", name, 4000, used_at) for name, used_at in (("a", 100), ("b", 200), ("c", 300), ("d", 400)))
    assert place.entries() == [oldest, used, older, newest]
    os.utime(used._file("use"), (50, 50))
    with process(USES, used.path):
        os.utime(used._file("use"), (50, 50))  # the least recently used of all, but in use
        place.tidy()
        assert used.path.exists() and newest.path.exists() and not oldest.path.exists() and not older.path.exists()
    Cache(place.root, 3999).tidy()
    assert place.entries() == []


def test_emptying_removes_all_but_what_a_process_uses(place):
    kept, gone = made(place, "models", "kept"), made(place, "kernels", "gone")
    with process(USES, kept.path):
        assert place.empty() == ([gone], [kept])
    assert place.empty() == ([kept], []) and not place.entries()


def test_what_is_being_made_and_can_t_be_removed_can_still_be_used(place):
    entry = made(place, "quantized", "a-b")
    with entry.locked():
        assert not entry.remove_unless_used()
        uses = subprocess.run([sys.executable, "-c", USES, str(entry.path)], cwd=ROOT, input=b"", capture_output=True, env=child.environment(), timeout=20)
        assert uses.stdout == b"uses\n"
    assert entry.remove_unless_used() and entry.try_lock() is not None


def test_where_nothing_can_be_locked_nothing_is_taken_for_unused(place, monkeypatch):
    entry = made(place, "models", "m")

    def knows_no_locks(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(cache.fcntl, "flock", knows_no_locks)
    with entry.locked(), entry.building() as work:
        Cache(place.root, 1).tidy()
        assert work.exists() and entry.path.exists()
    assert place.empty() == ([], [entry]) and entry.path.exists()


def test_what_another_user_of_the_same_cache_uses_is_kept(place, monkeypatch):
    """Whose locks can be read, and not written."""
    entry = made(place, "models", "m")
    opened = os.open

    def of_another_user(path, flags, *more):
        if flags & os.O_RDWR and str(path).endswith((".lock", ".use")):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, flags, *more)

    entry.locked().free()
    entry.use()
    monkeypatch.setattr(os, "open", of_another_user)
    with entry.locked() as lock:
        assert lock.real and entry.try_lock() is None
    assert not entry.remove_unless_used()


def test_a_lock_freed_twice_closes_nothing_else(place):
    lock = place.entry("models", "m").locked()
    lock.free()
    with (place.root / "other").open("w") as other:
        lock.free()
        other.write("still open")


def test_an_entry_that_can_t_be_removed_or_goes_meanwhile_stops_nothing(place, monkeypatch, caplog):
    others, gone, last = (made(place, "shapes", name, 4000, used_at) for name, used_at in (("others", 100), ("gone", 200), ("last", 300)))
    discard, entries = Entry.discard, place.entries()

    def may_not(entry):
        if entry == others:
            raise PermissionError(errno.EACCES, "another user's")
        discard(entry)

    monkeypatch.setattr(Entry, "discard", may_not)
    monkeypatch.setattr(Cache, "entries", lambda _: entries)
    shutil.rmtree(gone.path)
    gone._file("use").unlink()
    assert gone.bytes() == 0 and gone.used_at() == 0.0
    Cache(place.root, 3999).tidy()
    assert others.path.exists() and not last.path.exists() and "another user's" in caplog.text


def test_only_an_entry_s_own_folder_is_ours(place, tmp_path):
    entry = made(place, "models", "m")
    assert place.holding(entry.path) == entry
    for other in (tmp_path, entry.path.parent, entry.path.parent / "..", entry.path / "inside", tmp_path / "else" / "m", tmp_path.parent / "models" / "m"):
        assert place.holding(other) is None


def test_emptying_counts_what_lies_beyond_the_limit_too(place):
    entries = [made(place, "shapes", name, 4000, used_at) for name, used_at in (("a", 100), ("b", 200), ("c", 300))]
    assert place.empty() == (entries, [])


def test_the_folder_that_torch_compiles_in_is_kept_while_a_process_lives(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "set by someone")
    settings = Settings(cache_dir=str(tmp_path))
    cache.take_torch_files(settings)
    folder = tmp_path / "inductor" / "torch"
    assert [entry.path for entry in cache.of(settings).empty()[1]] == [folder]


def test_where_no_folder_can_be_made_torch_keeps_what_it_compiles_elsewhere(tmp_path, monkeypatch):
    """A disk without an inode left had room for the lock: torch's import failed at the folder, and the lane with it."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    (tmp_path / "inductor").write_text("in the way")
    cache.take_torch_files(Settings(cache_dir=str(tmp_path)))
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def test_the_limit_is_a_setting_and_has_a_default(tmp_path):
    assert cache.of(Settings(cache_dir=str(tmp_path), cache_limit_gib=3)).limit_bytes == 3 * 2**30
    assert cache.of(Settings(cache_dir=str(tmp_path))).limit_bytes == cache.DEFAULT_LIMIT_GIB * 2**30


def test_a_manifest_tells_whole_stale_absent_and_damaged(tmp_path):
    folder = tmp_path / "m"
    assert manifest.state(folder, "k") is State.ABSENT
    folder.mkdir()
    (folder / "large").write_bytes(bytes(manifest.SMALL_BYTES + 1))
    (folder / "small").write_text("words")
    assert manifest.state(folder, "k") is State.STALE
    manifest.seal(folder, ("k", 1))
    assert manifest.state(folder, ["k", 1]) is State.WHOLE and not manifest.damaged(folder)
    assert manifest.state(folder, ["k", 2]) is State.STALE
    (folder / "large").write_bytes(b"x" + bytes(manifest.SMALL_BYTES))
    assert manifest.state(folder, ["k", 1]) is State.WHOLE, "a look at each start reads no large file"
    assert manifest.state(folder, ["k", 1], thorough=True) is State.DAMAGED and manifest.damaged(folder)
    (folder / "small").write_text("wards")
    assert manifest.state(folder, ["k", 1]) is State.DAMAGED
    (folder / "small").unlink()
    assert manifest.state(folder, ["k", 1]) is State.DAMAGED
    (folder / manifest.FILE).write_text('{"format"')
    assert manifest.state(folder, ["k", 1]) is State.DAMAGED


def test_a_folder_that_is_not_ours_is_never_called_damaged(tmp_path):
    assert not manifest.damaged(make_checkpoint(tmp_path / "m"))


def test_a_restored_model_of_an_earlier_version_is_kept_if_it_looks_whole(tmp_path):
    whole, cut = make_checkpoint(tmp_path / "whole", "llama"), make_checkpoint(tmp_path / "cut", "llama")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:-1])
    assert default_model.state(whole) is State.WHOLE and (whole / manifest.FILE).exists()
    assert default_model.state(cut) is State.STALE


def test_a_restored_model_whose_folder_can_t_be_written_is_used_all_the_same(tmp_path, caplog):
    folder = make_checkpoint(tmp_path / "whole", "llama")
    (folder / manifest.FILE).symlink_to(tmp_path / "no" / "such")
    assert default_model.state(folder) is State.WHOLE and "gets no list of its files" in caplog.text
