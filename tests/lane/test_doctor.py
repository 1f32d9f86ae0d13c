"""What doctor says of the cache (each entry with its size, the limit, where it is, how to empty it) and of a model's values."""

from pathlib import Path

from inference.cache.cache import Cache
from inference.lane import doctor
from inference.settings import Settings
from tests.support.four_bit import dequantized
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
    assert "restored checkpoint restored: 300 KiB" in said and "compiled C products products.so: 2.0 KiB" in said
    assert doctor.emptied(place) == [f"{tmp_path}: removed 2 entries, 302 KiB"] and not place.entries()


def test_emptying_counts_all_that_goes_also_beyond_the_limit(tmp_path):
    place = Cache(tmp_path, 1000)
    for name in ("a", "b", "c"):
        entry(place, "models", name, 900)
    assert doctor.emptied(place) == [f"{tmp_path}: removed 3 entries, 2.6 KiB"]
    entry(place, "models", "d", 900)
    assert doctor.emptied(place) == [f"{tmp_path}: removed 1 entry, 900 B"]


def test_only_a_compiled_step_is_called_one(tmp_path):
    place = Cache(tmp_path, 2**30)
    for name in ("step-12ab.pt2", "torch", "7f3c"):
        entry(place, "inductor", name, 10)
    said = "\n".join(doctor._cache(place))
    assert said.count("compiled decode step") == 1 and "compiled decode step step-12ab.pt2: 10 B" in said
    assert "code that torch compiled torch: 10 B" in said and "code that torch compiled 7f3c: 10 B" in said


def test_what_a_lane_uses_is_kept_and_said(tmp_path):
    place = Cache(tmp_path, 2**30)
    used = entry(place, "models", "used", 10)
    used.use()
    assert doctor.emptied(place)[1:] == ["  kept, in use by a lane or not to be removed: used"] and Path(used.path).exists()


def test_values_out_of_a_4_bit_file_are_told_of_a_model_that_is_at_hand(tmp_path):
    def said(folder):
        return doctor._model(Settings(model_id=str(folder), cache_dir=str(tmp_path / "cache")))

    assert "came out of a 4-bit file: 14 of 15 matrices" in said(dequantized(tmp_path / "four"))[-1]
    assert said(make_checkpoint(tmp_path / "full", "llama")) == []
    assert "There is no folder" in said(tmp_path / "none")[-1]
