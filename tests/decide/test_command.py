"""`python -m inference decide`: the decision on stdout, its JSON and Markdown, prices by hardware, and a sentence for all that can't be used."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from inference.cli import main
from inference.host import hardware
from inference.host.child import ROOT
from inference.record.export import as_json, dump, quality_as_json, to_json
from inference.record.model import Row
from inference.series.prompts import Prompt
from inference.series.series import Series
from tests.decide.test_evidence import changed, quality, run, two
from tests.support.records import record_of

WANTED = ("--answers-per-day", "1000", "--price", "cuda:nf4=0.8", "--price", "cpu:fp32=0.1")


def record():
    """A card three times as fast as the CPU."""
    lanes = record_of(cuda_nf4=[run(20, total) for total in (1.0, 1.1, 1.2)], cpu_fp32=[run(5, total) for total in (3.0, 3.1, 3.3)])
    return changed(lanes, environment={"gpu": "NVIDIA L4", "cpu": "c"})


@pytest.fixture
def file(tmp_path):
    def write(text, name="r.json"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


@pytest.fixture
def decide(capsys, monkeypatch):
    """The command in this process: exit code, stdout, stderr; prices are those of the file."""
    monkeypatch.setattr("inference.space.prices.catalog", hardware.from_file)
    monkeypatch.setenv("COLUMNS", "90")

    def run_it(*arguments):
        code = main.main(["decide", *arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run_it


def test_it_is_a_command_that_starts_no_lane_and_needs_no_torch(file):
    code = "import sys; from inference.cli.main import main; code = main(sys.argv[1:]); print(sorted({'torch', 'gradio', 'huggingface_hub'} & set(sys.modules))); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", code, "decide", file(to_json([record()])), *WANTED], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("Serve FP32 on the CPU (cpu:fp32): $73.00 a month") and done.stdout.rstrip().endswith("[]")


def test_json_to_stdout_is_the_decision_and_nothing_else(decide, file):
    code, out, err = decide(file(to_json([record()])), *WANTED, "--json", "-")
    found = json.loads(out)
    assert (code, err, found["schema"], found["chosen"]) == (0, "", "gpu-vs-cpu-decision/1", "cpu:fp32")
    assert found["candidates"][0]["cost_month"] == pytest.approx(584.0) and found["asked"]["prices"]["cuda:nf4"]["source"] == "typed: your --price"
    assert all(figure["source"] for candidate in found["candidates"] for figure in candidate["figures"])


def test_the_text_fits_the_terminal_and_markdown_and_json_go_to_files(decide, file, tmp_path, monkeypatch):
    files = ("--markdown", str(tmp_path / "d.md"), "--json", str(tmp_path / "d.json"), "--report", str(tmp_path / "d.html"))
    for width in ("40", "160"):
        monkeypatch.setenv("COLUMNS", width)
        _, out, _ = decide(file(to_json([record()])), *WANTED, "--max-total", "9", "--sleep-after", "10", *files)
        assert max(map(len, out.splitlines())) <= int(width) and "What would turn it" in out
        assert "measured: median (quickest - slowest)" in " ".join(out.split()) and ("- Price: typed: your --price" in out) == (width == "40")
    assert (tmp_path / "d.md").read_text().startswith("## Which one to serve\n\n**Serve") and json.loads((tmp_path / "d.json").read_text())["chosen"]
    page = (tmp_path / "d.html").read_text()
    assert "The decision</h2>" in page and "Serve FP32 on the CPU" in page and "Cost a month over answers a day" in page and page.count("<polyline") >= 2


def test_a_series_and_its_quality_are_one_decision(decide, file, tmp_path):
    records = [replace(record(), row=Row(line, None)) for line in (1, 2)]
    series = file(dump(Series([Prompt(1, "hi"), Prompt(2, "ho")], records=records).as_json()), "s.json")
    scored = file(json.dumps({"quality": {**quality_as_json(quality(500, 0.95)), "model": "fake/model", "total_s": 3.0}}), "q.json")
    code, out, _ = decide(series, scored, *WANTED, "--min-agreement", "0.9", "--report", str(tmp_path / "d.html"))
    assert code == 0 and "95.00 %" in out and "n 6)" in out
    page = (tmp_path / "d.html").read_text()
    assert "95 % of 500 positions" in page and "Not measured in these runs" not in page, "what was measured beside the runs is the report's, too"


def test_what_is_not_decided_ends_with_1(decide, file):
    code, out, err = decide(file(to_json([record()])), *WANTED, "--min-agreement", "0.9", "--price", "cuda:bf16=1")
    assert code == 2 and err.startswith("There is a price for cuda:bf16, but no record has that lane.") and not out
    code, out, _ = decide(file(to_json([two()])), *WANTED, "--max-total", "9")
    assert code == 1 and out.startswith("Not decided. ") and "one run is one sample" in " ".join(out.split())


def test_a_hardware_s_name_is_a_price_with_its_date(decide, file):
    found = json.loads(
        decide(file(to_json([record()])), "--answers-per-day", "9", "--price", "cuda:nf4=t4-small", "--price", "cpu:fp32=cpu-basic", "--json", "-")[1]
    )
    price = found["asked"]["prices"]["cuda:nf4"]
    assert price["dollars_per_hour"] == 0.4 and "(t4-small)" in price["source"] and "prices read 2026-" in price["source"]
    beside = " ".join(found["remarks"])
    assert "the price is of NVIDIA T4, the times are of NVIDIA L4" in beside and "cpu:fp32: the hardware costs nothing" in beside


def test_a_measured_load_stands_beside_the_estimate(decide, file):
    rows = [
        {"clients": n, "first_token_s": {"p50": 0.1, "p95": None, "max": 0.1 * n}, "total_s": {"p50": 1.0, "p95": 1.0 + n / 10, "max": 9.0}, "answers_per_min": 50.0 + 10 * n, "n": 20, "failed": 0, "new_tokens": 46}
        for n in (1, 2, 8)
    ]  # fmt: skip
    slower = [{**row, "answers_per_min": row["answers_per_min"] / 10} for row in rows]
    loads = {
        "clients": {"endpoint:x": rows, "cpu:fp32": slower, "cuda:nf4": []},
        "model": "fake/model",
        "hardware": {"endpoint:x": "elsewhere", "cpu:fp32": "d"},
    }
    measured = record_of(endpoint_x=[run(20, total) for total in (1.0, 1.1, 1.2)], cpu_fp32=[run(5, total) for total in (1.0, 1.1, 1.3)])
    wanted = ("--answers-per-day", "1000", "--price", "endpoint:x=0.8", "--price", "cpu:fp32=0.1", "--max-total", "1.5")
    code, out, _ = decide(file(to_json([measured])), *wanted, "--load", file("a table\n\n" + json.dumps(loads), "load.txt"), "--json", "-")
    found = json.loads(out)
    server, ours = found["candidates"]
    assert (code, found["chosen"], server["capacity_per_day"]) == (0, "cpu:fp32", 70 * 1440) and ours["capacity_per_day"] != 70 * 1440
    assert "6 with 1 client, 7 with 2 clients, 13 with 8 clients" in [figure["words"] for figure in ours["figures"]]
    beside = " ".join(found["remarks"])
    assert "endpoint:x: its load was measured with answers of 46 tokens, not of 3" in beside and "no record has cuda:nf4" in beside
    assert "cpu:fp32: its load was measured on d, its record on c, 2 threads." in beside and "endpoint:x: its load was measured on" not in beside

    # a server's own name for its model, where nothing else was measured, is no other model
    named = json.dumps({"clients": {"endpoint:x": rows}, "model": "served-as-this"})
    found = json.loads(decide(file(to_json([measured])), *wanted, "--load", file(named, "load.txt"), "--json", "-")[1])
    assert found["candidates"][0]["capacity_per_day"] == 70 * 1440


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "load.txt holds no measured load."),
        (json.dumps({"clients": {"cuda:nf4": [{"clients": 1}]}}), "load.txt is damaged"),
        (json.dumps({"clients": {}, "model": "other"}), "load.txt is of other, and the records are of fake/model."),
    ],
)
def test_a_load_that_is_none_gets_a_sentence(decide, file, text, words):
    code, out, err = decide(file(to_json([record()])), *WANTED, "--load", file(text, "load.txt"))
    assert code == 2 and words in err and not out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--answers-per-day", "0"), "The answers a day must be more than 0"),
        (("--answers-per-day", "nan"), "not nan."),
        (("--answers-per-day", "many"), "Argument --answers-per-day: invalid float value: 'many'"),
        (("--max-first-token", "0"), "more than 0 seconds, not 0."),
        (("--min-agreement", "95"), "For 95 % give 0.95."),
        (("--open-hours", "0"), "The open hours must be more than 0"),
        (("--tokens", "0"), "The tokens of an answer must be more than 0"),
        (("--sleep-after", "-1"), "must be 0 or more, not -1."),
        (("--price", "cuda:nf4=1"), "--price gives cuda:nf4 two prices."),
        (("--price", "cuda:bf16=-1"), "The price of cuda:bf16 must be from 0 to 1,000,000 dollars an hour, not -1."),
        (("--price", "cuda:bf16=inf"), "not inf."),
        (("--price", "cuda:bf16"), "--price cuda:bf16= has no price."),
        (("--price", "tpu=1"), "--price takes LANE=DOLLARS or LANE=HARDWARE, such as cuda:nf4=0.8 or cuda:nf4=l4x1, not 'tpu=1'."),
        (("--price", "cuda:bf16=h900"), "There is no hardware 'h900'."),
        (("--price", "cuda:bf16=zero"), "zero has no price (a quota, no price). Type the dollars an hour"),
        (("--price", "cuda:bf16=cpu-basic"), "cuda:bf16 needs a GPU, and cpu-basic has none."),
        (("--load", "nowhere.json"), "nowhere.json can't be read (No such file or directory)."),
        (("--markdown", "-"), "--markdown can't go to stdout"),
    ],
)
def test_what_can_t_be_used_gets_a_sentence(decide, file, arguments, words):
    code, out, err = decide(file(to_json([record()])), *WANTED, *arguments)
    assert code == 2 and words in err and not out and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("r.json", "--answers-per-day", "9"), "--price"),
        (("r.json", "--price", "cpu:fp32=1"), "--answers-per-day"),
        (WANTED, "RECORD"),
        (("nowhere.json", *WANTED), "nowhere.json can't be read"),
    ],
)
def test_what_is_missing_is_named(decide, arguments, words):
    code, out, err = decide(*arguments)
    assert code == 2 and words in err and not out


def test_records_of_two_models_and_an_older_one_get_a_sentence(decide, file):
    other = file(to_json([changed(record(), model={"id": "other/model"})]), "o.json")
    assert "The records are of 2 models: fake/model, other/model." in decide(file(to_json([record()])), other, *WANTED)[2]
    old = file(json.dumps({**as_json(record()), "schema": "gpu-vs-cpu/1"}), "old.json")
    assert "old.json was written by an older version of this program (gpu-vs-cpu/1)" in decide(old, *WANTED)[2]


# ---- a real record: the default model on two cores, the same prompt five times, and 20 held-out prompts scored


def test_the_default_model_is_decided_from_its_real_record(decide):
    here = Path(__file__).parent
    wanted = (
        "--answers-per-day",
        "2000",
        "--max-first-token",
        "1",
        "--max-total",
        "5",
        "--min-agreement",
        "0.95",
        "--price",
        "cpu:nf4=0.03",
        "--price",
        "cpu:fp32=0.06",
    )
    code, out, _ = decide(str(here / "menu.json"), str(here / "menu_quality.json"), *wanted, "--json", "-")
    found = json.loads(out)
    four_bit, full = found["candidates"]
    assert (code, found["model"], found["chosen"], found["turns"]) == (0, "menu", "cpu:nf4", [])
    # 0.03 x 730 = 21.90, and 0.06 x 730 = 43.80; 2,000 x 30.41667 = 60,833 answers a month: 0.36 and 0.72 for 1,000
    assert [round(each["cost_month"], 2) for each in (four_bit, full)] == [21.9, 43.8]
    assert [round(each["cost_1000"], 2) for each in (four_bit, full)] == [0.36, 0.72]
    # answers of 1.4286, 1.5404, 1.1816, 0.9260, 0.9613 s: 1.20758 in the mean, x 0.03 / 3.6 = 0.010063
    assert round(four_bit["floor_1000"], 6) == 0.010063
    assert [rule["keeps"] for rule in four_bit["rules"]] == [True] * 4 and "98.95 % ± 0.47 % over 477 positions" in four_bit["rules"][3]["words"]
    strict = json.loads(decide(str(here / "menu.json"), str(here / "menu_quality.json"), *wanted[:4], "--max-total", "1.2", *wanted[8:], "--json", "-")[1])
    assert strict["chosen"] is None and "5 runs took 926 ms to 1.54 s, and the limit of 1.20 s lies between" in strict["sentence"]


# ---- another: gemma-3-4b's shape on one H200 and 16 cores beside it, one prompt 20 times, 50 tokens; ids and token times are left out of the file


@pytest.fixture
def four_b(decide):
    """The decision on that record, a card at $3.60 an hour beside cores at what is asked."""

    def four_b(cores, *wanted):
        prices = ("--price", "cuda:nf4=3.60", "--price", "cuda:bf16=3.60", "--price", f"cpu:fp32={cores}")
        return json.loads(decide(str(Path(__file__).parent / "gemma_4b_h200.json"), *prices, *wanted, "--json", "-")[1])

    return four_b


def test_a_card_and_cores_are_decided_from_their_real_record(four_b):
    found = four_b(0.80, "--answers-per-day", "20000", "--max-first-token", "1", "--max-total", "5")
    nf4, bf16, cores = found["candidates"]
    assert found["chosen"] == "cuda:nf4" and "as much as BF16 on the GPU (cuda:bf16), and it is the faster one" in found["sentence"]
    assert any("The weights are random" in remark for remark in found["remarks"])
    # a card: 3.60 x 730 = 2,628.00. Cores: 1,633 answers a day each, 20,000 / 1,633 = 12.2, so 13 x 0.80 x 730 = 7,592.00
    assert (int(cores["capacity_per_day"]), cores["machines"]) == (1633, 13)
    assert [round(each["cost_month"], 2) for each in (nf4, bf16, cores)] == [2628.0, 2628.0, 7592.0]
    # 20,000 x 30.41667 = 608,333 answers a month: 2,628 / 608.333 = 4.32, 7,592 / 608.333 = 12.48
    assert [round(each["cost_1000"], 2) for each in (nf4, bf16, cores)] == [4.32, 4.32, 12.48]
    # means of 76.4186 ms, 130.1356 ms and 3.3455485 s, x price / 3.6
    assert [round(each["floor_1000"], 5) for each in (nf4, bf16, cores)] == [0.07642, 0.13014, 0.74346]
    # four machines of cores cost 2,336 a month, five 2,920: the card is the cheaper one from 4 x 1,633 + 1 on
    assert [(turn["answers_per_day"], turn["before"], turn["then"]) for turn in found["turns"]] == [(6533, "cpu:fp32", "cuda:nf4")]


def test_price_wait_and_sleep_flip_it(four_b):
    asked = ("--answers-per-day", "20000", "--max-first-token", "1", "--max-total", "5")
    assert four_b(0.27, *asked)["chosen"] == "cpu:fp32"  # 13 x 0.27 x 730 = 2,562.30
    assert four_b(0.28, *asked)["chosen"] == "cuda:nf4"  # 13 x 0.28 x 730 = 2,657.20
    assert four_b(0.80, "--answers-per-day", "1000", "--max-total", "5")["chosen"] == "cpu:fp32"
    assert four_b(0.80, "--answers-per-day", "1000", "--max-total", "3")["chosen"] == "cuda:nf4"  # the quickest of 20 took 3.20 s
    undecided = four_b(0.80, "--answers-per-day", "1000", "--max-total", "3.5")  # the p95 of 20 runs lies between 3.43 s and 3.59 s
    assert undecided["chosen"] is None and "cpu:fp32" in undecided["sentence"]
    # at 20,000 a day that doubt decides nothing: under 3.59 s, which they keep, they give 1,381 a day each, so 15 machines and 8,760
    decided = four_b(0.80, "--answers-per-day", "20000", "--max-total", "3.5")
    assert decided["chosen"] == "cuda:nf4" and round(decided["candidates"][2]["cost_month"], 2) == 8760.0
    assert any("cpu:fp32 may keep or break the limit on the whole answer, which decides nothing" in reason for reason in decided["because"])
    # 20 visitors a day: each is 3.3 s of work, up to five minutes of waiting for the next, and most of them a load of 12.9 s
    assert four_b(0.80, "--answers-per-day", "20", "--max-total", "60", "--sleep-after", "5")["chosen"] == "cpu:fp32"


# ---- what the README says


def test_the_decision_in_the_readme_is_this_record_s(decide):
    prices = ("--price", "cuda:nf4=3.60", "--price", "cpu:fp32=0.80")
    code, out, _ = decide(str(ROOT / "tests/decide/gemma_4b_h200.json"), "--answers-per-day", "20000", "--max-first-token", "1", "--max-total", "5", *prices)
    plain, readme = (" ".join(text.split()) for text in (re.sub(r"\s\((cuda|cpu):\w+\)", "", out), (ROOT / "README.md").read_text("utf-8")))
    told = re.search(r"\*(Serve .*?)\.\* Under ([\d,]+) a day it would be FP32", readme)
    assert code == 0 and plain.startswith(f"{told[1]}, 2.9 times as much.") and f"under {told[2]} cpu:fp32 is the cheaper one" in out


def test_the_decisions_that_are_told_are_those_that_are_printed(decide, monkeypatch):
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "decide.md").read_text("utf-8")
    first, second = (command.split() for command in re.findall(r"^python -m inference decide (tests/.*)$", page, re.M))
    assert decide(*first)[1].startswith(page.split("```text\n")[1].split("```")[0].rstrip())
    printed = decide(*second)[1]
    table, turns = page.split("--price cpu:fp32=0.80\n```\n")[1].split("It says NF4")[0], page.split("What turns it: ")[1].split("A limit of 3 s")[0]
    told = re.findall(r"\$?\d[\d,.]*\d(?: m?s)?", "".join(row.split("|", 2)[2] for row in table.split("\n|---")[1].splitlines()[1:] if row) + turns)
    assert len(told) > 20 and not [figure for figure in told if figure not in printed and figure not in ("20,000", "1,633")]
