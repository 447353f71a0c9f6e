"""A traffic matrix as few weighted permutations, spread over optical switches that take time to change."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, PluginError
from sipml_core.fields import BYTES_PER_US_PER_GBPS, float64_vector, int32_matrix, int32_vector
from sipml_core.model import TrafficMatrix
from sipml_ocs.kernel import DARK, match

#: Parts of the largest demand above which a demand is divided into pieces: 1 / part, from coarse to fine.
CUTS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 16.0)
#: Up to so many demands all are tried. Above, the search begins at one and turns after a few that are worse.
FEW_PAIRS, FIRST_CUT, PATIENCE = 10_000, 4, 2
#: Pieces that are matched in all, at most; whatever has been tried by then is compared.
MOST_PIECES = 3_000_000
#: Steps of bisection between the mean load of a switch and a span that surely suffices.
BISECTIONS = 12


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
    pieces, spread = _best(traffic, times_us, switches, reconfiguration_us)
    port_map = np.full((len(pieces.duration_us), traffic.gpus), DARK, dtype=np.int32)
    port_map[pieces.configuration, traffic.src[pieces.pair]] = traffic.dst[pieces.pair]
    return Decomposition(
        traffic=traffic,
        switches=switches,
        link_gbps=link_gbps,
        reconfiguration_us=reconfiguration_us,
        port_map=port_map,
        duration_us=pieces.duration_us,
        switch=[each[0] for each in spread],
        configuration=[each[1] for each in spread],
        start_us=[each[2] for each in spread],
        end_us=[each[3] for each in spread],
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


@attrs.frozen(kw_only=True, eq=False)
class _Pieces:
    """Demands divided into pieces, each with its configuration; these from the longest to the shortest."""

    pair: NDArray[np.int64]
    configuration: NDArray[np.int32]
    #: [configurations]
    duration_us: NDArray[np.float64]


#: Switch, configuration, start and end of a slice. [us]
_Slice = tuple[int, int, float, float]


def _best(
    traffic: TrafficMatrix, times_us: NDArray[np.float64], switches: int, delay_us: float
) -> tuple[_Pieces, list[_Slice]]:
    """Return the pieces and the schedule of the best cut that is tried, the coarsest of those."""
    largest_us = float(times_us.max(initial=0.0))
    order = np.argsort(-times_us, kind="stable")
    found: dict[int, tuple[float, _Pieces, list[_Slice]]] = {}
    budget = MOST_PIECES

    def tried(cut: int) -> float:
        """Return the makespan with a cut, to 9 digits; infinite where the budget is used up. [us]"""
        nonlocal budget
        if cut not in found:
            if budget <= 0 and found:
                return math.inf
            pieces = _matched(traffic, times_us, order, largest_us / CUTS[cut])
            slices = spread_over(pieces.duration_us, switches, delay_us)
            found[cut] = float(f"{_end_us(slices):.9g}"), pieces, slices
            budget -= len(pieces.pair)
        return found[cut][0]

    best, patience = FIRST_CUT, PATIENCE if traffic.pairs > FEW_PAIRS else len(CUTS)
    tried(best)
    for step in (1, -1):
        cut, worse = best + step, 0
        while 0 <= cut < len(CUTS) and worse < patience:
            if tried(cut) < tried(best):
                best, worse = cut, 0
            else:
                worse += 1
            cut += step
    best = min(found, key=lambda cut: (found[cut][0], cut))
    return found[best][1:]


def _matched(
    traffic: TrafficMatrix, times_us: NDArray[np.float64], order: NDArray[np.int64], limit_us: float
) -> _Pieces:
    """Return pieces no longer than a limit, in configurations. `order` sorts demands, the largest first."""
    time_us = times_us[order]
    # Pieces of each demand; all but the last are as long as the limit. [pairs]
    count = np.maximum(np.ceil(time_us / limit_us - 1e-9), 1).astype(np.int64) if len(time_us) else order
    pair, span_us = np.repeat(order, count), np.full(int(count.sum()), limit_us)
    span_us[np.cumsum(count) - 1] = time_us - (count - 1) * limit_us
    by_size = np.argsort(-span_us, kind="stable")
    pair, span_us = pair[by_size], span_us[by_size]

    src, dst = traffic.src[pair], traffic.dst[pair]
    degree = max((int(np.bincount(ends).max()) for ends in (src, dst) if len(ends)), default=0)
    colour = match(traffic.gpus, src, dst, degree)
    duration_us = np.zeros(degree)
    np.maximum.at(duration_us, colour, span_us)
    longest = np.argsort(-duration_us, kind="stable")
    place = np.empty(degree, dtype=np.int32)
    place[longest] = np.arange(degree, dtype=np.int32)
    return _Pieces(pair=pair, configuration=place[colour], duration_us=duration_us[longest])


def spread_over(duration_us: NDArray[np.float64], switches: int, delay_us: float) -> list[_Slice]:
    """Return slices that give every configuration its time on some switches, dark time before each.

    Examples
    --------
    5, 4 and 3 us on two switches without a delay: 6 us with a cut, 7 without.

    >>> slices = spread_over(np.array([5.0, 4.0, 3.0]), 2, 0.0)
    >>> [(q, k, round(start, 9), round(end, 9)) for q, k, start, end in slices]
    [(0, 0, 0.0, 5.0), (0, 1, 5.0, 6.0), (1, 1, 0.0, 3.0), (1, 2, 3.0, 6.0)]

    A cut of 5 us that costs 2 us is not worth it: 7 us, and 7.5 with it.

    >>> spread_over(np.array([5.0, 4.0]), 2, 2.0)
    [(0, 0, 0.0, 7.0), (1, 1, 0.0, 6.0)]
    """
    spans_us = [float(span) for span in duration_us if span > 0]
    whole = _longest_first(spans_us, switches, delay_us)
    if not spans_us:
        return whole
    # Each of the switches but the last loses at most one delay to a cut, or to what is too short for one.
    total_us = math.fsum(spans_us) + len(spans_us) * delay_us
    low_us, high_us = total_us / switches, (total_us + (switches - 1) * delay_us) / switches
    high_us = max(high_us, delay_us + max(spans_us) / switches) * (1 + 1e-12)
    if high_us - low_us > 1e-9 * high_us:
        for _ in range(BISECTIONS):
            middle_us = (low_us + high_us) / 2
            if _filled(spans_us, switches, delay_us, middle_us) is None:
                low_us = middle_us
            else:
                high_us = middle_us
    cut = _filled(spans_us, switches, delay_us, high_us)
    return whole if cut is None or _end_us(whole) <= _end_us(cut) else cut


def _end_us(slices: list[_Slice]) -> float:
    return max((each[3] for each in slices), default=0.0)


def _longest_first(spans_us: list[float], switches: int, delay_us: float) -> list[_Slice]:
    """Return slices, each configuration whole, on the switch that is free first."""
    free = [(0.0, switch) for switch in range(switches)]
    slices: list[_Slice] = []
    for number, span_us in enumerate(spans_us):
        start_us, switch = free[0]
        heapq.heapreplace(free, (start_us + delay_us + span_us, switch))
        slices.append((switch, number, start_us, start_us + delay_us + span_us))
    return slices


def _filled(spans_us: list[float], switches: int, delay_us: float, end_us: float) -> list[_Slice] | None:
    """Return slices that fill one switch after the other up to an end; None if there are too few."""
    slices: list[_Slice] = []
    switch, now_us = 0, 0.0
    for number, span_us in enumerate(spans_us):
        left_us = span_us
        while left_us > 1e-12 * end_us:
            room_us = end_us - now_us - delay_us
            if room_us <= 1e-12 * end_us:
                switch, now_us = switch + 1, 0.0
                if switch == switches or end_us <= delay_us:
                    return None
                continue
            taken_us = min(room_us, left_us)
            slices.append((switch, number, now_us, now_us + delay_us + taken_us))
            now_us += delay_us + taken_us
            left_us -= taken_us
    return slices
