"""The record of a comparison as frozen dataclasses (`gpu-vs-cpu/2`), and what is read off a lane's part of it.

Times in seconds from a run's start, memory in bytes, rates per second, an unknown value None.
Built in `build.py`, turned into JSON in `export.py`; measures nothing, draws nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from inference import ends
from inference.energy import Energy, of_an_answer
from inference.events import LoadFigures, Ram, Vram
from inference.lanes import lane_title
from inference.record.scores import NoQuality, Quality
from inference.units import count

SCHEMA = "gpu-vs-cpu/2"


@dataclass(frozen=True)
class Model:
    """What was loaded, as the first loaded lane says."""

    id: str | None = None
    revision: str | None = None
    architecture: str | None = None
    parameters: int | None = None
    adapter: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class RequestRecord:
    """What was asked, and how it was measured; `format` is the one really used."""

    prompt: str
    system: str
    format: str
    max_new_tokens: int
    temperature: float
    seed: int
    mode: str
    repeats: int


@dataclass(frozen=True)
class Environment:
    """Versions and hardware, as the lanes' processes say."""

    python: str | None = None
    torch: str | None = None
    transformers: str | None = None
    bitsandbytes: str | None = None
    accelerate: str | None = None
    huggingface_hub: str | None = None
    gradio: str | None = None
    cpu: str | None = None
    ram_limit_bytes: int | None = None
    gpu: str | None = None
    gpu_memory_bytes: int | None = None
    driver: str | None = None


@dataclass(frozen=True)
class RunRecord:
    """One run of a lane. `finish_reason` is stop, length, stopped or failed; a run without readable text has failed.

    `prompt_ids` stands only where the tokenizer's own call would give others (a mark typed as text, a template that wants parts or writes the date).
    A run that was stopped or failed keeps the figures of the tokens that came. `path_reason` says why it was not decoded by the lane's faster path, where
    there is one. A server elsewhere gives no `token_ids`; its `new_tokens` are counted by whom `counted_by` names, None where nobody did.
    """

    text: str
    token_ids: tuple[int, ...] | None
    prompt_ids: tuple[int, ...] | None
    prompt_tokens: int | None
    new_tokens: int | None
    finish_reason: str
    error: str | None
    queue_s: float | None
    turn_wait_s: float | None
    load_wait_s: float | None
    ttft_s: float | None
    prefill_tps: float | None
    decode_tps: float | None
    tpot_s: float | None
    total_s: float | None
    token_times_s: tuple[float, ...]
    vram: Vram | None
    ram: Ram | None
    path: str | None
    path_reason: str | None
    warm: bool | None
    alone: bool | None
    counted_by: str | None = None
    energy: Energy | None = None

    @property
    def began(self) -> bool:
        """Whether anything came at all."""
        return bool(self.new_tokens or self.text)

    @property
    def length(self) -> str:
        """How long the answer is, in words: "7 tokens", or that nobody counted them."""
        return "tokens not counted" if self.new_tokens is None else count(self.new_tokens)

    @property
    def counted(self) -> bool:
        """Whether the run came to its end, by itself or at the token limit: figures and comparisons rest on such runs only."""
        return self.finish_reason in ends.COUNTED


@dataclass(frozen=True)
class RunFigures:
    """One number for each figure of several runs: their medians, or the smallest, or the largest."""

    ttft_s: float | None = None
    prefill_tps: float | None = None
    tpot_s: float | None = None
    decode_tps: float | None = None
    total_s: float | None = None
    queue_s: float | None = None
    turn_wait_s: float | None = None
    load_wait_s: float | None = None

    @staticmethod
    def over(runs: Sequence[RunRecord], way: Callable[[Sequence[float]], float]) -> RunFigures:
        """Each figure by `way` (median, min, max) over the runs that have it."""
        return RunFigures(**{field.name: over((getattr(run, field.name) for run in runs), way) for field in fields(RunFigures)})


def over(values: Iterable[float | None], way: Callable[[Sequence[float]], float] = statistics.median) -> float | None:
    """The median (or another `way`) of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return way(known) if known else None


@dataclass(frozen=True)
class LaneRecord:
    """One lane of a comparison: what it is, its last load (whoever caused it), its runs, and their figures (of `n` counted runs).

    `server`: what a server elsewhere is called, whose device and precision are not known here; None of any other lane.
    `adapter`: what was merged into `base`, and whether it brought its `own_tokenizer`. `tokenizer`: the class that reads these ids in plain code; `end_ids` end an answer, `hidden_ids` are no text of one.
    `not_quantized`: what of a 4-bit lane is not in 4 bits, with dtype and share of the bytes; `kept_16bit`: what of it is in 16 bits.
    `held`: the bytes of `weights_bytes` by dtype; `files`: what they were read from. `fast_used`: our own faster ways in use; `fast_why_not`: of each other one that is for this lane, why not.
    `fast_checked`: how far (as a share of their size) the fast path's logits were from the model's own when it was let in, and the model's own two ways.
    `unmeasured`: figures (by the start of their names) that can't be had of this lane where it worked, each with the reason.
    """

    available: bool
    reason: str | None
    model_id: str | None
    revision: str | None
    adapter: str | None
    base: str | None
    own_tokenizer: bool | None
    note: str | None
    tokenizer: str | None
    end_ids: tuple[int, ...] | None
    hidden_ids: tuple[int, ...] | None
    device: str | None
    precision: str | None
    storage_dtype: str | None
    compute_dtype: str | None
    quantization: Mapping[str, Any] | None
    device_map: str | None
    kernel: str | None
    threads: int | None
    kept_16bit: tuple[str, ...] | None
    not_quantized: tuple[str, ...] | None
    weights_bytes: int | None
    held: Mapping[str, int] | None
    files: tuple[str, ...] | None
    fast_used: tuple[str, ...] | None
    fast_why_not: Mapping[str, str] | None
    fast_checked: tuple[Mapping[str, Any], ...] | None
    unmeasured: Mapping[str, str] | None
    load: LoadFigures | None
    runs: tuple[RunRecord, ...]
    median: RunFigures
    min: RunFigures
    max: RunFigures
    n: int
    server: str | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether the lane is a server."""
        return self.server is not None

    def title(self, name: str = "") -> str:
        """Precision, then device: "4-bit NF4 on the GPU"; a server's own title; `name` where the lane was never loaded and one is given."""
        if self.server is not None:
            return self.server
        return name if name and not self.precision else lane_title(self.precision or "", self.device or "")

    @property
    def on_gpu(self) -> bool:
        """Whether the loaded lane's weights are on a GPU."""
        return self.device == "cuda"

    @property
    def ended_runs(self) -> list[RunRecord]:
        """The runs that count."""
        return [run for run in self.runs if run.counted]

    @property
    def shown_run(self) -> RunRecord | None:
        """The run to show: the last that counts, else the last; None where there was none."""
        return next(reversed(self.ended_runs or self.runs), None)

    @property
    def memory_kind(self) -> str:
        """What `memory_bytes` is of this lane, in words."""
        if self.on_gpu:
            return "VRAM reserved"
        return "memory" if self.elsewhere or (self.memory_bytes is None and not self.device) else "RAM peak"

    @property
    def memory_bytes(self) -> int | None:
        """What the lane holds where its weights are: peak VRAM reserved on a GPU, else peak RAM over the imports."""
        return self.peak_vram("reserved") if self.on_gpu else self.peak_ram_bytes

    @property
    def peak_ram_bytes(self) -> int | None:
        """The largest RAM peak over the imports, of the runs and the load."""
        return _largest([run.ram.rss_peak if run.ram else None for run in self.runs] + [self.load.peak_ram_bytes if self.load else None])

    def peak_vram(self, kind: str) -> int | None:
        """The largest VRAM figure of a kind ("reserved", "allocated", "device": bytes; "positions"), of the runs and the load."""
        found = [run.vram for run in self.runs] + [self.load.peak_vram if self.load else None]
        return _largest([getattr(vram, kind) for vram in found if vram])

    @property
    def at_rest_bytes(self) -> float | None:
        """The lane process's own RAM after a run (USS, imports included), the median over its runs."""
        return over(run.ram.uss if run.ram else None for run in self.runs)

    @property
    def energy_j(self) -> float | None:
        """The joules of one answer, where the counter gives them within a tenth."""
        return getattr(of_an_answer(run.energy for run in self.ended_runs), "joules", None)


def _largest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


@dataclass(frozen=True)
class Pair:
    """One lane against the reference: ratios (other / reference, None where there is none to give; `memory` is of the weights), and where the answers part (of a server: whether the texts are the same)."""

    reference: str
    other: str
    total: float | None
    decode: float | None
    ttft: float | None
    load: float | None
    memory: float | None
    identical: bool
    first_divergence: int | None


@dataclass(frozen=True)
class Verdict:
    """The pairs; `identical` and `first_divergence` hold for all of them."""

    pairs: tuple[Pair, ...]
    device_effect: float | None
    precision_effect: float | None
    identical: bool | None
    first_divergence: int | None


@dataclass(frozen=True)
class Row:
    """The row of a prompts file that a record answers: its line, and the answer hoped for."""

    line: int
    expected: str | None


@dataclass(frozen=True)
class Record:
    """A comparison: one prompt, answered by each of `lanes` (by name)."""

    created: str
    model: Model
    request: RequestRecord
    environment: Environment
    lanes: Mapping[str, LaneRecord]
    verdict: Verdict
    quality: Quality | NoQuality | None = None
    row: Row | None = None
