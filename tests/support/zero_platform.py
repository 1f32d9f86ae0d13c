"""ZeroGPU without the platform: run before anything else in a process of its own.

The real `spaces` package over a false device API, on a torch that may know no CUDA. Starting CUDA raises. In a worker, "moving to the card" gives
the tensors back as they were before they were put on "cuda", so that the lane computes on the CPU what it would compute there.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse


class DeviceApi(BaseHTTPRequestHandler):
    """Lends a card as the class says: `refuse` (status, body, headers) at /schedule."""

    refuse: tuple[int, str, dict[str, str]] | None = None
    uuid = "GPU-0"
    asked: list[tuple[str, dict[str, str]]] = []

    def do_POST(self) -> None:
        address = urlparse(self.path)
        given = {name: values[0] for name, values in parse_qs(address.query).items()}
        type(self).asked.append((address.path, given))
        if address.path == "/schedule" and self.refuse:
            self.say(*self.refuse)
        elif address.path == "/schedule":
            self.say(200, json.dumps({"idle": True, "nvidiaIndex": 0, "nvidiaUUID": self.uuid, "allowToken": "token"}))
        else:
            self.say(200)

    def say(self, status: int, body: str = "", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


def lend() -> None:
    """Serve the device API, and be on ZeroGPU from now on."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), DeviceApi)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ.update(SPACES_ZERO_GPU="true", SPACES_ZERO_DEVICE_API_URL=f"http://127.0.0.1:{server.server_port}", GRADIO_ANALYTICS_ENABLED="False")


def begin() -> type[DeviceApi]:
    """The same where there is no CUDA; the false device API."""
    lend()
    import torch

    def raises(*_: object) -> None:
        raise AssertionError("CUDA was started")

    torch.version.cuda = torch.version.cuda or "12.8"
    for name in ("_cuda_init", "_cuda_getCurrentRawStream"):
        setattr(torch._C, name, raises)
    torch.cuda._is_in_bad_fork = bool  # of a torch without CUDA it is a lambda, which can't be pickled
    return DeviceApi


def compute_on_the_cpu(folder: str) -> None:
    """In workers, which are forked later; after `spaces` was imported. The weights are packed into `folder` when the page opens, as on the platform."""
    import torch
    from spaces.config import Config
    from spaces.zero import torch as patched
    from spaces.zero.torch import patching

    from inference.lane import vram

    Config.zerogpu_offload_dir, packed = folder, patched.pack

    def pack() -> int:
        try:
            return packed()
        except OSError:  # a file system without O_DIRECT: then they stay in memory
            return 0

    def move(callback: object = None) -> None:
        torch.set_num_threads(1)  # OpenMP's don't survive a fork: a copy of some size waited for them for ever, now and then
        for fake, original in patching.cuda_aliases.items():
            if original is not None:
                fake.data = original
        for each in patching.tensor_packs:
            _unpack(each)

    patched.init, patched.move, patched.pack = lambda uuid: None, move, pack
    for name in ("begin", "begin_run", "synchronize", "give_back", "held"):
        setattr(vram, name, lambda *_: None)


def _unpack(pack: Any) -> None:
    """What `pack_to_cuda` does, but into this process's memory."""
    import torch

    with open(pack.path(), "rb") as file:
        for tensor, size, aligned in [*itertools.chain(*pack.batches), *pack.big_tensors]:
            storage = torch.frombuffer(bytearray(file.read(aligned)), dtype=torch.uint8)[:size].clone().untyped_storage() if size else torch.UntypedStorage(0)
            for fake in pack.fakes[tensor]:
                fake.data = torch.tensor([], dtype=tensor.dtype).set_(storage, 0, tensor.shape, tensor.stride())
