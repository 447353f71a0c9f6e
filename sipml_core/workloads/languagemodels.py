"""Models of today: of any known family by its configuration file, and a few by name."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, ClassVar

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, file_path, frozen, one_of, option
from sipml_core.model import ModelFlops, OpGraph, Plan
from sipml_core.plugin import Convergence, Workload
from sipml_core.workloads.convergence import (
    PAPER,
    convergence_at,
    curve_option,
    load_curve,
    tokens_option,
)
from sipml_core.workloads.expertlayers import ExpertPlan
from sipml_core.workloads.languagegraph import Execution, transformer_graph
from sipml_core.workloads.modelfiles import own_shape, read_shape
from sipml_core.workloads.modelshape import ModelShape
from sipml_core.workloads.nearest import nearest_divisor, nearest_mp
from sipml_core.workloads.routing import expert_shares, kept_shares
from sipml_core.workloads.sizes import MAX_TOKENS

#: Tokens of a sample where nobody says: those that the model can see, at most so many.
USUAL_SEQUENCE = 8192


@frozen(kw_only=True)
class ModelOptions:
    """How a model of a fixed shape is trained."""

    sequence: int | None = option(
        None, unit="tokens", validator=attrs.validators.optional(between(1, MAX_TOKENS)),
        doc=f"tokens of a sample; left out: those the model can see, at most {USUAL_SEQUENCE}",
    )  # fmt: skip
    attention: str = option(
        "fused", validator=one_of("fused", "plain"),
        doc='one kernel that keeps no tensor of all pairs of tokens and skips masked ones ("fused"), or a '
        'kernel for each step over all pairs ("plain")',
    )  # fmt: skip
    capacity_factor: float | None = option(
        None, validator=attrs.validators.optional(at_least(1)),
        doc="room of an expert for so many times its mean of tokens, which it is filled up to and beyond "
        "which tokens are dropped; times the experts of a token it must be whole; left out: none is dropped",
    )  # fmt: skip
    skew: float = option(
        0.0, validator=between(0, 10),
        doc="how unequally tokens go to experts: standard deviation of the logarithm of an expert's share, "
        "drawn once for each layer; counts where experts are spread over replicas",
    )  # fmt: skip
    skew_seed: int = option(0, validator=between(0, 2**63 - 1), doc="seed of the draw")
    cut_experts: bool = option(
        True, doc="experts are cut along their features over the GPUs of a group; false: each has whole ones"
    )
    curve: str = curve_option("none")
    training_tokens: float = tokens_option()


class LanguageModel(Workload):
    """A Transformer of a shape that a subclass gives."""

    default_global_batch = 1024
    #: Measured convergence curves of this very model.
    curves: ClassVar[tuple[str, ...]] = ()

    Options = ModelOptions

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.shape = self._shape()
        _check_sequence(self.shape, self.sequence)
        if options.curve == PAPER:
            raise ConfigError(
                f"curve: the paper has no point of {self.name!r}; 'none', or the path of a .csv file"
            )
        self._curve = load_curve(options.curve, measured="", anchor=(1, 1.0), own=self.curves)
        self._execution = Execution(
            sequence=self.sequence,
            fused=options.attention == "fused",
            experts=_expert_plans(self.shape, options),
        )

    def _shape(self) -> ModelShape:
        return own_shape(self.name)

    @property
    def sequence(self) -> int:
        """Tokens of a sample, patches of a picture included."""
        if self.shape.patch:
            return self.shape.longest
        return int(self.options.sequence or min(self.shape.longest, USUAL_SEQUENCE))

    @property
    def sample_tokens(self) -> int | None:
        """Tokens of the sequence; None: a model of pictures."""
        return None if self.shape.patch else self.sequence

    @property
    def training_tokens(self) -> float | None:
        """See `Workload.training_tokens`."""
        return None if self.shape.patch else float(self.options.training_tokens)

    @property
    def token_flops(self) -> ModelFlops | None:
        """See `Workload.token_flops`."""
        return None if self.shape.patch else self.shape.model_flops(self.sequence)

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Workload.notes`."""
        left_out = self.shape.left_out
        notes = (f"of the published model is left out: {left_out}",) if left_out else ()
        return (*notes, *self._dropped())

    def _dropped(self) -> tuple[str, ...]:
        """Say how many tokens find no room."""
        experts, options = self.shape.experts, self.options
        if experts is None or not options.capacity_factor or not options.skew:
            return ()
        layers = sorted(self.shape.expert_layers)
        kept = [
            kept_shares(
                expert_shares(experts.count, options.skew, options.skew_seed, layer), options.capacity_factor
            ).sum()
            for layer in layers
        ]
        dropped = 1.0 - sum(kept) / len(layers)
        return (f"{100 * dropped:.1f} % of the rows of experts are dropped: they have no room for more",)

    @property
    def sequence_parallel(self) -> bool:
        """See `Workload.sequence_parallel`."""
        return not self.shape.patch

    def check_plan(self, plan: Plan, layout: str) -> None:
        """See `Workload.check_plan`."""
        if layout in ("tensor", "megatron", "sequence"):
            self._check_heads(plan, layout)
        self._check_context(plan.cp)
        self._check_spread(plan.ep)

    def _check_heads(self, plan: Plan, layout: str) -> None:
        """Refuse a group over which heads cannot be spread, each of keys on one GPU or copied to several."""
        heads, groups = self.shape.heads, self.shape.groups
        fits = [d for d in range(1, heads + 1) if heads % d == 0 and (groups % d == 0 or d % groups == 0)]
        if plan.mp not in fits:
            or_copied = f", or be so many times them as divides the {heads} heads," if heads > groups else ""
            raise ConfigError(
                f"mp must divide the {groups} heads of keys and values{or_copied} with layout {layout!r}, "
                f"got {plan.mp}; nearest: {nearest_mp(fits, plan)}"
            )

    def key_copies(self, mp: int) -> int:
        """See `Workload.key_copies`."""
        return max(mp // self.shape.groups, 1)

    def copied(self, copies: int) -> LanguageModel:
        """See `Workload.copied`."""
        part = copy.copy(self)
        part._execution = attrs.evolve(self._execution, copies=copies)
        return part

    def _check_context(self, cp: int) -> None:
        if cp > 1 and (self.shape.patch or self.options.attention != "fused"):
            why = "a model of pictures" if self.shape.patch else 'attention = "plain"'
            raise ConfigError(f"cp must be 1 with {why}, got {cp}")
        if self.sequence % (2 * cp) and cp > 1:
            near = nearest_divisor(self.sequence // 2, cp) if self.sequence % 2 == 0 else 1
            raise ConfigError(
                f"cp must cut the sequence of {self.sequence} tokens into 2 cp equal chunks, got {cp}; "
                f"nearest: {near}"
            )

    def _check_spread(self, ep: int) -> None:
        experts = self.shape.experts
        if ep > 1 and experts is None:
            raise ConfigError(f"ep must be 1, got {ep}: {self.name!r} has no experts")
        if experts is not None and experts.count % ep:
            raise ConfigError(
                f"ep must divide the {experts.count} experts of a layer, got {ep}; nearest: "
                f"{nearest_divisor(experts.count, ep)}"
            )

    def divided(self, cp: int, ep: int) -> LanguageModel:
        """See `Workload.divided`."""
        part = copy.copy(self)
        plans = self._execution.experts
        if ep > 1:
            plans = {
                layer: attrs.evolve(plan, shares=self.rank_shares(layer, ep)) for layer, plan in plans.items()
            }
        part._execution = attrs.evolve(self._execution, context=cp, experts=plans)
        return part

    def rank_shares(self, layer: int, ep: int) -> tuple[float, ...]:
        """Return which part of a layer's rows goes to the experts of each of `ep` replicas. [ep]

        Where experts have room for so many tokens each gets what it has room for.
        """
        experts, options = self.shape.experts, self.options
        skew = 0.0 if experts is None or options.capacity_factor else options.skew
        shares = expert_shares(experts.count if experts else ep, skew, options.skew_seed, layer)
        return tuple(shares.reshape(ep, -1).sum(axis=1).tolist())

    def graph(self, samples: int, precision: str) -> OpGraph:
        """See `Workload.graph`."""
        return transformer_graph(self.name, self.shape, self._execution, samples, precision)

    def convergence(self, global_batch: int) -> Convergence | None:
        """See `Workload.convergence`."""
        return convergence_at(self._curve, global_batch)


def _check_sequence(shape: ModelShape, sequence: int) -> None:
    if sequence > shape.longest:
        raise ConfigError(
            f"sequence must be at most the {shape.longest} tokens that the model can see, got {sequence}"
        )


def _expert_plans(shape: ModelShape, options: ModelOptions) -> dict[int, ExpertPlan]:
    """Return how experts of each layer are run; refuses options of experts where there are none."""
    if shape.experts is None:
        if options.capacity_factor is not None:
            raise ConfigError("capacity_factor must be left out: this model has no experts")
        if options.skew:
            raise ConfigError(f"skew must be 0, got {options.skew:g}: this model has no experts")
        return {}
    factor, chosen = options.capacity_factor or 1.0, shape.experts.per_token
    rows = round(factor * chosen)
    if abs(rows - factor * chosen) > 1e-9:
        below, above = int(factor * chosen) / chosen, (int(factor * chosen) + 1) / chosen
        raise ConfigError(
            f"capacity_factor times the {chosen} experts of a token must be whole, got {factor:g}; nearest: "
            f"{below:.4g} or {above:.4g}"
        )
    return {layer: ExpertPlan(rows=rows, cut=options.cut_experts) for layer in shape.expert_layers}


class ConfiguredModel(LanguageModel):
    """A model of a known family, of the shape that its configuration file says."""

    name = "hf"
    summary = "model of a config.json: llama, mixtral, qwen3_moe, deepseek_v3, gpt_oss, gpt2, bert or vit"

    @frozen(kw_only=True)
    class Options(ModelOptions):
        """The file comes with a model's published weights; keys that say nothing of its shape are ignored."""

        file: str = file_path(doc="configuration of the model, a config.json", endings=(".json",))

    def _shape(self) -> ModelShape:
        return read_shape(Path(self.options.file))


class Gpt3(LanguageModel):
    """GPT-3 (Brown et al. 2020, table 2.1): 174.6 billion parameters, dropout 0.1 as in Megatron-LM."""

    name = "gpt3-175b"
    summary = "GPT-3 of 175 billion parameters, sequence 2048"
    curves = ("gpt3_175b",)


class Llama8(LanguageModel):
    """Llama 3 8B (2407.21783, table 3)."""

    name = "llama3-8b"
    summary = "Llama 3 of 8.0 billion parameters, sequence 8192"
    curves = ("llama31_8b",)


class Llama70(LanguageModel):
    """Llama 3 70B (2407.21783, table 3)."""

    name = "llama3-70b"
    summary = "Llama 3 of 70.6 billion parameters, sequence 8192"


class Llama405(LanguageModel):
    """Llama 3 405B (2407.21783, table 3)."""

    name = "llama3-405b"
    summary = "Llama 3 of 405 billion parameters, sequence 8192"
    default_global_batch = 2048
    curves = ("llama31_405b",)


class Mixtral(LanguageModel):
    """Mixtral 8x7B (2401.04088, table 1)."""

    name = "mixtral-8x7b"
    summary = "Mixtral of 46.7 billion parameters, 12.9 of them for a token: 8 experts, 2 for each token"


class BertLarge(LanguageModel):
    """BERT large, uncased (1810.04805): masked tokens are predicted; sentences are not."""

    name = "bert-large"
    summary = "BERT large of 335 million parameters, sequence 512, masked tokens predicted"
    curves = ("bert_large",)


class VitLarge(LanguageModel):
    """ViT-L/16 (2010.11929, table 1), 224 x 224 images, 1000 classes."""

    name = "vit-l"
    summary = "vision Transformer ViT-L/16 of 304 million parameters"
    default_global_batch = 4096


LANGUAGE_MODELS = (ConfiguredModel, Gpt3, Llama8, Llama70, Llama405, Mixtral, BertLarge, VitLarge)
