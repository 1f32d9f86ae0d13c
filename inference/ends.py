"""How a run ends: the reasons there are, their words, and whether what it wrote can be read at all. Standard library only."""

from __future__ import annotations

import re

COUNTED = ("stop", "length")  # a run that was stopped or failed is in no median and no verdict
WORDS = {"stop": "by itself", "length": "cut at the token limit", "stopped": "stopped", "failed": "failed"}
_SPECIAL = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?(?:pad|s|bos|eos|unk|mask|start_of_turn|end_of_turn|unused\d+)>|\[(?:PAD|UNK|CLS|SEP)\]")


def readable(text: str) -> bool:
    """Whether there is anything for a person in `text`: more than white space and special tokens."""
    return bool(_SPECIAL.sub("", text).strip())
