"""The machines: how many GPUs, and how fast each one's port is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from sipml_core.errors import ConfigError, shown
from sipml_core.fields import between, frozen, option, parse_gbps, parse_us, positive

#: GPUs are numbered in 32-bit integers in the C kernels, pairs in 64-bit ones.
MAX_GPUS = 65536

#: Per kernel; beyond a second nothing is left of a training step. [us]
MAX_OVERHEAD_US = 1e6
#: A GPU slower than this would only make the simulated time long, and a faster one leave nothing of it.
MIN_SPEED = 1e-3
MAX_SPEED = 1e3


def _gpu_speed(speeds: Mapping[Any, Any]) -> tuple[tuple[int, float], ...]:
    """(GPU, speed), by GPU; a key is the number of a GPU as it is written, so that none appears twice."""
    try:
        items = list(dict(speeds).items())
    except (TypeError, ValueError):
        raise ConfigError(
            f'must be a table of GPU = speed such as {{ "3" = 0.5 }}, got {shown(speeds)}'
        ) from None
    found: dict[int, float] = {}
    for key, speed in items:
        gpu = _gpu_number(key)
        if gpu in found:
            raise ConfigError(f"gives GPU {gpu} twice")
        if isinstance(speed, bool) or not isinstance(speed, (int, float)):
            raise ConfigError(f"must give GPU {gpu} a number, got {shown(speed)}")
        if not MIN_SPEED <= speed <= MAX_SPEED:
            raise ConfigError(
                f"must give GPU {gpu} a speed from {MIN_SPEED:g} to {MAX_SPEED:g}, got {shown(speed)}"
            )
        found[gpu] = float(speed)
    return tuple(sorted(found.items()))


def _gpu_number(key: Any) -> int:
    text = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if isinstance(text, str) and re.fullmatch("0|[1-9][0-9]{0,8}", text):
        return int(text)
    raise ConfigError(f"must name GPUs by their numbers, 0, 1, ..., got {shown(key)}")


@frozen(kw_only=True)
class Cluster:
    """N GPUs with B Gbps of network bandwidth each, in each direction."""

    gpus: int = option(validator=between(1, MAX_GPUS), doc="GPUs in the cluster, N = mp x dp")
    bandwidth_gbps: float = option(
        converter=parse_gbps, validator=positive, unit="Gbps",
        doc='network bandwidth of one GPU, sending and receiving; "2 Tbps" and "250 GB/s" work too',
    )  # fmt: skip
    minimum_op_us: float = option(
        1.0, converter=parse_us, validator=between(0, MAX_OVERHEAD_US), unit="us",
        doc="smallest time a kernel takes on the device (paper, section 4.2)",
    )  # fmt: skip
    launch_us: float = option(
        1.0, converter=parse_us, validator=between(0, MAX_OVERHEAD_US), unit="us",
        doc="kernel launch latency, paid by every op (paper, section 4.2)",
    )  # fmt: skip
    gpu_speed: tuple[tuple[int, float], ...] = option(
        {}, converter=_gpu_speed, doc='speed of single GPUs relative to the others, such as { "3" = 0.5 }'
    )
    jitter: float = option(
        0.0,
        validator=between(0, 1),
        doc="relative standard deviation of compute times: log-normal, mean kept, drawn with the seed",
    )

    def __attrs_post_init__(self) -> None:
        for gpu, speed in self.gpu_speed:
            if gpu >= self.gpus:
                raise ConfigError(f"gpu_speed names GPUs 0..{self.gpus - 1}, got {gpu} = {speed:g}")

    def without_network(self) -> Cluster:
        """Return the same GPUs with 1 Gbps each: equal for clusters whose GPUs compute alike."""
        return attrs.evolve(self, bandwidth_gbps=1.0)

    def duration_us(self, op_time_us: float) -> float:
        """What an op occupies its GPU for: at least the minimum, plus the launch. [us]"""
        return max(op_time_us, self.minimum_op_us) + self.launch_us
