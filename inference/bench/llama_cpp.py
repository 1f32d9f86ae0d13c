"""llama.cpp as a peer in the bench: the small model's values as an F32 GGUF, answered in a process of its own like a lane.

Needs the development dependency `xllamacpp`. The values are those of our checkpoint: the packaged file's, rounded to bf16;
its metadata and the order of its q and k rows stay as llama.cpp wants them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from inference.bench.baseline import Answer
from inference.cache import cache
from inference.cache.cache import Cache
from inference.errors import InferenceError
from inference.events import LaneFacts, Loading, Report, Request
from inference.lane.source import Source
from inference.machine import lane_threads
from inference.settings import SMALL_MODEL, Settings
from inference.sources import default_model
from inference.sources.headers import tensors_of
from inference.timing import Stopwatch

CONTEXT = 2048
F32_BYTES = 650 * 2**20  # the file itself (540 MB) beside the packaged one
SKIPPED = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


class LlamaCpp:
    """The small model in F32 by llama.cpp, with as many threads as our lane takes; greedy only."""

    path = "llama.cpp"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server: Any = None
        self.model = None

    def load(self, source: Source, report: Report) -> tuple[LaneFacts, float]:
        """Write the F32 file once, then load it; raises InferenceError for another model or without `xllamacpp`."""
        if source.checkpoint.revision != default_model.REVISION:
            raise InferenceError(f"The peer llama.cpp answers only with {SMALL_MODEL} out of its package.")
        try:
            import xllamacpp
        except ImportError:
            raise InferenceError("The peer llama.cpp needs the package xllamacpp: pip install -r requirements-dev.txt.") from None
        threads = lane_threads(self._settings)
        file = f32_file(cache.of(self._settings), report)
        began = time.perf_counter()
        self._server = xllamacpp.Server(_parameters(xllamacpp, file, threads))
        return _describe(source, threads, f"xllamacpp {xllamacpp.__version__}"), time.perf_counter() - began

    def answer(self, source: Source, request: Request, prompt_ids: list[int], watch: Stopwatch) -> Answer:
        """The answer, a stamp for each token's message; the ids are read back from the text."""
        pieces, last = list[str](), dict[str, Any]()

        def arrived(message: dict[str, Any]) -> bool:
            choice = message["choices"][0]
            if choice["finish_reason"]:
                last.update(reason=choice["finish_reason"], n=message["usage"]["completion_tokens"])
            else:
                watch.token()
                pieces.append(choice["text"])
            return False

        greedy = {"temperature": 0, "samplers": ["top_k"], "top_k": 1, "cache_prompt": False, "stream": True}
        self._server.handle_completions({"prompt": prompt_ids, "n_predict": request.max_new_tokens, **greedy}, arrived)
        if not pieces or last.get("n", 0) - len(pieces) not in (0, 1):  # the end mark has no message of its own
            raise InferenceError(f"llama.cpp gave {len(pieces)} messages for {last.get('n')} tokens, so its times can't be read.")
        answer = "".join(pieces)
        return Answer(answer, tuple(source.tokenizer(answer, add_special_tokens=False)["input_ids"]), last["reason"])


def _describe(source: Source, threads: int, kernel: str) -> LaneFacts:
    """The file holds the checkpoint's tensors, so they are counted there."""
    parameters = sum(stored.count for stored in tensors_of(source.checkpoint.folder).values())
    return LaneFacts(
        model_id=source.checkpoint.id, revision=source.checkpoint.revision, architecture=source.config.architectures[0],
        parameters=parameters, device="cpu", device_name="", precision="FP32", storage_dtype="float32", compute_dtype="float32",
        quantization=None, device_map="cpu", kernel=kernel, threads=threads, kept_16bit=(), weights_bytes=4 * parameters,
        context_length=CONTEXT, has_chat_template=False,
    )  # fmt: skip


def _parameters(library: Any, file: Path, threads: int) -> Any:
    found = library.CommonParams()
    found.model.path = str(file)
    found.n_ctx, found.n_parallel, found.n_gpu_layers, found.verbosity = CONTEXT, 1, 0, -1
    found.cpuparams.n_threads = found.cpuparams_batch.n_threads = threads
    return found


def f32_file(place: Cache, report: Callable[[Loading], None]) -> Path:
    """The small model as an F32 GGUF in the cache, made if it isn't there; raises InferenceError where the disk is full."""
    entry = place.entry("peers", "SmolLM2-135M-Instruct-F32.gguf")
    with entry.locked():
        if not entry.path.exists():
            with entry.building(F32_BYTES) as temporary:
                write_f32(default_model.fetch_gguf(temporary, report), temporary / "f32.gguf")
                entry.put(temporary / "f32.gguf")
    entry.use()
    return entry.path


def write_f32(source: Path, target: Path) -> None:
    """`source`'s metadata and tensors as F32, each value rounded to bf16 as our checkpoint has it."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, field in reader.fields.items():
        if not name.startswith(SKIPPED):
            kind = field.types[0]
            writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, _as_bf16(gguf.dequantize(tensor.data, tensor.tensor_type)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _as_bf16(values: np.ndarray) -> np.ndarray:
    """FP32 values rounded to the nearest bf16 (ties to even), as FP32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
