"""How a job is divided over GPUs: dp replicas of mp GPUs each (paper, section 3.2)."""

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
        "auto", validator=one_of("auto", "direct", "chain"),
        doc='inside a group: from each maker to each user ("direct"), or passed on and added up from device '
        'to device along the group ("chain"); "auto": direct, and on circuits the faster of both',
    )  # fmt: skip
    recompute: bool = option(
        False, doc="keep only layer inputs and run the forward pass again while going backward"
    )
    iterations: int = option(
        1,
        validator=between(1, 1000),
        doc="training iterations simulated back to back; the last one is reported",
    )


@attrs.frozen(kw_only=True)
class Plan(Execution):
    """k = `mp` GPUs hold one model replica, l = `dp` replicas share the global batch."""

    mp: int = attrs.field(validator=at_least(1))
    dp: int = attrs.field(validator=at_least(1))
    global_batch: int = attrs.field(validator=at_least(1))

    def __attrs_post_init__(self) -> None:
        if self.global_batch % self.dp:
            lower = self.global_batch // self.dp * self.dp
            near = f"{lower} or {lower + self.dp}" if lower else f"{self.dp}"
            raise ConfigError(
                f"global_batch must be a multiple of dp={self.dp}, got {self.global_batch}; nearest: {near}"
            )

    @property
    def gpus(self) -> int:
        return self.mp * self.dp

    @property
    def ring_peers(self) -> int:
        """Counterparts in other replicas that a GPU sends gradients to."""
        return min(2 if self.counter_rotating else 1, self.dp - 1)

    @property
    def local_batch(self) -> int:
        """Samples each replica (group of `mp` GPUs) trains on: b / l."""
        return self.global_batch // self.dp
