"""A GGUF file becomes a checkpoint."""

from __future__ import annotations

import inspect

from inference.sources.formats import parsed_once


def test_transformers_asks_gguf_for_what_is_read_once():
    import gguf
    from transformers import modeling_gguf_pytorch_utils

    source = inspect.getsource(modeling_gguf_pytorch_utils)
    assert "from gguf import GGUFReader" in source and "get_tensor_name_map" in source, "asked for at each call, so that ours is found"
    own = gguf.get_tensor_name_map
    with parsed_once():
        assert gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2) is gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    assert gguf.get_tensor_name_map is own
