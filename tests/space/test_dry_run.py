"""`deploy --dry-run`: everything that would be done, for three kinds of hardware, without network and token; no secret's value anywhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from inference.cli import main as command_line
from inference.host.child import ROOT
from inference.host.hardware import LaneNeed
from inference.space import model

GIB = 2**30
NEEDS = {lane: LaneNeed(GIB, 2 * GIB, GIB) for lane in ("cuda:nf4", "cuda:nf4 in float32", "cpu:nf4")} | {"cpu:fp32": LaneNeed(9 * GIB, 14 * GIB, GIB)}
SECRET = "s3cr3t-value-of-mine"


@pytest.fixture
def dry(monkeypatch, capsys):
    monkeypatch.setattr(model, "judged", lambda asked, offline: model.Judged(asked.hardware.fit(NEEDS), NEEDS))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = command_line.main(["deploy", "you/demo", "--dry-run", *arguments])
        told = capsys.readouterr()
        assert SECRET not in told.out + told.err and "Traceback" not in told.err
        return code, told.out, told.err

    return run


@pytest.mark.parametrize(
    ("hardware", "flavor", "words"),
    [
        ("t4-small", "t4-small", ["$0.40 an hour (prices read 2026-08", "charged for as long as it runs", "torch>=", "gradio>=", "cuda:nf4 fits"]),
        ("zero", "zero-a10g", ["a quota, no price", "torch==2.10.0\n", 'python_version: "3.12.12"', "cuda:nf4 fits", "cpu:fp32 may fit"]),
        ("cpu-basic", "cpu-basic", ["free (prices read 2026-08", "cpu:nf4 fits", "The page will refuse the FP32 lane on cpu-basic", "both fit on cpu-upgrade ($0.03 an hour)"]),
    ],
)  # fmt: skip
def test_everything_is_listed(dry, monkeypatch, hardware, flavor, words):
    monkeypatch.setenv("MINE", SECRET)
    code, out, _ = dry(
        "--hardware", hardware, "--model", "you/tuned", "--secret", "MINE", "--secret", f"HF_TOKEN={SECRET}", "--variable", "CPU_THREADS=2", "--private"
    )
    assert code == 0 and all(word in out for word in [*words, "you/demo, private", "  MODEL_ID=you/tuned", "  CPU_THREADS=2", "  MINE\n", "  HF_TOKEN\n"]), out
    assert (
        f"suggested_hardware: {flavor}\n" in out
        and "    - you/tuned\n" in out
        and f"space_hardware={flavor}, private)" in out
        and "model_info(you/tuned)" in out
    )
    assert (
        "  app.py  " in out and "  inference/host/hardware.json  " in out and "examples/menu" not in out and "tests/" not in out and "prompt to /compare" in out
    )
    listed = out.partition("requirements.txt as it is uploaded")[2].partition("README.md's head")[0]
    assert ("gradio>" in listed or "huggingface_hub>" in listed) == (hardware != "zero") and ("\n  hardware:" in out) is False


def test_it_needs_no_network_and_no_token(tmp_path):
    """By the real judge, too, which knows nothing of a model that is not here, and asks nobody."""
    env = {name: value for name, value in os.environ.items() if name not in ("HF_TOKEN", "MODEL_ID")}
    env |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "HF_TOKEN_PATH": str(tmp_path / "none")}
    command = [sys.executable, "-m", "inference", "deploy", "you/demo", "--hardware", "cpu-basic", "--dry-run", "--model", "you/tuned"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.endswith("Nothing was asked and nothing was made (--dry-run).\n"), done.stderr
    assert "whether you/tuned fits is not known: it is not on this machine" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hardware", "h100"], "There is no hardware 'h100'. There is: cpu-basic, "),
        ([], "--hardware"),
        (["--hardware", "zero", "--model", "./tuned"], "a Space can't reach it. Upload it first (hf upload"),
        (["--hardware", "zero", "--model", "tuned"], "is no model of the Hub"),
        (["--hardware", "zero", "--model", "shape:nonsense"], "There is no shape"),
        (["--hardware", "zero", "--variable", "MODELS"], "has no value"),
        (["--hardware", "zero", "--variable", f"HF_TOKEN={SECRET}"], "everybody can read a Space's variables. Give it as --secret HF_TOKEN"),
        (["--hardware", "zero", "--variable", f"ENDPOINT_MINE_KEY={SECRET}"], "Give it as --secret ENDPOINT_MINE_KEY"),
        (["--hardware", "zero", "--variable", "LANES=tpu:int8"], "Unknown lane"),
        (["--hardware", "zero", "--variable", "MODELS=./mine"], "a Space can't reach it"),
        (["--hardware", "zero", "--variable", "SHARE=1"], "A Space sets SHARE itself"),
        (["--hardware", "zero", "--variable", "MODEL_ID=you/a", "--model", "you/b"], "MODEL_ID is given twice"),
        (["--hardware", "zero", "--secret", "NOT_SET_HERE"], "The secret NOT_SET_HERE is not set in this environment"),
        (["--hardware", "zero", "--secret", f"9{SECRET}"], "can't be a variable's name"),
        (["--hardware", "zero", "--secret", f"MINE={SECRET}\nmore"], "holds a character that can't be sent"),
        (["--hardware", "zero", "--secret", f"AUTH=:{SECRET}"], "AUTH must look like user:password"),
        (["--hardware", "zero", "--secrte", f"MINE={SECRET}"], "Unrecognized arguments"),
        (["--hardware", "zero", f"--secrets=MINE={SECRET}"], "Unrecognized arguments"),
        (["--hardware", "zero", "--wait", "nan"], "--wait must be a number of minutes"),
    ],
    ids=lambda value: value[-1].split("=")[0] if isinstance(value, list) and value else "",
)
def test_wrong_arguments_are_one_sentence_without_what_was_given_for_a_secret(dry, arguments, words):
    code, out, err = dry(*arguments)
    assert code == 2 and words in " ".join(err.split()) and not out


@pytest.mark.parametrize("name", ["demo", "you/", "/demo", "you/a/b", "you/a--b", "you/-a", "you/a.git", "you/" + "a" * 97, "yöu/a", "you/a b"])
def test_a_name_that_the_hub_would_refuse_is_told(capsys, name):
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    code = command_line.main(["deploy", name, "--hardware", "cpu-basic", "--dry-run"])
    assert code == 2 and "Space" in capsys.readouterr().err
    if name.count("/") == 1 and all(name.split("/")):
        with pytest.raises(HFValidationError):
            validate_repo_id(name)
