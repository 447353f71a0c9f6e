"""The operation graph of a Transformer of any shape that `modelshape` can say."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sipml_core.fields import frozen
from sipml_core.model import OpGraph, Split
from sipml_core.workloads import layers
from sipml_core.workloads.attentions import attention, token_norm
from sipml_core.workloads.backward import training_step
from sipml_core.workloads.builder import GraphBuilder
from sipml_core.workloads.expertlayers import ExpertPlan, expert_layer, gated_layer
from sipml_core.workloads.modelshape import LEARNED, ModelShape

_TOKENS = {"n": Split.SAMPLE, "s": Split.SPATIAL}


@frozen(kw_only=True)
class Execution:
    """How a graph is to be run, but for its batch."""

    #: Tokens of a sample.
    sequence: int
    #: Attention in one kernel.
    fused: bool = True
    #: Replicas that share the sequence, of which this is one.
    context: int = 1
    #: GPUs of a group on which each head of keys and values is.
    copies: int = 1
    #: Of each layer of experts, by its number.
    experts: Mapping[int, ExpertPlan] = attrs.field(factory=dict)


def transformer_graph(name: str, shape: ModelShape, run: Execution, samples: int, precision: str) -> OpGraph:
    """Return the training step of a Transformer for so many samples."""
    b = GraphBuilder(name, samples, precision)
    table = b.parameter("embedding.weight", (shape.vocabulary, shape.hidden)) if not shape.patch else ""
    x = _embedded(b, shape, run.sequence // run.context, table)
    for layer in range(shape.layers):
        x = _layer(b, f"layer{layer}", x, shape, run, layer)
    if not shape.post_norm:
        x = token_norm(b, "final_norm", x, rms=shape.rms_norm)
    _head(b, x, shape, table)
    return training_step(b)


def _embedded(b: GraphBuilder, shape: ModelShape, sequence: int, table: str) -> str:
    """Append what makes vectors of tokens, or of the patches of a picture. [n, s, h]"""
    if shape.patch:
        # The class token is counted as one patch more, which is not projected in reality.
        patches = b.input("patches", (b.samples, sequence, shape.patch))
        x = layers.linear(b, "embedding", patches, shape.hidden)
        b.parameter("class_token", (shape.hidden,))
        return _add_tables(
            b, "positions", x, {"positions.weight": shape.longest}, shape.dropout, "class_token"
        )
    ids = b.input("tokens", (b.samples, sequence), layers.INDEX_BYTES)
    x = layers.embed(b, "embedding", ids, table)
    tables = {"segments.weight": shape.segments} if shape.segments else {}
    if shape.positions == LEARNED:
        x = _add_tables(b, "positions", x, {"positions.weight": shape.longest, **tables}, shape.dropout)
    return token_norm(b, "embedding.norm", x, rms=False) if shape.post_norm else x


def _add_tables(
    b: GraphBuilder, name: str, x: str, tables: dict[str, int], dropout: bool, vector: str | None = None
) -> str:
    """Append the sum of vectors and of rows of trained tables: positions, segments, a class token."""
    n, s, h = b.shape(x)
    y, mask, reads = f"{name}.y", f"{name}.mask", {x: "n s h"}
    for table, rows in tables.items():
        reads[b.parameter(table, (rows, h))] = "s h" if rows == s else "* h"
    if vector is not None:
        reads[vector] = "h"
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "h": h},
        {**_TOKENS, "h": Split.COLUMN},
        flops=float(len(reads)) * n * s * h,
        reads=reads,
        writes={y: "n s h"} | ({mask: "n s h"} if dropout else {}),
        saved=(mask,) if dropout else (),
        kept={mask: layers.MASK_BYTES} if dropout else {},
    )
    return y


def _layer(b: GraphBuilder, name: str, x: str, shape: ModelShape, run: Execution, layer: int) -> str:
    """Append one layer: attention, then the feed-forward layer, each with its norm and residual addition."""

    def norm(which: str, tensor: str) -> str:
        return token_norm(b, f"{name}.{which}", tensor, rms=shape.rms_norm)

    def added(which: str, branch: str, residual: str) -> str:
        add = layers.dropout_add if shape.dropout else layers.add
        return add(b, f"{name}.{which}", branch, residual)

    before = (lambda _, tensor: tensor) if shape.post_norm else norm
    after = norm if shape.post_norm else (lambda _, tensor: tensor)
    mixed = attention(
        b, f"{name}.attention", before("norm1", x), shape, layer,
        fused=run.fused, context=run.context, copies=run.copies,
    )  # fmt: skip
    x = after("norm1", added("residual1", mixed, x))
    inner = before("norm2", x)
    if layer in run.experts and shape.experts is not None:
        made = expert_layer(b, f"{name}.moe", inner, shape.experts, run.experts[layer])
        if shape.experts.shared_width:
            shared = gated_layer(b, f"{name}.shared", inner, shape.experts.shared_width, bias=False)
            made = layers.add(b, f"{name}.shared.sum", shared, made)
    else:
        made = _feed_forward(b, f"{name}.mlp", inner, shape)
    return after("norm2", added("residual2", made, x))


def _feed_forward(b: GraphBuilder, name: str, x: str, shape: ModelShape) -> str:
    if shape.gated:
        return gated_layer(b, name, x, shape.feed_forward, bias=shape.feed_forward_bias)
    return layers.feed_forward(b, name, x, shape.feed_forward, "gelu")


def _head(b: GraphBuilder, x: str, shape: ModelShape, table: str) -> None:
    """Append the loss: over the vocabulary at every token, or over classes for every picture."""
    if shape.patch:
        layers.classify_first(b, x, shape.vocabulary)
        return
    if shape.segments:
        x = layers.linear(b, "head.dense", x, shape.hidden, "gelu")
        x = token_norm(b, "head.norm", x, rms=False)
    if not shape.tied:
        table = b.parameter("head.weight", (shape.vocabulary, shape.hidden))
    layers.vocabulary_loss(b, "loss", x, table, bias=bool(shape.segments))
