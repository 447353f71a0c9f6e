"""GPT: a decoder-only Transformer (Radford et al. 2019), and the paper's Megatron preset."""

from __future__ import annotations

from typing import Any

from sipml_core.errors import ConfigError
from sipml_core.fields import between, frozen, option
from sipml_core.model import ModelFlops, OpGraph, Plan
from sipml_core.plugin import Convergence, Workload
from sipml_core.workloads import layers
from sipml_core.workloads.backward import training_step
from sipml_core.workloads.builder import GraphBuilder
from sipml_core.workloads.convergence import convergence_at, curve_option, load_curve, tokens_option
from sipml_core.workloads.nearest import nearest_mp
from sipml_core.workloads.sizes import MAX_CLASSES, MAX_FEATURES, MAX_LAYERS, MAX_TOKENS, check_heads

#: Layers and hidden size of the model whose convergence was measured as gpt3_175b (Brown et al. 2020).
GPT3 = (96, 12288)


class Gpt(Workload):
    """Pre-norm decoder layers, learned positions, output projection tied to the embedding."""

    name = "gpt"
    summary = "decoder-only Transformer by layers, hidden size, heads, sequence and vocabulary"
    default_global_batch = 512
    #: Batch and steps of the paper's curve (PAPER, section 6).
    paper_anchor = (1024, 240_000.0)
    measured = "gpt3_175b"

    @frozen(kw_only=True)
    class Options:
        """Defaults: GPT-2 medium (Radford et al. 2019, table 2) with sequence 1024."""

        layers: int = option(24, doc="decoder layers", validator=between(1, MAX_LAYERS))
        hidden: int = option(1024, doc="features of a token", validator=between(1, MAX_FEATURES))
        heads: int = option(16, doc="attention heads; must divide hidden", validator=check_heads)
        sequence: int = option(
            1024, doc="tokens of a sample", unit="tokens", validator=between(1, MAX_TOKENS)
        )
        vocabulary: int = option(50257, doc="tokens of the vocabulary", validator=between(2, MAX_CLASSES))
        curve: str = curve_option("none")
        training_tokens: float = tokens_option()

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        own = (self.measured,) if (options.layers, options.hidden) == GPT3 else ()
        self._curve = load_curve(options.curve, measured=self.measured, anchor=self.paper_anchor, own=own)

    @property
    def sample_tokens(self) -> int:
        """Tokens of the sequence."""
        return int(self.options.sequence)

    @property
    def training_tokens(self) -> float:
        """See `Workload.training_tokens`."""
        return float(self.options.training_tokens)

    @property
    def token_flops(self) -> ModelFlops:
        """FLOPs of Narayanan et al. 2021, equation 3: 72 L h^2 (1 + s / (6 h) + V / (12 L h))."""
        o = self.options
        attention = 12.0 * o.layers * o.sequence * o.hidden
        return ModelFlops(
            products=72.0 * o.layers * o.hidden**2 + 6.0 * o.hidden * o.vocabulary,
            attention=attention,
            needed_attention=attention / 2,
        )

    @property
    def sequence_parallel(self) -> bool:
        """See `Workload.sequence_parallel`."""
        return True

    def check_plan(self, plan: Plan, layout: str) -> None:
        """See `Workload.check_plan`."""
        super().check_plan(plan, layout)
        heads = self.options.heads
        if layout == "sequence" and heads % plan.mp:
            fits = [mp for mp in range(1, heads + 1) if heads % mp == 0]
            raise ConfigError(
                f"mp must divide the {heads} heads with layout {layout!r}, got {plan.mp}; "
                f"nearest: {nearest_mp(fits, plan)}"
            )

    def graph(self, samples: int, precision: str) -> OpGraph:
        """See `Workload.graph`."""
        o = self.options
        b = GraphBuilder(self.name, samples, precision)
        ids = b.input("tokens", (samples, o.sequence), layers.INDEX_BYTES)
        table = b.parameter("embedding.weight", (o.vocabulary, o.hidden))
        x = layers.embed(b, "embedding", ids, table)
        x = layers.add_positions(b, "positions", x, learned=True)
        for layer in range(o.layers):
            x = _decoder_layer(b, f"layer{layer}", x, o.heads)
        x = layers.layer_norm(b, "final_norm", x)
        layers.vocabulary_loss(b, "loss", x, table)
        return training_step(b)

    def convergence(self, global_batch: int) -> Convergence | None:
        """See `Workload.convergence`."""
        return convergence_at(self._curve, global_batch)


def _decoder_layer(b: GraphBuilder, name: str, x: str, heads: int) -> str:
    attended = layers.self_attention(b, f"{name}.attention", layers.layer_norm(b, f"{name}.norm1", x), heads)
    x = layers.dropout_add(b, f"{name}.residual1", attended, x)
    normed = layers.layer_norm(b, f"{name}.norm2", x)
    mixed = layers.feed_forward(b, f"{name}.mlp", normed, 4 * b.shape(x)[2], "gelu")
    return layers.dropout_add(b, f"{name}.residual2", mixed, x)


class Megatron(Gpt):
    """The paper's third model (PAPER, section 6): 18.4 billion parameters."""

    name = "megatron"
    summary = "GPT of 18 billion parameters (hidden 6144, 40 layers, 48 heads, sequence 2048)"
    default_global_batch = 1024
    #: Sequence parallelism is younger than the paper.
    sequence_parallel = False

    @frozen(kw_only=True)
    class Options:
        """The preset; any of its values may be changed."""

        layers: int = option(40, doc="decoder layers", validator=between(1, MAX_LAYERS))
        hidden: int = option(6144, doc="features of a token", validator=between(1, MAX_FEATURES))
        heads: int = option(48, doc="attention heads; must divide hidden", validator=check_heads)
        sequence: int = option(
            2048, doc="tokens of a sample", unit="tokens", validator=between(1, MAX_TOKENS)
        )
        vocabulary: int = option(51200, doc="tokens of the vocabulary", validator=between(2, MAX_CLASSES))
        curve: str = curve_option("paper")
        training_tokens: float = tokens_option()
