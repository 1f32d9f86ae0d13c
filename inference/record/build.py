"""A comparison -> its record.

In: the lanes' status and each lane's finished runs. Out: a `Record`. Knows no engine, no page, no model.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime

from inference.events import Done, LaneFacts, Request
from inference.progress import Progress
from inference.record.missing import what_happened
from inference.record.model import Environment, LaneRecord, Model, Record, RequestRecord, RunFigures, RunRecord
from inference.record.verdict import verdict
from inference.status import LaneStatus
from inference.timing import Timings

FACTS = [field.name for field in fields(LaneRecord) if field.name in {fact.name for fact in fields(LaneFacts)}]


def build_record(lanes: Sequence[LaneStatus], request: Request, mode: str, outcomes: Mapping[str, Sequence[Progress]]) -> Record:
    """The record of a comparison; `outcomes` holds each lane's finished runs by configured lane name."""
    used = [lane for lane in lanes if lane.key in outcomes]
    rows = {lane.name: _lane(lane, outcomes[lane.key]) for lane in used}
    return Record(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        model=_model(used),
        request=RequestRecord(
            prompt=request.prompt, system=request.system, format=_format(request, outcomes), max_new_tokens=request.max_new_tokens,
            temperature=request.temperature, seed=request.seed, mode=mode, repeats=max(map(len, outcomes.values()), default=0),
        ),
        environment=_environment(used),
        lanes=rows,
        verdict=verdict(rows),
    )  # fmt: skip


def _model(lanes: Sequence[LaneStatus]) -> Model:
    facts = next((lane.facts for lane in lanes if lane.facts and not lane.title), None)
    if facts is None:  # of a server's model nothing is known but what it is called
        return Model(next((lane.facts.model_id for lane in lanes if lane.facts), None))
    return Model(facts.model_id, facts.revision, facts.architecture, facts.parameters, facts.adapter, facts.note)


def _format(request: Request, outcomes: Mapping[str, Sequence[Progress]]) -> str:
    return next((run.format for runs in outcomes.values() for run in runs if run.format), request.format)


def _environment(lanes: Sequence[LaneStatus]) -> Environment:
    """What the lanes' processes said, the last that knows a thing winning."""
    known = {key: value for lane in lanes if lane.hello for key, value in {**lane.hello.versions, **lane.hello.environment}.items() if value is not None}
    return Environment(**{field.name: known[field.name] for field in fields(Environment) if field.name in known})


def _lane(lane: LaneStatus, runs: Sequence[Progress]) -> LaneRecord:
    rows = tuple(_run(run, bool(lane.title)) for run in runs)
    counted = [row for row in rows if row.counted]
    return LaneRecord(
        available=lane.available and lane.state not in ("failed", "refused"),
        reason=what_happened(lane.reason or (lane.hello.reason if lane.hello else None)),
        **{name: getattr(lane.facts, name, None) for name in FACTS},
        server=lane.title or None, load=lane.load, runs=rows, n=len(counted),
        median=RunFigures.over(counted, statistics.median), min=RunFigures.over(counted, min), max=RunFigures.over(counted, max),
    )  # fmt: skip


def _run(run: Progress, elsewhere: bool = False) -> RunRecord:
    done = run.done or Done("", "failed", run.text, (), len(run.prompt_ids), Timings())
    timings = run.timings
    return RunRecord(
        text=run.text, token_ids=None if elsewhere else done.token_ids, prompt_ids=None if run.ordinary else run.prompt_ids,
        prompt_tokens=done.prompt_tokens or len(run.prompt_ids) or None, new_tokens=None if elsewhere and run.text and not run.n else run.n,
        finish_reason="failed" if run.fault else done.finish_reason, error=what_happened(run.fault),
        queue_s=done.queue_s, turn_wait_s=done.turn_wait_s, load_wait_s=done.load_wait_s,
        ttft_s=timings.ttft_s, prefill_tps=timings.prefill_tps, decode_tps=timings.decode_tps, tpot_s=timings.tpot_s, total_s=timings.total_s,
        token_times_s=timings.token_times_s, vram=done.vram, ram=done.ram, path=done.path or run.path, path_reason=done.path_reason, warm=done.warm, alone=done.alone,
        counted_by=done.counted_by, energy=done.energy,
    )  # fmt: skip
