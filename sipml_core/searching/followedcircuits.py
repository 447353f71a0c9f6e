"""Circuits that follow what the first groups of a job ask for, as if all groups asked for the same.

For estimates: shares of ports in place of a plan for all GPUs.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.engine import CircuitSettings
from sipml_core.model import CircuitControl
from sipml_core.plugin import DemandForecast

#: Steps in search of the ratio of circuits to demand, and rounds in which what is left is given away.
_BISECTIONS, _FILLS = 20, 4
#: Part of a port below which nothing is free.
_ROUNDING = 1e-6


@attrs.define(kw_only=True, eq=False)
class FollowedCircuits:
    """Drives circuits of the first groups at every interval: each pair that asks gets its share of the ports.

    A receiver in another group stands for its image in these: what the first groups send to it, others
    send to them.
    """

    control: CircuitControl
    forecast: DemandForecast
    #: Circuits of the network that the first groups use, and the port at each end of them. [own]
    own: NDArray[np.intp]
    sender: NDArray[np.int64]
    receiver: NDArray[np.int64]
    #: What these send in the whole job: what the first plan is for. [own] [bytes]
    total_bytes: NDArray[np.float64]
    #: Of the network.
    circuits: int
    _gbps: NDArray[np.float64] | None = None

    @property
    def interval_us(self) -> float | None:
        """Time between decisions. [us]"""
        return self.control.interval_us

    def decide(
        self, now_us: float, sent_bytes: NDArray[np.float64], backlog_bytes: NDArray[np.float64]
    ) -> CircuitSettings | None:
        """Return the capacities of all circuits from `now_us` on; None: leave them."""
        if now_us == 0:
            demand = self.total_bytes
        else:
            interval_us = self.control.interval_us or 0.0
            demand = self.forecast(
                now_us=now_us, interval_us=interval_us, sent_bytes=sent_bytes, backlog_bytes=backlog_bytes
            )[self.own]
            if not demand.any():
                return None
        port, one = self.control.circuits_per_gpu, self.control.circuit_gbps
        before = np.zeros(len(self.own)) if self._gbps is None else self._gbps / one
        shares = port_shares(demand, self.sender, self.receiver, port, before)
        self._gbps = shares * one
        kept = shares if now_us == 0 else np.minimum(shares, before)
        # Less than half a circuit more is none.
        kept = np.where(shares - kept < 0.5, shares, kept)
        dark_us = np.where(kept < shares, self.control.reconfiguration_us, 0.0)
        return CircuitSettings(
            gbps=self._of_all(self._gbps), kept_gbps=self._of_all(kept * one), dark_us=self._of_all(dark_us)
        )

    def _of_all(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        found = np.zeros(self.circuits)
        found[self.own] = values
        return found


def port_shares(
    demand: NDArray[np.float64],
    sender: NDArray[np.int64],
    receiver: NDArray[np.int64],
    port: float,
    before: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return circuits of each pair, in parts: in proportion to demand, one at least where all may have one.

    What is left of ports goes to others that ask. Pairs that ask for nothing keep what they had, as far as
    there is room.

    Parameters
    ----------
    port
        Circuits of a port.
    before
        Circuits of each pair until now. [pairs]

    Examples
    --------
    Of four circuits at port 0 the small demand gets one and the large one three; nothing else is asked.

    >>> ends = np.array([0, 0, 1]), np.array([1, 2, 0])
    >>> port_shares(np.array([1.0, 90.0, 0.0]), *ends, 4.0, np.array([0.0, 0.0, 2.0])).tolist()
    [1.0, 3.0, 2.0]
    """
    ports = int(max(sender.max(initial=-1), receiver.max(initial=-1))) + 1
    asked = demand > 0

    def fullest(taken: NDArray[np.float64]) -> float:
        """Return the circuits of the port that has the most."""
        return max(float(np.bincount(ends, taken, ports).max(initial=0.0)) for ends in (sender, receiver))

    def more(taken: NDArray[np.float64], wants: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what is left at both ends of each pair, in proportion to what pairs want there."""
        free = [np.maximum(port - np.bincount(ends, taken, ports), 0.0) for ends in (sender, receiver)]
        both = (free[0][sender] > _ROUNDING * port) & (free[1][receiver] > _ROUNDING * port)
        weight, part = np.where(both, wants, 0.0), np.full(len(wants), np.inf)
        for ends, there in zip((sender, receiver), free, strict=True):
            total = np.bincount(ends, weight, ports)
            ratio = np.divide(there, total, out=np.zeros(ports), where=total > 0)
            part = np.minimum(part, weight * ratio[ends])
        return part

    # The largest ratio of circuits to demand that ports allow.
    floor = asked.astype(np.float64) if fullest(asked.astype(np.float64)) <= port else np.zeros(len(demand))
    low, high = 0.0, port / float(demand.max(initial=1e-300))
    for _ in range(_BISECTIONS):
        ratio = (low + high) / 2
        if fullest(np.maximum(floor, ratio * demand)) <= port:
            low = ratio
        else:
            high = ratio
    shares = np.maximum(floor, low * demand)

    # What is left of ports, to those that ask; then to those that had some.
    for _ in range(_FILLS):
        shares = shares + more(shares, demand)
    had = np.where(asked, 0.0, before)
    return shares + np.minimum(more(shares, had), had) if had.any() else shares
