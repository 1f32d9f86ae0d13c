"""A lane's name, taken apart in one place: the device it runs on and the precision of its weights, or the server that it is.

In: a name as people and the wire write it ("cuda:nf4", "endpoint:NAME"). Out: a `LaneName`, and the words for a precision. Knows no engine, no model and no address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from inference.errors import InferenceError

FOUR_BIT = ("nf4", "fp4")
DEVICES = {"cuda": "GPU", "cpu": "CPU"}
ENDPOINT = "endpoint"  # in the place of a device: a server elsewhere, whose device it alone knows
ENDPOINT_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MOST_OF_A_NAME = 40
SERVER_COLOURS = 2
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}  # a precision -> its torch dtype's name


@dataclass(frozen=True)
class LaneName:
    """One (device, precision) pair; `device` is cuda, cpu, or auto until the lane's process has said which.

    A server elsewhere has the device "endpoint", no precision that is known here, and its `server` name instead.
    """

    device: str
    precision: str
    server: str = ""

    @classmethod
    def parse(cls, text: str) -> LaneName:
        """The lane called `text`; raises InferenceError where there is none of that name."""
        for lane in (AUTO_NF4, *LANES):
            if str(lane) == text:
                return lane
        kind, _, name = text.partition(":")
        if kind == ENDPOINT and ENDPOINT_NAME.fullmatch(name) and len(name) <= MOST_OF_A_NAME:
            return cls(ENDPOINT, "", name)
        raise InferenceError(f"Unknown lane {text!r}. Lanes are: {', '.join(map(str, (AUTO_NF4, *LANES)))}, or endpoint:NAME for a server elsewhere.")

    @property
    def four_bit(self) -> bool:
        """Whether the weights are quantized to 4 bits."""
        return self.precision in FOUR_BIT

    @property
    def full(self) -> bool:
        """Whether the weights are in full FP32 precision."""
        return self.precision == "fp32"

    @property
    def on_gpu(self) -> bool:
        """Whether the lane is known to run on a GPU."""
        return self.device == "cuda"

    @property
    def on_cpu(self) -> bool:
        """Whether the lane is known to run on the CPU."""
        return self.device == "cpu"

    @property
    def automatic(self) -> bool:
        """Whether the lane's process has still to say which device it is."""
        return self.device == "auto"

    @property
    def elsewhere(self) -> bool:
        """Whether the lane is a server: nothing of it is here but what it answers."""
        return self.device == ENDPOINT

    def __str__(self) -> str:
        return f"{self.device}:{self.server or self.precision}"


CUDA_NF4, CPU_FP32, CPU_NF4, CUDA_BF16 = (LaneName(*text.split(":")) for text in ("cuda:nf4", "cpu:fp32", "cpu:nf4", "cuda:bf16"))
AUTO_NF4 = LaneName("auto", "nf4")
LANES = (CUDA_NF4, CPU_FP32, CPU_NF4, CUDA_BF16)
REFERENCE = CPU_FP32  # what every ratio is held against
REFERENCES = (CPU_FP32, CUDA_BF16)  # the first of them that is among the lanes: on one card bf16 is what 4 bits is held against


def precision_words(precision: str) -> str:
    """A precision as people read it, in whatever case it comes: "nf4" or "NF4" -> "4-bit NF4", "fp32" -> "FP32", "" -> "unknown precision"."""
    word = precision.lower()
    if word in FOUR_BIT:
        return f"4-bit {precision.upper()}"
    return precision.upper() if word in DTYPES else precision or "unknown precision"


def lane_title(precision: str, device: str) -> str:
    """A lane in a sentence: "4-bit NF4 on the GPU"."""
    return f"{precision_words(precision)} on the {DEVICES.get(device, 'unknown device')}"


def usual_title(lane: str) -> str:
    """A lane in a sentence by its name alone, where nothing else is known of it: "cpu:fp32" -> "FP32 on the CPU"; a text that names none stays as it is."""
    try:
        name = LaneName.parse(lane)
    except InferenceError:
        return lane
    return name.server or (precision_words(name.precision) if name.automatic else lane_title(name.precision, name.device))


def plain_title(precision: str) -> str:
    """A lane's precision as a heading for everybody: "4-bit (NF4)", "Full precision (FP32)"."""
    words = {"fp32": "Full precision", "bf16": "Half precision", "fp16": "Half precision"}.get(precision.lower(), short_word(precision))
    return f"{words} ({precision.upper()})" if precision else words


def short_word(precision: str) -> str:
    """A lane's precision in one word: "4-bit", "FP32"."""
    return "4-bit" if precision.lower() in FOUR_BIT else precision.upper() or "unknown"


def colour(lane: str, among: Iterable[str]) -> str:
    """The class of style sheets that gives a lane `among` those shown its colour, wherever it is drawn: "of-4bit", "of-fp32", "of-bf16", "of-server-1".

    A second 4-bit lane has one of its own.
    """
    name = LaneName.parse(lane)
    if name.four_bit:
        return "of-4bit-cpu" if name.on_cpu and any(LaneName.parse(other).four_bit for other in among if other != lane) else "of-4bit"
    if name.elsewhere:  # of several, each by its place
        return f"of-server-{[other for other in among if LaneName.parse(other).elsewhere].index(lane) % SERVER_COLOURS + 1}"
    return f"of-{name.precision}"
