"""What `bench --clients` wrote, read for a decision: figures that no measurement gives are a damaged file."""

from __future__ import annotations

import json
import math

import pytest

from inference.decide.evidence import Gathered
from inference.decide.load import with_load
from inference.errors import WrongArguments
from tests.support.decisions import lane

ROW = {"clients": 1, "first_token_s": {"max": 0.1}, "total_s": {"max": 1.0}, "answers_per_min": 60.0, "n": 3, "new_tokens": 46}


def read(tmp_path, row):
    path = tmp_path / "load.json"
    path.write_text(json.dumps({"clients": {"cuda:nf4": [row]}}))
    return with_load(Gathered("fake/model", (lane("cuda:nf4"),)), path).lanes[0].clients


@pytest.mark.parametrize(
    "wrong",
    [
        *({"answers_per_min": rate} for rate in (math.nan, -1, 0, math.inf)),
        *({"clients": number} for number in (0, -1, math.inf)),
        *({"n": number} for number in (0, "many")),
        {"failed": -1},
        {"total_s": {"p95": math.nan}},
        {"first_token_s": {"max": -1}},
        {"new_tokens": math.inf},
    ],
)
def test_a_load_of_what_no_measurement_gives_is_damaged(tmp_path, wrong):
    assert read(tmp_path, ROW)[0].answers_per_min == 60
    with pytest.raises(WrongArguments, match=r"load.json is damaged: a load lacks a figure, or it can be none \("):
        read(tmp_path, {**ROW, **wrong})
