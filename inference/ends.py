"""How a run ends: the reasons there are, their words, and whether what it wrote can be read at all. Standard library only."""

from __future__ import annotations

import re

COUNTED = ("stop", "length")  # a run that was stopped or failed is in no median and no verdict
WORDS = {"stop": "by itself", "length": "cut at the token limit", "stopped": "stopped", "failed": "failed"}
# what marks are called that say nothing; a mark of a fine-tune's own is an answer
_SPECIAL = re.compile(
    r"<\|(?:endoftext|im_start|im_end|eot_id|eom_id|end|pad|end_of_text|begin_of_text)\|>|</?(?:pad|s|bos|eos|unk|mask|start_of_turn|end_of_turn|unused\d+)>|\[(?:PAD|UNK|CLS|SEP)\]"
)


def readable(text: str) -> bool:
    """Whether there is anything for a person in `text`: more than white space and marks that say nothing."""
    return bool(_SPECIAL.sub("", text).strip())
