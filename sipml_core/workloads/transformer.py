"""The encoder-decoder Transformer (Vaswani et al. 2017), by default of about 350 M parameters."""

from __future__ import annotations

from typing import Any

from sipml_core.fields import between, frozen, option
from sipml_core.model import OpGraph
from sipml_core.plugin import Convergence, Workload
from sipml_core.workloads import layers
from sipml_core.workloads.backward import training_step
from sipml_core.workloads.builder import GraphBuilder
from sipml_core.workloads.convergence import convergence_at, curve_option, load_curve, tokens_option
from sipml_core.workloads.sizes import MAX_CLASSES, MAX_FEATURES, MAX_LAYERS, MAX_TOKENS, check_heads


class Transformer(Workload):
    """Post-norm layers, sinusoidal positions, one vocabulary matrix for both inputs and the output.

    The paper names 350 M parameters and no shape. The layer of the "big" model of Vaswani et al.
    (hidden 1024, feed-forward 4096, 16 heads) with 11 + 11 layers and their 32 000 word pieces has
    356 089 856 (12 + 12 would have 385 M, 10 + 10 327 M).
    """

    name = "transformer"
    summary = "encoder-decoder Transformer, 356 million parameters by default"
    default_global_batch = 1024

    @frozen(kw_only=True)
    class Options:
        """Sequence lengths: 256 tokens on either side, as in Shallue et al. 2018."""

        layers: int = option(
            11, doc="encoder layers, and as many decoder layers", validator=between(1, MAX_LAYERS)
        )
        hidden: int = option(1024, doc="features of a token", validator=between(1, MAX_FEATURES))
        feed_forward: int = option(4096, doc="inner features of a layer", validator=between(1, MAX_FEATURES))
        heads: int = option(16, doc="attention heads; must divide hidden", validator=check_heads)
        source_sequence: int = option(
            256, doc="tokens the encoder reads", unit="tokens", validator=between(1, MAX_TOKENS)
        )
        target_sequence: int = option(
            256, doc="tokens the decoder writes", unit="tokens", validator=between(1, MAX_TOKENS)
        )
        vocabulary: int = option(
            32000, doc="tokens of the shared vocabulary", validator=between(2, MAX_CLASSES)
        )
        curve: str = curve_option("paper")
        training_tokens: float = tokens_option()

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._curve = load_curve(options.curve, measured="bert_large", anchor=(1024, 16384.0))

    @property
    def sample_tokens(self) -> int:
        """Tokens of both sequences."""
        return int(self.options.source_sequence + self.options.target_sequence)

    @property
    def training_tokens(self) -> float:
        """See `Workload.training_tokens`."""
        return float(self.options.training_tokens)

    def graph(self, samples: int, precision: str) -> OpGraph:
        """See `Workload.graph`."""
        o = self.options
        b = GraphBuilder(self.name, samples, precision)
        table = b.parameter("embedding.weight", (o.vocabulary, o.hidden))
        memory = self._tokens(b, "source", table, o.source_sequence)
        for layer in range(o.layers):
            memory = self._encoder_layer(b, f"encoder{layer}", memory)
        x = self._tokens(b, "target", table, o.target_sequence)
        for layer in range(o.layers):
            x = self._decoder_layer(b, f"decoder{layer}", x, memory)
        layers.vocabulary_loss(b, "loss", x, table)
        return training_step(b)

    def convergence(self, global_batch: int) -> Convergence | None:
        """See `Workload.convergence`."""
        return convergence_at(self._curve, global_batch)

    def _tokens(self, b: GraphBuilder, name: str, table: str, length: int) -> str:
        ids = b.input(f"{name}.tokens", (b.samples, length), layers.INDEX_BYTES)
        x = layers.embed(b, f"{name}.embedding", ids, table)
        return layers.add_positions(b, f"{name}.positions", x, learned=False)

    def _encoder_layer(self, b: GraphBuilder, name: str, x: str) -> str:
        x = self._joined(b, f"{name}.attention", x, self._self(b, name, x))
        return self._joined(b, f"{name}.mlp", x, self._mlp(b, name, x))

    def _decoder_layer(self, b: GraphBuilder, name: str, x: str, memory: str) -> str:
        x = self._joined(b, f"{name}.attention", x, self._self(b, name, x))
        crossed = layers.cross_attention(b, f"{name}.cross", x, memory, self.options.heads)
        x = self._joined(b, f"{name}.cross", x, crossed)
        return self._joined(b, f"{name}.mlp", x, self._mlp(b, name, x))

    def _self(self, b: GraphBuilder, name: str, x: str) -> str:
        return layers.self_attention(b, f"{name}.attention", x, self.options.heads)

    def _mlp(self, b: GraphBuilder, name: str, x: str) -> str:
        return layers.feed_forward(b, f"{name}.mlp", x, self.options.feed_forward, "relu")

    def _joined(self, b: GraphBuilder, name: str, x: str, branch: str) -> str:
        return layers.layer_norm(b, f"{name}.norm", layers.dropout_add(b, f"{name}.residual", branch, x))
