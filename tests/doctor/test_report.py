"""What doctor says of the cache (each entry with its size, the limit, where it is, how to empty it), and when a model makes it fail."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from inference.cache.cache import Cache
from inference.doctor import report as doctor
from inference.host.child import ROOT
from inference.settings import Settings
from tests.support.tiny import make_checkpoint


def entry(place, kind, name, bytes_):
    found = place.entry(kind, name)
    with found.locked(), found.building() as work:
        (work / "data").write_bytes(bytes(bytes_))
        found.put(work / "data")
    return found


def test_the_cache_is_listed_with_sizes_and_emptied(tmp_path):
    place = Cache(tmp_path, 2 * 2**30)
    assert len(doctor._cache(place)) == 1, "an empty cache needs no advice"
    entry(place, "models", "restored", 300 * 1024)
    entry(place, "kernels", "products.so", 2048)
    said = "\n".join(doctor._cache(place))
    assert str(tmp_path) in said and "302 KiB of at most 2.00 GiB (CACHE_LIMIT)" in said and "--empty-cache" in said
    assert "restored checkpoint restored: 300 KiB" in said and "compiled C code products.so: 2.0 KiB" in said
    assert doctor.emptied(place) == [f"{tmp_path}: removed 2 entries, 302 KiB"] and not place.entries()


def test_emptying_counts_all_that_goes_also_beyond_the_limit(tmp_path):
    place = Cache(tmp_path, 1000)
    for name in ("a", "b", "c"):
        entry(place, "models", name, 900)
    assert doctor.emptied(place) == [f"{tmp_path}: removed 3 entries, 2.6 KiB"]
    entry(place, "models", "d", 900)
    assert doctor.emptied(place) == [f"{tmp_path}: removed 1 entry, 900 B"]


def test_what_a_lane_uses_is_kept_and_said(tmp_path):
    place = Cache(tmp_path, 2**30)
    used = entry(place, "models", "used", 10)
    used.use()
    assert doctor.emptied(place)[1:] == ["  kept, in use by a lane or not to be removed: used"] and Path(used.path).exists()


def test_a_model_of_the_settings_that_can_t_load_is_a_failure(tmp_path):
    """A folder without a usable model was ignored, with exit 0."""
    good, bad = make_checkpoint(tmp_path / "good"), make_checkpoint(tmp_path / "bad")
    (bad / "model.safetensors").write_bytes(b"")
    cpu = {"lanes": ("cpu:nf4", "cpu:fp32"), "cache_dir": str(tmp_path / "cache")}
    lines, well = doctor.report_model(Settings(model_id=str(good), **cpu))
    assert well and sum(": fits, needs" in line for line in lines if line.startswith("  cpu:")) == 2
    lines, well = doctor.report(Settings(model_id=str(bad), **cpu))
    assert not well and "model.safetensors is empty. Copy or download it again." in "\n".join(lines)
    lines, well = doctor.report_model(Settings(model_id=str(good), cpu_model_id=str(bad), **cpu))
    assert not well and ["cpu:nf4: fits" in line for line in lines].count(True) == 1 and "is empty" in lines[-1]


def test_a_lane_that_can_not_run_here_makes_the_model_s_judgement_a_failure(tmp_path):
    settings = Settings(model_id=str(make_checkpoint(tmp_path / "m")), lanes=("cuda:nf4", "cpu:fp32"), cache_dir=str(tmp_path / "cache"))
    lines, well = doctor.report_model(settings)
    assert well == torch.cuda.is_available() and any("cpu:fp32: fits" in line for line in lines)


def test_a_card_that_stays_unused_is_told_in_the_closing_line_too(tmp_path, monkeypatch):
    """With a driver too old for its torch the lane runs on the CPU, and all that is needed seemed to be here."""
    settings = Settings(model_id=str(make_checkpoint(tmp_path / "model")), lanes=("auto:nf4", "cpu:fp32"), cache_dir=str(tmp_path / "cache"))
    for cards, closing in ((1, "Everything needed is here but a card that can be used (GPU, above): make run"), (0, "Everything needed is here: make run")):
        monkeypatch.setattr(doctor.machine, "nvidia_gpus", lambda cards=cards: cards)
        lines, well = doctor.report(settings)
        assert well and lines[-1] == closing


def test_libraries_that_can_not_be_imported_are_told_in_a_sentence():
    env = {**os.environ, "TORCH_LOGS": "nonsense"}
    done = subprocess.run([sys.executable, "-m", "inference", "doctor"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "\nThe libraries can't be used here (ValueError: Invalid log settings: nonsense" in done.stderr
