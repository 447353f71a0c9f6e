"""Exchanges along the line of a group: what many need, or many add to, passes from device to device.

On a ring every segment between two GPUs that talk is crossed by their circuit. A box that one device
makes and n others need crosses the segments beside its maker n times if it goes to each of them; if
each passes it on to the next, it crosses every segment once. So do parts of a sum that are added up on
their way to the device that needs the sum. These are the ring algorithms for all-gather and
reduce-scatter (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
workstations"), on a line. What only one device needs passes those in between as well: nobody talks but
to its neighbours. A step starts when the one before it has arrived in full; adding up is free.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.grouptasks import GroupTasks, Indices
from sipml_core.lowering.transfers import Transfers
from sipml_core.model import sorted_unique


def chained(direct: Transfers, tasks: GroupTasks) -> Transfers:
    """Return the exchange between neighbours, once where one box goes to several devices or several add up.

    Parameters
    ----------
    direct
        From each maker to each user. Several makers of one box have a part of its sum each.

    Examples
    --------
    In the worked example device 0 sends y to 1 and to 2, and 1 and 2 send parts of dy to 0: transfers 0 to
    3. Along the line y goes 0 -> 1 -> 2, and the sum of dy 2 -> 1 -> 0: transfer 2 waits for 3.

    >>> from sipml_core.lowering.grouptasks import group_tasks
    >>> from sipml_core.lowering.transfers import plan_transfers
    >>> from sipml_core.testing.worked import placed
    >>> tasks = group_tasks(placed(), recompute=False)
    >>> direct = plan_transfers(tasks)
    >>> list(zip(direct.sender.tolist(), direct.device.tolist()))
    [(0, 1), (0, 2), (1, 0), (2, 0)]
    >>> line = chained(direct, tasks)
    >>> list(zip(line.sender.tolist(), line.device.tolist()))
    [(0, 1), (1, 2), (1, 0), (2, 1)]
    >>> list(zip(line.before.tolist(), line.after.tolist()))
    [(0, 1), (3, 2)]
    >>> list(zip(line.arrival.tolist(), line.consumer.tolist()))
    [(0, 2), (1, 3), (0, 5), (1, 6), (2, 7), (2, 7)]
    """
    # Numbers of equal boxes, of what one maker sends of a box, and of what one device sums up. [transfers]
    box = _numbered(direct.tensor, *direct.lo.T, *direct.hi.T)
    sent = _numbered(direct.maker, box)
    again = direct.maker >= tasks.graph.subops
    summed = _numbered(box, again, direct.device)

    # Which transfers send a box to several devices, and which of the others add to one sum. [transfers]
    many = np.bincount(sent)[sent] > 1
    added = ~many & (np.bincount(summed, weights=~many)[summed] > 1)

    # Chains go one way along the line: outwards from the maker, or inwards from the furthest part.
    side = direct.device > direct.sender
    away = np.abs(direct.device - direct.sender)
    passed_on = _Chains.of(np.flatnonzero(many).astype(np.int32), _numbered(sent, side), away)
    added_up = _Chains.of(np.flatnonzero(added).astype(np.int32), _numbered(summed, side), -away)
    both, kept = _added_up(_passed_on(direct, passed_on), added_up)

    # Longer ways in steps; `number`: the transfer of `both` that each step is of. [steps]
    near, number = _between_neighbours(both)
    return _furthest_first(near, _numbered(direct.tensor, again)[kept[number]])


def _numbered(*columns: NDArray[Any]) -> Indices:
    """Return the same number for rows that are equal in all columns. [rows]"""
    return np.unique(_key(*columns), return_inverse=True)[1].reshape(-1).astype(np.int32)


def _key(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """Return the same key for rows that are equal in all columns, none of them negative. [rows]"""
    key, keys = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        values = int(column.max(initial=0)) + 1
        if keys * values > 2**62:
            _, key = np.unique(key, return_inverse=True)
            keys = len(key)
        key, keys = key * values + column, keys * values
    return key


@attrs.frozen(kw_only=True, eq=False)
class _Chains:
    """Transfers in the order of their chains. Arrays are [rows]."""

    row: Indices
    #: Number of the chain, and place in it.
    chain: Indices
    rank: Indices

    @classmethod
    def of(cls, rows: Indices, key: Indices, distance: Indices) -> _Chains:
        """Return the chains of the rows with one key, by distance.

        >>> chains = _Chains.of(np.array([0, 1, 2]), key=np.array([5, 5, 4]), distance=np.array([2, 1, 1]))
        >>> chains.row.tolist(), chains.chain.tolist(), chains.rank.tolist()
        ([2, 1, 0], [0, 1, 1], [0, 0, 1])
        >>> chains.links
        (array([1]), array([0]))
        """
        rows = rows[np.lexsort((rows, distance[rows], key[rows]))]
        return cls.split(rows, np.diff(key[rows], prepend=-1) != 0)

    @classmethod
    def split(cls, rows: Indices, first: NDArray[np.bool_]) -> _Chains:
        """Return the chains that begin where `first` is set."""
        chain = np.cumsum(first, dtype=np.int32) - np.int32(1)
        rank = np.arange(len(rows), dtype=np.int32) - np.flatnonzero(first).astype(np.int32)[chain]
        return cls(row=rows, chain=chain, rank=rank)

    @property
    def links(self) -> tuple[Indices, Indices]:
        """Return transfers and the next ones of their chains. [pairs], [pairs]"""
        later = np.flatnonzero(self.rank > 0)
        return self.row[later - 1], self.row[later]

    @property
    def last(self) -> Indices:
        """Return the last transfer of each row's chain. [rows]"""
        ends = np.flatnonzero(np.diff(self.rank, append=0) <= 0)
        return self.row[ends][self.chain]


def _passed_on(direct: Transfers, chains: _Chains) -> Transfers:
    """Return transfers in which who has a box sends it to the next who needs it."""
    sender, position = direct.sender.copy(), direct.position.copy()
    # Each transfer but the first of a chain starts where the one before it ended.
    before, after = chains.links
    sender[after] = direct.device[before]

    # It is as urgent as the most urgent of those that come after it, from the ends of the chains on.
    for rank in range(int(chains.rank.max(initial=0)), 0, -1):
        at = np.flatnonzero(chains.rank == rank)
        np.minimum.at(position, chains.row[at - 1], position[chains.row[at]])

    # Only the first of a chain waits for the maker.
    from_maker = np.ones(len(direct.made), dtype=np.bool_)
    from_maker[after] = False
    return attrs.evolve(
        direct,
        sender=sender,
        position=position,
        maker=direct.maker[from_maker],
        made=direct.made[from_maker],
        before=before,
        after=after,
    )


def _added_up(transfers: Transfers, chains: _Chains) -> tuple[Transfers, Indices]:
    """Return transfers in which a sum grows on its way, and which of `transfers` are left.

    The furthest sends its part, the next one what it got and its own part together, and so on. Parts of
    one device leave together: with the last of them.
    """
    # In the order of chains: whose part it is, whether it leaves (the last of its device does), and which of
    # those that leave it goes with. [rows]
    sender = transfers.sender[chains.row]
    leaves = (np.diff(sender, append=-1) != 0) | (np.diff(chains.chain, append=-1) != 0)
    leaving = np.cumsum(leaves) - leaves

    # Chains of those that leave: each goes to the device of the next.
    steps = _Chains.split(chains.row[leaves], np.diff(chains.chain[leaves], prepend=-1) != 0)
    before, after = steps.links
    device = transfers.device.copy()
    device[before] = transfers.sender[after]

    # What each transfer leaves as, and what brings it to its user in the end. [transfers]
    goes_as = np.arange(len(device), dtype=np.int32)
    arrives_as = goes_as.copy()
    goes_as[chains.row] = steps.row[leaving]
    arrives_as[chains.row] = chains.last

    # Transfers that are left, and their new numbers. [transfers]
    kept = sorted_unique(goes_as)
    number = np.full(len(device), -1, dtype=np.int32)
    number[kept] = np.arange(len(kept))
    left = attrs.evolve(
        transfers,
        sender=transfers.sender[kept],
        device=device[kept],
        tensor=transfers.tensor[kept],
        lo=transfers.lo[kept],
        hi=transfers.hi[kept],
        size_bytes=transfers.size_bytes[kept],
        position=transfers.position[kept],
        made=number[goes_as[transfers.made]],
        before=number[np.concatenate([transfers.before, before])],
        after=number[np.concatenate([transfers.after, after])],
        arrival=number[arrives_as[transfers.arrival]],
    )
    return left, kept


def _between_neighbours(transfers: Transfers) -> tuple[Transfers, Indices]:
    """Return longer ways as steps from each device to the next, and which transfer each step is of.

    A transfer from device 3 to device 1 becomes 3 -> 2 and 2 -> 1.
    """
    way = transfers.device - transfers.sender
    steps = np.abs(way)
    # Transfer of each step [steps]; first and last step of each transfer [transfers].
    number = np.repeat(np.arange(len(way), dtype=np.int32), steps)
    last = np.cumsum(steps, dtype=np.int32) - np.int32(1)
    first = last - steps + np.int32(1)

    # Where each step starts, and the steps that follow one of their transfer.
    device = transfers.sender[number] + np.sign(way)[number] * (np.arange(len(number)) - first[number])
    later = np.flatnonzero(np.arange(len(number)) > first[number]).astype(np.int32)
    near = attrs.evolve(
        transfers,
        sender=device.astype(np.int32),
        device=(device + np.sign(way)[number]).astype(np.int32),
        tensor=transfers.tensor[number],
        lo=transfers.lo[number],
        hi=transfers.hi[number],
        size_bytes=transfers.size_bytes[number],
        position=transfers.position[number],
        made=first[transfers.made],
        before=np.concatenate([last[transfers.before], later - np.int32(1)]),
        after=np.concatenate([first[transfers.after], later]),
        arrival=last[transfers.arrival],
    )
    return near, number


def _furthest_first(transfers: Transfers, exchange: Indices) -> Transfers:
    """Return the steps in an order in which, from device to device, those with most steps to come go first.

    So a pipeline has no gaps: a link over which k boxes go is done after k of them.
    """
    # Steps still to come after each; a chain of n settles in n rounds.
    left = np.zeros(len(transfers.device), dtype=np.int32)
    while (left[transfers.before] <= left[transfers.after]).any():
        left[transfers.before] = left[transfers.after] + 1

    # The positions that the steps of one exchange have on one link, handed out by steps to come.
    link = _key(exchange, transfers.sender, transfers.device)
    position = transfers.position.copy()
    position[np.lexsort((position, -left, link))] = position[np.lexsort((position, link))]
    return attrs.evolve(transfers, position=position)
