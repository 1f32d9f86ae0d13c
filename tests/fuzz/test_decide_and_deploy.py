"""Whatever `decide` is given to read and `deploy` to do is a decision or a deployment that can be, or one sentence without a trace."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference.cli import main as command_line
from inference.errors import WrongArguments
from inference.host import hardware
from inference.record.export import as_json
from inference.space import asked, prices
from tests.support.hostile import NASTY, NUMBERS, changed, damaged, texts, tries, values
from tests.support.records import ended, record_of

RECORD = as_json(record_of(cpu_nf4=[ended(5), ended(6)], cpu_fp32=[ended(10), ended(9)]))
SPREAD = {"p50": 1.0, "p95": None, "max": 2.0}
LEVEL = {"clients": 2, "first_token_s": SPREAD, "total_s": SPREAD, "answers_per_min": 30.0, "n": 6, "failed": 0, "new_tokens": 9}
LOAD = {"clients": {"cpu:fp32": [{**LEVEL, "clients": 1}, LEVEL]}, "model": RECORD["model"]["id"], "hardware": {"cpu:fp32": "c"}, "rounds": 3}
bytes_of = lambda value: json.dumps(value).encode("utf-8", "backslashreplace")  # noqa: E731
wants = st.lists(
    st.tuples(
        st.sampled_from(
            ["--max-first-token", "--max-total", "--min-agreement", "--max-lost", "--open-hours", "--sleep-after", "--tokens", "--answers-per-day"]
        ),
        st.one_of(st.sampled_from(NUMBERS), st.integers(), st.floats()).map(str),
    ),
    max_size=3,
)


@pytest.fixture
def no_hub(monkeypatch):
    monkeypatch.setattr("inference.space.prices.catalog", hardware.from_file)
    monkeypatch.setattr(command_line.signal, "signal", lambda *_: None)
    monkeypatch.setattr(command_line.logging, "basicConfig", lambda **_: None)


def told(arguments: list[str]) -> tuple[int, str]:
    """The exit code of a command in this process, and what it said on stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command_line.main(arguments)
    assert "Traceback" not in out.getvalue() + err.getvalue() and "nan" not in out.getvalue().split("{", 1)[0].lower().split()
    return code, err.getvalue()


@given(st.one_of(changed(RECORD), st.just(RECORD)).map(bytes_of), st.one_of(changed(LOAD, 2).map(bytes_of), damaged(bytes_of(LOAD))), wants)
@example(bytes_of(RECORD), bytes_of({**LOAD, "clients": {"cpu:fp32": [{**LEVEL, "clients": float("inf")}]}}), [])
@tries(40)
def test_a_decision_is_made_of_whatever_is_read_or_a_sentence(no_hub, record, load, wanted):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "r.json").write_bytes(record)
        (Path(folder) / "l.json").write_bytes(load)
        given = [word for pair in wanted for word in pair]
        code, said = told(
            [
                "decide",
                "--answers-per-day",
                "100",
                "--price",
                "cpu:fp32=0.1",
                "--price",
                "cpu:nf4=t4-small",
                "--load",
                f"{folder}/l.json",
                *given,
                f"{folder}/r.json",
            ]
        )
    assert code in (0, 1, 2) and (code != 2 or said.strip())


words = st.one_of(
    texts, st.sampled_from(["you/space", "you/model", "shape:smollm2-135m", "menu", "HF_TOKEN", "A=b", "MODELS=a/b,c/d", "LANES=cpu:fp32", "AUTH=a:b"])
)


@given(words, words, st.lists(words, max_size=3), st.lists(words, max_size=3), st.one_of(st.none(), words))
@example("you/space", "x" * 5000, [], [], None)
@example("you/space", "a\x00b", [], [], None)
@tries(60)
def test_what_a_space_shall_be_is_checked_or_a_sentence_without_a_secret(space, model, variables, secrets, lanes):
    secret = "s3cr3t-value"
    try:
        asked.check_name(space)
        asked.variables(variables, asked.check_model(model), lanes)
        asked.secrets([*secrets, f"OWN_TOKEN={secret}"], {})
    except WrongArguments as error:
        assert str(error).strip() and "Traceback" not in str(error) and secret not in str(error)


told_prices = st.builds(SimpleNamespace, name=st.sampled_from(["t4-small", "l4x1", "?"]), unit_cost_usd=values, unit_label=st.one_of(st.just("hour"), values))


@given(st.one_of(st.lists(st.one_of(told_prices, values), max_size=4), values))
@example([SimpleNamespace(name="t4-small", unit_cost_usd=float("nan"), unit_label="hour")])
@example([SimpleNamespace(name="t4-small", unit_cost_usd=-4, unit_label="hour")])
@tries(15)
def test_prices_that_a_hub_tells_are_prices_or_those_of_the_file(monkeypatch, told):
    monkeypatch.setattr(prices, "HfApi", lambda: SimpleNamespace(list_spaces_hardware=lambda token: told))
    for one in prices.catalog().hardware:
        assert one.dollars_per_hour is None or 0 <= one.dollars_per_hour < 1e10


@given(st.sampled_from([word for word in NASTY if "\x00" not in word]), words, st.floats())
@tries(20)
def test_a_deployment_that_can_not_be_is_refused_before_anything_is_asked(no_hub, space, hardware_name, wait):
    line = ["deploy", space, "--hardware", hardware_name, "--wait", str(wait), "--dry-run"]
    code, said = told([os.fsdecode(word.encode("utf-8", "replace").replace(b"\x00", b"")) for word in line])
    assert code in (0, 2) and (code != 2 or said.strip())
