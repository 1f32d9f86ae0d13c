"""CUDA source in, launchable kernels out, with NVRTC and the driver alone: no toolkit, no C compiler, no inductor.

Both libraries come with every CUDA build of torch. Launches go to torch's current stream, so they can be captured into a
`torch.cuda.CUDAGraph`. Knows nothing of models. Measured: compiling all kernels takes
2.2-3.4 s, once (NVRTC remembers the same source: 0.1-0.3 s); one launch by ctypes costs the host some 10 us, so capture.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import logging
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import torch

from inference.errors import InferenceError

log = logging.getLogger(__name__)


class NoDeviceCode(InferenceError):
    """The kernels can't be compiled or loaded here; the message says why."""


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute with the one value used here: 6, the kernel may start before the one before it has ended."""

    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_byte * 60)]


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        *[(f"{what}_{axis}", ctypes.c_uint) for what in ("grid", "block") for axis in "xyz"],
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


class DeviceCode:
    """The kernels of one CUDA source, compiled for one device; raises NoDeviceCode."""

    def __init__(self, source: str, macros: dict[str, object], device: torch.device, target: str = "") -> None:
        """`target`: another architecture to compile for ("compute_75"), whose code the driver translates for this device."""
        torch.zeros(1, device=device)  # makes the device's primary context current
        properties = torch.cuda.get_device_properties(device)
        self.device, self.multiprocessors = device, properties.multi_processor_count
        self.shared_limit = properties.shared_memory_per_block_optin
        self._attribute = _Attribute(6, 0, 1)
        self._attribute_count = int(properties.major >= 9 and not target)  # a kernel's start may overlap the end of the one before from there on
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._driver.cuLaunchKernelEx.argtypes = [ctypes.POINTER(_Config), ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        together = ctypes.c_int()
        self._driver.cuDeviceGetAttribute(ctypes.byref(together), 95, device.index or 0)
        self.cooperative = bool(together.value)
        self._launch_kernel = self._driver.cuLaunchKernelEx
        image = compile_source(source, macros, target or architecture(device))
        self._module = ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), image), "loading the kernels")
        self._functions: dict[str, ctypes.c_void_p] = {}

    def launch(self, name: str, grid: Sequence[int], threads: int, shared_bytes: int, *arguments: Any) -> None:
        """Start one kernel on the current stream; arguments are tensors (or None) for pointers, ints, floats, ctypes values."""
        x, y, z = (*grid, 1, 1)[:3]
        config = _Config(x, y, z, threads, 1, 1, shared_bytes, self.stream(), ctypes.pointer(self._attribute), self._attribute_count)
        values = as_c_values(arguments)
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        self._check(self._driver.cuLaunchKernelEx(ctypes.byref(config), self._function(name), pointers, None), name)

    def launch_together(self, name: str, grid: Sequence[int], threads: int, shared_bytes: int, *arguments: Any) -> None:
        """The same for a kernel whose blocks wait for each other: all of them are on the device at once, or none is started."""
        own, self._attribute, count, self._attribute_count = self._attribute, _Attribute(2, 0, 1), self._attribute_count, 1
        try:
            self.launch(name, grid, threads, shared_bytes, *arguments)
        finally:
            self._attribute, self._attribute_count = own, count

    def stream(self) -> int:
        """The current stream's handle."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def prepare(self, name: str, threads: int, shared_bytes: int, *arguments: Any) -> Prepared:
        """A launch to be repeated: ctypes arguments are kept as they are, so that many launches share one and see its changes."""
        return Prepared(
            self, self._function(name), _Config(1, 1, 1, threads, 1, 1, shared_bytes, None, ctypes.pointer(self._attribute), self._attribute_count), arguments
        )

    def run(self, function: ctypes.c_void_p, config: Any, pointers: Any) -> None:
        """Start what was prepared."""
        if code := self._launch_kernel(config, function, pointers, None):
            self._check(code, "a prepared launch")

    def _function(self, name: str) -> ctypes.c_void_p:
        if name not in self._functions:
            function = ctypes.c_void_p()
            self._check(self._driver.cuModuleGetFunction(ctypes.byref(function), self._module, name.encode()), name)
            static = ctypes.c_int()
            self._driver.cuFuncGetAttribute(ctypes.byref(static), 1, function)
            if not static.value:  # kernels with no fixed shared memory take what the device allows
                self._check(self._driver.cuFuncSetAttribute(function, 8, self.shared_limit), name)
            self._functions[name] = function
        return self._functions[name]

    def _check(self, code: int, what: str) -> None:
        if code:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(code, ctypes.byref(text))
            raise NoDeviceCode(f"{what}: {(text.value or b'unknown error').decode()}")


class Prepared:
    """One kernel with its arguments; where it starts is said before each prompt (`at`), then calling it starts it."""

    def __init__(self, code: DeviceCode, function: ctypes.c_void_p, config: _Config, arguments: Sequence[Any]) -> None:
        self._code, self._function, self._config = code, function, config
        self._values = as_c_values(arguments)
        self._pointers = (ctypes.c_void_p * len(self._values))(*[ctypes.addressof(value) for value in self._values])
        self._by_reference = ctypes.byref(config)

    def at(self, x: int, y: int, stream: int) -> None:
        """The grid and the stream from now on."""
        config = self._config
        config.grid_x, config.grid_y, config.stream = x, y, stream

    def on(self, stream: int) -> None:
        """The stream from now on."""
        self._config.stream = stream

    def __call__(self) -> None:
        self._code.run(self._function, self._by_reference, self._pointers)


def as_c_values(arguments: Sequence[Any]) -> list[Any]:
    """Kernel arguments as ctypes values: tensors and None as pointers, ints as int32, floats as float32."""
    values: list[Any] = []
    for argument in arguments:
        if argument is None or isinstance(argument, torch.Tensor):
            values.append(ctypes.c_void_p(argument.data_ptr() if argument is not None else 0))
        elif isinstance(argument, float):
            values.append(ctypes.c_float(argument))
        elif isinstance(argument, int):
            values.append(ctypes.c_int(argument))
        else:
            values.append(argument)
    return values


def architecture(device: torch.device) -> str:
    """What NVRTC calls the device: "sm_90"."""
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


def compile_source(source: str, macros: dict[str, object], architecture: str) -> bytes:
    """Code for `architecture`, compiled once: who asks while it is compiled waits. Raises NoDeviceCode with the compiler's message.

    Machine code for "sm_90", PTX that later devices can translate for "compute_90".
    """
    key = (source, tuple(sorted(macros.items())), architecture)
    with _images_lock:
        image = _images.get(key)
        mine = image is None
        if image is None:
            image = _images[key] = Future()
    if mine:
        try:
            image.set_result(_compile(source, macros, architecture))
        except BaseException as error:
            image.set_exception(error)
            raise
    return image.result()


def compile_in_a_thread(*wanted: tuple[str, dict[str, object]], device: torch.device) -> None:
    """The same of each source with its macros, one after the other (NVRTC does one at a time), for somebody who asks again later and is told then
    what failed.
    """
    target = architecture(device)

    def work() -> None:
        for source, macros in wanted:
            try:
                compile_source(source, macros, target)
            except Exception:
                log.info("kernels could not be compiled beforehand", exc_info=True)

    threading.Thread(target=work, name="kernels", daemon=True).start()


_images: dict[Any, Future[bytes]] = {}
_images_lock = threading.Lock()


def _compile(source: str, macros: dict[str, object], architecture: str) -> bytes:
    nvrtc = _nvrtc()
    options = [f"--gpu-architecture={architecture}", "--std=c++17", *[f"-D{name}={value}" for name, value in macros.items()]]
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"step.cu", 0, None, None):
        raise NoDeviceCode("NVRTC could not be started")
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
    kind = "ProgramLog" if failed else "PTX" if architecture.startswith("compute") else "CUBIN"
    getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{kind}")(program, text)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise NoDeviceCode(f"NVRTC for {architecture}: {text.value.decode(errors='replace')[:2000]}")
    return text.raw


def _nvrtc() -> ctypes.CDLL:
    """The compiler of the CUDA that torch was built for: the one that came with it before a system's, which may know fewer cards."""
    majors = [torch.version.cuda.split(".")[0]] if torch.version.cuda else ["13", "12"]  # without CUDA the one that is there: it needs no card
    folders = [folder for entry in sys.path for folder in glob.glob(os.path.join(entry, "nvidia", "*", "lib"))]
    for name in (f"libnvrtc.so.{major}" for major in majors):
        for builtins in [path for folder in folders for path in glob.glob(os.path.join(folder, name.replace("rtc.so", "rtc-builtins.so") + "*"))]:
            ctypes.CDLL(builtins)  # the wheel's NVRTC doesn't look for it beside itself
        for candidate in (*[os.path.join(folder, name) for folder in folders], name):
            with contextlib.suppress(OSError):
                return ctypes.CDLL(candidate)
    raise NoDeviceCode(f"libnvrtc.so.{majors[0]} was not found")
