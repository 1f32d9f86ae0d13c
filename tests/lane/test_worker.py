"""Real lane processes on a tiny model: answers, kills, orphans, stray prints, and prompts that don't fit."""

import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from inference.engine.compare import compare, follow
from inference.engine.engine import Engine
from inference.engine.process import start_worker
from inference.events import Request
from inference.host.child import ROOT
from inference.settings import Settings
from inference.status import LOADING_STATES
from tests.support.tiny import make_checkpoint
from tests.support.until import until


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = make_checkpoint(tmp_path_factory.mktemp("tiny") / "gemma", context=4096)
    return Settings(model_id=str(folder), lanes=("auto:nf4", "cpu:fp32"))


@pytest.fixture(scope="module")
def engine(settings):
    with Engine(settings) as engine:
        yield engine


def test_the_record_has_both_lanes_on_a_machine_without_a_gpu(engine):
    record = compare(engine, Request("hello good morning", max_new_tokens=8), mode="together")
    four = next(name for name in record.lanes if name.endswith("nf4"))
    assert set(record.lanes) == {four, "cpu:fp32"}
    for lane in record.lanes.values():
        run = lane.runs[0]
        assert lane.available and lane.n == 1 and 1 <= run.new_tokens <= 8
        assert run.ttft_s > 0 and len(run.token_times_s) == run.new_tokens == len(run.token_ids)
        assert lane.load.spans["import"] > 0 and run.ram.uss > 0 and run.path
        assert (run.energy is None) == ("energy" in lane.unmeasured), "what this machine's counter says, or why it says nothing"
    assert record.verdict.pairs[0].memory < 1
    assert record.environment.torch and record.environment.ram_limit_bytes > 0


def test_a_lane_killed_while_decoding_fails_alone_and_answers_the_next_prompt(engine):
    comparison = engine.submit(Request("hello", max_new_tokens=3000), mode="together")
    four, full = comparison.runs["auto:nf4"], comparison.runs["cpu:fp32"]
    seen = []
    for progress in follow(engine, full):
        seen.append(progress)
        if progress.n >= 5 and len(seen) and progress.phase == "decode":
            os.kill(engine.pids()["cpu:fp32"], signal.SIGKILL)
            break
    until(lambda: full.ended, 60)
    assert seen[-1].text
    engine.stop(four.id)
    until(lambda: four.ended, 60)
    record = compare(engine, Request("hello", max_new_tokens=4))
    assert all(lane.n == 1 for lane in record.lanes.values())


def test_a_lane_killed_while_loading_fails_alone_and_answers_the_next_prompt(engine):
    os.kill(engine.pids()["auto:nf4"], signal.SIGKILL)
    until(lambda: engine.status()[0].state in LOADING_STATES, 60)
    os.kill(engine.pids()["auto:nf4"], signal.SIGKILL)
    record = compare(engine, Request("hello", max_new_tokens=4))
    assert all(lane.n == 1 for lane in record.lanes.values())


def test_a_prompt_that_is_too_long_is_refused_in_both_lanes_and_nothing_breaks(engine):
    record = compare(engine, Request("word " * 5000))
    assert all("tokens" in lane.runs[0].error for lane in record.lanes.values())
    record = compare(engine, Request("hello", max_new_tokens=4))
    assert all(lane.n == 1 for lane in record.lanes.values())


def test_a_lane_process_ends_when_its_input_closes_even_while_it_imports(settings):
    process = start_worker("cpu:fp32", settings)
    child = psutil.Process(process.pid)
    process._child.stdin.close()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 10)
    process.close()


def test_a_stray_print_in_a_library_does_not_break_a_message(settings):
    code = "import inference.lane.worker as w; print('stray'); import os; os.write(1, b'more\\n'); w.write(w.Failed('r', 'm'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    assert done.stdout.strip() == '{"event": "failed", "run_id": "r", "message": "m", "refused": false}'
    assert "stray" in done.stderr and "more" in done.stderr


def test_weights_that_are_written_over_while_they_are_loaded_are_told_and_loaded_anew(tmp_path):
    """They lie in the file's own pages: both lanes answered by a mixture, or by nothing, without a word. A file that is replaced stays what it was."""
    folder, other = make_checkpoint(tmp_path / "tiny"), make_checkpoint(tmp_path / "other", seed=1) / "model.safetensors"
    file, asked = folder / "model.safetensors", Request("hello", max_new_tokens=4)
    settings = Settings(model_id=str(folder), lanes=("cpu:nf4", "cpu:fp32"))
    with Engine(settings) as engine:
        before = compare(engine, asked)
        shutil.copy(file, tmp_path / "same")
        os.replace(tmp_path / "same", file)
        assert ids(compare(engine, asked)) == ids(before)
    with Engine(settings) as engine:
        compare(engine, asked)
        file.write_bytes(other.read_bytes())
        told = [lane.runs[0].error for lane in compare(engine, asked).lanes.values()]
        assert all(error.startswith("The model's files were written over while this lane had them loaded") for error in told)
        after = compare(engine, asked)
        assert [lane.runs[0].error for lane in after.lanes.values()] == [None, None] and ids(after) != ids(before)


def ids(record):
    return [lane.runs[0].token_ids for lane in record.lanes.values()]
