"""From a model's config.json, as published with its weights, to the shape of its graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from sipml_core.errors import ConfigError, shown, unknown
from sipml_core.workloads.modelshape import LEARNED, ExpertShape, LatentAttention, ModelShape
from sipml_core.workloads.nearest import nearest_divisor
from sipml_core.workloads.sizes import MAX_CLASSES, MAX_EXPERTS, MAX_FEATURES, MAX_LAYERS, MAX_TOKENS

#: Most of each number that is no count of features.
_MOST = {
    "num_hidden_layers": MAX_LAYERS, "n_layer": MAX_LAYERS,
    "vocab_size": MAX_CLASSES, "num_labels": MAX_CLASSES,
    "max_position_embeddings": MAX_TOKENS, "n_positions": MAX_TOKENS, "num_local_experts": MAX_EXPERTS,
    "num_experts": MAX_EXPERTS, "n_routed_experts": MAX_EXPERTS,
}  # fmt: skip


def read_shape(path: Path) -> ModelShape:
    """Return the shape that a configuration file describes.

    Raises
    ------
    ConfigError
        The file is no configuration, lacks a key, has a value that cannot be, or is of an unknown family.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigError(f"file: cannot read {str(path)!r}: {getattr(error, 'strerror', error)}") from None
    return shape_of_text(text, f"file: {str(path)!r}")


def own_shape(name: str) -> ModelShape:
    """Return the shape of a model that comes with sipml."""
    file = files("sipml_core.workloads").joinpath("configurations").joinpath(f"{name}.json")
    return shape_of_text(file.read_text(encoding="utf-8"), name)


def shape_of_text(text: str, where: str) -> ModelShape:
    """Return the shape that the text of a configuration describes; errors begin with `where`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is no JSON: {error}") from None
    if not isinstance(document, dict) or "model_type" not in document:
        raise ConfigError(
            f"{where} is JSON but no model configuration: it has no key 'model_type'; known types: "
            f"{', '.join(sorted(FAMILIES))}"
        )
    family = document["model_type"]
    if not isinstance(family, str) or family not in FAMILIES:
        raise ConfigError(f"{where}: {unknown('model_type', str(family), FAMILIES)}")
    return FAMILIES[family](_Keys(document, family, where))


class _Keys:
    """The keys of a configuration, each checked as it is read."""

    def __init__(self, document: Mapping[str, Any], family: str, where: str) -> None:
        self.document, self.family, self.where = document, family, where

    def number(self, key: str, default: int | None = None) -> int:
        """Return a positive integer; a key that is null or not there has its default."""
        value = self.document.get(key)
        if value is None:
            if default is None:
                raise ConfigError(f"{self.where} has no key {key!r}, which model_type {self.family!r} needs")
            return default
        most = _MOST.get(key, MAX_FEATURES)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ConfigError(f"{self.where}: {key} must be an integer from 1 to {most}, got {shown(value)}")
        return value

    def optional(self, key: str) -> int | None:
        """Return a positive integer, or None where the key is null or not there."""
        return None if self.document.get(key) is None else self.number(key)

    def share(self, key: str) -> float:
        """Return a probability, 0 if the key is not there."""
        value = self.document.get(key) or 0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ConfigError(f"{self.where}: {key} must be from 0 to 1, got {shown(value)}")
        return float(value)

    def truth(self, key: str, default: bool = False) -> bool:
        """Return a truth value."""
        value = self.document.get(key, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.where}: {key} must be true or false, got {shown(value)}")
        return value

    def count(self, key: str) -> int:
        """Return an integer that may be 0, which it is if the key is not there."""
        return self.number(key) if self.document.get(key) else 0

    def choice(self, key: str, known: tuple[str, ...]) -> str:
        """Return a text of a few that are known, by default the first."""
        value = self.document.get(key, known[0])
        if value not in known:
            raise ConfigError(f"{self.where}: {unknown(key, str(value), known)}")
        return str(value)

    def heads(self, hidden: int, heads: int, groups: int) -> tuple[int, int, int]:
        """Return heads, heads of keys and features of a head, which nest."""
        if heads % groups:
            raise ConfigError(
                f"{self.where}: num_key_value_heads must divide the {heads} heads, got {groups}; nearest: "
                f"{nearest_divisor(heads, groups)}"
            )
        size = self.optional("head_dim")
        if size is None and hidden % heads:
            raise ConfigError(
                f"{self.where}: the number of heads must divide the {hidden} features where there is no "
                f"head_dim, got {heads}; nearest: {nearest_divisor(hidden, heads)}"
            )
        return heads, groups, size or hidden // heads

    def some_layers(self, layers: int, chosen: Callable[[int], bool]) -> frozenset[int]:
        return frozenset(layer for layer in range(layers) if chosen(layer))


def _common(keys: _Keys) -> dict[str, Any]:
    """Return what Llama and the families that followed it share."""
    hidden, heads = keys.number("hidden_size"), keys.number("num_attention_heads")
    heads, groups, size = keys.heads(hidden, heads, keys.number("num_key_value_heads", heads))
    bias = keys.truth("attention_bias")
    keys.choice("hidden_act", ("silu", "swish"))
    return {
        "family": keys.family,
        "hidden": hidden,
        "layers": keys.number("num_hidden_layers"),
        "heads": heads,
        "groups": groups,
        "head_size": size,
        "value_size": size,
        "feed_forward": keys.number("intermediate_size"),
        "vocabulary": keys.number("vocab_size"),
        "longest": keys.number("max_position_embeddings", 8192),
        "projection_bias": bias,
        "output_bias": bias,
        "tied": keys.truth("tie_word_embeddings"),
    }


def _llama(keys: _Keys) -> ModelShape:
    return ModelShape(**_common(keys), feed_forward_bias=keys.truth("mlp_bias"))


def _experts(
    keys: _Keys, count: int, width: int, shared_width: int = 0, *, bias: bool = False
) -> ExpertShape:
    chosen = keys.number("num_experts_per_tok")
    if chosen > count:
        raise ConfigError(
            f"{keys.where}: num_experts_per_tok must be at most the {count} experts, got {chosen}"
        )
    return ExpertShape(count=count, per_token=chosen, width=width, shared_width=shared_width, bias=bias)


def _mixtral(keys: _Keys) -> ModelShape:
    common = _common(keys)
    layers, window = common["layers"], keys.optional("sliding_window")
    return ModelShape(
        **common,
        windows=(window,) * layers if window else (),
        experts=_experts(keys, keys.number("num_local_experts"), common["feed_forward"]),
        expert_layers=frozenset(range(layers)),
    )


def _qwen3_moe(keys: _Keys) -> ModelShape:
    common = _common(keys) | {"output_bias": False}
    step, dense = keys.number("decoder_sparse_step", 1), keys.document.get("mlp_only_layers") or []
    count = keys.number("num_experts")
    return ModelShape(
        **common,
        head_norm=True,
        experts=_experts(keys, count, keys.number("moe_intermediate_size")),
        expert_layers=keys.some_layers(
            common["layers"], lambda layer: layer not in dense and (layer + 1) % step == 0
        ),
    )


def _deepseek_v3(keys: _Keys) -> ModelShape:
    latent = LatentAttention(
        query_rank=keys.optional("q_lora_rank"),
        key_rank=keys.number("kv_lora_rank"),
        plain_size=keys.number("qk_nope_head_dim"),
        rotary_size=keys.number("qk_rope_head_dim"),
    )
    sizes = {"head_size": latent.plain_size + latent.rotary_size, "value_size": keys.number("v_head_dim")}
    common = _common(keys) | sizes | {"projection_bias": False, "output_bias": False}
    common["groups"] = common["heads"]
    width = keys.number("moe_intermediate_size")
    first, step = keys.count("first_k_dense_replace"), keys.number("moe_layer_freq", 1)
    extra = keys.count("num_nextn_predict_layers")
    return ModelShape(
        **common,
        latent=latent,
        experts=_experts(
            keys, keys.number("n_routed_experts"), width, width * keys.count("n_shared_experts")
        ),
        expert_layers=keys.some_layers(common["layers"], lambda layer: layer >= first and layer % step == 0),
        left_out=f"{extra} layer that predicts one token more" if extra else "",
    )


def _gpt_oss(keys: _Keys) -> ModelShape:
    common = _common(keys)
    layers, window = common["layers"], keys.optional("sliding_window")
    kinds = keys.document.get("layer_types") or [
        "full_attention" if layer % 2 else "sliding_attention" for layer in range(layers)
    ]
    if len(kinds) != layers:
        raise ConfigError(f"{keys.where}: layer_types must name {layers} layers, got {len(kinds)}")
    return ModelShape(
        **common,
        sinks=True,
        windows=tuple(window if kind == "sliding_attention" else None for kind in kinds),
        experts=_experts(keys, keys.number("num_local_experts"), common["feed_forward"], bias=True),
        expert_layers=frozenset(range(layers)),
    )


def _with_layer_norm(keys: _Keys, names: Mapping[str, str], **more: Any) -> ModelShape:
    """Return the shape of a family of 2018 to 2020: layer norms, biases everywhere, GELU."""
    hidden, heads = keys.number(names["hidden"]), keys.number(names["heads"])
    heads, groups, size = keys.heads(hidden, heads, heads)
    biases = dict.fromkeys(("projection_bias", "output_bias", "feed_forward_bias"), True)
    shape: dict[str, Any] = {
        "family": keys.family,
        "hidden": hidden,
        "layers": keys.number(names["layers"]),
        "heads": heads,
        "groups": groups,
        "head_size": size,
        "value_size": size,
        "feed_forward": keys.number(names["inner"], 4 * hidden),
        "positions": LEARNED,
        "gated": False,
        "rms_norm": False,
        **biases,
        **more,
    }
    return ModelShape(**shape)


_GPT2_NAMES = {"hidden": "n_embd", "heads": "n_head", "layers": "n_layer", "inner": "n_inner"}
_BERT_NAMES = {
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "layers": "num_hidden_layers",
    "inner": "intermediate_size",
}


def _gpt2(keys: _Keys) -> ModelShape:
    return _with_layer_norm(
        keys,
        _GPT2_NAMES,
        vocabulary=keys.number("vocab_size"),
        longest=keys.number("n_positions", 1024),
        tied=keys.truth("tie_word_embeddings", True),
        dropout=keys.share("resid_pdrop") > 0,
    )


def _bert(keys: _Keys) -> ModelShape:
    return _with_layer_norm(
        keys,
        _BERT_NAMES,
        vocabulary=keys.number("vocab_size"),
        longest=keys.number("max_position_embeddings", 512),
        segments=keys.number("type_vocab_size", 2),
        tied=True,
        causal=False,
        post_norm=True,
        dropout=keys.share("hidden_dropout_prob") > 0,
        left_out="the prediction of the next sentence",
    )


def _vit(keys: _Keys) -> ModelShape:
    image, patch = keys.number("image_size", 224), keys.number("patch_size", 16)
    if image % patch:
        raise ConfigError(
            f"{keys.where}: patch_size must divide the {image} pixels of an image, got {patch}; nearest: "
            f"{nearest_divisor(image, patch)}"
        )
    return _with_layer_norm(
        keys,
        _BERT_NAMES,
        vocabulary=keys.number("num_labels", 1000),
        longest=(image // patch) ** 2 + 1,
        patch=keys.number("num_channels", 3) * patch * patch,
        causal=False,
        dropout=keys.share("hidden_dropout_prob") > 0,
    )


#: Reads the configuration of each known family, by model_type.
FAMILIES: dict[str, Callable[[_Keys], ModelShape]] = {
    "llama": _llama,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v3": _deepseek_v3,
    "gpt_oss": _gpt_oss,
    "gpt2": _gpt2,
    "bert": _bert,
    "vit": _vit,
}
