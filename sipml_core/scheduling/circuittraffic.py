"""Demands on the circuits of a network as traffic matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import Network, TrafficMatrix

#: Of 53 binary digits the last 17 go. Arrays, for numpy takes longer to look at a Python number than to add 48.
_DROPPED, _ONE, _HALF, _LEFT = (np.array(value) for value in (17, 1, 0xFFFF, ~0x1FFFF))


def circuit_traffic(network: Network, demand: NDArray[np.float64]) -> TrafficMatrix:
    """Return demands on the circuits of a network as a matrix.

    To 36 binary digits: those that are equal but for rounding are equal, so that the last digit of a sum does
    not decide which of them a scheduler serves first.
    """
    return CircuitTraffic(network)(demand)


class CircuitTraffic:
    """Makes the traffic matrices of a network, one decision after the other: see `circuit_traffic`.

    Often the same circuits are asked for as before: these matrices share the arrays of their pairs.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        #: Of the last matrix: which circuits were asked for, as bytes, and where these are. [asked]
        self._mask: bytes | None = None
        self._at = np.empty(0, np.intp)
        self._pairs: TrafficMatrix

    def __call__(self, demand: NDArray[np.float64]) -> TrafficMatrix:
        """Return the matrix of demands on circuits. [circuits]"""
        demand = to_36_digits(demand)
        asked = demand > 0
        mask = asked.tobytes()
        if mask != self._mask:
            self._mask, self._at = mask, np.flatnonzero(asked)
            self._pairs = TrafficMatrix(
                gpus=self._network.gpus,
                src=self._network.circuit_src[self._at],
                dst=self._network.circuit_dst[self._at],
                demand=demand[self._at],
            )
            return self._pairs
        return self._pairs.with_demand(demand[self._at])


def to_36_digits(demand: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers rounded to 36 binary digits, those half way between two to the even one.

    >>> to_36_digits(np.array([1.0, 1 + 2.0**-35, 1 + 2.0**-36, 1 + 3 * 2.0**-36, 0.0])).tolist()
    [1.0, 1.0000000000291038, 1.0, 1.0000000000582077, 0.0]
    """
    # Half of the last digit that stays, less one if that is even, carries into it, and from the largest
    # fraction into the exponent, as it should.
    bits = demand.view(np.int64)
    rounded = bits >> _DROPPED
    rounded &= _ONE
    rounded += _HALF
    rounded += bits
    rounded &= _LEFT
    return rounded.view(np.float64)
