"""A comparison -> the record (`gpu-vs-cpu/1`), its verdict, and the sentence that tells it.

In: the lanes' status and each lane's finished runs. Out: plain dictionaries, ready for JSON. Times in seconds from
a run's start, memory in bytes, rates per second, an unknown value null. Knows no engine, no page, no model.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from inference.engine import LaneStatus
from inference.events import Done, Request
from inference.fork import first_difference
from inference.progress import Progress
from inference.timing import Timings
from inference.units import rate

SCHEMA = "gpu-vs-cpu/1"
FIGURES = ("ttft_s", "prefill_tps", "tpot_s", "decode_tps", "total_s", "queue_s", "turn_wait_s", "load_wait_s")
FACTS = ("device", "precision", "storage_dtype", "compute_dtype", "quantization", "device_map", "kernel", "threads", "kept_16bit", "weights_bytes")
REQUEST = ("prompt", "system", "format", "max_new_tokens", "temperature", "seed")
REFERENCE = "cpu:fp32"
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
        "verdict": _verdict(rows),
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
    counted = [row for row in rows if row["finish_reason"] in ("stop", "length")]
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


def _verdict(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    reference = rows.get(REFERENCE)
    others = [name for name in rows if name != REFERENCE]
    pairs = [_pair(name, rows[name], reference) for name in others] if reference and reference["n"] else []
    texts = {name: row["runs"][-1]["token_ids"] for name, row in rows.items() if row["n"]}
    divergence = first_difference(texts[REFERENCE], texts[others[0]]) if reference and len(texts) > 1 and REFERENCE in texts and others[0] in texts else None
    both = len(texts) > 1
    return {
        "pairs": [pair for pair in pairs if pair],
        "device_effect": _ratio(rows, "cuda:bf16", REFERENCE),
        "precision_effect": _ratio(rows, "cuda:nf4", "cuda:bf16"),
        "identical": divergence is None if both else None,
        "first_divergence": divergence,
    }


def _pair(name: str, row: dict[str, Any], reference: dict[str, Any]) -> dict[str, Any] | None:
    if not row["n"]:
        return None
    ratios = {
        short: _divide(row["median"][key], reference["median"][key]) for short, key in (("total", "total_s"), ("decode", "decode_tps"), ("ttft", "ttft_s"))
    }
    load = _divide((row["load"] or {}).get("total_s"), (reference["load"] or {}).get("total_s"))
    return {"reference": REFERENCE, "other": name, **ratios, "load": load, "memory": _divide(row["weights_bytes"], reference["weights_bytes"])}


def _ratio(rows: dict[str, dict[str, Any]], top: str, bottom: str) -> float | None:
    if top not in rows or bottom not in rows:
        return None
    return _divide(rows[top]["median"]["decode_tps"], rows[bottom]["median"]["decode_tps"])


def _divide(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None


def verdict_text(record: dict[str, Any]) -> str:
    """One Markdown paragraph: who was faster at what, by how much, and whether the answers are the same."""
    verdict = record["verdict"]
    if not verdict["pairs"]:
        return "No speed-up is shown: it takes two answers that ended by themselves."
    return " ".join(_pair_text(record, pair) for pair in verdict["pairs"]) + " " + _answers_text(record)


def _pair_text(record: dict[str, Any], pair: dict[str, Any]) -> str:
    other, reference = record["lanes"][pair["other"]], record["lanes"][pair["reference"]]
    name, base = lane_title(other), lane_title(reference)
    parts = []
    if pair["decode"]:
        parts.append(
            f"wrote **{_times(pair['decode'], 'faster', 'slower')}** ({rate(other['median']['decode_tps'])} against {rate(reference['median']['decode_tps'])})"
        )
    if pair["ttft"]:
        parts.append(f"gave its first token **{_times(1 / pair['ttft'], 'sooner', 'later')}**")
    if pair["memory"]:
        parts.append(f"holds its weights in **{pair['memory']:.2f} times** the memory")
    sentence = f"{name} " + ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1] + f", compared with {base}."
    if other["device"] != reference["device"]:
        sentence += " Device and precision differ at once here, so the speed is not the quantization's doing."
    return sentence


def lane_title(lane: dict[str, Any]) -> str:
    """A lane's row of the record in two words: precision, then device."""
    device = {"cuda": "GPU", "cpu": "CPU"}.get(lane["device"] or "", "unknown device")
    precision = f"4-bit {lane['precision']}" if lane["quantization"] else lane["precision"] or "unknown precision"
    return f"{precision} on the {device}"


def _times(ratio: float, more: str, less: str) -> str:
    if 0.95 <= ratio <= 1.05:
        return "at the same pace" if more == "faster" else "at the same time"
    return f"{ratio:.1f} times {more}" if ratio > 1 else f"{1 / ratio:.1f} times {less}"


def _answers_text(record: dict[str, Any]) -> str:
    verdict = record["verdict"]
    lengths = {row["runs"][-1]["new_tokens"] for row in record["lanes"].values() if row["n"]}
    length = f" The answers have different lengths ({' and '.join(map(str, sorted(lengths)))} tokens)." if len(lengths) > 1 else ""
    if verdict["identical"]:
        return "The answers are identical, token for token."
    return f"The answers part at token {verdict['first_divergence'] + 1}.{length} One answer says nothing on quality."
