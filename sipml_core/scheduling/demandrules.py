"""What circuits are planned for: bytes, or more for the pairs that a computation waits for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import BYTES_PER_US_PER_GBPS, frozen


@frozen(kw_only=True)
class DemandRule:
    """How much the demand of gating pairs counts: those with a transfer that feeds a compute task.

    A gradient can wait, an activation cannot; of bytes alone a plan cannot tell. With the defaults every
    demand stays as it is.
    """

    #: What the result says of it.
    summary: str
    #: By which the demand of gating pairs is multiplied.
    factor: float = 1.0
    #: It is never below this part of the largest demand in the network.
    of_largest: float = 0.0
    #: Nor below this part of what a GPU can send in an interval.
    of_interval: float = 0.0

    def weighted(
        self, demand: NDArray[np.float64], gates: NDArray[np.bool_], interval_bytes: float
    ) -> NDArray[np.float64]:
        """Return the demands to plan for. [circuits]

        Examples
        --------
        >>> rule = DemandRule(summary="", factor=2.0, of_largest=0.5)
        >>> rule.weighted(np.array([8.0, 3.0, 1.0]), np.array([False, True, True]), 100.0).tolist()
        [8.0, 6.0, 4.0]
        """
        least = max(self.of_largest * float(demand.max(initial=0.0)), self.of_interval * interval_bytes)
        return np.where(gates, np.maximum(self.factor * demand, least), demand)


BYTES = DemandRule(summary="by bytes")
GATING = DemandRule(summary="with gating pairs never below the largest demand", of_largest=1.0)

_HEAVY = DemandRule(summary="with gating pairs 64 times their bytes", factor=64.0)

#: Tried in this order by `demand = "auto"`, after `BYTES`. Measured to be the best few of many; each alone is
#: slower than bytes on some job.
RULES_REPLANNED = (
    GATING,
    DemandRule(summary="with gating pairs never below 1 % of an interval", of_interval=0.01),
    _HEAVY,
)
#: The same for circuits that are set once, where there is no interval.
RULES_ONCE = (
    GATING,
    DemandRule(summary="with gating pairs never below 0.3 of the largest demand", of_largest=0.3),
    _HEAVY,
)


def rules_to_try(interval_us: float | None, *, phases: bool = False) -> tuple[DemandRule, ...]:
    """Return the rules that `demand = "auto"` tries after `BYTES`.

    Parameters
    ----------
    interval_us
        None: circuits are set once. [us]
    phases
        Circuits change between phases of the job, or are set once where that is faster: the rules of both.
    """
    if phases:
        return tuple(dict.fromkeys(RULES_REPLANNED + RULES_ONCE))
    return RULES_ONCE if interval_us is None else RULES_REPLANNED


def interval_bytes(port_gbps: float, interval_us: float | None) -> float:
    """Return what a GPU can send between two decisions; 0 where there is only one. [bytes]"""
    return port_gbps * BYTES_PER_US_PER_GBPS * (interval_us or 0.0)
