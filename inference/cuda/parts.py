"""Reads the parts of a loaded 4-bit model that our own step needs; changes nothing in the model.

In: a decoder-only transformers model on a CUDA device, its linear layers bitsandbytes 4-bit, its norms and head bfloat16. Out:
`ModelParts`: tensors (no copies, unless scales are nested) and the few numbers that tell Llama-, Qwen- and Gemma-like models
apart, found by trying the model's own modules, never by the model's name; which modules are norms, by their classes' names, and
what form of norm by trying. Raises NotFusable, with the reason, for anything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inference.errors import InferenceError

SCALE_BLOCK = 64
_LAYER_MODULES = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}
_ATTENTION_MODULES = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm", "rotary_emb"}
_MLP_MODULES = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_ACTIVATIONS = (F.silu, lambda v: F.gelu(v, approximate="tanh"), F.gelu)


class NotFusable(InferenceError):
    """This model is not one that our step knows; the message says what is different."""


@dataclass(frozen=True)
class Packed:
    """A 4-bit matrix [rows, columns]: packed codes, one float32 scale per 64 of them, and the module it came from."""

    codes: Tensor
    scales: Tensor
    rows: int
    columns: int
    module: nn.Module


@dataclass(frozen=True)
class LayerParts:
    """One decoder layer; a norm that the model doesn't have is None; `window` 0 means all keys."""

    qkv: tuple[Packed, Packed, Packed]
    qkv_bias: Tensor | None
    o: Packed
    gate: Packed
    up: Packed
    down: Packed
    before_attention: Tensor
    after_attention: Tensor | None
    before_mlp: Tensor
    after_mlp: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    window: int
    kind: str


@dataclass(frozen=True)
class ModelParts:
    """A whole model; `norm_offset`, `norm_rounds` and `activation` are the kernels' macros of the same names."""

    layers: tuple[LayerParts, ...]
    embed: nn.Module
    rotary: nn.Module
    final_norm: Tensor
    head: Tensor
    code: tuple[float, ...]
    hidden: int
    head_dim: int
    q_heads: int
    kv_heads: int
    scaling: float
    eps: float
    norm_offset: int
    norm_rounds: int
    activation: int


def check_form(model: nn.Module) -> None:
    """Raise NotFusable for a model of another form, as far as one without weights can tell."""
    decoder: Any = decoder_of(model)
    config = decoder.config
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"):
        _need(not getattr(config, name, None), f"its configuration sets {name}")
    for index, layer in enumerate(decoder.layers):
        _check_layer(layer, config, index)
    head: Any = model.get_output_embeddings()
    _need(isinstance(head, nn.Linear) and head.weight.dtype == torch.bfloat16 and head.bias is None, "its head is not a plain bfloat16 matrix")
    activation_of(decoder.layers[0].mlp.act_fn)
    # the room for a step is made by the first layer: a larger one after it would be written past its end
    sizes = {tuple((matrix.out_features, matrix.in_features) for matrix in _matrices(layer)) for layer in decoder.layers}
    _need(len(sizes) == 1, "its layers differ in size")
    (queries, _), (keys, _), *_ = sizes.pop()
    head_dim, hidden = decoder.layers[0].self_attn.head_dim, head.weight.shape[1]
    _need(head_dim in (64, 128, 256), f"its heads have {head_dim} columns")
    _need((queries // head_dim) % (keys // head_dim) == 0, "its query heads don't divide among the key heads")
    _need(hidden % 8 == 0 and hidden <= 16384, f"its hidden size is {hidden}")


def read_parts(model: nn.Module) -> ModelParts:
    """The parts of `model`; raises NotFusable."""
    check_form(model)
    decoder = decoder_of(model)
    config = decoder.config
    layers = tuple(_layer(layer, config, index) for index, layer in enumerate(decoder.layers))
    head = model.get_output_embeddings()
    attention = decoder.layers[0].self_attn
    norms = norms_of(decoder)
    eps, offset, rounds = norm_form(norms)
    head_dim = attention.head_dim
    return ModelParts(
        layers, decoder.embed_tokens, decoder.rotary_emb, decoder.norm.weight, head.weight, _code(layers), head.weight.shape[1], head_dim,
        layers[0].qkv[0].rows // head_dim, layers[0].qkv[1].rows // head_dim, float(attention.scaling), eps, offset, rounds,
        activation_of(decoder.layers[0].mlp.act_fn),
    )  # fmt: skip


def rotary_tables(parts: ModelParts, rows: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Cosines and sines [rows, head_dim] for each kind of layer, from the model's own module."""
    device = parts.head.device
    positions, like = torch.arange(rows, device=device)[None], torch.zeros(1, 1, parts.hidden, dtype=torch.bfloat16, device=device)
    tables = {}
    for kind in {layer.kind for layer in parts.layers}:
        cos, sin = parts.rotary(like, positions, kind) if kind else parts.rotary(like, positions)
        _need(cos.shape[-1] == parts.head_dim, "it rotates only a part of each head")
        tables[kind] = (cos[0].to(torch.bfloat16).contiguous(), sin[0].to(torch.bfloat16).contiguous())
    return tables


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise NotFusable(reason)


def decoder_of(model: nn.Module) -> Any:
    for module in model.modules():
        if all(hasattr(module, name) for name in ("layers", "embed_tokens", "norm", "rotary_emb")):
            return module
    raise NotFusable("it has no stack of decoder layers with an embedding, a norm and a rotary embedding")


def _need_all(module: Any, index: int, *names: str) -> None:
    missing = [name for name in names if not hasattr(module, name)]
    _need(not missing, f"layer {index} has no {', '.join(missing)}")


def _check_layer(layer: Any, config: Any, index: int) -> None:
    _need_all(layer, index, "self_attn", "mlp", "input_layernorm", "post_attention_layernorm")
    attention: Any = layer.self_attn
    mlp: Any = layer.mlp
    _need_all(attention, index, "q_proj", "k_proj", "v_proj", "o_proj")
    _need_all(mlp, index, "gate_proj", "up_proj", "down_proj", "act_fn")
    for module, known in ((layer, _LAYER_MODULES), (attention, _ATTENTION_MODULES), (mlp, _MLP_MODULES)):
        names = {name for name, _ in module.named_children()}
        _need(names <= known, f"layer {index} has {', '.join(sorted(names - known))}")
        _need(not list(module.parameters(recurse=False)), f"layer {index} has parameters of its own")
    matrices = _matrices(layer)
    _need(all(isinstance(matrix, nn.Linear) for matrix in matrices), f"layer {index} has projections of another kind")
    biases = [module.bias for module in matrices]
    _need(all(b is None for b in biases[:3]) or all(b is not None for b in biases[:3]), "only some of q, k, v have a bias")
    _need(all(b is None for b in biases[3:]), "a projection other than q, k, v has a bias")
    for matrix in matrices:
        rows, columns = matrix.out_features, matrix.in_features
        _need(columns % SCALE_BLOCK == 0 and rows % 16 == 0, f"a matrix of {rows} x {columns}")
    for module in norms_of(layer):
        _norm(module)
    _kind(config, index)


def _matrices(layer: Any) -> tuple[Any, ...]:
    attention, mlp = layer.self_attn, layer.mlp
    return attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj


def _layer(layer: Any, config: Any, index: int) -> LayerParts:
    attention, mlp = layer.self_attn, layer.mlp
    qkv = (_packed(attention.q_proj), _packed(attention.k_proj), _packed(attention.v_proj))
    four = hasattr(layer, "pre_feedforward_layernorm")  # Gemma's two further norms, after attention and after the MLP
    biases = [module.bias for module in (attention.q_proj, attention.k_proj, attention.v_proj)]
    window = getattr(attention, "sliding_window", None) if hasattr(attention, "sliding_window") else getattr(config, "sliding_window", None)
    return LayerParts(
        qkv, torch.cat(biases).to(torch.bfloat16) if biases[0] is not None else None,
        _packed(attention.o_proj), _packed(mlp.gate_proj), _packed(mlp.up_proj), _packed(mlp.down_proj),
        _norm(layer.input_layernorm), _norm(layer.post_attention_layernorm) if four else None,
        _norm(layer.pre_feedforward_layernorm if four else layer.post_attention_layernorm),
        _norm(layer.post_feedforward_layernorm) if four else None,
        _norm(attention.q_norm) if hasattr(attention, "q_norm") else None, _norm(attention.k_norm) if hasattr(attention, "k_norm") else None,
        int(window or 0), _kind(config, index),
    )  # fmt: skip


def _kind(config: Any, index: int) -> str:
    """The name under which the rotary module keeps this layer's frequencies; empty where all layers share them."""
    types: Any = getattr(config, "layer_types", None)
    parameters: Any = getattr(config, "rope_parameters", None) or {}
    own = types is not None and types[index] in parameters
    rope = parameters.get(types[index], parameters) if own else parameters
    kind = rope.get("rope_type", "default") if isinstance(rope, dict) else "default"
    _need(kind not in ("dynamic", "longrope"), f"its rotary embedding ({kind}) depends on the length")
    return types[index] if own else ""


def _norm(module: Any) -> Tensor:
    _need("RMSNorm" in type(module).__name__ and module.weight.dtype == torch.bfloat16, f"{type(module).__name__} is not a bfloat16 RMSNorm")
    return module.weight


def _packed(module: Any) -> Packed:
    state: Any = getattr(getattr(module, "weight", None), "quant_state", None)
    _need(state is not None, f"{type(module).__name__} is not quantized to 4 bits")
    rows, columns = state.shape
    _need(state.blocksize == SCALE_BLOCK, f"a matrix of {rows} x {columns} in blocks of {state.blocksize}")
    _need(module.compute_dtype == torch.bfloat16, f"its compute dtype is {module.compute_dtype}")
    scales = state.absmax
    if state.nested:
        from bitsandbytes.functional import dequantize_blockwise

        scales = dequantize_blockwise(state.absmax, state.state2) + state.offset
    return Packed(module.weight.data, scales.float(), rows, columns, module)


def _code(layers: Iterable[LayerParts]) -> tuple[float, ...]:
    matrices = [m for layer in layers for m in (*layer.qkv, layer.o, layer.gate, layer.up, layer.down)]
    codes = {m.module.weight.quant_state.quant_type: m.module.weight.quant_state.code for m in matrices}
    _need(len(codes) == 1, "its matrices have several 4-bit formats")
    return tuple(next(iter(codes.values())).tolist())


def norms_of(decoder: nn.Module) -> list[Any]:
    """A model's RMSNorms, by what their classes are called."""
    return [module for module in decoder.modules() if "RMSNorm" in type(module).__name__]


def norm_form(norms: list[Any]) -> tuple[float, int, int]:
    """(eps, offset added to the weight, whether the row is rounded before the weight), by trying one norm of each size."""
    eps = {float(getattr(norm, "eps", getattr(norm, "variance_epsilon", math.nan))) for norm in norms}
    _need(len(eps) == 1 and not math.isnan(min(eps)), "its norms differ in eps")
    value = eps.pop()
    tried = {norm.weight.shape: norm for norm in norms}.values()
    fitting = [form for form in ((0, 1), (1, 0), (0, 0)) if all(_norm_fits(norm, value, *form) for norm in tried)]
    _need(bool(fitting), f"{type(norms[0]).__name__} is of an unknown form")
    return value, *fitting[0]


def _norm_fits(norm: Any, eps: float, offset: int, rounds: int) -> bool:
    weight = norm.weight
    row = torch.randn(4, weight.shape[0], generator=torch.Generator().manual_seed(0)).to(weight.device, torch.bfloat16)
    wide = row.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    ours = (wide.to(torch.bfloat16) if rounds else wide).float() * (offset + weight.float())
    return bool(torch.equal(ours.to(torch.bfloat16), norm(row)))


def activation_of(module: Any) -> int:
    row = torch.linspace(-6, 6, 97)
    for index, function in enumerate(_ACTIVATIONS):
        if torch.allclose(module(row), function(row), atol=1e-6):
            return index
    raise NotFusable(f"its activation {type(module).__name__} is unknown")
