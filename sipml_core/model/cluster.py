"""The machines: how many GPUs, what kind, how fast each one's port is."""

from __future__ import annotations

import attrs

from sipml_core.checks import at_least, between, positive

#: GPUs are numbered in 32-bit integers in the C kernels, pairs in 64-bit ones.
MAX_GPUS = 65536


@attrs.frozen(kw_only=True)
class Cluster:
    """N GPUs with B Gbps of network bandwidth each, in each direction."""

    gpus: int = attrs.field(validator=between(1, MAX_GPUS))
    #: Network bandwidth of one GPU, sending and receiving. [Gbps]
    bandwidth_gbps: float = attrs.field(validator=positive)
    #: Smallest time a kernel takes on the device (paper, section 4.2). [us]
    minimum_op_us: float = attrs.field(default=1.0, validator=at_least(0))
    #: Kernel launch latency, paid by every op (paper, section 4.2). [us]
    launch_us: float = attrs.field(default=1.0, validator=at_least(0))

    def duration_us(self, op_time_us: float) -> float:
        """What an op occupies its GPU for: at least the minimum, plus the launch. [us]"""
        return max(op_time_us, self.minimum_op_us) + self.launch_us
