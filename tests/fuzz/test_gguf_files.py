"""A GGUF file with anything in it is a checkpoint of finite claims, or a sentence: no trace, no loop over what is not there, no overlapping tensors."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import gguf
import pytest
from gguf import GGMLQuantizationType as Kind
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import InferenceError
from inference.gguf import convert
from inference.settings import Settings
from inference.sources import at_hand
from inference.sources.at_hand import Checkpoint
from tests.support.gguf_file import write_gguf
from tests.support.hostile import damaged, tries
from tests.support.tiny import make_checkpoint

HUGE = st.sampled_from([0, 1, 2**31, 2**32, 2**60, 2**63, 2**64 - 1])
KEY = struct.pack("<Q", 3) + b"a.b"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    return write_gguf(make_checkpoint(folder / "m", "llama"), folder / "m.gguf", Kind.Q8_0).read_bytes()


@st.composite
def broken(draw, raw: bytes) -> bytes:
    """The file damaged in its header, its table of tensors or anywhere; or with one of its numbers huge."""
    reach = draw(st.sampled_from([60, 400, len(raw)]))
    if draw(st.booleans()):
        return draw(damaged(raw[:reach])) + raw[reach:]
    at = draw(st.integers(4, reach - 8))
    return raw[:at] + struct.pack("<Q", draw(HUGE)) + raw[at + 8 :]


@st.composite
def claims(draw) -> bytes:
    """A small file that claims anything."""
    value = draw(st.one_of(st.binary(max_size=20), st.tuples(st.integers(0, 14), HUGE).map(lambda found: struct.pack("<IIQ", 9, *found))))
    tensor = struct.pack("<IQQIQ", draw(st.sampled_from([0, 1, 2, 2**31])), draw(HUGE), draw(HUGE), draw(st.integers(0, 40)), draw(HUGE))
    return b"GGUF" + struct.pack("<IQQ", 3, draw(HUGE), draw(HUGE)) + KEY + value + draw(st.sampled_from([b"", KEY + tensor])) + bytes(40)


def converted(raw: bytes) -> None:
    """What a lane does with such a file; raises InferenceError."""
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "m.gguf"
        file.write_bytes(raw)
        settings = Settings(cache_dir=str(Path(work) / "cache"))
        found = Checkpoint(str(file), file)
        convert.check(found.id, file)
        place = at_hand.converted(found, settings)
        with place.entry.locked():
            convert.write(found.id, file, place, lambda _: None)
        assert at_hand.of_converted(found, place, settings).folder.is_dir()


@given(st.data())
@tries(10)
def test_a_damaged_file_is_converted_or_a_sentence(good, data):
    try:
        converted(data.draw(broken(good)))
    except InferenceError as error:
        assert str(error).strip() and "Traceback" not in str(error) and len(str(error)) < 2000


@given(claims())
@tries(60)
def test_a_file_that_claims_anything_is_a_sentence(raw):
    with pytest.raises(InferenceError, match="can't be read|no GGUF file"):
        converted(raw)


def test_a_list_longer_than_its_file_is_not_counted_to_its_end():
    with pytest.raises(InferenceError, match="it claims more than it holds"):
        converted(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + KEY + struct.pack("<IIQ", 9, 0, 2**60) + bytes(40))


def test_tensors_that_overlap_are_a_damaged_file(good, tmp_path):
    (tmp_path / "m.gguf").write_bytes(good)
    tensor = next(each for each in gguf.GGUFReader(tmp_path / "m.gguf").tensors if each.field.parts[-1][0])
    place = tensor.field.offset + sum(part.nbytes for part in tensor.field.parts) - 8
    with pytest.raises(InferenceError, match="its tensors overlap"):
        converted(good[:place] + bytes(8) + good[place + 8 :])
