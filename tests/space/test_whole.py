"""From the command line to an answer: what is uploaded to a false Hub is started as it came, by its own files alone, and asked over its own endpoint."""

from __future__ import annotations

import subprocess
import sys

from inference.host.child import ROOT
from inference.space import watch

AUTH = "me:pass-word-of-mine"


def test_what_is_uploaded_runs_by_itself_and_answers_a_prompt(space_hub, monkeypatch, capsys):
    from inference.cli import main as command_line

    monkeypatch.setattr(watch, "POLL_S", 0.1)
    space_hub.runs = True
    code = command_line.main(["deploy", "you/demo", "--hardware", "cpu-basic", "--private", "--secret", f"AUTH={AUTH}", "--lanes", "cpu:nf4,cpu:fp32"])
    told = capsys.readouterr()
    assert code == 0, told.err
    assert "cpu:nf4 fits: needs" in told.err and "cpu:fp32 fits: needs" in told.err, "judged by doctor's own figures"
    assert "The Space runs (RUNNING)" in told.err and "free (prices read" in told.err
    assert told.out.startswith(f"{space_hub.url}/spaces/you/demo\ncpu:nf4: ") and "tok/s" in told.out and "cpu:fp32: " in told.out
    assert AUTH not in told.out + told.err and "hf_right" not in told.out + told.err
    assert space_hub.spaces["you/demo"].variables == {"MODEL_ID": "menu", "LANES": "cpu:nf4,cpu:fp32"}


def test_the_command_line_starts_without_the_hub_s_library():
    code = "import sys; from inference.cli import main, parser; parser.make(); print('huggingface_hub' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stdout + done.stderr
