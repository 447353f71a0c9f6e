"""A traffic matrix as few weighted permutations, spread over optical switches that take time to change."""

from __future__ import annotations

import math
from collections.abc import Iterator

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, PluginError
from sipml_core.fields import BYTES_PER_US_PER_GBPS, float64_vector, int32_matrix, int32_vector
from sipml_core.model import TrafficMatrix
from sipml_ocs.kernel import DARK, decomposed


@attrs.frozen(kw_only=True, eq=False)
class Decomposition:
    """When which switch holds which permutation, so that all demands are served.

    Slice k of the schedule: from `start_us[k]` switch `switch[k]` is set to the permutation
    `port_map[configuration[k]]`, is dark for `reconfiguration_us`, and carries until `end_us[k]`.
    """

    traffic: TrafficMatrix
    switches: int
    #: Capacity of one circuit. [Gbps]
    link_gbps: float
    reconfiguration_us: float
    #: Output of each input in each configuration; -1: dark. [configurations, gpus]
    port_map: NDArray[np.int32] = attrs.field(converter=int32_matrix)
    #: How long each configuration carries, on all switches together. [configurations] [us]
    duration_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: [slices]
    switch: NDArray[np.int32] = attrs.field(converter=int32_vector)
    configuration: NDArray[np.int32] = attrs.field(converter=int32_vector)
    start_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    end_us: NDArray[np.float64] = attrs.field(converter=float64_vector)

    @property
    def configurations(self) -> int:
        return len(self.port_map)

    @property
    def makespan_us(self) -> float:
        """Return when the last byte has left. [us]"""
        return float(self.end_us.max(initial=0.0))

    @property
    def bound_us(self) -> float:
        """Return a time before which no schedule of these switches ends. [us]"""
        times_us = transfer_times_us(self.traffic, self.link_gbps)
        return makespan_bound_us(self.traffic, times_us, self.switches, self.reconfiguration_us)

    def check(self) -> None:
        """Verify that the schedule can exist and serves every demand.

        Raises
        ------
        PluginError
            Naming the first rule that is broken.
        """
        inputs = np.arange(self.traffic.gpus)
        for number, outputs in enumerate(self.port_map):
            lit = outputs[outputs != DARK]
            if len(np.unique(lit)) != len(lit) or (outputs == inputs).any():
                raise PluginError(f"configuration {number} is no permutation of different ports")
        order = np.lexsort((self.start_us, self.switch))
        same = np.diff(self.switch[order]) == 0
        if (same & (self.start_us[order][1:] < self.end_us[order][:-1] * (1 - 1e-9))).any():
            raise PluginError("two configurations are on one switch at the same time")
        lit_us = np.bincount(
            self.configuration,
            np.maximum(self.end_us - self.start_us - self.reconfiguration_us, 0.0),
            self.configurations,
        )
        served_us = np.zeros(self.traffic.pairs)
        for outputs, span_us in zip(self.port_map, lit_us, strict=True):
            served_us[outputs[self.traffic.src] == self.traffic.dst] += span_us
        short = served_us < transfer_times_us(self.traffic, self.link_gbps) * (1 - 1e-9)
        if short.any():
            k = int(np.flatnonzero(short)[0])
            raise PluginError(f"pair {self.traffic.src[k]}->{self.traffic.dst[k]} is not served in full")

    def rows(self) -> Iterator[dict[str, float | int]]:
        """Yield one record for each slice."""
        for k in range(len(self.switch)):
            yield {
                "switch": int(self.switch[k]),
                "configuration": int(self.configuration[k]),
                "start_us": float(self.start_us[k]),
                "lit_us": float(self.start_us[k] + self.reconfiguration_us),
                "end_us": float(self.end_us[k]),
            }


def decompose(
    traffic: TrafficMatrix, *, switches: int, link_gbps: float, reconfiguration_us: float
) -> Decomposition:
    """Return a short schedule of permutations on parallel switches that serves all demands.

    A demand above a limit is divided into pieces of that size. Pieces, the largest first, are matched into as
    few configurations as the largest degree allows (`ocs_match`), so that those of one are of like size:
    a configuration lasts as long as its longest piece. Several limits are tried. Configurations are put on
    switches longest first, each where it ends soonest; or, where that is shorter, switch after switch is
    filled, and what is over is cut and goes on on the next (McNaughton), one delay more for each cut.

    Parameters
    ----------
    traffic
        Demands. [bytes]
    switches, link_gbps
        Each GPU has a link of that capacity to each of so many switches. [Gbps]
    reconfiguration_us
        For which a switch is dark, all of it, before each configuration. [us]

    Raises
    ------
    ConfigError
        Fewer switches than 1, a capacity that is not positive, or a delay that is negative.

    Examples
    --------
    A ring of three: one permutation, cut between both switches. 12 500 bytes take 1 us at 100 Gbps.

    >>> traffic = TrafficMatrix.from_dense([[0, 25_000, 0], [0, 0, 25_000], [25_000, 0, 0]])
    >>> made = decompose(traffic, switches=2, link_gbps=100.0, reconfiguration_us=0.5)
    >>> made.port_map.tolist(), round(made.makespan_us, 9)
    ([[1, 2, 0]], 1.5)
    """
    if switches < 1 or not (math.isfinite(link_gbps) and link_gbps > 0) or reconfiguration_us < 0:
        raise ConfigError(
            f"decompose needs switches >= 1, link_gbps > 0 and reconfiguration_us >= 0, got {switches}, "
            f"{link_gbps:g} and {reconfiguration_us:g}"
        )
    times_us = transfer_times_us(traffic, link_gbps)
    port_map, duration_us, slices = decomposed(traffic, times_us, switches, reconfiguration_us)
    return Decomposition(
        traffic=traffic,
        switches=switches,
        link_gbps=link_gbps,
        reconfiguration_us=reconfiguration_us,
        port_map=port_map,
        duration_us=duration_us,
        switch=slices["on"],
        configuration=slices["configuration"],
        start_us=slices["start"],
        end_us=slices["end"],
    )


def transfer_times_us(traffic: TrafficMatrix, link_gbps: float) -> NDArray[np.float64]:
    """Return how long each demand takes on one link. [pairs] [us]"""
    return np.asarray(traffic.demand / (link_gbps * BYTES_PER_US_PER_GBPS))


def makespan_bound_us(
    traffic: TrafficMatrix, times_us: NDArray[np.float64], switches: int, delay_us: float
) -> float:
    """Return a time before which no schedule ends. [us]

    Configurations last at least as long together as the busiest port sends, and there are at least as
    many as any port has peers; and the largest demand needs its time even with all switches at once.
    """
    if traffic.pairs == 0:
        return 0.0
    busiest_us = max(np.bincount(ends, times_us).max() for ends in (traffic.src, traffic.dst))
    peers = max(np.bincount(ends).max() for ends in (traffic.src, traffic.dst))
    return float(max((busiest_us + peers * delay_us) / switches, times_us.max() / switches + delay_us))
