"""Ring collectives, added to a TaskBuilder for many groups of members at once.

A collective over n members of M bytes takes the nodes after which each member is ready and returns
the nodes after which each member has its result. It is simulated in one of two ways (`Plan.ring_steps`):

* "explicit": the steps themselves. In step s member i sends one of n chunks of M / n bytes to its successor,
  as soon as the chunk of step s - 1 has come in and, while sums are being formed, its own part is ready.
* "fluid": one transfer per member to its successor, of all the bytes of the steps, with as many
  latencies as there are steps. It starts when every member is ready and ends for all at once.

A reduce-scatter and an all-gather take n - 1 steps and M (n - 1) / n bytes per member each; an
all-reduce is one after the other (Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms").
Additions are not charged: they run at memory speed, far above the network's.
"""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen, one_of
from sipml_core.lowering.callcosts import Library
from sipml_core.model import GRADIENT, Nodes, TaskBuilder, TaskGraph

#: GPUs in ring order.
Members = NDArray[np.int32]
#: Bytes of all collectives, or of each. [groups, 1] [bytes]
Size = float | NDArray[np.float64]


def all_reduce_bytes(size_bytes: float, members: int) -> float:
    """Return what each of n `members` sends to all-reduce M bytes, flat or in tiers. [bytes]

    It is 2 M (n - 1) / n.

    >>> all_reduce_bytes(100.0, members=4)
    150.0
    """
    return 2.0 * size_bytes * (members - 1) / members


def in_network_bytes(size_bytes: float, tiers: tuple[int, ...]) -> float:
    """Return what all members send to all-reduce M bytes where switches add up the outermost tier. [bytes]

    Each sends its part of M once there, and twice (n - 1) / n of what is left in each tier of n further in.

    >>> in_network_bytes(100.0, (4,)), in_network_bytes(100.0, (4, 2)), in_network_bytes(100.0, (1, 2))
    (400.0, 1200.0, 200.0)
    """
    sent = 0.0
    for members in reversed(tiers[1:]):
        sent += all_reduce_bytes(size_bytes, members)
        size_bytes /= members
    if tiers[0] > 1:
        sent += size_bytes
    return sent * math.prod(tiers)


@frozen(kw_only=True)
class Rings:
    """Adds collectives to `builder`; transfers get `priority`, barriers `label`."""

    builder: TaskBuilder
    #: How a ring is simulated, see above.
    steps: str = attrs.field(validator=one_of("explicit", "fluid"))
    #: Of all collectives, or of each. [groups, 1]
    priority: int | NDArray[np.int64] = 0
    label: int = 0
    #: Where a member sends: 1 to its successor, -1 to its predecessor.
    way: int = 1
    #: Half of the bytes each way round.
    counter_rotating: bool = False
    #: Rings that run at the same time, over members along axis 1 in these orders, and the part of the bytes
    #: of each; none: one ring, in order.
    orders: tuple[tuple[tuple[int, ...], float], ...] = ()
    #: Orders of the tiers that run at the same time, see `AllReduce.orders`; none: one order, the innermost
    #: tier first.
    tier_orders: tuple[tuple[tuple[int, ...], int, float], ...] = ()
    #: Sizes of these tiers, where members are in rows; empty: members have an axis for each.
    tiers: tuple[int, ...] = ()
    #: What a communication library adds to bytes and latencies; None: nothing.
    library: Library | None = None
    #: Flat all-reduces are added up by the switches: each member sends M bytes and gets M.
    in_network: bool = False

    def all_reduce(
        self, members: Members, size_bytes: Size, ready: Nodes | None = None, *, made: int | None = None
    ) -> Nodes:
        """Add an all-reduce: everyone gets the sum of M bytes over each group.

        Parameters
        ----------
        members
            GPUs [groups, n]: one ring per group. Or in tiers [groups, ..., n2, n1]: a reduce-scatter
            over the last axis (inside a server, say), an all-reduce of each 1 / n1 over the axes before
            it, an all-gather over the last. Bytes per member are the same, `all_reduce_bytes`.
        size_bytes
            M. [bytes]
        ready
            Nodes after which each member may start, shaped like `members[:, :made]`; None: at once.
        made
            Add nodes for the first so many members along axis 1 only, a divisor of their number. The
            others do what these do, block by block, at the same time; None: for all.

        Returns
        -------
        Nodes after which each member has the sum, shaped like `members[:, :made]`.
        """
        made = members.shape[1] if made is None else made
        if self.counter_rotating and not (self.orders or self.tier_orders):
            return self._both_ways(members, size_bytes, ready, made)
        if self.tier_orders and members.ndim == 1 + len(self.tier_orders[0][0]):
            return self._in_all_orders(members, size_bytes, ready, made)
        if members.ndim == 2 and self.orders:
            return self._at_once(members, size_bytes, ready)
        if members.ndim == 2:
            return self._flat_all_reduce(members, size_bytes, ready, made)
        inner = members.shape[-1]
        own = members[:, :made]
        rows = own.reshape(-1, inner)
        inside, bytes_inside = self._of_lines(size_bytes, len(rows) // len(members))
        ready = inside.reduce_scatter(rows, bytes_inside, None if ready is None else ready.reshape(-1, inner))
        outer, outer_ready = np.moveaxis(members, -1, 1), np.moveaxis(ready.reshape(own.shape), -1, 1)
        across, bytes_across = self._of_lines(size_bytes / inner, inner)
        done = across.all_reduce(
            outer.reshape(-1, *outer.shape[2:]),
            bytes_across,
            outer_ready.reshape(-1, *outer_ready.shape[2:]),
            made=made,
        )
        done = np.moveaxis(done.reshape(outer_ready.shape), 1, -1)
        return inside.all_gather(rows, bytes_inside, done.reshape(-1, inner)).reshape(own.shape)

    def _of_lines(self, size_bytes: Size, lines: int) -> tuple[Rings, Size]:
        """Return what adds so many lines for each group, one group's after another's, and bytes of each."""

        def of_lines(value: Any) -> Any:
            """Return what is said of each group for each of its lines, of all at once for all."""
            if np.ndim(value) == 0 or len(value) == 1:
                return value
            return np.repeat(value, lines, axis=0)

        return attrs.evolve(self, priority=of_lines(self.priority)), of_lines(size_bytes)

    def _both_ways(self, members: Members, size_bytes: Size, ready: Nodes | None, made: int) -> Nodes:
        """Add two all-reduces of half of the bytes, in opposite directions at the same time."""
        done = self.builder.barriers(members[:, :made].shape, label=self.label)
        for way in (1, -1):
            ring = attrs.evolve(self, way=way, counter_rotating=False)
            self.builder.depend(ring.all_reduce(members, size_bytes / 2, ready, made=made), done)
        return done

    def _at_once(self, members: Members, size_bytes: Size, ready: Nodes | None) -> Nodes:
        """Add one all-reduce for each ring of `orders`, of its part of the bytes, all at the same time."""
        done = self.builder.barriers(members.shape, label=self.label)
        for order, part in self.orders:
            ring, at = attrs.evolve(self, orders=(), counter_rotating=False), np.array(order)
            mine = None if ready is None else ready[:, at]
            self.builder.depend(ring.all_reduce(members[:, at], part * size_bytes, mine), done[:, at])
        return done

    def _in_all_orders(self, members: Members, size_bytes: Size, ready: Nodes | None, made: int) -> Nodes:
        """Add one all-reduce for each of `tier_orders`, of its part of the bytes, all at the same time.

        Examples
        --------
        A torus of 2 x 2 GPUs, 16 bytes in two parts: 8 along rows first, 8 along columns first. Each GPU
        sends 8 / 2 bytes, then 2 x 4 / 2 along the other dimension, then 8 / 2 again.

        >>> builder = TaskBuilder(4, ("sync",))
        >>> rings = Rings(builder=builder, steps="fluid", tier_orders=(((1, 0), 1, 0.5), ((0, 1), 1, 0.5)))
        >>> rings.all_reduce(np.arange(4, dtype=np.int32).reshape(1, 2, 2), 16.0).shape
        (1, 2, 2)
        >>> graph = builder.build()
        >>> mine = np.flatnonzero(graph.src == 0)
        >>> list(zip(graph.dst[mine].tolist(), graph.size_bytes[mine].tolist()))
        [(1, 4.0), (2, 4.0), (1, 4.0), (2, 4.0), (1, 4.0), (2, 4.0)]
        """
        done = self.builder.barriers(members[:, :made].shape, label=self.label)
        for order, way, part in self.tier_orders:
            rings = attrs.evolve(self, way=way, counter_rotating=False, tier_orders=())
            left, sums = part * size_bytes, ready
            *before, last = order
            for tier in before:
                sums = rings._along("reduce_scatter", members, tier, left, sums, made)
                left = left / members.shape[1 + tier]
            sums = rings._along("_flat_all_reduce", members, last, left, sums, made)
            for tier in reversed(before):
                left = left * members.shape[1 + tier]
                sums = rings._along("all_gather", members, tier, left, sums, made)
            self.builder.depend(sums, done)
        return done

    def _half_in_all_orders(
        self, collective: str, members: Members, size_bytes: Size, ready: Nodes | None, made: int | None
    ) -> Nodes:
        """Add a reduce-scatter or an all-gather along all tiers for each of `tier_orders`. [groups, made]

        Examples
        --------
        Rows of a torus of 2 x 2 GPUs, 16 bytes in two parts: 4 bytes along rows and 2 along columns, and 4
        along columns and 2 along rows.

        >>> builder = TaskBuilder(4, ("sync",))
        >>> orders = (((1, 0), 1, 0.5), ((0, 1), 1, 0.5))
        >>> rings = Rings(builder=builder, steps="fluid", tier_orders=orders, tiers=(2, 2))
        >>> rings.reduce_scatter(np.arange(4, dtype=np.int32)[None], 16.0).shape
        (1, 4)
        >>> graph = builder.build()
        >>> mine = np.flatnonzero(graph.src == 0)
        >>> list(zip(graph.dst[mine].tolist(), graph.size_bytes[mine].tolist()))
        [(1, 4.0), (2, 2.0), (2, 4.0), (1, 2.0)]
        """
        made = members.shape[1] if made is None else made
        done = self.builder.barriers(members[:, :made].shape, label=self.label)
        first = made // math.prod(self.tiers[1:])
        box = members.reshape(len(members), *self.tiers)
        waits = None if ready is None else ready.reshape(len(members), first, *self.tiers[1:])
        for order, way, part in self.tier_orders:
            rings = attrs.evolve(self, way=way, tier_orders=(), tiers=())
            left, sums = part * size_bytes, waits
            if collective == "all_gather":
                left = left / math.prod(self.tiers)
            for tier in order if collective == "reduce_scatter" else reversed(order):
                if collective == "all_gather":
                    left = left * self.tiers[tier]
                sums = rings._along(collective, box, tier, left, sums, first)
                if collective == "reduce_scatter":
                    left = left / self.tiers[tier]
            assert sums is not None
            self.builder.depend(sums.reshape(done.shape), done)
        return done

    def _along(
        self,
        collective: str,
        members: Members,
        tier: int,
        size_bytes: Size,
        ready: Nodes | None,
        made: int,
    ) -> Nodes:
        """Add a collective of so many bytes on each line of members along one tier; see `all_reduce`."""
        # Lines along the tier: all of each along axis 1, of which the first are made; else those made.
        lines = np.moveaxis(members if tier == 0 else members[:, :made], 1 + tier, -1)
        here = made if tier == 0 else lines.shape[-1]
        shape = (*lines.shape[:-1], here)
        waits = None if ready is None else np.moveaxis(ready, 1 + tier, -1).reshape(-1, here)
        rows = lines.reshape(-1, lines.shape[-1])

        rings, bytes_each = self._of_lines(size_bytes, len(rows) // len(members))
        done: Nodes = getattr(rings, collective)(rows, bytes_each, waits, made=here)
        return np.moveaxis(done.reshape(shape), -1, 1 + tier)

    def reduce_scatter(
        self, members: Members, size_bytes: Size, ready: Nodes | None = None, *, made: int | None = None
    ) -> Nodes:
        """Add a reduce-scatter: each member gets one n-th of the sum; see `all_reduce`. [groups, n]"""
        n = members.shape[-1]
        if self.tiers:
            return self._half_in_all_orders("reduce_scatter", members, size_bytes, ready, made)
        if n == 1 or self.steps == "fluid":
            return self._fluid("reduce_scatter", members, size_bytes, n - 1, ready, made)
        sends = self._steps(
            "reduce_scatter", members, size_bytes / n, n - 1, ready, own_steps=n - 1, made=made
        )
        return self._joined(sends[-1:], ready)

    def all_gather(
        self, members: Members, size_bytes: Size, ready: Nodes | None = None, *, made: int | None = None
    ) -> Nodes:
        """Add an all-gather: each member gets all M bytes, having one n-th; see `all_reduce`. [groups, n]"""
        n = members.shape[-1]
        if self.tiers:
            return self._half_in_all_orders("all_gather", members, size_bytes, ready, made)
        if n == 1 or self.steps == "fluid":
            return self._fluid("all_gather", members, size_bytes, n - 1, ready, made)
        sends = self._steps("all_gather", members, size_bytes / n, n - 1, ready, own_steps=1, made=made)
        return self._joined(sends, ready)

    def _flat_all_reduce(self, members: Members, size_bytes: Size, ready: Nodes | None, made: int) -> Nodes:
        """Add a flat all-reduce; the last chunk to come in is its end, as a pair is a queue."""
        n = members.shape[-1]
        if n == 1 or self.steps == "fluid" or self.in_network:
            return self._fluid("all_reduce", members, size_bytes, 2 * (n - 1), ready, made)
        sends = self._steps("all_reduce", members, size_bytes / n, 2 * (n - 1), ready, own_steps=n, made=made)
        return np.roll(sends[-1], self.way, axis=-1)

    def _costs(
        self, kind: str, members: Members, size_bytes: Size
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return start-up and bytes on the wire for each byte, of each group. [groups, 1], or numbers"""
        assert self.library is not None
        return self.library.ring_costs(
            kind, members, np.asarray(size_bytes, dtype=np.float64), adds=self.in_network
        )

    def _steps(
        self,
        kind: str,
        members: Members,
        chunk_bytes: Size,
        steps: int,
        ready: Nodes | None,
        *,
        own_steps: int,
        made: int | None = None,
    ) -> Nodes:
        """Add explicit steps [steps, groups, made]; the first `own_steps` need the member's own part.

        The predecessor of the first member is the last one, or that one's image among those made.
        """
        src, dst = self._ring(members, made)
        startup_us: NDArray[np.float64] = np.zeros(())
        if self.library is not None:
            startup_us, factor = self._costs(kind, members, chunk_bytes * members.shape[-1])
            chunk_bytes, startup_us = chunk_bytes * factor, startup_us / steps
        sends = self.builder.transfers(
            np.broadcast_to(src, (steps, *src.shape)),
            dst,
            chunk_bytes,
            self.priority,
            startup_us=startup_us,
            kind=GRADIENT,
        )
        self.builder.depend(np.roll(sends[:-1], self.way, axis=-1), sends[1:])
        if ready is not None:
            self.builder.depend(ready, sends[:own_steps])
        return sends

    def _joined(self, sends: Nodes, ready: Nodes | None) -> Nodes:
        """Add a barrier per member after what it receives and after its own part."""
        done = self.builder.barriers(sends.shape[1:], label=self.label)
        self.builder.depend(np.roll(sends, self.way, axis=-1), done)
        if ready is not None:
            self.builder.depend(ready, done)
        return done

    def _fluid(
        self,
        kind: str,
        members: Members,
        size_bytes: Size,
        steps: int,
        ready: Nodes | None,
        made: int | None = None,
    ) -> Nodes:
        """Add one transfer per member for all steps of M / n bytes; nothing at all for one member."""
        n = members.shape[-1]
        if n == 1:
            return self.builder.barriers(members.shape, label=self.label) if ready is None else ready
        src, dst = self._ring(members, made)
        sent_bytes: Size = size_bytes * steps / n
        startup_us: Size = 0.0
        if kind == "all_reduce" and self.in_network:
            sent_bytes, steps = size_bytes, 2
        if self.library is not None:
            startup_us, factor = self._costs(kind, members, size_bytes)
            sent_bytes = sent_bytes * factor
        sends = self.builder.transfers(
            src, dst, sent_bytes, self.priority, float(steps), startup_us=startup_us, kind=GRADIENT
        )
        groups = (members.shape[0], 1)
        if ready is not None:
            start = self.builder.barriers(groups, label=self.label)
            self.builder.depend(ready, start)
            self.builder.depend(start, sends)
        end = self.builder.barriers(groups, label=self.label)
        self.builder.depend(sends, end)
        return np.broadcast_to(end, src.shape)

    def _ring(self, members: Members, made: int | None) -> tuple[Members, Members]:
        """Return the first `made` members of each ring (None: all), and whom they send to. [groups, made]"""
        return members[:, :made], np.roll(members, -self.way, axis=-1)[:, :made]


def ring_allreduce_tasks(gpus: int, size_bytes: float, *, steps: str = "explicit") -> TaskGraph:
    """Return one ring all-reduce over GPUs 0, 1, ... `gpus` - 1 and nothing else.

    Parameters
    ----------
    gpus
        Members n.
    size_bytes
        Bytes M that each contributes, all from time 0. [bytes]
    steps
        "explicit": 2 n (n - 1) transfers of M / n bytes; "fluid": n transfers of 2 M (n - 1) / n bytes.

    Raises
    ------
    ConfigError
        The value of `steps` is unknown.
    SipmlError
        The size is negative or not finite.
    """
    builder = TaskBuilder(gpus, labels=("sync",))
    Rings(builder=builder, steps=steps).all_reduce(np.arange(gpus, dtype=np.int32)[None], size_bytes)
    return builder.build()
