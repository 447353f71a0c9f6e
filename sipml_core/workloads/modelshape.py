"""The shape of a Transformer: all that its operation graph needs, whatever file or table it comes from."""

from __future__ import annotations

import math

from sipml_core.fields import frozen
from sipml_core.model import ModelFlops

#: What a learned or computed position is.
ROTARY, LEARNED = "rotary", "learned"


@frozen(kw_only=True)
class LatentAttention:
    """Queries, keys and values made of a short vector for each token (DeepSeek-V2, 2405.04434, 2.1)."""

    #: Features of the vector that queries are made of; None: they are made of the token itself.
    query_rank: int | None
    #: Features of the vector that keys and values are made of.
    key_rank: int
    #: Features of a key of one head without and with position; the latter are shared by all heads.
    plain_size: int
    rotary_size: int


@frozen(kw_only=True)
class ExpertShape:
    """Experts of a layer, of which each token passes through a few."""

    count: int
    per_token: int
    #: Inner features of one expert.
    width: int
    #: Inner features of what every token passes through besides; 0: nothing.
    shared_width: int = 0
    #: Router and experts add biases.
    bias: bool = False


@frozen(kw_only=True)
class ModelShape:
    """A Transformer with one embedding and one head, as families of models differ."""

    family: str
    hidden: int
    layers: int
    heads: int
    #: Heads of keys and values: each serves heads / groups queries.
    groups: int
    #: Features of a query and a key, and of a value, of one head.
    head_size: int
    value_size: int
    #: Inner features of a dense layer.
    feed_forward: int
    #: Tokens, or classes of a model of pictures.
    vocabulary: int
    #: Most positions of a sample; rows of the table where positions are learned.
    longest: int
    positions: str = ROTARY
    #: The feed-forward layer is SwiGLU, of three matrices, not two with GELU between them.
    gated: bool = True
    #: Norms divide by the root mean square: they have no shift.
    rms_norm: bool = True
    #: Norms stand after the residual addition (BERT), not before attention and feed-forward layer.
    post_norm: bool = False
    projection_bias: bool = False
    output_bias: bool = False
    feed_forward_bias: bool = False
    #: Queries and keys of each head are normalised.
    head_norm: bool = False
    #: Each head has a trained logit beside those of the keys.
    sinks: bool = False
    tied: bool = False
    #: A token attends to itself and those before it.
    causal: bool = True
    dropout: bool = False
    #: For each layer the tokens that one attends to; None: all.
    windows: tuple[int | None, ...] = ()
    experts: ExpertShape | None = None
    #: Layers that have experts.
    expert_layers: frozenset[int] = frozenset()
    latent: LatentAttention | None = None
    #: Kinds of segments of a text (BERT).
    segments: int = 0
    #: Features of a patch of a picture; 0: a model of texts.
    patch: int = 0
    #: What of the published model is left out, for the reader.
    left_out: str = ""

    def window(self, layer: int) -> int | None:
        """Return the tokens that one of a layer attends to; None: all."""
        return self.windows[layer] if self.windows else None

    def attended(self, layer: int, sequence: int) -> float:
        """Return the pairs of tokens whose scores a layer needs, for one sample.

        Half of all where attention is causal (the diagonal counts half, as in FlashAttention's count), and
        what of them a window w leaves: w s - w^2 / 2.
        """
        if not self.causal:
            return float(sequence) ** 2
        window = min(self.window(layer) or sequence, sequence)
        return window * sequence - window**2 / 2

    def model_flops(self, sequence: int) -> ModelFlops:
        """Return the FLOPs of a training step for one token of a sample of so many."""
        products = self.hidden * self.vocabulary  # logits
        if self.segments:
            products += self.hidden**2  # what BERT's head does before them
        for layer in range(self.layers):
            products += self._attention_products + self._inner_products(layer)
        # Scores and what is made of them: 2 FLOPs forward for each feature of a key and of a value.
        pair_flops = 2.0 * self.heads * (self.head_size + self.value_size)
        full = self.layers * float(sequence)
        needed = math.fsum(self.attended(layer, sequence) for layer in range(self.layers)) / sequence
        return ModelFlops(
            products=6.0 * products, attention=3 * pair_flops * full, needed_attention=3 * pair_flops * needed
        )

    @property
    def _attention_products(self) -> int:
        """Weights of the matrix products of one attention."""
        out = self.heads * self.value_size * self.hidden
        latent = self.latent
        if latent is None:
            keys = self.groups * (self.head_size + self.value_size)
            return self.hidden * (self.heads * self.head_size + keys) + out
        queries = self.heads * self.head_size
        if latent.query_rank is None:
            made = self.hidden * queries
        else:
            made = (self.hidden + queries) * latent.query_rank
        made += self.hidden * (latent.key_rank + latent.rotary_size)
        return made + latent.key_rank * self.heads * (latent.plain_size + self.value_size) + out

    def _inner_products(self, layer: int) -> int:
        """Weights of the matrix products that one token meets in the feed-forward layer."""
        matrices = 3 if self.gated else 2
        if layer not in self.expert_layers or self.experts is None:
            return matrices * self.hidden * self.feed_forward
        experts = self.experts
        width = experts.per_token * experts.width + experts.shared_width
        return matrices * self.hidden * width + self.hidden * experts.count
