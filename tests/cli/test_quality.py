"""The command quality on real lane processes of a tiny model: text, prompts with expected answers, and compare --quality."""

import json
import subprocess
import sys

import pytest

from inference.host.child import ROOT
from tests.support.tiny import TEXTS, make_checkpoint

LANES = ("--lanes", "cpu:nf4,cpu:fp32")
FIGURES = {"positions", "kld_mean", "kld_se", "kld_median", "kld_p99", "kld_max", "top1_agreement", "top1_se", "ppl_ratio", "ppl_ratio_se"}


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "inference", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=180)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("tiny") / "gemma", context=1024)


def test_a_text_gives_the_figures_as_json_and_nothing_else(folder, tmp_path):
    (tmp_path / "text.txt").write_text(" ".join(TEXTS) * 24)
    done = run("quality", "--text", str(tmp_path / "text.txt"), "--model", str(folder), *LANES, "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["quality"]
    assert set(found) >= FIGURES and found["positions"] > 500 and found["kld_mean"] > 0
    assert (found["reference"], found["other"], found["vocabulary"], found["rows"]) == ("cpu:fp32", "cpu:nf4", 512, 512)
    assert found["lanes"]["cpu:nf4"]["kld_mean"] == found["kld_mean"]


def test_prompts_with_expected_answers_give_flips_too(folder, tmp_path):
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"prompt": text, "expected": "menu"}) + "\n" for text in TEXTS[:2]))
    done = run("quality", "--prompts", str(tmp_path / "p.jsonl"), "--model", str(folder), *LANES, "--max-new-tokens", "8", "--json", str(tmp_path / "q.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "q.json").read_text())["quality"]
    assert 2 <= found["positions"] <= 16 and found["answers"]["n"] == 2 and found["expected"]["contains"]["answers"] == 2
    assert "too few for a verdict" in done.stdout and "McNemar" in done.stdout


def test_compare_with_quality_fills_the_record(folder):
    done = run("compare", "--prompt", "hello", "--model", str(folder), *LANES, "--max-new-tokens", "8", "--quality", "--json", "-")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert set(record["quality"]) >= FIGURES and record["quality"]["source"] == "answer"
    fork, index = record["quality"]["first_divergence"], record["verdict"]["first_divergence"]
    assert (fork and fork["index"]) == index


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--text", "nowhere.txt"), "nowhere.txt can't be read (No such file or directory)"),
        (("--prompts", "nowhere.csv"), "can't be read"),
        (("--text", "LICENSE", "--lanes", "cpu:fp32"), "another one"),
    ],
)
def test_what_can_not_be_measured_gets_one_sentence(arguments, words, folder):
    done = run("quality", *arguments, "--model", str(folder))
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
