"""One prompt to a Space that runs, by gradio_client, in a process of its own: its threads have no time-out, and end with the process.

In: the Space, the token, what AUTH asks for, a prompt. Out: the record of `/compare`. `python -m inference.space.ask` is that process: one JSON
object in, one out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from inference.errors import InferenceError
from inference.host import child
from inference.space.asked import Asked

LONGEST_S = 900.0  # both lanes may still be fetching their weights
TOKENS = 24


def ask(asked: Asked, prompt: str, token: str | None, longest_s: float = LONGEST_S) -> dict[str, Any]:
    """The record that the Space gives for `prompt`; raises InferenceError, which holds no secret."""
    auth = asked.secrets.get("AUTH") or None
    given = json.dumps({"space": asked.space, "token": token, "auth": auth, "prompt": prompt})
    command = [sys.executable, "-m", "inference.space.ask"]
    with subprocess.Popen(
        command, env=child.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            out, errors = process.communicate(given, longest_s)
            said = json.loads(out)
        except subprocess.TimeoutExpired:
            raise _no_answer(asked, f"no answer within {longest_s:g} s") from None
        except ValueError:
            lines = asked.masked(errors).strip().splitlines()
            raise _no_answer(asked, lines[-1][:300] if lines else "the process that asks ended without a word") from None
        finally:
            process.kill()
    if "error" in said:
        raise _no_answer(asked, asked.masked(said["error"]))
    if not isinstance(said["record"], dict):
        raise _no_answer(asked, "what came is no record")
    return dict(said["record"])


def _no_answer(asked: Asked, why: str) -> InferenceError:
    return InferenceError(f"{asked.space} runs, but a prompt was not answered ({why.rstrip('.')}). Open it and look at its lanes' cards; its log says more.")


def main() -> int:
    """Ask once; what goes wrong is told as {"error": sentence}."""
    given = json.loads(sys.stdin.read())
    try:
        from gradio_client import Client
    except ImportError:
        print(json.dumps({"error": "gradio_client is not installed here: pip install gradio_client"}))
        return 0
    auth = tuple(given["auth"].split(":", 1)) if given["auth"] else None
    try:
        client = Client(given["space"], token=given["token"], auth=auth, verbose=False, download_files=False, analytics_enabled=False)
        record = client.predict(given["prompt"], max_new_tokens=TOKENS, api_name="/compare")
        print(json.dumps({"record": record}), flush=True)
    except Exception as error:  # noqa: BLE001 - of a client that raises many kinds; each is told, and nothing goes on
        text = str(error).replace(given["token"] or "\0", "***")
        print(json.dumps({"error": " ".join(f"{type(error).__name__}: {text}".split())[:500]}), flush=True)
    return 0


if __name__ == "__main__":
    main()
    os._exit(0)  # the client's threads would hold the process up
