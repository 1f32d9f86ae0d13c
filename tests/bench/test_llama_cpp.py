"""The files that the bench's peer llama.cpp reads: the packaged values rounded to bf16, in F32 or 4 bits, metadata and names kept."""

import gguf
import numpy as np
import torch

from inference.bench import llama_cpp


def test_rounding_is_that_of_torch():
    values = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    values[:3] = [1.00390625, -1.01171875, 0.0]  # ties, and a zero
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(llama_cpp._as_bf16(values), expected)


def test_the_file_keeps_names_metadata_and_values(tmp_path):
    source, target = tmp_path / "q4.gguf", tmp_path / "f32.gguf"
    values = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_block_count(1)
    writer.add_token_list(["a", "b"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_1)
    writer.add_tensor("blk.0.attn_q.weight", gguf.quantize(values, gguf.GGMLQuantizationType.Q4_1), raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("output_norm.weight", values[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    llama_cpp.write(source, target, "F32")

    read, packed = gguf.GGUFReader(target), gguf.GGUFReader(source)
    assert read.fields["llama.block_count"].contents() == 1 and read.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert read.fields["general.file_type"].contents() == gguf.LlamaFileType.ALL_F32
    assert [(t.name, t.tensor_type) for t in read.tensors] == [(t.name, gguf.GGMLQuantizationType.F32) for t in packed.tensors]
    unpacked = gguf.dequantize(packed.tensors[0].data, packed.tensors[0].tensor_type)
    np.testing.assert_array_equal(read.tensors[0].data, torch.from_numpy(unpacked.copy()).to(torch.bfloat16).float().numpy())


def test_in_4_bits_matrices_are_q4_0_of_the_same_values_and_the_embedding_is_q8_0(tmp_path):
    source, target = tmp_path / "q4.gguf", tmp_path / "q4_0.gguf"
    values = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(source, "llama")
    for name, tensor in (("token_embd.weight", values), ("blk.0.attn_q.weight", 2 * values), ("output_norm.weight", values[0])):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    llama_cpp.write(source, target, "Q4_0")

    read, form = gguf.GGUFReader(target), gguf.GGMLQuantizationType
    assert read.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q4_0
    assert [tensor.tensor_type for tensor in read.tensors] == [form.Q8_0, form.Q4_0, form.F32]
    np.testing.assert_array_equal(read.tensors[1].data, gguf.quantize(llama_cpp._as_bf16(2 * values), form.Q4_0))
    assert np.abs(gguf.dequantize(read.tensors[0].data, form.Q8_0) - values).max() < 0.03
