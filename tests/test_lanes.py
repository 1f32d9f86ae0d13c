"""A lane's name: what it says of device and precision, there and back, and what no lane is called."""

import pytest

from inference.errors import InferenceError
from inference.lanes import AUTO_NF4, CPU_FP32, CUDA_BF16, CUDA_NF4, LANES, LaneName, precision_words


@pytest.mark.parametrize("lane", [AUTO_NF4, *LANES], ids=str)
def test_a_name_is_read_back_as_the_lane_that_wrote_it(lane):
    assert LaneName.parse(str(lane)) == lane and str(LaneName.parse(str(lane))) == str(lane)


def test_a_name_says_what_its_lane_is():
    assert CUDA_NF4.four_bit and CUDA_NF4.on_gpu and not CUDA_NF4.full and not CUDA_NF4.on_cpu
    assert CPU_FP32.full and CPU_FP32.on_cpu and not CPU_FP32.four_bit and not CPU_FP32.on_gpu
    assert not CUDA_BF16.full and not CUDA_BF16.four_bit
    assert AUTO_NF4.four_bit and AUTO_NF4.automatic and not AUTO_NF4.on_gpu and not AUTO_NF4.on_cpu


@pytest.mark.parametrize("text", ["", "cpu", "cpu:int8", "auto:fp32", "cpu:nf4:x", "CPU:NF4", " cpu:nf4"])
def test_any_other_name_is_refused_with_the_names_there_are(text):
    with pytest.raises(InferenceError, match="Unknown lane .*cuda:nf4, cpu:fp32"):
        LaneName.parse(text)


@pytest.mark.parametrize(
    ("precision", "words"),
    [("nf4", "4-bit NF4"), ("FP4", "4-bit FP4"), ("fp32", "FP32"), ("BF16", "BF16"), ("mixed float32", "mixed float32"), ("", "unknown precision")],
)
def test_a_precision_is_told_the_same_in_any_case(precision, words):
    assert precision_words(precision) == words
