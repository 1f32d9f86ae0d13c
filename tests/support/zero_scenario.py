"""`python -m tests.support.zero_scenario FOLDER CACHE`: the page on a ZeroGPU without the platform; what came of it as JSON, on the last line."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tests.support import zero_platform

api = zero_platform.begin() if __name__ == "__main__" else zero_platform.DeviceApi

import app  # noqa: E402

sys_modules = {"torch": "torch" in sys.modules, "spaces": "spaces" in sys.modules}

import torch  # noqa: E402
from gradio_client import Client  # noqa: E402

from inference.engine.compare import compare  # noqa: E402
from inference.engine.engine import Engine  # noqa: E402
from inference.events import Done, Request, Text  # noqa: E402
from inference.settings import Settings  # noqa: E402
from inference.space import zero  # noqa: E402
from inference.space.job import Job  # noqa: E402

TOKEN = "a.e30.b"  # a JSON web token that says nothing
ASKED = Request("hello good morning", max_new_tokens=6)
LONG = replace(ASKED, max_new_tokens=120)


def on_the_card(lane: Any) -> dict[str, Any]:
    """What of the model is where, as torch is made to see it."""
    tensors = [*lane.model.parameters(), *lane.model.buffers()]
    states = [weight.quant_state for weight in lane.model.parameters() if getattr(weight, "quant_state", None) is not None]
    tensors += [part for state in states for part in (state.absmax, state.code)]
    return {"devices": sorted({str(tensor.device) for tensor in tensors}), "quantized": len(states)}


def asked_of(record: Any) -> dict[str, Any]:
    return {name: asdict(lane.runs[-1]) for name, lane in record.lanes.items()}


def through_the_page(client: Client) -> dict[str, Any]:
    """A visitor with a token asks by the endpoint: the record's runs by lane."""
    record = client.predict(ASKED.prompt, max_new_tokens=ASKED.max_new_tokens, mode="together", api_name="/compare")
    return {name: lane["runs"][-1] | {"unmeasured": lane["unmeasured"], "kind": lane["device"]} for name, lane in record["lanes"].items()}


def refused(client: Client) -> dict[str, Any]:
    """The same visitor once the quota is used up."""
    api.refuse = (429, '{"left": 12, "wait": 3600}', {"X-Authenticated": "regular", "X-Approve-Result": "quota-exceeded"})
    try:
        return through_the_page(client)
    finally:
        api.refuse = None


def killed(engine: Engine, after_s: int) -> dict[str, Any]:
    """The worker is gone in the middle of its answer, `after_s` being what was asked for."""
    asked_for, zero.duration_s = zero.duration_s, lambda job: after_s

    def on_progress(key: str, progress: Any) -> None:
        if key == "auto:nf4" and progress.phase == "decode" and not gone:
            gone.append(worker())
            os.kill(gone[0], signal.SIGKILL)

    gone: list[int] = []
    record = compare(engine, LONG, mode="together", on_progress=on_progress)
    zero.duration_s = asked_for
    return asked_of(record)


def worker() -> int:
    return [int(given["pid"]) for path, given in api.asked if path == "/allow"][-1]


def stopped(engine: Engine) -> dict[str, Any]:
    """Stop is pressed after some tokens."""
    run = engine.submit(LONG, ("auto:nf4",)).runs["auto:nf4"]
    for event in engine.events(run):
        if isinstance(event, Text) and event.n >= 3:
            engine.stop(run.id)
        if isinstance(event, Done):
            return {"reason": event.finish_reason, "tokens": len(event.token_ids), "ttft_s": event.timings.ttft_s}
    return {"reason": "no end"}


def crossed(engine: Engine) -> dict[str, Any]:
    """What crosses to a worker and back, by kind."""
    job = Job("auto:nf4", "r", zero._lanes["auto:nf4"].next_number(), "generate", asdict(ASKED))
    lines = list(zero.lent(job))
    found = [json.loads(line)["event"] for line in lines]
    return {"job": pickle.loads(pickle.dumps(job)) == job, "kinds": sorted({type(line).__name__ for line in lines}), "events": found}


def environment_of(pid: int) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    return {name: value for name, _, value in pairs if name in ("SPACES_ZERO_GPU", "CUDA_VISIBLE_DEVICES")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(folder: str, cache: str) -> dict[str, Any]:
    zero_platform.compute_on_the_cpu(f"{cache}-packed")
    settings = Settings(model_id=folder, cache_dir=cache, port=free_port(), threads=1, fast=())
    starter = app.lane_starter(settings)
    found: dict[str, Any] = {"modules": sys_modules, "card": on_the_card(zero._lanes["auto:nf4"]), "cuda": torch.cuda.is_initialized()}
    page, engine, start = app.build_page(settings, starter)
    from ui.build import launch_options

    _, url, _ = page.launch(**launch_options(settings))
    found["press_waits_in_the_queue"] = [fn.queue for fn in page.fns.values() if fn.name == "press"]
    found["reported"] = [path for path, _ in api.asked]
    start()
    client = Client(url, headers={"x-ip-token": TOKEN}, verbose=False)
    found["page"] = [through_the_page(client) for _ in range(2)]
    found["asked"] = list(api.asked)
    found["child"] = environment_of(engine.pids()["cpu:fp32"])
    found["refused"] = refused(client)
    found["killed"] = killed(engine, 600)
    found["again"] = asked_of(compare(engine, ASKED, mode="together"))
    found["too_long"] = killed(engine, 0)
    found["stopped"] = stopped(engine)
    found["crossed"] = crossed(engine)
    engine.close()
    page.close(verbose=False)
    return found


if __name__ == "__main__":
    began = time.perf_counter()
    print(json.dumps(main(*sys.argv[1:]) | {"seconds": time.perf_counter() - began}), flush=True)
    for child in multiprocessing.active_children():
        child.kill()  # a worker holds our output open
    os._exit(0)  # nothing of Gradio's is waited for
