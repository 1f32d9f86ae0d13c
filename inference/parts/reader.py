"""A transformers model -> its description; whatever this module doesn't understand is refused with the reason, and decoded eagerly.

In: a decoder-only model, or a skeleton of it without weights. Out: `ModelParts`, or NotUnderstood. Modules are found by the names that the
families share; what they compute is found by trying them (`forms.py`); a module, a parameter, a number or a switch that is unknown is refused.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from inference.parts.description import LayerParts, Matrix, ModelParts, NotUnderstood
from inference.parts.forms import activation_form, check_rotation, norm_form, rotary_kind, rotary_rows
from inference.parts.scalars import check_config, check_module, check_rope

# the norms of a layer by their names, for each family: before and after attention, before and after the MLP
_NORMS: dict[frozenset[str], tuple[str | None, str | None, str | None, str | None]] = {
    frozenset(name for name in places if name): places
    for places in (
        ("input_layernorm", None, "post_attention_layernorm", None),
        ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),  # Gemma 2, 3
        (None, "post_attention_layernorm", None, "post_feedforward_layernorm"),  # OLMo 2, 3
    )
}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "q_norm", "k_norm", "rotary_emb"}
_MLP = {"gate_proj", "up_proj", "gate_up_proj", "down_proj", "act_fn", "activation_fn"}
_DECODER = {"embed_tokens", "layers", "norm", "rotary_emb"}


def check_form(model: nn.Module) -> None:
    """Raise NotUnderstood for a model of another form, with weights or without."""
    read_parts(model)


def read_parts(model: nn.Module) -> ModelParts:
    """The description of `model`, its tensors and modules not copied; raises NotUnderstood."""
    decoder = decoder_of(model)
    config, rotary = decoder.config, decoder.rotary_emb
    check_module("its causal model", model)
    check_module("its decoder", decoder)
    _children("its decoder", decoder, _DECODER)
    _need(all(hasattr(getattr(layer, "self_attn", None), "head_dim") for layer in decoder.layers), "a layer has no attention whose heads are of one size")
    attention, head = decoder.layers[0].self_attn, _matrix(model.get_output_embeddings())
    head_dim, hidden = attention.head_dim, head.columns
    layers = tuple(_layer(layer, config, rotary, index) for index, layer in enumerate(decoder.layers))
    norms = [module for module in decoder.modules() if "RMSNorm" in type(module).__name__]
    rotated = _rotated(layers, rotary, decoder.norm.weight, hidden, head_dim, attention)
    check_config(config)
    _need(not getattr(config, "use_bidirectional_attention", None), "its rows see the ones after them")
    _need({layer.self_attn.head_dim for layer in decoder.layers} == {head_dim}, "its layers differ in the size of a head")
    mlp = decoder.layers[0].mlp
    return ModelParts(
        layers, decoder.embed_tokens, rotary, _weight(decoder.norm), head, norm_form(norms),
        activation_form(mlp.act_fn if hasattr(mlp, "act_fn") else mlp.activation_fn), hidden, head_dim, _heads(layers, "q", head_dim),
        _heads(layers, "k", head_dim), rotated, _one(layer.self_attn.scaling for layer in decoder.layers),
        _one(float(getattr(layer.self_attn, "attn_logit_softcapping", None) or 0) for layer in decoder.layers),
        float(getattr(decoder, "embedding_multiplier", 1)), _one(float(getattr(layer, "residual_multiplier", 1)) for layer in decoder.layers),
        1 / float(getattr(config, "logits_scaling", 1)), float(getattr(config, "final_logit_softcapping", None) or 0), check_rope(config),
    )  # fmt: skip


def _need(condition: bool, reason: str) -> None:
    if not condition:
        raise NotUnderstood(reason)


def _one(values: Any) -> float:
    found = {float(value) for value in values}
    _need(len(found) == 1, "its layers differ in a scale")
    return found.pop()


def decoder_of(model: nn.Module) -> Any:
    """The module with the stack of layers; raises NotUnderstood where there is none."""
    for module in model.modules():
        if all(hasattr(module, name) for name in _DECODER):
            return module
    raise NotUnderstood("it has no stack of decoder layers with an embedding, a norm and a rotary embedding")


def _children(what: str, module: nn.Module, known: set[str]) -> set[str]:
    """The names of a module's children that compute something; each must be known."""
    names = {name for name, child in module.named_children() if not isinstance(child, nn.Dropout | nn.Identity)}
    _need(names <= known, f"{what} has {', '.join(sorted(names - known))}")
    _need(not list(module.parameters(recurse=False)), f"{what} has parameters of its own")
    return names


def _layer(layer: Any, config: Any, rotary: Any, index: int) -> LayerParts:
    what = f"layer {index}"
    names = _children(what, layer, {"self_attn", "mlp"}.union(*_NORMS))
    places = _NORMS.get(frozenset(names - {"self_attn", "mlp"}))
    if places is None or not {"self_attn", "mlp"} <= names:
        raise NotUnderstood(f"{what} is made of {', '.join(sorted(names))}")
    attention, mlp = layer.self_attn, layer.mlp
    inner = _children(what, attention, _ATTENTION) | _children(what, mlp, _MLP)
    for module in (layer, attention, mlp):
        check_module(what, module)
    _need({"o_proj", "down_proj"} <= inner and ("q_norm" in inner) == ("k_norm" in inner), f"{what} lacks a projection or a norm")
    q, k, v = _projections(attention, config, inner, what)
    gate, up = _gate_and_up(mlp, inner, what)
    before_attention, after_attention, before_mlp, after_mlp = (None if name is None else _weight(getattr(layer, name)) for name in places)
    q_norm, k_norm = (_weight(getattr(attention, name)) if name in inner else None for name in ("q_norm", "k_norm"))
    for norm, matrix in ((q_norm, q), (k_norm, k)):
        _need(norm is None or norm.shape[0] in (attention.head_dim, matrix.rows), f"{what} norms another part of its heads")
    return LayerParts(
        q, k, v, _matrix(attention.o_proj), gate, up, _matrix(mlp.down_proj), before_attention, after_attention, before_mlp, after_mlp, q_norm, k_norm,
        rotary_kind(config, rotary, index) if getattr(attention, "use_rope", True) else None, _window(attention, config, index),
    )  # fmt: skip


def _projections(attention: Any, config: Any, inner: set[str], what: str) -> tuple[Matrix, Matrix, Matrix]:
    if "qkv_proj" in inner:
        queries, keys = (count * attention.head_dim for count in (config.num_attention_heads, config.num_key_value_heads))
        whole = _matrix(attention.qkv_proj)
        _need(whole.rows == queries + 2 * keys, f"{what} has a projection of {whole.rows} rows")
        return tuple(Matrix(whole.module, first, rows, whole.columns) for first, rows in ((0, queries), (queries, keys), (queries + keys, keys)))  # type: ignore[return-value]
    _need({"q_proj", "k_proj", "v_proj"} <= inner, f"{what} has no q, k and v projections")
    return _matrix(attention.q_proj), _matrix(attention.k_proj), _matrix(attention.v_proj)


def _gate_and_up(mlp: Any, inner: set[str], what: str) -> tuple[Matrix, Matrix]:
    if "gate_up_proj" in inner:
        whole = _matrix(mlp.gate_up_proj)
        half = whole.rows // 2
        return Matrix(whole.module, 0, half, whole.columns), Matrix(whole.module, half, half, whole.columns)
    _need({"gate_proj", "up_proj"} <= inner, f"{what} has no gate and up projections")
    return _matrix(mlp.gate_proj), _matrix(mlp.up_proj)


def _matrix(module: Any) -> Matrix:
    _need(isinstance(module, nn.Linear), f"{type(module).__name__} is not a matrix that our own steps know")
    return Matrix(module, 0, module.out_features, module.in_features)


def _weight(norm: Any) -> Tensor:
    _need("RMSNorm" in type(norm).__name__ and getattr(norm, "weight", None) is not None, f"{type(norm).__name__} is not an RMSNorm with a weight")
    weight: Tensor = norm.weight.data
    return weight


def _window(attention: Any, config: Any, index: int) -> int:
    types = getattr(config, "layer_types", None)
    kind = types[index] if types else "sliding_attention"
    _need(kind in ("sliding_attention", "full_attention"), f"layer {index} is of the kind {kind}")
    if kind == "full_attention":
        return 0
    return int(getattr(attention, "sliding_window", None) or getattr(config, "sliding_window", None) or 0)


def _heads(layers: tuple[LayerParts, ...], which: str, head_dim: int) -> int:
    rows = {matrix.rows for layer in layers for matrix in ((layer.q,) if which == "q" else (layer.k, layer.v))}
    _need(len(rows) == 1, "its layers differ in heads")
    count, rest = divmod(rows.pop(), head_dim)
    _need(not rest, f"its projections are no whole number of heads of {head_dim} columns")
    return count


def _rotated(layers: tuple[LayerParts, ...], rotary: Any, like: Tensor, hidden: int, head_dim: int, attention: Any) -> int:
    kinds = {layer.rotary for layer in layers if layer.rotary is not None}
    widths = {rotary_rows(rotary, kind, 1, hidden, like.dtype, like.device)[0].shape[-1] for kind in kinds}
    _need(len(widths) <= 1, "its layers rotate different parts of a head")
    rotated = widths.pop() if widths else 0
    if rotated:
        check_rotation(attention, head_dim, rotated)
    return int(rotated)
