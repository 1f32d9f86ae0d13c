"""A real OpenAI-compatible server in a process of its own: `python tests/endpoint/llama_server.py FILE.gguf`, llama.cpp out of `xllamacpp`.

Prints its address once it listens, ends when its input closes.
"""

from __future__ import annotations

import sys

import xllamacpp


def main(file: str) -> None:
    found = xllamacpp.CommonParams()
    found.model.path, found.hostnames, found.port = file, ["127.0.0.1"], 0
    found.n_ctx, found.n_parallel, found.n_gpu_layers, found.verbosity = 1024, 1, 0, -1
    found.cpuparams.n_threads = found.cpuparams_batch.n_threads = 2
    server = xllamacpp.Server(found)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
