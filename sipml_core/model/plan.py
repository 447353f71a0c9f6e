"""How a job is divided over GPUs (paper, section 3.2: dp replicas of mp GPUs each)."""

from __future__ import annotations

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, between, one_of, option, parse_bytes, parse_us, positive


@attrs.frozen(kw_only=True)
class Execution:
    """How a job runs, whatever its degrees."""

    tau_us: float = option(
        10.0,
        converter=parse_us,
        validator=positive,
        unit="us",
        doc="sub-ops aim at this compute time (paper, section 4.1)",
    )
    bucket_bytes: float = option(
        25e6, converter=parse_bytes, validator=positive, unit="bytes",
        doc="gradients are synchronised in buckets of about this size (PyTorch DDP's default)",
    )  # fmt: skip
    ring_steps: str = option(
        "fluid", validator=one_of("explicit", "fluid"),
        doc='how a ring all-reduce is simulated: each step ("explicit"), or one transfer per member and phase'
        ' ("fluid")',
    )  # fmt: skip
    counter_rotating: bool = option(
        False,
        doc="all-reduce half of the gradients each way round the ring of replicas: two peers, not one",
    )
    exchange: str = option(
        "auto",
        doc='how a group exchanges: "auto", the fastest of those that suit the network, or the name of an '
        "exchange (see `plugins`): direct, chain, ring, tiers, ...",
    )
    all_reduce: str = option(
        "auto",
        doc='how replicas sum their gradients: "auto", the fastest of those that suit the network, or the '
        "name of an all-reduce (see `plugins`): flat, two-tier, tiered, ...",
    )
    recompute: bool = option(
        False, doc="keep only layer inputs and run the forward pass again while going backward"
    )
    iterations: int = option(
        1,
        validator=between(1, 1000),
        doc="training iterations simulated back to back; the last one is reported",
    )


def _only_one(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    """Refuse a degree that the training step cannot have yet."""
    if value != 1:
        raise ConfigError(f"{attribute.name} must be 1, got {value!r}: only mp and dp divide a job so far")


@attrs.frozen(kw_only=True)
class Plan(Execution):
    """N = mp cp pp dp GPUs: replicas of mp cp pp GPUs each share the global batch.

    In the paper's words, k = `mp` GPUs hold one replica of the model and there are l = `dp` of them.
    """

    #: Model-parallel degree: GPUs over which ops are split.
    mp: int = attrs.field(validator=at_least(1))
    #: Context-parallel degree: GPUs over which a sequence is split.
    cp: int = attrs.field(default=1, validator=_only_one)
    #: Pipeline stages.
    pp: int = attrs.field(default=1, validator=_only_one)
    #: Data-parallel degree: replicas.
    dp: int = attrs.field(validator=at_least(1))
    #: Expert-parallel degree: the part of dp over which experts are spread.
    ep: int = attrs.field(default=1, validator=_only_one)
    #: Samples in one iteration, all replicas together.
    global_batch: int = attrs.field(validator=at_least(1))
    #: Samples that a replica passes through at once; None: all of its share of the batch.
    micro_batch: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.global_batch % self.dp:
            lower = self.global_batch // self.dp * self.dp
            near = f"{lower} or {lower + self.dp}" if lower else f"{self.dp}"
            raise ConfigError(
                f"global_batch must be a multiple of dp={self.dp}, got {self.global_batch}; nearest: {near}"
            )
        if self.micro_batch not in (None, self.local_batch):
            raise ConfigError(
                f"micro_batch must be {self.local_batch}, all that a replica trains on, got "
                f"{self.micro_batch}: "
                "gradients are not accumulated yet"
            )

    @property
    def gpus(self) -> int:
        """All GPUs of the job, N."""
        return self.replica_gpus * self.dp

    @property
    def replica_gpus(self) -> int:
        """GPUs that hold one replica of the model."""
        return self.mp * self.cp * self.pp

    @property
    def ring_peers(self) -> int:
        """Counterparts in other replicas that a GPU sends gradients to."""
        return min(2 if self.counter_rotating else 1, self.dp - 1)

    @property
    def local_batch(self) -> int:
        """Samples each replica (group of `mp` GPUs) trains on: b / l."""
        return self.global_batch // self.dp
