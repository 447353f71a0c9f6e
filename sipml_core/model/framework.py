"""What the software that drives the GPUs takes: launches of the host, and the wait for the slowest GPU."""

from __future__ import annotations

from sipml_core.fields import between, frozen, option, parse_us

#: Per op; beyond a second nothing is left of a training step. [us]
MAX_HOST_US = 1e6


@frozen(kw_only=True)
class Framework:
    """[framework]: time of the host beside that of the GPUs; by default it takes none.

    >>> Framework(host_us=70.0, cuda_graphs=True).op_us, Framework(host_us=70.0).op_us
    (0.0, 70.0)
    """

    host_us: float = option(
        0.0, converter=parse_us, validator=between(0, MAX_HOST_US), unit="us",
        doc="what the host needs to issue one op; it runs ahead of its GPU, never behind: an op begins no "
        "sooner than the host has issued it and all before it (`cluster.launch_us` is paid on the GPU)",
    )  # fmt: skip
    host_collective_us: float = option(
        0.0, converter=parse_us, validator=between(0, MAX_HOST_US), unit="us",
        doc="what the host needs to issue one collective or send inside a replica",
    )  # fmt: skip
    cuda_graphs: bool = option(
        False, doc="launches are replayed by the device: the host takes no time for each of them"
    )
    slowest_sigma: float = option(
        0.0, validator=between(0, 1),
        doc="relative standard deviation of the speed of GPUs: all wait for the slowest of n, which takes "
        "1 + sigma times the expected largest of n normal deviates as long as the mean",
    )  # fmt: skip

    @property
    def op_us(self) -> float:
        """Return the host's time for one op. [us]"""
        return 0.0 if self.cuda_graphs else self.host_us

    @property
    def collective_us(self) -> float:
        """Return the host's time for one collective. [us]"""
        return 0.0 if self.cuda_graphs else self.host_collective_us

    def slowest_of(self, gpus: int) -> float:
        """Return how many times as long as the mean the slowest of n GPUs takes.

        The expected largest of n standard normal deviates is about the quantile of (n - 0.375) / (n + 0.25)
        (Blom 1958, "Statistical Estimates and Transformed Beta-Variables", section 6.9): 1.42 of 8,
        2.5 of 100.

        >>> Framework(slowest_sigma=0.1).slowest_of(1)
        1.0
        >>> round(Framework(slowest_sigma=0.1).slowest_of(8), 3)
        1.143
        """
        if gpus == 1 or self.slowest_sigma == 0:
            return 1.0
        from statistics import NormalDist  # only here: it loads fractions and decimals, and few ask

        return 1.0 + self.slowest_sigma * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
