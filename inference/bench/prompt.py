"""`python -m inference.bench.prompt TOKENS`: a raw text of just so many tokens of the model that the environment names.

A process of its own, since a tokenizer brings transformers with it; `prompt_of` starts it and gives its text.
"""

from __future__ import annotations

import bisect
import subprocess
import sys

from inference import child
from inference.errors import InferenceError
from inference.settings import Settings, from_env

WORDS = "hello good morning may i see the menu and then tell me what you would order from it today "


def prompt_of(tokens: int, settings: Settings) -> str:
    """A raw text of exactly `tokens` tokens for the settings' model; raises InferenceError if none is found."""
    command = [sys.executable, "-m", "inference.bench.prompt", str(tokens)]
    done = subprocess.run(command, env=child.environment(**settings.to_env()), stdout=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return done.stdout
    raise InferenceError(done.stdout.strip() or f"No prompt of {tokens} tokens could be made; the trace is above.")


def make(tokens: int, settings: Settings) -> str:
    """The same, in this process."""
    from inference.lane import tokens as lane_tokens
    from inference.sources import checkpoints

    tokenizer, _ = lane_tokens.read(checkpoints.find(settings.model_id, settings, lambda _: None).folder)
    words = (WORDS * (tokens // 8 + 1)).split()
    count = bisect.bisect_left(range(len(words) + 1), tokens, key=lambda n: len(tokenizer(" ".join(words[:n]))["input_ids"]))
    text = " ".join(words[:count])
    if len(tokenizer(text)["input_ids"]) == tokens:
        return text
    raise InferenceError(f"No prompt of exactly {tokens} tokens could be made. Try another --prompt-tokens.")


def main() -> int:
    """Print the text, or the sentence that says why there is none (exit code 1)."""
    try:
        print(make(int(sys.argv[1]), from_env()), end="")
        return 0
    except InferenceError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
