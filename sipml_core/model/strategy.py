"""How a job is divided over GPUs: dp replicas of mp GPUs each (paper, section 3.2)."""

from __future__ import annotations

import attrs

from sipml_core.checks import at_least, one_of, positive
from sipml_core.errors import ConfigError


@attrs.frozen(kw_only=True)
class Strategy:
    """k = `mp` GPUs hold one model replica, l = `dp` replicas share the global batch."""

    mp: int = attrs.field(validator=at_least(1))
    dp: int = attrs.field(validator=at_least(1))
    global_batch: int = attrs.field(validator=at_least(1))
    #: Sub-ops aim at this compute time (paper, section 4.1). [us]
    tau_us: float = attrs.field(default=10.0, validator=positive)
    #: Gradients are synchronised in buckets of about this size (PyTorch DDP's default). [bytes]
    bucket_bytes: float = attrs.field(default=25e6, validator=positive)
    #: "ring" sends explicit steps, "fluid" one transfer per member and phase.
    collective: str = attrs.field(default="fluid", validator=one_of("ring", "fluid"))
    #: Keep only layer inputs and run the forward pass again while going backward.
    recompute: bool = False
    #: Training steps simulated back to back; the last one is reported.
    iterations: int = attrs.field(default=1, validator=at_least(1))

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
    def local_batch(self) -> int:
        """Samples each replica (group of `mp` GPUs) trains on: b / l."""
        return self.global_batch // self.dp
