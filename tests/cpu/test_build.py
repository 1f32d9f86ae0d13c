"""Our C library in the cache: a damaged one is built anew, another way of building has another key, and every fault is a reason."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from inference.cache import disk
from inference.cpu import build
from inference.cpu import library as c_library
from inference.cpu.build import FILE, NoLibrary
from inference.host import machine
from inference.host.child import ROOT
from tests.support.until import until


def answers(found) -> bool:
    x = torch.randn(1, 64)
    return torch.allclose(found.product(x, torch.eye(64), None), x)


@pytest.fixture
def built(library, kernels, tmp_path):
    """A folder that holds the built library, and its file there."""
    folder = shutil.copytree(kernels, tmp_path / "kernels")
    return folder, next(folder.glob(f"*/{FILE}"))


def never_ends(folder: Path) -> str:
    """A compiler that starts another program and says nothing."""
    script = folder / "never"
    script.write_text("#!/bin/sh\nsleep 60\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@pytest.mark.parametrize("kept", [0, 0.5])
def test_a_library_that_is_cut_is_told_and_built_anew_once(built, kept, caplog):
    folder, file = built
    whole = file.read_bytes()
    file.unlink()  # so that what this process has mapped isn't cut under it
    file.write_bytes(whole[: int(kept * len(whole))])
    assert answers(c_library.load(folder)) and "damaged" in caplog.text
    stamp = file.stat().st_mtime_ns
    assert file.stat().st_size == len(whole) and answers(c_library.load(folder)) and file.stat().st_mtime_ns == stamp


def test_a_damaged_library_without_a_compiler_is_a_reason(built, monkeypatch):
    folder, file = built
    monkeypatch.setattr(machine, "c_compiler", lambda: None)
    place = file.parent.rename(folder / f"cpu-step-{build._key(None, '')}")
    (place / FILE).unlink()
    with pytest.raises(NoLibrary, match="no C compiler"):
        c_library.load(folder)


def test_a_library_built_otherwise_is_another(monkeypatch, tmp_path):
    before = build._key("cc", "")
    assert build._key("clang", "") != before and build._key("cc", "avx2") != before
    monkeypatch.setattr(build, "FLAGS", ("-O2",))
    assert build._key("cc", "") != before
    monkeypatch.undo()
    sources = shutil.copytree(build.FOLDER, tmp_path / "cpu")
    monkeypatch.setattr(build, "FOLDER", sources)
    assert build._key("cc", "") == before
    (sources / "vectors.h").write_text("other")
    assert build._key("cc", "") != before


def test_for_avx2_it_is_built_without_what_this_processor_has_beyond(tmp_path):
    if "avx2" not in machine.cpu_flags() or machine.c_compiler() is None:
        pytest.skip("no AVX2, or no compiler")
    found = c_library.load(tmp_path, "avx2")
    assert answers(found)
    if objdump := shutil.which("objdump"):
        said = subprocess.run([objdump, "-d", next(tmp_path.glob(f"*/{FILE}"))], capture_output=True, text=True, check=True).stdout
        assert "%ymm" in said and "%zmm" not in said


def test_it_is_built_beside_the_imports_and_only_once(tmp_path, monkeypatch, kernels, library):
    asked = []
    monkeypatch.setattr(build, "_built", lambda *given: asked.append(given) or kernels)
    build.begin(tmp_path)
    build.begin(tmp_path)
    assert build.built(tmp_path) == kernels and asked == [(tmp_path, "")]


def test_a_library_that_is_loaded_again_has_the_threads_that_are_there(kernels, library):
    assert c_library.load(kernels).team().value == library.team().value


def test_a_fault_beside_the_imports_is_raised_where_the_library_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "c_compiler", lambda: None)
    build.begin(tmp_path / "kernels")
    with pytest.raises(NoLibrary, match="no C compiler"):
        build.built(tmp_path / "kernels")


def test_building_begins_without_torch():
    code = "import sys; from inference.cpu import build; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60).stdout.strip() == "False"


def test_a_build_that_takes_too_long_is_ended_and_told(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "c_compiler", lambda: never_ends(tmp_path))
    monkeypatch.setattr(build, "MOST_S", 0.1)
    with pytest.raises(NoLibrary, match="could not be built in 0 s"):
        c_library.load(tmp_path / "kernels")


def test_a_compiler_ends_with_the_lane_that_is_killed_while_it_builds(tmp_path):
    """With the programs that it has started."""
    code = (
        f"from pathlib import Path; from inference.host import machine; from inference.cpu import build; "
        f"machine.c_compiler = lambda: {never_ends(tmp_path)!r}; build._built(Path({str(tmp_path)!r}) / 'kernels', '')"
    )
    lane = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    process = psutil.Process(lane.pid)
    until(lambda: any(each.name() == "sleep" for each in process.children(recursive=True)), what="a compiler at work")
    compilers = process.children(recursive=True)
    lane.kill()
    lane.wait()
    until(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in compilers), what="no compiler left")


def test_a_compiler_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "c_compiler", lambda: "/bin/false")
    with pytest.raises(NoLibrary, match="can't be used"):
        c_library.load(tmp_path)


def test_what_a_compiler_says_in_other_letters_is_told_and_its_word_alone_is_no_library(tmp_path, monkeypatch):
    """Bytes that are no UTF-8, as in a message of an old locale or a folder's name, ended the lane's load; a library that was not written was kept as one."""
    compiler = tmp_path / "cc"
    monkeypatch.setattr(machine, "c_compiler", lambda: str(compiler))
    for script, told in (("printf 'caf\\351 fehlt' >&2; exit 1", "fehlt"), ("exit 0", "could not compile")):
        compiler.write_text(f"#!/bin/sh\n{script}\n")
        compiler.chmod(0o755)
        with pytest.raises(NoLibrary, match=told):
            c_library.load(tmp_path / "kernels")


def test_a_blank_in_the_folder_s_name_is_no_matter(tmp_path, monkeypatch):
    if machine.c_compiler() is None:
        pytest.skip("no compiler")
    (tmp_path / "for a while").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "for a while"))
    assert answers(c_library.load(tmp_path / "a cache" / "kernels"))


def test_a_disk_without_room_for_it_is_the_reason_why_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "free_bytes", lambda _: 0)
    monkeypatch.setattr(machine, "c_compiler", lambda: "/bin/true")
    with pytest.raises(NoLibrary, match="can't be used.*disk is full"):
        c_library.load(tmp_path / "kernels")


def test_a_cache_that_is_no_folder_is_the_reason_why_there_is_none(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr(machine, "c_compiler", lambda: "/bin/true")
    with pytest.raises(NoLibrary, match="can't be used"):
        c_library.load(tmp_path / "cache" / "kernels")
