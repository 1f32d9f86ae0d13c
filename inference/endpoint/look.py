"""`python -m inference.endpoint.look endpoint:NAME`: whether a server answers, in one line; the exit code says the same.

A process of its own, like a lane's: it speaks with that server only, and holds no other token.
"""

from __future__ import annotations

import subprocess
import sys

from inference.endpoint import private
from inference.endpoint.server import MOST_MODELS, MOST_OF_A_NAME, Server
from inference.errors import InferenceError
from inference.host import child
from inference.settings import Settings, from_env

MOST_S = 30.0  # with what it takes to import


def look(lane: str, settings: Settings) -> tuple[str, bool]:
    """What there is to say of a server, and whether it answers."""
    command = [sys.executable, "-m", "inference.endpoint.look", lane]
    try:
        done = subprocess.run(command, env=child.environment(**settings.to_env()), capture_output=True, encoding="utf-8", timeout=MOST_S)
    except subprocess.TimeoutExpired:
        return "The server did not answer in time.", False
    return done.stdout.strip() or "Asking the server failed unexpectedly.", done.returncode == 0


def main(lane: str) -> int:
    """Ask, and print the line."""
    settings = from_env()
    endpoint = settings.endpoint(lane)
    private.prepare(endpoint)
    try:
        models = Server(lane, settings).models()
    except InferenceError as error:
        print(error)
        return 1
    named = ", ".join(name[:MOST_OF_A_NAME] for name in models[:MOST_MODELS])
    told = f"it has {named}" if models else "it lists no models"
    if endpoint.model and models and endpoint.model not in models:
        told += f", and not {endpoint.model} by that name"
    print(f"the server answers; {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
