"""llama.cpp as a peer in the bench: the small model's values as a GGUF in F32 or 4 bits, answered in a process of its own like a lane.

Needs the development dependency `xllamacpp`. The values are those of our checkpoint: the packaged file's, rounded to bf16;
its metadata and the order of its q and k rows stay as llama.cpp wants them. In 4 bits they are quantized from there to Q4_0 (blocks of 32
with a scale in fp16), the embedding, which is the head too, to Q8_0: what llama.cpp's own quantizer takes where rows are no multiple of 256.
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
from inference.host.machine import lane_threads
from inference.lane.source import Source
from inference.settings import SMALL_MODEL, Settings
from inference.sources import default_model
from inference.sources.headers import tensors_of
from inference.timing import Stopwatch

CONTEXT = 2048
BUILT_BYTES = 650 * 2**20  # the F32 file (540 MB) beside the packaged one
EMBEDDING = "token_embd.weight"
SKIPPED = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


class LlamaCpp:
    """The small model by llama.cpp, in F32 or Q4_0 as the lane is, with as many threads as our lane takes; greedy only."""

    def __init__(self, settings: Settings, lane: str) -> None:
        self._settings, self.path = settings, "Q4_0" if lane.endswith("nf4") else "F32"
        self._server: Any = None
        self.model = None

    def load(self, source: Source, report: Report) -> tuple[LaneFacts, float]:
        """Write the file once, then load it; raises InferenceError for another model or without `xllamacpp`."""
        if source.checkpoint.revision != default_model.REVISION:
            raise InferenceError(f"The peer llama.cpp answers only with {SMALL_MODEL} out of its package. Leave --model out, or this peer.")
        try:
            import xllamacpp
        except ImportError:
            raise InferenceError("The peer llama.cpp needs the package xllamacpp: pip install -r requirements-dev.txt.") from None
        threads = lane_threads(self._settings)
        file = gguf_file(cache.of(self._settings), self.path, report)
        began = time.perf_counter()
        self._server = xllamacpp.Server(_parameters(xllamacpp, file, threads))
        return _describe(source, file, self.path, threads, f"xllamacpp {xllamacpp.__version__}"), time.perf_counter() - began

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
            raise InferenceError(f"llama.cpp gave {len(pieces)} messages for {last.get('n')} tokens, so its times can't be read. Leave this peer out.")
        answer = "".join(pieces)
        return Answer(answer, tuple(source.tokenizer(answer, add_special_tokens=False)["input_ids"]), last["reason"])


def _describe(source: Source, file: Path, kind: str, threads: int, kernel: str) -> LaneFacts:
    """The parameters are counted in the checkpoint, whose tensors the file holds; the bytes in the file."""
    import gguf

    parameters = sum(stored.count for stored in tensors_of(source.checkpoint.folder).values())
    return LaneFacts(
        model_id=source.checkpoint.id, revision=source.checkpoint.revision, architecture=source.config.architectures[0],
        parameters=parameters, device="cpu", device_name="", precision=kind, storage_dtype=kind, compute_dtype="float32" if kind == "F32" else "int8",
        quantization=None, device_map="cpu", kernel=kernel, threads=threads, kept_16bit=(),
        weights_bytes=sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(file).tensors), context_length=CONTEXT, has_chat_template=False,
    )  # fmt: skip


def _parameters(library: Any, file: Path, threads: int) -> Any:
    found = library.CommonParams()
    found.model.path = str(file)
    found.n_ctx, found.n_parallel, found.n_gpu_layers, found.verbosity = CONTEXT, 1, 0, -1
    found.cpuparams.n_threads = found.cpuparams_batch.n_threads = threads
    return found


def gguf_file(place: Cache, kind: str, report: Callable[[Loading], None]) -> Path:
    """The small model as a GGUF in the cache, F32 or Q4_0, made if it isn't there; raises InferenceError where the disk is full."""
    entry = place.entry("peers", f"SmolLM2-135M-Instruct-{kind}.gguf")
    with entry.locked():
        if not entry.path.exists():
            with entry.building(BUILT_BYTES) as temporary:
                write(default_model.fetch_gguf(temporary, report), temporary / "made.gguf", kind)
                entry.put(temporary / "made.gguf")
    entry.use()
    return entry.path


def write(source: Path, target: Path, kind: str) -> None:
    """`source`'s metadata and tensors, each value rounded to bf16 as our checkpoint has it, then kept as F32, or matrices as Q4_0."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if kind == "F32" else gguf.LlamaFileType.MOSTLY_Q4_0)
    for name, field in reader.fields.items():
        if not name.startswith(SKIPPED):
            form = field.types[0]
            writer.add_key_value(name, field.contents(), form, field.types[-1] if form == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        values = _as_bf16(gguf.dequantize(tensor.data, tensor.tensor_type))
        form = _form(tensor.name, values, kind)
        writer.add_tensor(tensor.name, gguf.quantize(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _form(name: str, values: np.ndarray, kind: str) -> Any:
    from gguf import GGMLQuantizationType as Form

    if kind == "F32" or values.ndim < 2:
        return Form.F32
    return Form.Q8_0 if name == EMBEDDING else Form.Q4_0


def _as_bf16(values: np.ndarray) -> np.ndarray:
    """FP32 values rounded to the nearest bf16 (ties to even), as FP32."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
