"""The same exchange along trees, with one row for all legs of a box that a single device gets.

Where GPUs send through their neighbours, most messages are of one box for one device: what it passes through
depends on its ends alone, so that a row with its way says as much as a transfer for each leg.
"""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.exchanges import (
    Places,
    first_places,
    messages_of,
    numbered,
    order_by,
    routed,
    some_exchanges,
    waiting,
)
from sipml_core.lowering.grouptasks import GroupTasks, Indices, unique_pairs
from sipml_core.lowering.transfers import Transfers
from sipml_core.lowering.treesteps import Messages, Steps, Trees, tree_steps
from sipml_core.model import NO_WAY, ranges

#: Legs of an exchange from which on its order is looked for among those of exchanges that were alike.
_LARGE = 1 << 13


@frozen(kw_only=True, eq=False)
class RelayedTransfers:
    """Transfers of one group of which some are passed on from device to device: see `RelayedTasks`.

    `Transfers` that are made of the same messages have one for each leg; these are numbered by `place`.
    """

    #: A relayed transfer is one of these, from the first sender to the first receiver; `position` has the
    #: position of the first leg. [rows]
    rows: Transfers
    #: Way of each row, or NO_WAY; and the least place of its legs. [rows]
    way: Indices
    place: Indices
    #: As of `Ways`. [ways + 1], [legs]
    way_start: Indices
    leg_sender: Indices
    leg_device: Indices
    leg_place: Indices
    #: Position of each leg by place, as in `Transfers`. [places]
    position: Indices

    @property
    def legs(self) -> NDArray[np.int64]:
        """Return how many legs each row has. [rows]"""
        legs = np.diff(self.way_start)[self.way]
        return np.where(self.way == NO_WAY, 1, legs)

    @property
    def leg_ends(self) -> tuple[Indices, Indices, NDArray[np.float64]]:
        """Return sender, receiver and bytes of each leg of all ways, then of each row that is not relayed."""
        plain, ways = np.flatnonzero(self.way == NO_WAY), np.diff(self.way_start)
        moved = np.flatnonzero(self.way != NO_WAY)
        of_way = np.bincount(self.way[moved], self.rows.size_bytes[moved], len(ways))
        return (
            np.concatenate([self.leg_sender, self.rows.sender[plain]]),
            np.concatenate([self.leg_device, self.rows.device[plain]]),
            np.concatenate([np.repeat(of_way, ways), self.rows.size_bytes[plain]]),
        )


@frozen(kw_only=True, eq=False)
class Exchange:
    """What the devices of a replica send each other, along trees, in both forms, each made when asked for."""

    direct: Transfers
    tasks: GroupTasks
    trees: Trees

    @cached_property
    def explicit(self) -> Transfers:
        """Return a transfer for each edge of the trees, see `routed`."""
        return routed(self.direct, self.tasks, self.trees)

    @cached_property
    def relayed(self) -> RelayedTransfers | None:
        """Return the same with one row for what goes to a single device over several; None: nothing does."""
        return relayed(self.direct, self.tasks, self.trees)


@frozen(kw_only=True, eq=False)
class _Routes:
    """Ways of transfers that one device alone gets, along trees; the legs of a way from the root on."""

    #: First leg of each way. [ways + 1]
    start: NDArray[np.int64]
    #: Ends of each leg, legs still to come after it, and its place among those of its way by receiver. [legs]
    sender: Indices
    device: Indices
    left: Indices
    place: Indices

    @classmethod
    def of(cls, root: Indices, leaf: Indices, trees: Trees) -> _Routes:
        """Return the ways from roots to leaves of one stage. [ways]

        >>> line = Trees(parents=np.array([[0, 0, 1], [1, 1, 1], [1, 2, 2]]), relays=True)
        >>> found = _Routes.of(np.array([0, 2]), np.array([1, 0]), line)
        >>> found.start.tolist(), found.sender.tolist(), found.device.tolist()
        ([0, 1, 3], [0, 2, 1], [1, 1, 0])
        >>> found.left.tolist(), found.place.tolist()
        ([0, 1, 0], [0, 1, 0])
        """
        group = len(trees.parents)
        # From the leaf towards the root, all ways at once: the device reached and what it hears from. [legs]
        way, device, sender, left = [], [], [], []
        open_ways, at = np.arange(len(root)), leaf % group
        for count in range(group + 1):
            if not len(open_ways):
                break
            if count == group:
                raise ValueError("parents of an exchange must lead to the root: they go in a circle")
            before = trees.parents[root[open_ways] % group, at]
            way.append(open_ways)
            device.append(at)
            sender.append(before)
            left.append(np.full(len(at), count))
            further = before != root[open_ways] % group
            open_ways, at = open_ways[further], before[further]
        every, far = np.concatenate(way), np.concatenate(left)
        order = np.lexsort((-far, every))
        every, reached = every[order], np.concatenate(device)[order]
        start = np.searchsorted(every, np.arange(len(root) + 1))
        by_device = np.lexsort((reached, every))
        place = np.empty(len(every), dtype=np.int32)
        place[by_device] = np.arange(len(every)) - start[every]
        stage = root[every] - root[every] % group
        return cls(
            start=start,
            sender=(stage + np.concatenate(sender)[order]).astype(np.int32),
            device=(stage + reached).astype(np.int32),
            left=far[order].astype(np.int32),
            place=place,
        )


def relayed(direct: Transfers, tasks: GroupTasks, trees: Trees) -> RelayedTransfers | None:
    """Return what `routed` does with relayed transfers as one row; None: there are none.

    Of a replica of one pipeline stage.

    Examples
    --------
    The worked example on a line 0 - 1 - 2: y goes from device 0 to two others along one tree, and the sum of
    dy comes back along one. Were it for device 2 alone, y would be one row with two legs.

    >>> from sipml_core.lowering.grouptasks import group_tasks
    >>> from sipml_core.lowering.transfers import plan_transfers
    >>> from sipml_core.testing.worked import placed
    >>> tasks = group_tasks(placed(), recompute=False)
    >>> line = Trees(parents=np.array([[0, 0, 1], [1, 1, 1], [1, 2, 2]]), relays=True)
    >>> relayed(plan_transfers(tasks), tasks, line) is None
    True
    """
    if not len(direct.device) or not trees.relays:
        return None
    messages = messages_of(direct, tasks)
    alone = messages.size[messages.message] == 1
    if not alone.any():
        return None
    devices = tasks.placement.devices

    # Ways of all pairs of ends that occur; way of each transfer that goes alone. [pairs], [transfers]
    ends, way_of = np.unique(
        messages.root[alone].astype(np.int64) * devices + messages.leaf[alone], return_inverse=True
    )
    routes = _Routes.of((ends // devices).astype(np.int32), (ends % devices).astype(np.int32), trees)
    if not (np.diff(routes.start) > 1).any():
        return None
    way = np.full(len(alone), NO_WAY, dtype=np.int64)
    way[alone] = way_of.reshape(-1)
    return _Relayed.of(trees, messages, way, routes, devices).transfers(direct, tasks)


@frozen(kw_only=True, eq=False)
class _Relayed:
    """Transfers by how they go: alone over the legs of a way, or in a tree whose edges others cross."""

    #: Way of each transfer, or NO_WAY: it goes in a tree. [transfers]
    way: NDArray[np.int64]
    routes: _Routes
    #: Those in trees: their numbers, they as messages, and the edges of their trees (None: there are none).
    shared: NDArray[np.int64]
    messages: Messages
    steps: Steps | None
    #: Number of each transfer among those in trees, or NO_WAY. [transfers]
    in_tree: NDArray[np.int64]
    #: Legs, or edges of its own, of each transfer; and its first place. [transfers]
    size: NDArray[np.int64]
    start: NDArray[np.int64]

    @classmethod
    def of(
        cls, trees: Trees, messages: Messages, way: NDArray[np.int64], routes: _Routes, devices: int
    ) -> _Relayed:
        shared = np.flatnonzero(way == NO_WAY)
        in_tree, size = np.full(len(way), NO_WAY), np.diff(routes.start)[way]
        in_tree[shared] = np.arange(len(shared))
        of_shared = Messages(
            message=numbered(messages.message[shared]),
            root=messages.root[shared],
            leaf=messages.leaf[shared],
            upwards=messages.upwards[shared],
        )
        steps = tree_steps(of_shared, trees, devices) if len(shared) else None
        if steps is not None:
            size[shared] = np.diff(steps.start)
        return cls(
            way=way, routes=routes, shared=shared, messages=of_shared, steps=steps,
            in_tree=in_tree, size=size, start=np.cumsum(size) - size,
        )  # fmt: skip

    def transfers(self, direct: Transfers, tasks: GroupTasks) -> RelayedTransfers:
        """Return rows: one for each transfer that goes alone, one for each edge of the trees."""
        routes, way, alone = self.routes, self.way, self.way != NO_WAY
        rows_of = np.where(alone, 1, self.size)
        row = np.cumsum(rows_of) - rows_of
        count = int(rows_of.sum())

        # Of each row. [rows]
        box = np.repeat(np.arange(len(way), dtype=np.int32), rows_of)
        place = np.repeat(self.start, rows_of) + np.arange(count) - row[box]
        sender, device = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
        first_leg = routes.start[way[alone]]
        sender[row[alone]], device[row[alone]] = routes.sender[first_leg], routes.device[first_leg]
        row_way = np.full(count, NO_WAY, dtype=np.int64)
        row_way[row[alone]] = np.where(self.size[alone] > 1, way[alone], NO_WAY)

        # Rows at which each transfer begins and ends, and rows that wait for each other in trees.
        starts, ends = row.copy(), row.copy()
        before = after = np.zeros(0, dtype=np.int32)
        if self.steps is not None:
            steps, shared = self.steps, self.shared
            step_row = ranges(row[shared], self.size[shared]).astype(np.int32)
            up = steps.upwards[steps.kind]
            child, parent = steps.child[steps.kind], steps.parent[steps.kind]
            sender[step_row], device[step_row] = np.where(up, child, parent), np.where(up, parent, child)
            backwards = self.messages.upwards
            starts[shared] = step_row[np.where(backwards, steps.at_leaf, steps.at_root)]
            ends[shared] = step_row[np.where(backwards, steps.at_root, steps.at_leaf)]
            before, after = (step_row[each] for each in waiting(steps))
        made, maker = unique_pairs(starts[direct.made].astype(np.int32), direct.maker)
        consumer, arrival = unique_pairs(direct.consumer, ends[direct.arrival].astype(np.int32))
        position = self._positions(direct, tasks)
        first_place = place.copy()
        first_place[row[alone]] += routes.place[first_leg]
        return RelayedTransfers(
            rows=attrs.evolve(
                direct, sender=sender, device=device, box=box, position=position[first_place],
                maker=maker, made=made, before=before, after=after, arrival=arrival, consumer=consumer,
            ),
            way=row_way.astype(np.int32),
            place=place.astype(np.int32),
            way_start=routes.start.astype(np.int32),
            leg_sender=routes.sender,
            leg_device=routes.device,
            leg_place=routes.place,
            position=position,
        )  # fmt: skip

    def _positions(self, direct: Transfers, tasks: GroupTasks) -> Indices:
        """Return the position of each leg by place: see `exchanges.furthest_first`. [places]"""
        routes, steps = self.routes, self.steps
        again = direct.maker >= tasks.graph.subops
        places = Places.of_transfers(numbered(direct.tensor, again), direct.position)

        # Legs of ways by place, then kinds of edges: link, and how many are to come. [kinds]
        by_place = np.empty(len(routes.place), dtype=np.int64)
        by_place[np.repeat(routes.start[:-1], np.diff(routes.start)) + routes.place] = np.arange(
            len(by_place)
        )
        sender, device, left = routes.sender[by_place], routes.device[by_place], routes.left[by_place]
        kind = np.where(self.way != NO_WAY, routes.start[self.way], 0)
        if steps is not None:
            up = steps.upwards
            sender = np.concatenate([sender, np.where(up, steps.child, steps.parent)])
            device = np.concatenate([device, np.where(up, steps.parent, steps.child)])
            left = np.concatenate([left, np.where(up, steps.depth, steps.height)])
            own = self.shared[self.size[self.shared] > 0]
            kind[own] = len(by_place) + steps.kind[steps.start[self.in_tree[own]]]
        order = _Order(
            moved=self, places=places, link=numbered(sender, device), left=left, kind=kind,
            shared_place=None if steps is None else first_places(
                steps, self.messages, places.of[self.shared]
            ),
        )  # fmt: skip
        return order.positions()


@frozen(kw_only=True, eq=False)
class _Order:
    """Gives positions to legs, those with most to come first: as `exchanges.furthest_first`."""

    moved: _Relayed
    places: Places
    #: Of each kind of leg: the link it crosses, and how many follow it. [kinds]
    link: Indices
    left: Indices
    #: Kind of the first leg of each transfer; the others are numbered on. [transfers]
    kind: NDArray[np.int64]
    #: First place of what each edge of the trees carries. [edges]
    shared_place: Indices | None

    def positions(self) -> Indices:
        """Return the position of each leg, by place."""
        exchange, size = self.places.exchange[self.places.of], self.moved.size
        by_exchange = np.argsort(exchange, kind="stable")
        cuts = np.flatnonzero(np.diff(exchange[by_exchange], prepend=-1, append=-1))
        legs = np.add.reduceat(size[by_exchange], cuts[:-1])
        in_trees = np.add.reduceat(self.moved.way[by_exchange] == NO_WAY, cuts[:-1])
        position = np.empty(int(legs.sum()), dtype=np.int32)

        # Large exchanges without trees one by one: many are alike, and then their legs take the same places.
        large = (legs >= _LARGE) & (in_trees == 0)
        known: dict[tuple[bytes, bytes], Indices] = {}
        for number in np.flatnonzero(large).tolist():
            some = by_exchange[cuts[number] : cuts[number + 1]]
            place = self.places.of[some]
            first = int(place.min())
            alike = self.moved.way[some].tobytes(), (place - first).tobytes()
            if alike not in known:
                known[alike] = self._taken(some) - first
            position[self._rows(some)] = self.places.position[first:][known[alike]]

        # Of the others some at a time.
        others = np.flatnonzero(~large[exchange])
        for part in some_exchanges(exchange[others], size[others]):
            some = others[part]
            position[self._rows(some)] = self.places.position[self._taken(some)]
        return position

    def _rows(self, some: NDArray[np.int64]) -> slice | NDArray[np.int64]:
        """Return the places of the legs of some transfers, in order."""
        start, size = self.moved.start[some], self.moved.size[some]
        if int(start[-1] + size[-1] - start[0]) == int(size.sum()):
            return slice(int(start[0]), int(start[-1] + size[-1]))
        return ranges(start, size)

    def _taken(self, some: NDArray[np.int64]) -> Indices:
        """Return which place each leg of some transfers takes, those of whole exchanges."""
        size, in_tree = self.moved.size[some], self.moved.in_tree[some]
        kind = ranges(self.kind[some], size)
        place = np.repeat(self.places.of[some], size)
        if self.shared_place is not None and (in_tree != NO_WAY).any():
            assert self.moved.steps is not None
            own = in_tree[in_tree != NO_WAY]
            edges = ranges(self.moved.steps.start[own], np.diff(self.moved.steps.start)[own])
            place[np.repeat(in_tree != NO_WAY, size)] = self.shared_place[edges]

        # Legs by link, exchange, most to come and place; and the places on each link in order.
        exchanges, lefts = int(self.places.exchange.max()) + 1, int(self.left.max()) + 1
        numbers, links = int(self.places.number.max()) + 1, int(self.link.max()) + 1
        link = self.link[kind].astype(np.int64)
        key = link * exchanges + self.places.exchange[place]
        key = (key * lefts + (lefts - 1 - self.left[kind])) * numbers + self.places.number[place]
        order = order_by(key, links * exchanges * lefts * numbers)
        taken = np.empty(len(kind), dtype=np.int32)
        taken[order] = np.sort(link * len(self.places.of) + place) % len(self.places.of)
        return taken
