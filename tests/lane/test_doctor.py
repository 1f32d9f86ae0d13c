"""What doctor says of the cache: each entry with its size, the limit, where it is, and how to empty it."""

from pathlib import Path

from inference.lane import doctor
from inference.models.cache import Cache


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


def test_what_a_lane_uses_is_kept_and_said(tmp_path):
    place = Cache(tmp_path, 2**30)
    used = entry(place, "models", "used", 10)
    used.use()
    assert doctor.emptied(place)[1:] == ["  kept, in use by a lane: used"] and Path(used.path).exists()
