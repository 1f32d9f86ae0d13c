"""Kernels on the CPU: the same source as on the device, compiled by g++ with `cuda_emulator.h`; a stand-in for `DeviceCode`."""

from __future__ import annotations

import atexit
import ctypes
import functools
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from inference.cuda.device_code import as_c_values

# little is gained by optimizing more: most of a test's time goes into changing from one emulated thread to the next
COMPILER = ("g++", "-Og", "-w", "-std=c++17", "-shared", "-fPIC")
_libraries: dict[object, ctypes.CDLL] = {}


def _built(text: str, macros: tuple[str, ...], folder: Path) -> ctypes.CDLL:
    """The library of this source with these macros, compiled once in a session."""
    if (text, macros) not in _libraries:
        (folder / "kernels.cpp").write_text(text)
        command = [*COMPILER, f"-I{_header()}", f"-I{Path(__file__).parent}", *macros]
        subprocess.run([*command, "-o", str(folder / "kernels.so"), str(folder / "kernels.cpp")], check=True)
        _libraries[text, macros] = ctypes.CDLL(str(folder / "kernels.so"))
    return _libraries[text, macros]


@functools.cache
def _header() -> str:
    """A folder with the emulator's header as the compiler has read it, which would be a third of each compilation."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    header = Path(__file__).parent / "cuda_emulator.h"
    subprocess.run([*COMPILER, "-x", "c++-header", "-o", f"{folder.name}/cuda_emulator.h.gch", str(header)], check=True)
    return folder.name


def _kernels(source: str, flags: tuple[str, ...]) -> list[str]:
    """The names of the kernels that are there with these macros."""
    done = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", "-DEMULATED", f"-I{Path(__file__).parent}", *flags, "-"], input=source, capture_output=True, text=True, check=True
    )
    return re.findall(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(', done.stdout)


class Emulator:
    """Launches run at once; memory is the CPU's; shared memory is poisoned before every block."""

    def __init__(self, source: str, macros: dict[str, object], folder: Path, multiprocessors: int = 7) -> None:
        self.multiprocessors, self.shared_limit = multiprocessors, 232448
        source = source.replace("extern __shared__ __align__(16) u32 shared[];", "")
        source = re.sub(r"#pragma unroll.*", "", source)
        names = _kernels(source, flags := tuple(f"-D{name}={value}" for name, value in macros.items()))
        table = "\n".join(f'{{"{name}", callable({name})}},' for name in names)
        text = (
            '#include "cuda_emulator.h"\n'
            + source
            + "\nstatic std::map<std::string, std::function<void(void**)>> table = {"
            + table
            + """};
extern "C" void launch(const char* name, int gx, int gy, int gz, int threads, int bytes, void** arguments) {
    auto kernel = table.at(name);
    gridDim = {gx, gy, gz}, blockDim = {threads, 1, 1};
    for (int z = 0; z < gz; ++z) for (int y = 0; y < gy; ++y) for (int x = 0; x < gx; ++x) {
        blockIdx = {x, y, z};
        memset(shared, 0xff, bytes);
        emulator::body = [&] { kernel(arguments); };
        emulator::run_block(threads);
        if (strcmp(name, "whole_step")) emulator::check_all_waited(name, threads);  // that one is launched by itself
    }
}
"""
        )
        self._library = _built(text, flags, folder)
        self.launches: list[str] = []

    def launch(self, name: str, grid: Any, threads: int, shared_bytes: int, *arguments: Any) -> None:
        assert threads <= 1024 and shared_bytes <= self.shared_limit
        values = as_c_values(arguments)
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        self.launches.append(name)
        self._library.launch(name.encode(), *(*grid, 1, 1)[:3], threads, shared_bytes, pointers)

    def prepare(self, name: str, threads: int, shared_bytes: int, *arguments: Any) -> _Prepared:
        return _Prepared(self, name, threads, shared_bytes, arguments)

    def stream(self) -> int:
        return 0


class _Prepared:
    """A launch whose ctypes arguments are read when it starts."""

    def __init__(self, emulator: Emulator, name: str, threads: int, shared_bytes: int, arguments: Any) -> None:
        self._emulator, self._rest, self._name, self._grid = emulator, (threads, shared_bytes), name, (0, 0)
        self._arguments = arguments

    def at(self, x: int, y: int, stream: int) -> None:
        self._grid = x, y

    def on(self, stream: int) -> None: ...

    def __call__(self) -> None:
        self._emulator.launch(self._name, self._grid, *self._rest, *self._arguments)
