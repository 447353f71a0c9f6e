"""Attention of today's models: grouped heads, rotary positions, latent vectors, windows, fused kernels.

Dimensions as in `layers`; `g` groups of heads that share keys and values, `r` heads of a group, `c`
features of a value. Heads are cut along groups, so that queries stay with their keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs

from sipml_core.fields import frozen
from sipml_core.model import Axis, Exchanged, Split
from sipml_core.workloads import layers
from sipml_core.workloads.builder import Axes, GraphBuilder
from sipml_core.workloads.layers import MASK_BYTES, STATISTIC_BYTES
from sipml_core.workloads.modelshape import ROTARY, LatentAttention, ModelShape

_TOKENS = {"n": Split.SAMPLE, "s": Split.SPATIAL}
_HEADS = {**_TOKENS, "g": Split.HEAD}
#: FLOPs of each element that is normalised, and that is turned by its position.
NORM_FLOPS, TURN_FLOPS = 6.0, 3.0


@frozen
class Projected:
    """Names of queries [n, s, g, r, e], keys [n, t, g, e] and values [n, t, g, c]."""

    queries: str
    keys: str
    values: str
    #: Part of the keys that all heads share [n, t, p]; None: nothing.
    shared_keys: str | None = None


def attention(
    b: GraphBuilder,
    name: str,
    x: str,
    shape: ModelShape,
    layer: int,
    *,
    fused: bool,
    context: int = 1,
    copies: int = 1,
) -> str:
    """Append self-attention of a layer, its projections included; return what it makes. [n, s, h]

    Parameters
    ----------
    fused
        One kernel that keeps no tensor of all pairs of tokens (FlashAttention), or one for each step.
    context
        Context-parallel degree: the sequence of `x` is one part in so many, whose keys come from all.
    copies
        Each head of keys and values is on so many GPUs of a group, each with a part of its queries.
    """
    trained, shape = shape, attrs.evolve(shape, groups=shape.groups * copies)
    if shape.latent is not None:
        made = _latent_projections(b, name, x, shape, shape.latent)
    else:
        made = _projections(b, name, x, shape, trained.groups)
        if shape.head_norm:
            made = _head_norm(b, f"{name}.head_norm", made)
        if shape.positions == ROTARY:
            made = _turned(b, f"{name}.rotary", made)
    if context > 1:
        made = _gathered(b, f"{name}.gather", made)
    pairs = shape.attended(layer, b.shape(x)[1] * context) / context
    sinks = b.parameter(f"{name}.sinks", (shape.groups, shape.heads // shape.groups)) if shape.sinks else None
    if fused:
        mixed = _fused(b, f"{name}.core", made, pairs, sinks)
    else:
        mixed = _plain(b, name, made, shape.dropout, sinks)
    return _merge(b, f"{name}.out", mixed, shape.hidden, shape.output_bias)


def token_norm(b: GraphBuilder, name: str, x: str, *, rms: bool) -> str:
    """Append the norm of every token over its features: by the root mean square, or with mean and shift."""
    if not rms:
        return layers.layer_norm(b, name, x)
    n, s, h = b.shape(x)
    scale, y = b.parameter(f"{name}.scale", (h,)), f"{name}.y"
    b.op(
        name,
        "norm",
        {"n": n, "s": s, "h": h},
        _TOKENS,
        flops=NORM_FLOPS * n * s * h,
        reads={x: "n s h", scale: "h"},
        writes={y: "n s h"},
        saved=(x, scale),
    )
    return y


def _projections(b: GraphBuilder, name: str, x: str, shape: ModelShape, trained: int) -> Projected:
    """Append queries, keys and values as one product; its weight has r + 2 heads for each group.

    Where the model is trained with fewer heads of keys than `shape` has groups, these are copies, whose
    weight is a tensor of its own: several groups read one head of it, and add up its gradient.
    """
    n, s, i = b.shape(x)
    g, r, e = shape.groups, shape.heads // shape.groups, shape.head_size
    name = f"{name}.qkv"
    made = Projected(f"{name}.q", f"{name}.k", f"{name}.v")
    own = r + 2 if trained == g else r
    weight = b.parameter(f"{name}.weight", (i, g, own, e))
    reads: dict[str, Axes] = {x: "n s i", weight: "i g * e"}
    if shape.projection_bias:
        reads[b.parameter(f"{name}.bias", (g, own, e))] = "g * e"
    copied: tuple[str, ...] = ()
    if trained != g:
        head = Axis("g", den=g // trained)
        copied = (b.parameter(f"{name}.copied.weight", (i, trained, 2, e)),)
        reads[copied[0]] = ("i", head, "*", "e")
        if shape.projection_bias:
            reads[b.parameter(f"{name}.copied.bias", (trained, 2, e))] = (head, "*", "e")
    b.op(
        name,
        "matmul",
        {"n": n, "s": s, "i": i, "g": g, "r": r, "e": e},
        {**_HEADS, "i": Split.ROW},
        flops=2.0 * n * s * i * g * (r + 2) * e,
        reads=reads,
        writes={made.queries: "n s g r e", made.keys: "n s g e", made.values: "n s g e"},
        factors=(x, weight),
        saved=copied,
    )
    return made


def _latent_projections(
    b: GraphBuilder, name: str, x: str, shape: ModelShape, latent: LatentAttention
) -> Projected:
    """Append multi-head latent attention's projections (2405.04434, figure 3): down, norm, up.

    The way down is not cut along features, as in Megatron-LM.
    """
    heads, plain, turned = shape.heads, latent.plain_size, latent.rotary_size
    source = x
    if latent.query_rank is not None:
        source = _down(b, f"{name}.q_down", x, {"y": latent.query_rank})[0]
        source = token_norm(b, f"{name}.q_norm", source, rms=True)
    (queries,) = _up(b, f"{name}.q_up", source, heads, {"q": plain + turned})
    vector, shared = _down(b, f"{name}.kv_down", x, {"y": latent.key_rank, "k": turned})
    vector = token_norm(b, f"{name}.kv_norm", vector, rms=True)
    keys, values = _up(b, f"{name}.kv_up", vector, heads, {"k": plain, "v": shape.value_size})
    return Projected(
        _turned_alone(b, f"{name}.rotary_q", queries, "n s g r e", _HEADS, turned),
        keys,
        values,
        shared_keys=_turned_alone(b, f"{name}.rotary_k", shared, "n s p", _TOKENS, turned),
    )


def _turned_alone(
    b: GraphBuilder, name: str, x: str, axes: str, splits: Mapping[str, Split], turned: int
) -> str:
    """Append what turns some of the features of one tensor by their positions."""
    shape, y = b.shape(x), f"{name}.y"
    b.op(
        name,
        "elementwise",
        dict(zip(axes.split(), shape, strict=True)),
        splits,
        flops=TURN_FLOPS * math.prod(shape[:-1]) * turned,
        reads={x: axes},
        writes={y: axes},
    )
    return y


def _down(b: GraphBuilder, name: str, x: str, features: dict[str, int]) -> list[str]:
    """Append a product that makes one or two short vectors of each token; every part makes all of them."""
    n, s, i = b.shape(x)
    total, dims = sum(features.values()), dict(zip("op", features.values(), strict=False))
    weight = b.parameter(f"{name}.weight", (i, total))
    written = {f"{name}.{key}": f"n s {dim}" for key, dim in zip(features, dims, strict=True)}
    b.op(
        name,
        "matmul",
        {"n": n, "s": s, "i": i, **dims},
        _TOKENS,
        flops=2.0 * n * s * i * total,
        reads={x: "n s i", weight: "i *"},
        writes=written,
        factors=(x, weight),
    )
    return list(written)


def _up(b: GraphBuilder, name: str, x: str, heads: int, features: dict[str, int]) -> list[str]:
    """Append a product that makes so many features of each head: queries have an axis r = 1."""
    n, s, i = b.shape(x)
    total, dims = sum(features.values()), dict(zip("ec", features.values(), strict=False))
    weight = b.parameter(f"{name}.weight", (i, heads, total))
    axes = {
        key: f"n s g r {dim}" if key == "q" else f"n s g {dim}"
        for key, dim in zip(features, dims, strict=True)
    }
    written = {f"{name}.{key}": axes[key] for key in features}
    b.op(
        name,
        "matmul",
        {"n": n, "s": s, "i": i, "g": heads, "r": 1, **dims},
        {**_HEADS, "i": Split.ROW},
        flops=2.0 * n * s * i * heads * total,
        reads={x: "n s i", weight: "i g *"},
        writes=written,
        factors=(x, weight),
    )
    return list(written)


def _head_norm(b: GraphBuilder, name: str, made: Projected) -> Projected:
    """Append the norm of queries and keys of each head, over its features."""
    n, s, g, r, e = b.shape(made.queries)
    scales = [b.parameter(f"{name}.{what}_scale", (e,)) for what in "qk"]
    normed = attrs.evolve(made, queries=f"{name}.q", keys=f"{name}.k")
    b.op(
        name,
        "norm",
        {"n": n, "s": s, "g": g, "r": r, "e": e},
        _HEADS,
        flops=NORM_FLOPS * n * s * g * (r + 1) * e,
        reads={made.queries: "n s g r e", made.keys: "n s g e", scales[0]: "e", scales[1]: "e"},
        writes={normed.queries: "n s g r e", normed.keys: "n s g e"},
        saved=(made.queries, made.keys, *scales),
    )
    return normed


def _turned(b: GraphBuilder, name: str, made: Projected) -> Projected:
    """Append what turns queries and keys by their positions, one kernel for both; it keeps nothing."""
    n, s, g, r, e = b.shape(made.queries)
    turned = attrs.evolve(made, queries=f"{name}.q", keys=f"{name}.k")
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "g": g, "r": r, "e": e},
        _HEADS,
        flops=TURN_FLOPS * n * s * g * (r + 1) * e,
        reads={made.queries: "n s g r e", made.keys: "n s g e"},
        writes={turned.queries: "n s g r e", turned.keys: "n s g e"},
    )
    return turned


def _gathered(b: GraphBuilder, name: str, made: Projected) -> Projected:
    """Append copies of keys and values into a buffer that goes to the replicas that share the sequence."""
    n, s, g, k = b.shape(made.keys)
    c = b.shape(made.values)[3]
    gathered = attrs.evolve(made, keys=f"{name}.k", values=f"{name}.v")
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "g": g, "k": k, "c": c},
        _HEADS,
        flops=0.0,
        reads={made.keys: "n s g k", made.values: "n s g c"},
        writes={gathered.keys: "n s g k", gathered.values: "n s g c"},
        exchanged=Exchanged.GATHER,
    )
    if made.shared_keys is None:
        return gathered
    p = b.shape(made.shared_keys)[2]
    b.op(
        f"{name}.shared",
        "elementwise",
        {"n": n, "s": s, "p": p},
        _TOKENS,
        flops=0.0,
        reads={made.shared_keys: "n s p"},
        writes={f"{name}.shared.y": "n s p"},
        exchanged=Exchanged.GATHER,
    )
    return attrs.evolve(gathered, shared_keys=f"{name}.shared.y")


def _fused(b: GraphBuilder, name: str, made: Projected, pairs: float, sinks: str | None) -> str:
    """Append attention as one kernel: 2 FLOPs forward for each needed pair and feature of a key and a value.

    It keeps its inputs, its output and one statistic of each row of scores. Going back it makes the scores
    again: five products in place of two, 2.5 times the FLOPs where keys are as long as values (Dao 2023,
    2307.08691, section 3.1).
    """
    n, s, g, r, e = b.shape(made.queries)
    t, c = b.shape(made.keys)[1], b.shape(made.values)[3]
    y, statistics = f"{name}.y", f"{name}.statistics"
    dims = {"n": n, "s": s, "g": g, "r": r, "e": e, "t": t, "c": c}
    reads = {made.queries: "n s g r e", made.keys: "n t g k", made.values: "n t g c"}
    dims["k"] = b.shape(made.keys)[3]
    if made.shared_keys is not None:
        dims["p"] = b.shape(made.shared_keys)[2]
        reads[made.shared_keys] = "n t p"
    inputs = tuple(reads)
    if sinks is not None:
        reads[sinks] = "g r"
    b.op(
        name,
        "attention",
        dims,
        _HEADS,
        flops=2.0 * n * g * r * pairs * (e + c),
        reads=reads,
        writes={y: "n s g r c", statistics: "n s g r"},
        factors=inputs,
        saved=(y, statistics),
        kept={statistics: STATISTIC_BYTES},
        gradient_cost=(3.0 * e + 2.0 * c) / (e + c),
    )
    return y


def _plain(b: GraphBuilder, name: str, made: Projected, dropout: bool, sinks: str | None) -> str:
    """Append attention as a kernel for each step, over all pairs of tokens."""
    n, s, g, r, e = b.shape(made.queries)
    t, c = b.shape(made.keys)[1], b.shape(made.values)[3]
    square = {"n": n, "g": g, "r": r, "s": s, "t": t}
    pairs = float(n * g * r * s * t)
    scores, shares = f"{name}.scores.y", f"{name}.softmax.y"
    reads = {made.queries: "n s g r e", made.keys: "n t g k"}
    dims = {**square, "e": e, "k": b.shape(made.keys)[3]}
    if made.shared_keys is not None:
        dims["p"] = b.shape(made.shared_keys)[2]
        reads[made.shared_keys] = "n t p"
    b.op(
        f"{name}.scores",
        "attention",
        dims,
        _HEADS,
        flops=2.0 * pairs * e,
        reads=reads,
        writes={scores: "n g r s t"},
        factors=tuple(reads),
        gradient_cost=2.0,
    )
    b.op(
        f"{name}.softmax",
        "softmax",
        square,
        _HEADS,
        flops=6.0 * pairs,
        reads={scores: "n g r s t"} | ({sinks: "g r"} if sinks is not None else {}),
        writes={shares: "n g r s t"},
        saved=(shares,),
    )
    if dropout:
        dropped, mask = f"{name}.dropout.y", f"{name}.dropout.mask"
        b.op(
            f"{name}.dropout",
            "elementwise",
            square,
            _HEADS,
            flops=2.0 * pairs,
            reads={shares: "n g r s t"},
            writes={dropped: "n g r s t", mask: "n g r s t"},
            saved=(mask,),
            kept={mask: MASK_BYTES},
        )
        shares = dropped
    y = f"{name}.context.y"
    b.op(
        f"{name}.context",
        "attention",
        {**square, "c": c},
        _HEADS,
        flops=2.0 * pairs * c,
        reads={shares: "n g r s t", made.values: "n t g c"},
        writes={y: "n s g r c"},
        factors=(shares, made.values),
    )
    return y


def _merge(b: GraphBuilder, name: str, x: str, features: int, bias: bool) -> str:
    """Append the output projection: cut along groups of heads it is a row split."""
    n, s, g, r, c = b.shape(x)
    weight, y = b.parameter(f"{name}.weight", (g, r, c, features)), f"{name}.y"
    added = {b.parameter(f"{name}.bias", (features,)): "o"} if bias else {}
    b.op(
        name,
        "matmul",
        {"n": n, "s": s, "g": g, "r": r, "c": c, "o": features},
        {**_TOKENS, "o": Split.COLUMN, "g": Split.ROW},
        flops=2.0 * n * s * g * r * c * features,
        reads={x: "n s g r c", weight: "g r c o", **added},
        writes={y: "n s o"},
        factors=(x, weight),
    )
    return y
