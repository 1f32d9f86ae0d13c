"""What crosses the boundary between a lane and everybody else: requests, and the events of a run.

Standard library only; every class turns into one JSON object and back (`encode`, `decode`). Times are seconds,
memory is bytes, an unknown value is None. A run ends with exactly one `Done` or `Failed` (a score: `Scored`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from inference.energy import Energy
from inference.errors import WrongArguments
from inference.life_events import Alive
from inference.score_events import Scored, ScoreRequest
from inference.timing import Timings

FORMATS = ("chat", "raw")
MODES = ("auto", "together", "in-turn")
MAX_NEW_TOKENS_LIMIT = 4096
MOST_CHARACTERS = 200_000  # the page keeps and draws what it accepts
HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # no file and no tokenizer takes one


@dataclass(frozen=True)
class Request:
    """One question and how to answer it; the same for every lane of a comparison."""

    prompt: str
    system: str = ""
    format: str = "chat"
    max_new_tokens: int = 50
    temperature: float = 0.0
    seed: int = 0
    verb: ClassVar[str] = "generate"

    def check(self) -> None:
        """Raise WrongArguments with one sentence when the request can't be answered by any lane."""
        if not self.prompt.strip():
            raise WrongArguments("The prompt is empty. Type a question, or pick one of the examples.")
        if HALF_CHARACTER.search(self.prompt + self.system):
            raise WrongArguments("The prompt holds half a character (a byte that is not UTF-8, or a lone surrogate), which is no text. Type it again.")
        if (characters := len(self.prompt) + len(self.system)) > MOST_CHARACTERS:
            raise WrongArguments(f"The prompt has {characters:,} characters, system prompt included; {MOST_CHARACTERS:,} are the most. Shorten it.")
        if self.format not in FORMATS:
            raise WrongArguments(f"Unknown prompt format {self.format!r}. Use one of: {', '.join(FORMATS)}.")
        if not 1 <= self.max_new_tokens <= MAX_NEW_TOKENS_LIMIT:
            raise WrongArguments(f"Max new tokens must be from 1 to {MAX_NEW_TOKENS_LIMIT}, not {self.max_new_tokens}.")
        if not 0 <= self.temperature <= 2:
            raise WrongArguments(f"Temperature must be from 0 (greedy) to 2, not {self.temperature}.")
        if not 0 <= self.seed < 2**63:
            raise WrongArguments(f"The seed must be a whole number from 0 to 2^63 - 1, not {self.seed}.")


@dataclass(frozen=True)
class ForcedRequest(Request):
    """For the bench: give `ids` instead of choosing, and write each step's logits to `logits_file` (.npy)."""

    ids: tuple[int, ...] = ()
    logits_file: str = ""
    verb: ClassVar[str] = "force"


@dataclass(frozen=True)
class Vram:
    """GPU memory in bytes: torch's peak reserved and allocated, and what the driver says this process holds.

    `positions`: how many the captured path's own cache holds, which is among those bytes.
    """

    reserved: int | None = None
    allocated: int | None = None
    device: int | None = None
    positions: int | None = None


@dataclass(frozen=True)
class Ram:
    """A lane process's memory in bytes: peak RSS less its RSS after imports, and USS now."""

    rss_peak: int | None = None
    uss: int | None = None


@dataclass(frozen=True)
class LoadFigures:
    """One load of a lane: its spans by name (import, download, read, quantize, warm-up), in seconds."""

    total_s: float
    spans: dict[str, float] = field(default_factory=dict)
    cold: bool = True
    peak_ram_bytes: int | None = None
    peak_vram: Vram | None = None


@dataclass(frozen=True)
class LaneFacts:
    """What a loaded lane is, read off the loaded model and not off the settings.

    `held`: the bytes at rest by dtype; `step_bytes`: those that one step of decode reads; `matrix_parameters`: in the layers' matrices, the head not counted; `not_quantized`: what of a 4-bit lane is not in 4 bits, with its share of them; `files`: the names of
    those that were read. `own_tokenizer`: whether the adapter brought one. `tokenizer`: the class that reads these ids in plain code; `end_ids` end an answer, `hidden_ids` are no text of one. `fast_used`: our own faster ways in use (`fast.WAYS`); `fast_why_not`: of each other one that is for this lane, why not.
    `fast_checked`: how far the fast path's logits were from the model's own when it was let in, and how far the model's own two ways.
    `unmeasured`: figures (by the start of their names) that can't be had of this lane where it works, each with the reason.
    """

    model_id: str
    revision: str | None
    architecture: str
    parameters: int
    device: str
    device_name: str
    precision: str
    storage_dtype: str
    compute_dtype: str
    quantization: dict[str, Any] | None
    device_map: str
    kernel: str
    threads: int | None
    kept_16bit: tuple[str, ...]
    weights_bytes: int | None
    context_length: int
    has_chat_template: bool
    adapter: str | None = None
    base: str | None = None
    own_tokenizer: bool = False
    note: str | None = None
    held: dict[str, int] = field(default_factory=dict)
    step_bytes: int | None = None
    matrix_parameters: int | None = None
    not_quantized: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    tokenizer: str = "AutoTokenizer"
    end_ids: tuple[int, ...] = ()
    hidden_ids: tuple[int, ...] = ()
    fast_used: tuple[str, ...] = ()
    fast_why_not: dict[str, str] = field(default_factory=dict)
    fast_checked: tuple[dict[str, Any], ...] = ()
    unmeasured: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hello:
    """A lane process is up: which lane it is, on what, and why it can't run if it can't (`reason`)."""

    lane: str
    device: str
    versions: dict[str, str]
    environment: dict[str, Any]
    reason: str | None = None
    available: bool = True


@dataclass(frozen=True)
class Loading:
    """Progress of a load: `stage` in words, `done` of `total` `unit`s (total None while unknown).

    `trying`: the faster way that is being tried, which a process that ends just then is to do without next time.
    """

    stage: str
    done: float = 0
    total: float | None = None
    unit: str = ""
    trying: str = ""


@dataclass(frozen=True)
class Loaded:
    """The model is on its device and usable; `load` is None of a server elsewhere."""

    facts: LaneFacts
    load: LoadFigures | None


@dataclass(frozen=True)
class Queued:
    """The run waits: `position` runs are before it (0 = next), for the reason in `waiting_for`.

    `waiting_for` is "lane" (busy with another run), "turn" (another lane is being measured) or "load".
    """

    run_id: str
    position: int
    waiting_for: str


@dataclass(frozen=True)
class Prefill:
    """The run begins: the prompt's token ids, the prompt format really used, and the path that it will decode by.

    `ordinary`: the ids are those that the tokenizer's own call gives, as in plain code. A server elsewhere gives no ids.
    """

    run_id: str
    prompt_ids: tuple[int, ...]
    format: str
    t_start: float
    path: str | None = None
    ordinary: bool = True


@dataclass(frozen=True)
class Text:
    """New text: `n` tokens so far (0 where a server does not say), the last of them at `t_s` seconds after the start."""

    run_id: str
    delta: str
    n: int
    t_s: float


@dataclass(frozen=True)
class Done:
    """The run ended: `finish_reason` is stop, length or stopped; waits are filled in by the engine.

    `path_reason` says why it was not decoded by the lane's faster path, where there is one. `new_tokens` stands where there are no ids:
    how many there were, `counted_by` whom; None where nobody counted them.
    """

    run_id: str
    finish_reason: str
    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    timings: Timings
    t_start: float | None = None
    queue_s: float | None = None
    turn_wait_s: float | None = None
    load_wait_s: float | None = None
    vram: Vram | None = None
    ram: Ram | None = None
    path: str | None = None
    path_reason: str | None = None
    warm: bool | None = None
    alone: bool | None = None
    new_tokens: int | None = None
    counted_by: str | None = None
    energy: Energy | None = None


@dataclass(frozen=True)
class Failed:
    """The run (or, with run_id None, the load) can't go on; `message` is for the person, `refused` = not even begun."""

    run_id: str | None
    message: str
    refused: bool = False


Report = Callable[[Loading], None]  # told how far a load has come
AnyRequest = Request | ForcedRequest | ScoreRequest
Event = Hello | Loading | Loaded | Queued | Prefill | Text | Done | Failed | Scored | Alive
RunEvent = Loading | Queued | Prefill | Text | Done | Failed | Scored
ENDS = (Done, Failed, Scored)  # nothing follows one of these in a run

_CLASSES = {cls.__name__.lower(): cls for cls in (Hello, Loading, Loaded, Queued, Prefill, Text, Done, Failed, Scored, Alive)}
_REQUESTS: dict[str, Any] = {kind.verb: kind for kind in (Request, ForcedRequest, ScoreRequest)}
_NESTED: dict[str, Any] = {
    "timings": Timings, "vram": Vram, "ram": Ram, "peak_vram": Vram, "load": LoadFigures, "facts": LaneFacts, "energy": Energy,
}  # fmt: skip


def request_of(verb: str, fields: dict[str, Any]) -> AnyRequest:
    """The request whose fields crossed as a JSON object; raises KeyError for a verb that asks nothing of a model."""
    made: AnyRequest = _REQUESTS[verb](**{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()})
    return made


def encode(event: Event) -> str:
    """One line of JSON without its newline."""
    return json.dumps({"event": type(event).__name__.lower(), **asdict(event)}, ensure_ascii=True)


def decode(line: str) -> Event:
    """The event that `encode` wrote; raises ValueError for anything else."""
    data = json.loads(line)
    name = data.pop("event", None)
    if name not in _CLASSES:
        raise ValueError(f"not an event: {name!r}")
    return _build(_CLASSES[name], data)


def _build(cls: Any, data: dict[str, Any]) -> Any:
    known = {f.name for f in fields(cls)}
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            continue
        if key in _NESTED and isinstance(value, dict):
            value = _build(_NESTED[key], value)
        values[key] = tuple(value) if isinstance(value, list) else value
    return cls(**values)
