"""The command line: the record alone on stdout, faults as one sentence on stderr, exit codes that mean something."""

import json
import os
import re
import subprocess
import sys

import pytest

from inference.host.child import ROOT
from tests.support.tiny import make_checkpoint


def run(*arguments, **kwargs):
    return subprocess.run([sys.executable, "-m", "inference", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, **kwargs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(make_checkpoint(tmp_path_factory.mktemp("tiny") / "llama", "llama"))


def test_json_to_stdout_is_the_record_and_nothing_else(folder):
    done = run("compare", "--prompt", "hello", "--model", folder, "--max-new-tokens", "4", "--repeats", "2", "--json", "-")
    record = json.loads(done.stdout)
    assert done.returncode == 0 and record["request"]["repeats"] == 2
    assert [lane["n"] for lane in record["lanes"].values()] == [2, 2]
    assert record["lanes"]["cpu:fp32"]["runs"][0]["warm"] is True


def test_a_lane_that_can_not_run_makes_exit_code_1_and_the_other_answers(folder):
    done = run("compare", "--prompt", "hello", "--model", folder, "--lanes", "cuda:nf4,cpu:fp32", "--max-new-tokens", "4", "--json", "-")
    lanes = json.loads(done.stdout)["lanes"]
    if lanes["cuda:nf4"]["available"]:
        pytest.skip("this machine has a CUDA device")
    assert done.returncode == 1 and "CUDA" in lanes["cuda:nf4"]["runs"][0]["error"] and lanes["cpu:fp32"]["n"] == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("compare", "--prompt", " "), "empty"),
        (("compare", "--prompt", "hi", "--lanes", "tpu:int8"), "Unknown lane"),
        (("compare", "--prompt", "hi", "--lanes", ""), "at least one lane"),
        (("compare", "--prompt", "hi", "--max-new-tokens", "0"), "tokens"),
        (("compare", "--prompt", "hi", "--repeats", "0"), "repeats"),
        (("compare", "--prompts", "nowhere.txt"), "can't be read"),
        (("compare", "--prompt", "hi", "--speed", "9"), "Unrecognized arguments"),
        (("bench", "--rounds", "0"), "--rounds must be 1 or more"),
    ],
)
def test_bad_arguments_get_one_sentence(arguments, word):
    done = run(*arguments)
    assert done.returncode == 2 and word in done.stderr and "Traceback" not in done.stderr


def test_doctor_tells_a_cache_that_can_t_be_written_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("CACHE_DIR", "/dev/null/below")
    done = run("doctor", "--lanes", "cpu:fp32")
    assert done.returncode == 2 and "CACHE_DIR" in done.stderr and "Traceback" not in done.stderr


def test_doctor_tells_what_can_run_and_exits_1_where_a_lane_can_not():
    good = run("doctor", "--lanes", "cpu:nf4,cpu:fp32", env={key: value for key, value in os.environ.items() if key != "MODEL_ID"})
    assert good.returncode == 0 and "gemma-3-4b on cpu:fp32" in good.stdout and "threads" in good.stdout
    assert "Model (the default" in good.stdout and good.stdout.endswith("\n\nEverything needed is here: make run\n")
    assert len(set(re.findall(r"[\d.]+ GiB free(?! on its disk)", " ".join(good.stdout.split())))) == 1, "free RAM is read once"
    other = run("doctor", "--lanes", "cuda:nf4")
    assert (other.returncode == 1) == ("can not run" in other.stdout) == ("To mend first: cuda:nf4 can not run" in other.stdout)


def test_doctor_judges_the_model_that_is_named_and_exits_1_where_it_can_t_be_loaded(tmp_path):
    done = run("doctor", str(tmp_path / "none"), "--lanes", "cpu:fp32")
    assert done.returncode == 1 and "can't be loaded: There is no folder or file" in " ".join(done.stdout.split()) and "Versions" not in done.stdout
