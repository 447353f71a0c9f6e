"""A workload without Python: a table of layers with their sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import between, frozen, one_of, option
from sipml_core.model import ModelFlops, OpGraph, Phase, Split
from sipml_core.plugin import Convergence, Workload
from sipml_core.workloads import layers, resnet
from sipml_core.workloads.attentions import attention, token_norm
from sipml_core.workloads.backward import training_step
from sipml_core.workloads.builder import GraphBuilder
from sipml_core.workloads.convergence import PAPER, convergence_at, curve_option, load_curve, tokens_option
from sipml_core.workloads.expertlayers import ExpertPlan, expert_layer, gated_layer
from sipml_core.workloads.modelshape import ExpertShape, ModelShape
from sipml_core.workloads.nearest import nearest_divisor
from sipml_core.workloads.sizes import (
    MAX_CLASSES,
    MAX_EXPERTS,
    MAX_FEATURES,
    MAX_LAYERS,
    MAX_PIXELS,
    MAX_TOKENS,
)

#: What each kind of layer must say, and what it may say.
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "embedding": (("rows", "features"), ()),
    "dense": (("features",), ("activation", "bias", "residual")),
    "attention": (("heads",), ("groups", "causal", "window", "bias", "residual")),
    "conv": (("channels",), ("kernel", "stride")),
    "norm": ((), ("rms",)),
    "moe": (("experts", "per_token", "features"), ("residual",)),
    "repeat": (("times",), ("last",)),
}
ACTIVATIONS = ("none", "relu", "gelu", "swiglu")
#: Names of the axes of what layers pass on.
_PICTURE = "pictures"


def _size(most: int, doc: str) -> Any:
    return option(None, validator=attrs.validators.optional(between(1, most)), doc=doc)


def _truth(doc: str) -> Any:
    return option(None, doc=doc)


@frozen(kw_only=True)
class LayerRow:
    """One row of `layers`."""

    kind: str = option(validator=one_of(*KINDS), doc="what the layer does")
    features: int | None = _size(MAX_FEATURES, "features it makes of each token; of moe, inner ones")
    rows: int | None = _size(MAX_CLASSES, "tokens of the vocabulary")
    heads: int | None = _size(MAX_FEATURES, "attention heads")
    groups: int | None = _size(MAX_FEATURES, "heads of keys and values; left out: as many as heads")
    window: int | None = _size(MAX_TOKENS, "tokens that one attends to")
    causal: bool | None = _truth("attend to tokens before only; left out: true")
    channels: int | None = _size(MAX_FEATURES, "output channels")
    kernel: int | None = _size(MAX_PIXELS, "height and width of the kernel; left out: 1")
    stride: int | None = _size(MAX_PIXELS, "pixels from one output to the next; left out: 1")
    rms: bool | None = _truth("norm by the root mean square; left out: false")
    activation: str | None = option(
        None,
        validator=attrs.validators.optional(one_of(*ACTIVATIONS)),
        doc="kernel after the product; left out: none",
    )
    bias: bool | None = _truth("the product adds a bias; left out: true of dense, false of attention")
    residual: bool | None = _truth("the input is added to the output; left out: false")
    experts: int | None = _size(MAX_EXPERTS, "experts of the layer")
    per_token: int | None = _size(MAX_EXPERTS, "experts that a token goes to")
    times: int | None = _size(MAX_LAYERS, "how often the rows are there in all")
    last: int | None = _size(MAX_LAYERS, "rows before that are repeated; left out: all but an embedding")

    def check(self, where: str) -> None:
        """Refuse a row that lacks a size of its kind, or has one of another."""
        needed, allowed = KINDS[self.kind]
        given = [
            f.name for f in attrs.fields(LayerRow) if f.name != "kind" and getattr(self, f.name) is not None
        ]
        for name in needed:
            if name not in given:
                raise ConfigError(f"{where}.{name} is required of a layer of kind {self.kind!r}")
        for name in given:
            if name not in (*needed, *allowed):
                known = ", ".join((*needed, *allowed)) or "nothing"
                raise ConfigError(
                    f"{where}.{name} is no size of a layer of kind {self.kind!r}; allowed: {known}"
                )


class LayerTable(Workload):
    """A chain of layers and a loss over classes, from tokens, pictures or vectors."""

    name = "layers"
    summary = "a table of layers: dense, attention, conv, norm, embedding, moe with their sizes"
    default_global_batch = 256
    measured: ClassVar[str] = ""

    @frozen(kw_only=True)
    class Options:
        """What comes in is tokens if the first layer is an embedding, pictures if it is a convolution."""

        layers: tuple[LayerRow, ...] = option(
            doc='tables with a kind and its sizes, in order: { kind = "dense", features = 64 }; '
            + "; ".join(
                f"{kind}: {', '.join((*needed, *more)) or '-'}" for kind, (needed, more) in KINDS.items()
            )
        )
        classes: int = option(
            doc="classes, or tokens, that the last layer tells apart", validator=between(2, MAX_CLASSES)
        )
        sequence: int = option(
            1, doc="tokens or vectors of a sample", unit="tokens", validator=between(1, MAX_TOKENS)
        )
        features: int | None = _size(MAX_FEATURES, "features of each vector that comes in")
        image: int | None = _size(MAX_PIXELS, "height and width of a picture")
        channels: int = option(3, doc="channels of a picture", validator=between(1, MAX_FEATURES))
        attention: str = option(
            "fused", validator=one_of("fused", "plain"),
            doc='one kernel for attention ("fused"), or one for each step ("plain")',
        )  # fmt: skip
        curve: str = curve_option("none")
        training_tokens: float = tokens_option()

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        for number, row in enumerate(options.layers):
            row.check(f"layers[{number}]")
        self._rows = tuple(_repeated(options.layers))
        self._check_input()
        if options.curve == PAPER:
            raise ConfigError("curve: the paper has no point of a table of layers; 'none', or a .csv file")
        self._curve = load_curve(options.curve, measured="", anchor=(1, 1.0))
        self._token_flops = self._count_flops()

    def _check_input(self) -> None:
        first, options = self._rows[0].kind, self.options
        if first == "conv" and options.image is None:
            raise ConfigError("image is required where the first layer is a conv")
        if first not in ("conv", "embedding") and options.features is None:
            raise ConfigError(f"features is required where the first layer is of kind {first!r}")

    @property
    def sample_tokens(self) -> int | None:
        """Tokens of a sample, where the first layer is an embedding."""
        return int(self.options.sequence) if self._rows[0].kind == "embedding" else None

    @property
    def training_tokens(self) -> float | None:
        """See `Workload.training_tokens`."""
        return float(self.options.training_tokens) if self.sample_tokens else None

    @property
    def token_flops(self) -> ModelFlops | None:
        """FLOPs of the table's products, and of attention in full."""
        return self._token_flops

    def _count_flops(self) -> ModelFlops | None:
        """Return FLOPs of a token; refuses layers that do not fit each other."""
        graph = self.graph(1, "mixed")
        if not self.sample_tokens:
            return None
        each = {"matmul": 0.0, "attention": 0.0}
        for op in graph.ops:
            if op.phase is Phase.FORWARD and op.kind in each:
                each[op.kind] += 3.0 * op.flops / self.sample_tokens
        return ModelFlops(
            products=each["matmul"], attention=self._full_attention(graph), needed_attention=each["attention"]
        )

    def _full_attention(self, graph: OpGraph) -> float:
        """Return FLOPs of all pairs of tokens, 12 for each and for each feature of a layer."""
        features = [
            graph.tensor[operand.tensor].shape
            for op in graph.ops
            if op.phase is Phase.FORWARD and op.kind == "attention"
            for operand in op.writes
            if operand.tensor.endswith((".core.y", ".context.y"))
        ]
        return float(sum(12 * self.options.sequence * g * r * c for _, _, g, r, c in features))

    def graph(self, samples: int, precision: str) -> OpGraph:
        """See `Workload.graph`."""
        b = GraphBuilder(self.name, samples, precision)
        x, last = self._input(b), ""
        for number, row in enumerate(self._rows):
            name = f"{row.kind}{number}"
            x = _LAYERS[row.kind](
                b, name, _as_vectors(b, name, x, row), row, self.options.attention == "fused"
            )
            last = name
        x = _as_vectors(b, f"{last}.end", x, None)
        table = b.parameter("classes.weight", (self.options.classes, b.shape(x)[2]))
        layers.vocabulary_loss(b, "loss", x, table, bias=True)
        return training_step(b)

    def _input(self, b: GraphBuilder) -> str:
        options, first = self.options, self._rows[0].kind
        if first == "embedding":
            return b.input("tokens", (b.samples, options.sequence), layers.INDEX_BYTES)
        if first == "conv":
            return b.input("pictures", (b.samples, options.image, options.image, options.channels))
        return b.input("vectors", (b.samples, options.sequence, options.features))

    def convergence(self, global_batch: int) -> Convergence | None:
        """See `Workload.convergence`."""
        return convergence_at(self._curve, global_batch)


def _repeated(rows: tuple[LayerRow, ...]) -> Iterator[LayerRow]:
    """Yield the rows with those that are repeated as often as they are there.

    >>> norm, rms = LayerRow(kind="norm"), LayerRow(kind="norm", rms=True)
    >>> rows = norm, rms, LayerRow(kind="repeat", times=3, last=1)
    >>> [row.rms for row in _repeated(rows)]
    [None, True, True, True]
    """
    found: list[LayerRow] = []
    for number, row in enumerate(rows):
        if row.kind != "repeat":
            found.append(row)
            continue
        before = [each for each in found if each.kind != "embedding"]
        last = row.last or len(before)
        if not before or last > len(before):
            raise ConfigError(
                f"layers[{number}].last must be at most the {len(before)} layers before it that are no "
                f"embedding, got {last}"
            )
        found += before[-last:] * ((row.times or 1) - 1)
    if not found:
        raise ConfigError("layers must have at least one layer")
    if len(found) > MAX_LAYERS:
        raise ConfigError(f"layers must be at most {MAX_LAYERS}, repeated ones counted, got {len(found)}")
    yield from found


def _as_vectors(b: GraphBuilder, name: str, x: str, row: LayerRow | None) -> str:
    """Return what a layer reads: where it reads vectors and has pictures, their mean over the pixels."""
    kind, rank = row.kind if row else "loss", len(b.shape(x))
    if kind == "embedding" and rank != 2:
        raise ConfigError("layers: an embedding can only be the first layer")
    if rank == 2 and kind != "embedding":
        raise ConfigError(f"layers: the first layer of tokens must be an embedding, got {kind!r}")
    if kind == "conv" and rank != 4:
        raise ConfigError("layers: a conv reads pictures; it must come before all layers of vectors")
    if rank != 4 or kind in ("conv", "norm"):
        return x
    n, h, w, c = b.shape(x)
    y = f"{name}.mean"
    b.op(
        f"{name}.pool",
        "pool",
        {"n": n, "h": h, "w": w, "c": c, "s": 1},
        {"n": Split.SAMPLE, "c": Split.COLUMN, "h": Split.ROW},
        flops=1.0 * n * h * w * c,
        reads={x: "n h w c"},
        writes={y: "n s c"},
    )
    return y


def _with_residual(b: GraphBuilder, name: str, x: str, y: str, row: LayerRow) -> str:
    if not row.residual:
        return y
    if b.shape(x) != b.shape(y):
        raise ConfigError(
            f"layers: {re.sub(r'[0-9]+$', '', name)} has a residual, so it must make the "
            f"{b.shape(x)[2]} features that it reads, got {b.shape(y)[2]}"
        )
    return layers.add(b, f"{name}.residual", y, x)


def _embedding(b: GraphBuilder, name: str, x: str, row: LayerRow, fused: bool) -> str:
    return layers.embed(b, name, x, b.parameter(f"{name}.weight", (row.rows or 1, row.features or 1)))


def _dense(b: GraphBuilder, name: str, x: str, row: LayerRow, fused: bool) -> str:
    features, bias = row.features or 1, row.bias is not False
    if row.activation == "swiglu":
        y = gated_layer(b, name, x, features, bias=bias)
    else:
        activation = "" if row.activation in (None, "none") else str(row.activation)
        y = layers.linear(b, name, x, features, activation, bias=bias)
    return _with_residual(b, name, x, y, row)


def _attention(b: GraphBuilder, name: str, x: str, row: LayerRow, fused: bool) -> str:
    hidden, heads = b.shape(x)[2], row.heads or 1
    groups = row.groups or heads
    if hidden % heads or heads % groups:
        which, whole, number = ("heads", hidden, heads) if hidden % heads else ("groups", heads, groups)
        raise ConfigError(
            f"layers: {which} must divide {whole}, got {number}; nearest: {nearest_divisor(whole, number)}"
        )
    shape = ModelShape(
        family="layers", hidden=hidden, layers=1, heads=heads, groups=groups, head_size=hidden // heads,
        value_size=hidden // heads, feed_forward=1, vocabulary=1, longest=b.shape(x)[1], positions="",
        projection_bias=bool(row.bias), output_bias=bool(row.bias), causal=row.causal is not False,
        windows=(row.window,),
    )  # fmt: skip
    return _with_residual(b, name, x, attention(b, name, x, shape, 0, fused=fused), row)


def _conv(b: GraphBuilder, name: str, x: str, row: LayerRow, fused: bool) -> str:
    size, kernel, stride = b.shape(x)[1], row.kernel or 1, row.stride or 1
    if kernel > size or stride > size:
        raise ConfigError(
            f"layers: kernel and stride of {name} must be at most {size}, got {kernel}, {stride}"
        )
    return resnet.conv(b, name, x, row.channels or 1, kernel=kernel, stride=stride)


def _norm(b: GraphBuilder, name: str, x: str, row: LayerRow, fused: bool) -> str:
    if len(b.shape(x)) == 4:
        return resnet.batch_norm(b, name, x, relu=True)
    return token_norm(b, name, x, rms=bool(row.rms))


def _moe(b: GraphBuilder, name: str, x: str, row: LayerRow, fused: bool) -> str:
    chosen, count = row.per_token or 1, row.experts or 1
    if chosen > count:
        raise ConfigError(f"layers: per_token must be at most the {count} experts, got {chosen}")
    shape = ExpertShape(count=count, per_token=chosen, width=row.features or 1)
    return _with_residual(b, name, x, expert_layer(b, name, x, shape, ExpertPlan(rows=chosen)), row)


_LAYERS = {
    "embedding": _embedding,
    "dense": _dense,
    "attention": _attention,
    "conv": _conv,
    "norm": _norm,
    "moe": _moe,
}
