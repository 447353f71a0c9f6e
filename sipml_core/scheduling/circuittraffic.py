"""Demands on the circuits of a network as traffic matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import PluginError
from sipml_core.model import Network, TrafficMatrix


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
        from sipml_core.engine import AskedDemand  # here: plugins load this room, and need no engine

        self._network = network
        self._asked = AskedDemand(len(network.circuit_src))
        #: The last matrix that shares its pairs with none before it.
        self._pairs: TrafficMatrix | None = None

    def __call__(self, demand: NDArray[np.float64]) -> TrafficMatrix:
        """Return the matrix of demands on circuits. [circuits]"""
        demand = np.ascontiguousarray(demand, dtype=np.float64)
        circuits = len(self._network.circuit_src)
        if demand.shape != (circuits,):
            raise PluginError(f"demands must be those of {circuits} circuits, got the shape {demand.shape}")
        values, same = self._asked(demand)
        if same and self._pairs is not None:
            return self._pairs.with_demand(values)
        asked = self._asked.asked
        self._pairs = TrafficMatrix(
            gpus=self._network.gpus,
            src=self._network.circuit_src[asked],
            dst=self._network.circuit_dst[asked],
            demand=values,
        )
        return self._pairs
