"""A comparison -> the record (`gpu-vs-cpu/1`).

In: the lanes' status and each lane's finished runs. Out: plain dictionaries, ready for JSON. Times in seconds from
a run's start, memory in bytes, rates per second, an unknown value null. Knows no engine, no page, no model.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from inference.events import Done, Request
from inference.progress import Progress
from inference.record.lanes import ENDED
from inference.record.verdict import verdict
from inference.status import LaneStatus
from inference.timing import Timings

SCHEMA = "gpu-vs-cpu/1"
FIGURES = ("ttft_s", "prefill_tps", "tpot_s", "decode_tps", "total_s", "queue_s", "turn_wait_s", "load_wait_s")
FACTS = (
    "model_id",
    "revision",
    "note",
    "device",
    "precision",
    "storage_dtype",
    "compute_dtype",
    "quantization",
    "device_map",
    "kernel",
    "threads",
    "kept_16bit",
    "weights_bytes",
)
REQUEST = ("prompt", "system", "format", "max_new_tokens", "temperature", "seed")
VERSIONS = ("python", "torch", "transformers", "bitsandbytes", "accelerate", "huggingface_hub", "gradio")
HARDWARE = ("cpu", "ram_limit_bytes", "gpu", "gpu_memory_bytes", "driver")


def build_record(lanes: list[LaneStatus], request: Request, mode: str, outcomes: dict[str, list[Progress]]) -> dict[str, Any]:
    """The record of a comparison; `outcomes` holds each lane's finished runs by configured lane name."""
    used = [lane for lane in lanes if lane.key in outcomes]
    rows = {lane.name: _lane(lane, outcomes[lane.key]) for lane in used}
    return {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": _model(used),
        "request": {
            **{key: getattr(request, key) for key in REQUEST},
            "format": _format(request, outcomes),
            "mode": mode,
            "repeats": max((len(runs) for runs in outcomes.values()), default=0),
        },
        "environment": _environment(used),
        "lanes": rows,
        "verdict": verdict(rows),
        "quality": None,
    }


def _model(lanes: list[LaneStatus]) -> dict[str, Any]:
    facts = next((lane.facts for lane in lanes if lane.facts), None)
    keys = ("id", "revision", "architecture", "parameters", "adapter", "note")
    if facts is None:
        return dict.fromkeys(keys)
    return dict(zip(keys, (facts.model_id, facts.revision, facts.architecture, facts.parameters, facts.adapter, facts.note), strict=True))


def _format(request: Request, outcomes: dict[str, list[Progress]]) -> str:
    return next((run.format for runs in outcomes.values() for run in runs if run.format), request.format)


def _environment(lanes: list[LaneStatus]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys((*VERSIONS, *HARDWARE))
    for hello in (lane.hello for lane in lanes if lane.hello):
        known = {**hello.versions, **hello.environment}
        found |= {key: known[key] for key in found if known.get(key) is not None}
    return found


def _lane(lane: LaneStatus, runs: list[Progress]) -> dict[str, Any]:
    facts = asdict(lane.facts) if lane.facts else {}
    rows = [_run(run) for run in runs]
    counted = [row for row in rows if row["finish_reason"] in ENDED]
    available = lane.available and lane.state not in ("failed", "refused")
    return {
        "available": available,
        "reason": lane.reason or (lane.hello.reason if lane.hello else None),
        **{key: list(found) if isinstance(found := facts.get(key), tuple) else found for key in FACTS},
        "path_pending": lane.path_pending,
        "load": asdict(lane.load) if lane.load else None,
        "runs": rows,
        **{name: _summary(counted, function) for name, function in (("median", statistics.median), ("min", min), ("max", max))},
        "n": len(counted),
    }


def _run(run: Progress) -> dict[str, Any]:
    done = run.done or Done("", "failed", run.text, (), len(run.prompt_ids), Timings())
    times = asdict(done.timings)
    return {
        "text": run.text,
        "token_ids": list(done.token_ids),
        "prompt_tokens": done.prompt_tokens or len(run.prompt_ids) or None,
        "new_tokens": run.n,
        "finish_reason": done.finish_reason,
        "error": run.error,
        **{key: getattr(done, key) for key in ("queue_s", "turn_wait_s", "load_wait_s")},
        **{key: times[key] for key in ("ttft_s", "prefill_tps", "decode_tps", "tpot_s", "total_s")},
        "token_times_s": list(done.timings.token_times_s),
        "vram": asdict(done.vram) if done.vram else None,
        "ram": asdict(done.ram) if done.ram else None,
        **{key: getattr(done, key) for key in ("path", "warm", "alone")},
    }


def _summary(rows: list[dict[str, Any]], function: Any) -> dict[str, float | None]:
    values = {key: [row[key] for row in rows if row[key] is not None] for key in FIGURES}
    return {key: function(found) if found else None for key, found in values.items()}
