"""A task graph in which transfers that are passed on from GPU to GPU stand for all of their legs."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import SipmlError
from sipml_core.fields import frozen, int32_vector
from sipml_core.model.network import Network
from sipml_core.model.pairs import ranges
from sipml_core.model.taskgraph import TaskGraph

#: `way` of a transfer that is not passed on.
NO_WAY = -1


def _none() -> NDArray[np.int32]:
    return np.zeros(0, dtype=np.int32)


@frozen(kw_only=True, eq=False)
class Ways:
    """The legs that transfers take one after the other: leg k of way w is number ``start[w] + k``."""

    #: First leg of each way, and the number of legs. [ways + 1]
    start: NDArray[np.int32] = attrs.field(factory=lambda: np.zeros(1, np.int32), converter=int32_vector)
    #: Ends of each leg. [legs]
    src: NDArray[np.int32] = attrs.field(factory=_none, converter=int32_vector)
    dst: NDArray[np.int32] = attrs.field(factory=_none, converter=int32_vector)
    #: Place of each leg among all transfers, counted from that of its transfer. [legs]
    place: NDArray[np.int32] = attrs.field(factory=_none, converter=int32_vector)

    @property
    def count(self) -> int:
        return len(self.start) - 1

    def followed_by(self, others: Ways) -> Ways:
        """Return these ways and others, numbered after them."""
        if not others.count:
            return self
        return Ways(
            start=np.concatenate([self.start, others.start[1:] + self.start[-1]]),
            src=np.concatenate([self.src, others.src]),
            dst=np.concatenate([self.dst, others.dst]),
            place=np.concatenate([self.place, others.place]),
        )


@frozen(kw_only=True, eq=False)
class RelayedTasks:
    """Tasks of which some transfers are passed on from GPU to GPU, all bytes of a leg before the next one.

    `explicit` is the same with a transfer for each leg: this is what a run of these tasks means. Here a
    transfer is one row however many legs it has, so that there is less to keep and to look at.

    Examples
    --------
    A box goes from GPU 0 over 1 to 2, another one from 0 to 1: of three transfers the second is the leg
    from 1 to 2. Who waits for the box waits for that.

    >>> from sipml_core.model import TaskBuilder
    >>> builder = TaskBuilder(3)
    >>> task = builder.tasks(2, 1.0, 0, 0)
    >>> ways = Ways(start=[0, 2], src=[0, 1], dst=[1, 2], place=[0, 1])
    >>> sends = builder.passed_on([0, 0], [1, 1], 8.0, ways, way=[0, -1], place=[0, 2], priorities=[5, 6, 7])
    >>> builder.depend(sends[0], task)
    >>> relayed = builder.build_relayed()
    >>> relayed.rows.transfers, relayed.rows.priority.tolist()
    (2, [0, 5, 7])
    >>> legs = relayed.explicit
    >>> list(zip(legs.src.tolist(), legs.dst.tolist(), legs.priority[1:].tolist()))
    [(0, 1, 5), (1, 2, 6), (0, 1, 7)]
    >>> legs.succ_start.tolist(), legs.successors.tolist()
    ([0, 0, 1, 2, 2], [2, 0])
    """

    #: A relayed transfer is one of these: it goes from the first sender to the first receiver.
    rows: TaskGraph
    ways: Ways
    #: Way of each transfer, or NO_WAY; and its place among all transfers: see `Ways.place`. [rows]
    way: NDArray[np.int32] = attrs.field(converter=int32_vector)
    place: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Of all transfers, each leg for itself. [transfers]
    priority: NDArray[np.int32] = attrs.field(converter=int32_vector)

    @property
    def gpus(self) -> int:
        return self.rows.gpus

    @property
    def compute_tasks(self) -> int:
        return self.rows.compute_tasks

    @property
    def transfers(self) -> int:
        """Return the number of transfers, each leg for itself."""
        return len(self.priority)

    @property
    def nodes(self) -> int:
        return self.compute_tasks + self.transfers

    @property
    def legs(self) -> NDArray[np.int32]:
        """Return how many transfers each row is. [rows]"""
        legs = np.ones(len(self.way), dtype=np.int32)
        relayed = self.way != NO_WAY
        legs[relayed] = np.diff(self.ways.start)[self.way[relayed]]
        return legs

    @property
    def ends(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return source and destination of each leg of all ways, then of each row. [legs + rows]"""
        return np.concatenate([self.ways.src, self.rows.src]), np.concatenate([self.ways.dst, self.rows.dst])

    @property
    def total_bytes(self) -> float:
        """Return what all transfers send. [bytes]"""
        return float((self.rows.size_bytes * self.legs).sum())

    def bytes_of_ends(self, row_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what is sent between each of `ends` where each row sends this much. [legs + rows] [bytes]"""
        relayed = self.way != NO_WAY
        of_way = np.bincount(self.way[relayed], row_bytes[relayed], self.ways.count)
        of_leg = np.repeat(of_way, np.diff(self.ways.start))
        return np.concatenate([of_leg, np.where(relayed, 0.0, row_bytes)])

    @property
    def explicit(self) -> TaskGraph:
        """Return the same tasks with a transfer for each leg."""
        rows, first, count = self.rows, self.compute_tasks, self.transfers
        row, end = self._of_places()
        src, dst = self.ends

        # Nodes of the first and of the last leg of each row; dependencies of rows, and of legs.
        legs = self.legs
        order, row_of = self._legs()
        begins = np.cumsum(legs) - legs
        first_node = np.concatenate([np.arange(first), first + order[begins]])
        last_node = np.concatenate([np.arange(first), first + order[begins + legs - 1]])
        before = np.repeat(last_node, np.diff(rows.succ_start))
        after = first_node[rows.successors]
        follows = np.flatnonzero(row_of[1:] == row_of[:-1])
        key = np.concatenate([before, first + order[follows]]) << 32
        key |= np.concatenate([after, first + order[follows + 1]])
        key.sort()
        return attrs.evolve(
            rows,
            priority=np.concatenate([rows.priority[:first], self.priority]),
            src=src[end],
            dst=dst[end],
            size_bytes=rows.size_bytes[row],
            latency_steps=rows.latency_steps[row],
            startup_us=rows.startup_us[row] if len(rows.startup_us) else rows.startup_us,
            slows=rows.slows[row] if len(rows.slows) else rows.slows,
            kind=None if rows.kind is None else rows.kind[row],
            succ_start=np.searchsorted(key >> 32, np.arange(first + count + 1)),
            successors=key & 0xFFFFFFFF,
        )

    def explicit_network(self, network: Network) -> Network:
        """Return the network of `explicit`, of that of these tasks: the pairs of all `ends`."""
        _, end = self._of_places()
        return attrs.evolve(network, transfer_pair=network.transfer_pair[end])

    def _legs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the place of each leg, and its row: row by row, in the order of legs. [transfers]"""
        row = np.repeat(np.arange(len(self.way)), self.legs)
        place = self.place.astype(np.int64)[row]
        relayed = self.way[row] != NO_WAY
        place[relayed] += self.ways.place[self._leg_of_rows()]
        return place, row

    def _leg_of_rows(self) -> NDArray[np.int64]:
        """Return the leg of each leg of all relayed rows, row by row."""
        way = self.way[self.way != NO_WAY]
        return ranges(self.ways.start[way], np.diff(self.ways.start)[way])

    def _of_places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return row, and number among `ends`, of each transfer by place. [transfers]"""
        place, of_row = self._legs()
        of_end = of_row + len(self.ways.src)
        of_end[self.way[of_row] != NO_WAY] = self._leg_of_rows()
        row, end = np.empty_like(place), np.empty_like(place)
        row[place], end[place] = of_row, of_end
        return row, end

    def __attrs_post_init__(self) -> None:
        rows, ways, legs = self.rows.transfers, self.ways, int(self.ways.start[-1])
        if len(self.way) != rows or len(self.place) != rows:
            raise SipmlError(f"RelayedTasks.way and place must have {rows} entries")
        if {len(ways.src), len(ways.dst), len(ways.place)} != {legs}:
            raise SipmlError(f"Ways.src, dst and place must have {legs} entries, as start says")
        if int(self.legs.sum()) != self.transfers:
            raise SipmlError(f"RelayedTasks.priority must have {int(self.legs.sum())} entries")
