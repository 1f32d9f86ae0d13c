"""`python -m inference.bench.prompt TOKENS...`: raw texts of just so many tokens of the model that the environment names.

A process of its own, since a tokenizer brings transformers with it; `prompts_of` starts it and gives its texts.
"""

from __future__ import annotations

import bisect
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from inference.errors import InferenceError
from inference.host import child
from inference.settings import Settings, from_env

WORDS = "hello good morning may i see the menu and then tell me what you would order from it today "


def prompts_of(lengths: Sequence[int], settings: Settings) -> list[str]:
    """Raw texts of exactly so many tokens for the settings' model, one a length; raises InferenceError where there is none."""
    command = [sys.executable, "-m", "inference.bench.prompt", *map(str, lengths)]
    done = subprocess.run(command, env=child.environment(**settings.to_env()), stdout=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return list(json.loads(done.stdout))
    raise InferenceError(done.stdout.strip() or "No prompt of so many tokens could be made; the trace is above.")


def make(lengths: Sequence[int], settings: Settings) -> list[str]:
    """The same, in this process."""
    from inference.lane import tokens as lane_tokens
    from inference.sources import checkpoints

    tokenizer, _ = lane_tokens.read(checkpoints.find(settings.model_id, settings, lambda _: None).folder)
    return [_text(tokenizer, tokens) for tokens in lengths]


def _text(tokenizer: Any, tokens: int) -> str:
    words = (WORDS * (tokens // 8 + 1)).split()
    count = bisect.bisect_left(range(len(words) + 1), tokens, key=lambda n: len(tokenizer(" ".join(words[:n]))["input_ids"]))
    text = " ".join(words[:count])
    if len(tokenizer(text)["input_ids"]) == tokens:
        return text
    raise InferenceError(f"No prompt of exactly {tokens} tokens could be made. Try another length.")


def main() -> int:
    """Print the texts as a JSON list, or the sentence that says why there are none (exit code 1)."""
    try:
        print(json.dumps(make([int(length) for length in sys.argv[1:]], from_env())))
        return 0
    except InferenceError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
