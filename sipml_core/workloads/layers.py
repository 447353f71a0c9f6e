"""Layers that more than one model is made of.

A function appends its ops to the builder and returns the tensor it produces. Dimensions: `n`
samples, `s` positions of the sequence, `t` positions attended to, `a` heads, `e` elements of one
head, `i` contracted and `o` produced features, `v` vocabulary, `h` features of a token.

Fused, as frameworks do: bias into the matrix product, scale and mask into softmax, dropout and
residual addition into one kernel. FLOPs per element of the elementwise kernels count each
arithmetic operation once, a transcendental function as one; these kernels are bound by memory.
"""

from __future__ import annotations

from sipml_core.model import Split
from sipml_core.workloads.builder import GraphBuilder

#: Bytes of a token index (int64), of a dropout mask element, and of a statistic (fp32).
INDEX_BYTES, MASK_BYTES, STATISTIC_BYTES = 8, 1, 4

_TOKENS = {"n": Split.SAMPLE, "s": Split.SPATIAL}


def linear(
    b: GraphBuilder, name: str, x: str, features: int, activation: str = "", *, bias: bool = True
) -> str:
    """y[n, s, o] = x[n, s, i] w[i, o] + bias[o], with an activation kernel after it if named."""
    n, s, i = b.shape(x)
    w = b.parameter(f"{name}.weight", (i, features))
    added = {b.parameter(f"{name}.bias", (features,)): "o"} if bias else {}
    y = f"{name}.y"
    b.op(
        name,
        "matmul",
        {"n": n, "s": s, "i": i, "o": features},
        {**_TOKENS, "o": Split.COLUMN, "i": Split.ROW},
        flops=2.0 * n * s * i * features,
        reads={x: "n s i", w: "i o", **added},
        writes={y: "n s o"},
        factors=(x, w),
    )
    return activate(b, f"{name}.{activation}", y) if activation else y


def activate(b: GraphBuilder, name: str, x: str) -> str:
    """An elementwise non-linearity; its gradient reads its input."""
    n, s, o = b.shape(x)
    y = f"{name}.y"
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "o": o},
        {**_TOKENS, "o": Split.COLUMN},
        flops=8.0 * n * s * o,
        reads={x: "n s o"},
        writes={y: "n s o"},
        saved=(x,),
    )
    return y


def layer_norm(b: GraphBuilder, name: str, x: str) -> str:
    """Normalises every token over its features, which therefore cannot be split."""
    n, s, h = b.shape(x)
    scale = b.parameter(f"{name}.scale", (h,))
    shift = b.parameter(f"{name}.shift", (h,))
    y = f"{name}.y"
    b.op(
        name,
        "norm",
        {"n": n, "s": s, "h": h},
        _TOKENS,
        flops=8.0 * n * s * h,
        reads={x: "n s h", scale: "h", shift: "h"},
        writes={y: "n s h"},
        saved=(x, scale),
    )
    return y


def dropout_add(b: GraphBuilder, name: str, branch: str, residual: str) -> str:
    """residual + dropout(branch), one kernel; the residual's gradient is the output's."""
    n, s, h = b.shape(branch)
    y, mask = f"{name}.y", f"{name}.mask"
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "h": h},
        {**_TOKENS, "h": Split.COLUMN},
        flops=3.0 * n * s * h,
        reads={branch: "n s h", residual: "n s h"},
        writes={y: "n s h", mask: "n s h"},
        saved=(mask,),
        passes=(residual,),
        kept={mask: MASK_BYTES},
    )
    return y


def add(b: GraphBuilder, name: str, branch: str, residual: str) -> str:
    """branch + residual, without dropout; both have the gradient of the sum."""
    n, s, h = b.shape(branch)
    y = f"{name}.y"
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "h": h},
        {**_TOKENS, "h": Split.COLUMN},
        flops=1.0 * n * s * h,
        reads={branch: "n s h", residual: "n s h"},
        writes={y: "n s h"},
        passes=(branch, residual),
    )
    return y


def self_attention(b: GraphBuilder, name: str, x: str, heads: int) -> str:
    """Multi-head attention of a sequence to itself, output projection included."""
    q, k, v = _project(b, f"{name}.qkv", x, heads, ("q", "k", "v"))
    return _attend(b, name, q, k, v)


def cross_attention(b: GraphBuilder, name: str, x: str, memory: str, heads: int) -> str:
    """Multi-head attention of a sequence to another, output projection included."""
    (q,) = _project(b, f"{name}.q", x, heads, ("q",))
    k, v = _project(b, f"{name}.kv", memory, heads, ("k", "v"))
    return _attend(b, name, q, k, v)


def _project(b: GraphBuilder, name: str, x: str, heads: int, outputs: tuple[str, ...]) -> list[str]:
    """One matrix product for all `outputs`: weight [i, outputs, a, e], each output [n, s, a, e]."""
    n, s, i = b.shape(x)
    e = i // heads
    w = b.parameter(f"{name}.weight", (i, len(outputs), heads, e))
    bias = b.parameter(f"{name}.bias", (len(outputs), heads, e))
    written = [f"{name}.{output}" for output in outputs]
    b.op(
        name,
        "matmul",
        {"n": n, "s": s, "i": i, "a": heads, "e": e},
        {**_TOKENS, "a": Split.HEAD, "i": Split.ROW},
        flops=2.0 * n * s * i * len(outputs) * heads * e,
        reads={x: "n s i", w: "i * a e", bias: "* a e"},
        writes={y: "n s a e" for y in written},
        factors=(x, w),
    )
    return written


def _attend(b: GraphBuilder, name: str, q: str, k: str, v: str) -> str:
    """softmax(q k / sqrt(e)) v, with dropout of the probabilities, and the output projection."""
    n, s, a, e = b.shape(q)
    t = b.shape(k)[1]
    splits = {**_TOKENS, "a": Split.HEAD}
    product = {"n": n, "a": a, "s": s, "t": t, "e": e}
    square = {"n": n, "a": a, "s": s, "t": t}
    scores, probabilities, dropped = f"{name}.scores.y", f"{name}.softmax.y", f"{name}.dropout.y"
    mask, context = f"{name}.dropout.mask", f"{name}.context.y"
    b.op(
        f"{name}.scores",
        "attention",
        product,
        splits,
        flops=2.0 * n * a * s * t * e,
        reads={q: "n s a e", k: "n t a e"},
        writes={scores: "n a s t"},
        factors=(q, k),
    )
    b.op(
        f"{name}.softmax",
        "softmax",
        square,
        splits,
        flops=6.0 * n * a * s * t,
        reads={scores: "n a s t"},
        writes={probabilities: "n a s t"},
        saved=(probabilities,),
    )
    b.op(
        f"{name}.dropout",
        "elementwise",
        square,
        splits,
        flops=2.0 * n * a * s * t,
        reads={probabilities: "n a s t"},
        writes={dropped: "n a s t", mask: "n a s t"},
        saved=(mask,),
        kept={mask: MASK_BYTES},
    )
    b.op(
        f"{name}.context",
        "attention",
        product,
        splits,
        flops=2.0 * n * a * s * t * e,
        reads={dropped: "n a s t", v: "n t a e"},
        writes={context: "n s a e"},
        factors=(dropped, v),
    )
    return _merge_heads(b, f"{name}.out", context)


def _merge_heads(b: GraphBuilder, name: str, x: str) -> str:
    """y[n, s, o] = x[n, s, a, e] w[a, e, o] + bias[o]: cut along heads it is a row split."""
    n, s, a, e = b.shape(x)
    w = b.parameter(f"{name}.weight", (a, e, a * e))
    bias = b.parameter(f"{name}.bias", (a * e,))
    y = f"{name}.y"
    b.op(
        name,
        "matmul",
        {"n": n, "s": s, "a": a, "e": e, "o": a * e},
        {**_TOKENS, "o": Split.COLUMN, "a": Split.ROW},
        flops=2.0 * n * s * a * e * a * e,
        reads={x: "n s a e", w: "a e o", bias: "o"},
        writes={y: "n s o"},
        factors=(x, w),
    )
    return y


def feed_forward(b: GraphBuilder, name: str, x: str, width: int, activation: str) -> str:
    """Two linear layers with an activation between them."""
    inner = linear(b, f"{name}.fc1", x, width, activation)
    return linear(b, f"{name}.fc2", inner, b.shape(x)[2])


def embed(b: GraphBuilder, name: str, ids: str, table: str) -> str:
    """Rows of the table [v, h]. Cut along the vocabulary, a part writes zero for foreign tokens."""
    n, s = b.shape(ids)
    v, h = b.shape(table)
    y = f"{name}.y"
    b.op(
        name,
        "embedding",
        {"n": n, "s": s, "v": v, "h": h},
        {**_TOKENS, "h": Split.COLUMN, "v": Split.ROW},
        flops=0.0,
        reads={ids: "n s", table: "v h"},
        writes={y: "n s h"},
        saved=(ids,),
    )
    return y


def add_positions(b: GraphBuilder, name: str, x: str, *, learned: bool) -> str:
    """x + position embedding, with dropout: a trained table [s, h], or fixed sinusoids."""
    n, s, h = b.shape(x)
    y, mask = f"{name}.y", f"{name}.mask"
    reads = {x: "n s h"}
    if learned:
        reads[b.parameter(f"{name}.weight", (s, h))] = "s h"
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "h": h},
        {**_TOKENS, "h": Split.COLUMN},
        flops=3.0 * n * s * h,
        reads=reads,
        writes={y: "n s h", mask: "n s h"},
        saved=(mask,),
        kept={mask: MASK_BYTES},
    )
    return y


def vocabulary_loss(b: GraphBuilder, name: str, x: str, table: str, *, bias: bool = False) -> None:
    """Logits against the embedding table [v, h], and their cross-entropy.

    Cut along the vocabulary, each part holds one statistic per token, summed over the parts
    (Shoeybi et al. 2019, section 3).
    """
    n, s, h = b.shape(x)
    v = b.shape(table)[0]
    logits, statistics = f"{name}.logits.y", f"{name}.statistics"
    added = {b.parameter(f"{name}.logits.bias", (v,)): "v"} if bias else {}
    b.op(
        f"{name}.logits",
        "matmul",
        {"n": n, "s": s, "h": h, "v": v},
        {**_TOKENS, "v": Split.COLUMN, "h": Split.ROW},
        flops=2.0 * n * s * h * v,
        reads={x: "n s h", table: "v h", **added},
        writes={logits: "n s v"},
        factors=(x, table),
    )
    b.op(
        name,
        "loss",
        {"n": n, "s": s, "v": v},
        {**_TOKENS, "v": Split.ROW},
        flops=6.0 * n * s * v,
        reads={logits: "n s v"},
        writes={statistics: "n s"},
        saved=(logits, statistics),
        kept={statistics: STATISTIC_BYTES},
    )


def classify_first(b: GraphBuilder, x: str, classes: int) -> None:
    """A linear layer with bias on the first token of every sample, and cross-entropy over its outputs."""
    n, s, h = b.shape(x)
    b.op(
        "pool",
        "pool",
        {"n": n, "s": s, "h": h},
        {"n": Split.SAMPLE, "h": Split.COLUMN, "s": Split.ROW},
        flops=0.0,
        reads={x: "n s h"},
        writes={"pool.y": "n h"},
    )
    classify(b, "pool.y", classes)


def classify(b: GraphBuilder, x: str, classes: int) -> None:
    """A linear layer with bias, and cross-entropy over its outputs."""
    n, i = b.shape(x)
    weight = b.parameter("fc.weight", (i, classes))
    bias = b.parameter("fc.bias", (classes,))
    b.op(
        "fc",
        "matmul",
        {"n": n, "i": i, "v": classes},
        {"n": Split.SAMPLE, "v": Split.COLUMN, "i": Split.ROW},
        flops=2.0 * n * i * classes,
        reads={x: "n i", weight: "i v", bias: "v"},
        writes={"fc.y": "n v"},
        factors=(x, weight),
    )
    b.op(
        "loss",
        "loss",
        {"n": n, "v": classes},
        {"n": Split.SAMPLE, "v": Split.ROW},
        flops=6.0 * n * classes,
        reads={"fc.y": "n v"},
        writes={"loss.statistics": "n"},
        saved=("fc.y", "loss.statistics"),
        kept={"loss.statistics": STATISTIC_BYTES},
    )
