"""What OpenSSL is told by the environment for every encrypted connection: whether it can be used at all. Asks nobody.

Every HTTP client that is made reads it, and fails at a file that is not there (as conda leaves one behind) without a word of the variable.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable

FILE, KEYS = "SSL_CERT_FILE", "SSLKEYLOGFILE"
VARIABLES = (FILE, KEYS)


def fault() -> str:
    """Which of the variables names what can't be used, and why; empty where nothing is wrong."""
    uses: dict[str, tuple[Callable[[str], object], str]] = {
        FILE: (lambda path: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path), "there is no file of certificates"),
        KEYS: (lambda path: open(path, "ab").close(), "no keys can be written"),
    }
    for name, (use, what) in uses.items():
        if path := os.environ.get(name):
            try:
                use(path)
            except OSError as error:  # SSLError too
                return f"{what} where {name} says ({path}{f': {error.strerror}' if error.errno and not isinstance(error, ssl.SSLError) else ''})"
    return ""
