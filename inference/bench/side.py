"""One way of answering in the bench: its process, what it measured, and what it says of its model."""

from __future__ import annotations

import queue
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from inference.engine.compare import answer, read_all
from inference.engine.engine import Engine
from inference.engine.process import LaneProcess, start_module, start_worker
from inference.engine.silence import FROZEN_LOADING_S
from inference.errors import InferenceError
from inference.events import Done, ForcedRequest, Hello, LaneFacts, LoadFigures, Request
from inference.lanes import LaneName
from inference.quality.scorer import Scorer
from inference.record.model import over
from inference.score_events import ScoreRequest
from inference.settings import Settings

FIGURES = ("decode_tps", "ttft_s", "prefill_tps", "total_s")


def start_plain_worker(lane: str, settings: Settings, way: str = "plain") -> LaneProcess:
    """The same lane answered by `generate`; `way` is plain, dequantized (FP32 over the same weights), or a peer: static-compile (over its static cache) or llama.cpp."""
    return start_module(settings, "inference.bench.worker", lane, way)


@dataclass(frozen=True)
class Side:
    """One way of answering: its process, and what it measured."""

    engine: Engine
    lane: str
    runs: list[Done]

    def ask(self, request: Request) -> Done:
        """One answer; raises InferenceError when the lane fails."""
        return answer(self.engine, self.lane, request)

    def logits(self, request: Request, ids: tuple[int, ...]) -> np.ndarray:
        """Logits one step after the other while the answer is forced to be `ids`; shape (len(ids), vocabulary)."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "logits.npy"
            self.ask(forced(request, ids, file))
            return np.load(file)

    def best_of_all_at_once(self, request: Request, ids: tuple[int, ...], index: int) -> int:
        """The likeliest id in the place of `ids[index]`, all ids before it read in one forward."""
        before = self.prompt_ids(request) + ids[:index]
        return Scorer(self.engine, self.lane).score(ScoreRequest((*before, ids[index]), len(before), len(before) + 1)).best[0]

    def prompt_ids(self, request: Request) -> tuple[int, ...]:
        """The ids that the lane makes of a request."""
        comparison = self.engine.submit(replace(request, max_new_tokens=1), (self.lane,))
        (progress,) = read_all(self.engine, comparison).values()
        if not progress.prompt_ids:
            raise InferenceError(f"{self.lane}: {progress.error}")
        return progress.prompt_ids

    @property
    def facts(self) -> LaneFacts:
        """What the lane's process says of the loaded model."""
        facts = self.engine.status()[0].facts
        assert facts is not None
        return facts

    def figures(self) -> dict[str, Any]:
        """Medians over the runs, with the load and the memory."""
        load = self.engine.status()[0].load or LoadFigures(0.0)
        found: dict[str, Any] = {name: over(getattr(run.timings, name) for run in self.runs) for name in FIGURES}
        last = self.runs[-1]
        return found | {
            "load_s": load.total_s, "load_spans": load.spans, "weights_bytes": self.facts.weights_bytes, "n": len(self.runs), "path": last.path,
            "new_tokens": len(last.token_ids), "prompt_tokens": last.prompt_tokens, "threads": self.facts.threads,
            "ram_uss": last.ram.uss if last.ram else None, "ram_rss_peak": last.ram.rss_peak if last.ram else None,
            "vram_reserved": last.vram.reserved if last.vram else None, "compute_dtype": self.facts.compute_dtype,
        }  # fmt: skip


def forced(request: Request, ids: tuple[int, ...], file: Path) -> ForcedRequest:
    """`request`, its answer forced to be `ids`, with each step's logits written to `file` (.npy; shape (len(ids), vocabulary))."""
    return ForcedRequest(**{**vars(request), "max_new_tokens": len(ids)}, ids=ids, logits_file=str(file))


def resolved(lane: str, settings: Settings) -> str:
    """The lane that `lane` means on this machine: auto:nf4 as a process of it says, any other by its name. Raises InferenceError where none answers."""
    if not LaneName.parse(lane).automatic:
        return lane
    told: queue.SimpleQueue[Hello | None] = queue.SimpleQueue()
    process = start_worker(lane, settings)
    process.watch(lambda event: told.put(event) if isinstance(event, Hello) else None, lambda code: told.put(None))
    try:
        hello = told.get(timeout=(patience_s := settings.lane_patience_s or FROZEN_LOADING_S))
    except queue.Empty:
        raise InferenceError(f"The process of {lane} has not said what it is for {patience_s:.0f} s, so it was ended. Run the command again.") from None
    finally:
        process.close()
    if hello is None:
        raise InferenceError(f"The process of {lane} ended before it said what it is; its trace is above. Run the command again.")
    return hello.lane


def peer_side(settings: Settings, peer: str) -> Side:
    """The process of another way of answering, not started yet."""
    lane, start = settings.lanes[0], start_plain_worker
    if peer == "bf16":
        lane = lane.split(":")[0] + ":bf16"
    else:
        start = partial(start_plain_worker, way=peer)
    return Side(Engine(replace(settings, lanes=(lane,)), start), lane, [])
