"""Compiles a model's decode step beside its lane: a child process at the lowest priority, held still while the lane runs.

In: a lane's checkpoint. Out: the file of its compiled step, or why there is none. A
process of its own, because a compiler thread would hold the interpreter's lock against the run it should not delay.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from inference import child, machine
from inference.cache import cache
from inference.errors import InferenceError

log = logging.getLogger(__name__)
NEEDED_BYTES = 2 * machine.GIB


class NotCompiled(InferenceError):
    """There is no compiled step, and the message says why."""


class Compiler:
    """One compilation in a child process; `outcome` is the file, or why there is none, once the child has ended."""

    def __init__(self, folder: Path, path: Path, compact: bool, threads: int, weights_bytes: int = 0) -> None:
        """`weights_bytes`: what the child's weights take beside the lane's own, where they are not the same pages of a file."""
        self.path = path
        self.outcome: Path | NotCompiled | None = None
        self._command = command(folder, path, compact, threads)
        self._weights_bytes = weights_bytes
        self.child: subprocess.Popen[bytes] | None = None
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin; raises NotCompiled where there is no compiler or memory is short."""
        if compiler() is None:
            raise NotCompiled("no C++ compiler is installed")
        if machine.ram_available_bytes() < NEEDED_BYTES + self._weights_bytes:
            raise NotCompiled("memory is too short to compile beside the lane")
        self.child = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            process_group=0, env=environment(),
        )  # fmt: skip
        self.thread = threading.Thread(target=self._wait, args=(self.child,), name="compiling", daemon=True)
        self.thread.start()

    @property
    def running(self) -> bool:
        """Whether the child is at work, or held."""
        return self.child is not None and self.child.poll() is None

    def hold(self, still: bool) -> None:
        """Stop the child's clock while a run is measured, and let it go on afterwards."""
        if self.child is not None and self.running:
            _signal(self.child, signal.SIGSTOP if still else signal.SIGCONT)

    def _wait(self, child: subprocess.Popen[bytes]) -> None:
        began = time.perf_counter()
        assert child.stderr is not None
        said = child.stderr.read().decode(errors="replace").strip().split("\n")
        if child.wait() == 0:
            log.info("the decode step was compiled in %.0f s", time.perf_counter() - began)
            self.outcome = self.path
        else:
            log.info("the compiler said: %s", "\n".join(said[-40:]))
            reason = next((line for line in reversed(said) if re.match(r"[\w.]*(Error|Exception)\b", line)), said[-1])
            self.outcome = NotCompiled(f"the decode step could not be compiled ({reason[:300]})")


def command(folder: Path, path: Path, compact: bool, threads: int) -> list[str]:
    """What compiles the decode step of the checkpoint in `folder` into `path`."""
    return [sys.executable, "-m", "inference.cpu.compiling", str(folder), str(path), "compact" if compact else "plain", str(threads)]


def compiler() -> str | None:
    """The C++ compiler that inductor would call."""
    return shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++")


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        log.debug("the compiling process has ended")


def environment() -> dict[str, str]:
    """The child's environment: one job at a time, and no GPU."""
    return child.environment(TORCHINDUCTOR_COMPILE_THREADS="1", CUDA_VISIBLE_DEVICES="")


def _step_aside() -> None:
    """Run only when nobody else wants to, and end with the parent."""
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):  # macOS has none
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    child.end_with_parent()


def main(folder: str, path: str, storage: str, threads: str) -> None:
    """Compile the decode step of the checkpoint in `folder` into `path`, unless another lane's process has meanwhile."""
    _step_aside()
    entry = cache.Entry(Path(path))
    with entry.locked(), entry.building() as work:
        if not entry.path.exists():
            # read as torch is imported; what inductor writes beside the step is needed by nobody afterwards
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TMPDIR"] = str(work)
            _compile(Path(folder), work / "step.pt2", storage, int(threads))
            entry.put(work / "step.pt2")


def _compile(folder: Path, path: Path, storage: str, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    from inference.cpu import products, step
    from inference.cpu.decoder import CpuDecoder
    from inference.fast import FastWays
    from inference.models import exact, loading

    model = loading.read(folder, "cpu:fp32", FastWays("cpu:fp32", (storage,)))
    exact.install(model, products.plain)
    decoder = CpuDecoder(model)
    rows = decoder.new_cache(4)
    decoder.forward(torch.tensor([[3, 4, 5]]), rows)
    step.make(model, rows, decoder.forward.cache_name, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
