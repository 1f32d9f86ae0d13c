"""The limits held against one lane: where a share may lie, what is told beside each rule, what a load's failed row counts as."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from inference.decide import words
from inference.decide.asked import price_of
from inference.decide.evidence import Gathered
from inference.decide.load import with_load
from inference.decide.model import Price
from inference.decide.rules import ASK_AGAIN, likely
from inference.host.hardware import from_file
from tests.support.decisions import asked, decided, lane, of

CARD, CPU = lane("cuda:nf4", 1.0, 1.1, 1.2, first=0.1), lane("cpu:fp32", 5.0, 5.5, 6.0, first=0.9)
SCORED = replace(CARD, agreement=0.95, agreement_se=0.01, positions=500, lost=3, expected=100)


@pytest.mark.parametrize(("hits", "n"), [(0, 20), (1, 7), (3, 100), (50, 100), (100, 100)])
def test_a_share_lies_where_it_is_two_standard_errors_of_its_own_from_what_was_seen(hits, n):
    for end in likely(hits, n):
        assert end in (0.0, 1.0) or (end - hits / n) ** 2 == pytest.approx(4 * end * (1 - end) / n)
    assert likely(hits, n)[0] <= hits / n <= likely(hits, n)[1]


def test_each_rule_says_by_how_much_and_what_to_do():
    def margins(wanted, *lanes):
        return {rule.title: rule.margin for rule in of(decided(wanted, *lanes), lanes[0].lane).rules}

    assert margins(asked(max_total_s=2.0), replace(CARD, ttft_s=(0.1,), total_s=(1.0,)), CPU)["Whole answer"] == ASK_AGAIN
    wanted = asked(gpu=0.05, min_agreement=0.9, max_lost=0.5)
    assert margins(wanted, SCORED, CPU)["Same first choice"] == "5.00 points to spare"
    assert set(margins(wanted, CPU, SCORED).values()) == {"nothing to lose"}
    server = lane("endpoint:x", 1.0, 1.1, 1.2)
    served = replace(asked(min_agreement=0.9), prices={"endpoint:x": Price(1.0, "typed")})
    assert margins(served, server)["Same first choice"] == "only its answers can be held against others"


def test_what_was_asked_is_told_with_its_units():
    told = words.asked(decided(asked(max_first_token_s=1.25, max_total_s=5, min_agreement=0.9, max_lost=0.1), CARD, CPU))
    limits = "first token within 1.25 s, answer within 5 s, same first choice at 0.9 at least, 0.1 of the expected answers lost at most"
    assert told == f"1,000 answers a day, open 24 hours, always on, {limits}"


def test_a_lane_on_a_card_must_fit_its_memory_and_one_on_cores_theirs():
    hardware = from_file().named("l4x1")
    on_card, on_cores = (price_of(name, hardware, from_file()).memory_bytes for name in ("cuda:nf4", "cpu:fp32"))
    assert (on_card, on_cores) == (hardware.vram_bytes, hardware.ram_bytes) and on_card != on_cores


def test_a_level_without_an_answer_has_failed_at_least_once(tmp_path):
    nobody = {"clients": 2, "first_token_s": {"max": None}, "total_s": {"max": None}, "answers_per_min": None, "n": 0}
    some = {"clients": 1, "first_token_s": {"max": 0.25, "p95": None}, "total_s": {"max": 2.0, "p95": 1.5}, "answers_per_min": 30.0, "n": 20, "failed": 3}
    file = tmp_path / "load.json"
    file.write_text(json.dumps({"clients": {"cuda:nf4": [nobody, some]}}))
    one, two = with_load(Gathered("fake/model", (CARD,)), file).lanes[0].clients
    assert (one.first_token_p95_s, one.total_p95_s, one.failed, one.new_tokens) == (0.25, 1.5, 3, None)
    assert (two.clients, two.first_token_p95_s, two.failed) == (2, math.inf, 1)
