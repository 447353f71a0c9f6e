"""Exchanges inside a group along trees: what many need, or many add to, passes from device to device.

Where many GPUs need what one has made, or add to what one needs, an `Exchange` says along which trees it
goes. A step of a tree starts when the one before it has arrived in full; adding up is free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.grouptasks import GroupTasks, Indices, unique_pairs
from sipml_core.lowering.transfers import Transfers
from sipml_core.lowering.treesteps import Messages, Steps, Trees, packed, tree_steps
from sipml_core.model import parts_of, ranges

#: Steps that are put in order in one go, at least.
_AT_ONCE = 1 << 18


def routed(direct: Transfers, tasks: GroupTasks, trees: Trees) -> Transfers:
    """Return the exchange along trees: each box once over each edge, however many need it or add to it.

    Parameters
    ----------
    direct
        From each maker to each user. Several makers of one box have a part of its sum each.

    Examples
    --------
    In the worked example device 0 sends y to 1 and to 2, and 1 and 2 send parts of dy to 0: transfers 0 to
    3. Along a line y goes 0 -> 1 -> 2, and the sum of dy 2 -> 1 -> 0: transfer 2 waits for 3.

    >>> from sipml_core.lowering.grouptasks import group_tasks
    >>> from sipml_core.lowering.transfers import plan_transfers
    >>> from sipml_core.testing.worked import placed
    >>> tasks = group_tasks(placed(), recompute=False)
    >>> direct = plan_transfers(tasks)
    >>> list(zip(direct.sender.tolist(), direct.device.tolist()))
    [(0, 1), (0, 2), (1, 0), (2, 0)]
    >>> line = Trees(parents=np.array([[0, 0, 1], [1, 1, 1], [1, 2, 2]]), relays=True)
    >>> found = routed(direct, tasks, line)
    >>> list(zip(found.sender.tolist(), found.device.tolist()))
    [(0, 1), (1, 2), (1, 0), (2, 1)]
    >>> list(zip(found.before.tolist(), found.after.tolist()))
    [(0, 1), (3, 2)]
    >>> list(zip(found.arrival.tolist(), found.consumer.tolist()))
    [(0, 2), (1, 3), (0, 5), (1, 6), (2, 7)]
    """
    if not len(direct.device):
        return direct
    messages = messages_of(direct, tasks)
    steps = tree_steps(messages, trees, tasks.placement.devices)

    # The position of each transfer among those of its exchange, and of each step: the first of its transfers.
    again = direct.maker >= tasks.graph.subops
    places = Places.of_transfers(numbered(direct.tensor, again), direct.position)
    place = first_places(steps, messages, places.of)

    # The step at the beginning of each transfer, and at its end. [transfers]
    starts = np.where(messages.upwards, steps.at_leaf, steps.at_root)
    ends = np.where(messages.upwards, steps.at_root, steps.at_leaf)
    made, maker = unique_pairs(starts[direct.made], direct.maker)
    consumer, arrival = unique_pairs(direct.consumer, ends[direct.arrival])
    before, after = waiting(steps)
    sender = np.where(steps.upwards, steps.child, steps.parent)
    device = np.where(steps.upwards, steps.parent, steps.child)
    return Transfers(
        sender=sender[steps.kind],
        device=device[steps.kind],
        box=steps.of,
        tensor=direct.tensor,
        lo=direct.lo,
        hi=direct.hi,
        box_bytes=direct.box_bytes,
        position=furthest_first(steps, numbered(sender, device), places, place),
        maker=maker,
        made=made,
        before=before,
        after=after,
        arrival=arrival,
        consumer=consumer,
    )


def messages_of(direct: Transfers, tasks: GroupTasks) -> Messages:
    """Return which transfers are one message: a box that several need, a sum of several parts, or alone."""
    # Numbers of equal boxes, of what one maker sends of a box, and of what one device sums up. [transfers]
    box = numbered(direct.tensor, *direct.lo.T, *direct.hi.T)
    sent = numbered(direct.maker, box)
    again = direct.maker >= tasks.graph.subops
    summed = numbered(box, again, direct.device)

    many = np.bincount(sent)[sent] > 1
    added = ~many & (np.bincount(summed, weights=~many)[summed] > 1)
    kind = np.where(many, 0, np.where(added, 1, 2))
    within = np.where(many, sent, np.where(added, summed, np.arange(len(sent))))
    return Messages(
        message=numbered(kind, within),
        root=np.where(added, direct.device, direct.sender).astype(np.int32),
        leaf=np.where(added, direct.sender, direct.device).astype(np.int32),
        upwards=added,
    )


@frozen(kw_only=True, eq=False)
class Places:
    """Positions of transfers, those of one exchange together."""

    #: Place of each transfer: by exchange, and in it by position. [transfers]
    of: Indices
    #: Position that each place stands for, its exchange, and its number there. [places]
    position: Indices
    exchange: Indices
    number: Indices

    @classmethod
    def of_transfers(cls, exchange: Indices, position: Indices) -> Places:
        """Return the places of transfers.

        >>> places = Places.of_transfers(np.array([1, 0, 1, 1]), np.array([7, 5, 3, 7]))
        >>> places.of.tolist(), places.position.tolist()
        ([2, 0, 1, 2], [5, 3, 7])
        >>> places.exchange.tolist(), places.number.tolist()
        ([0, 1, 1], [0, 0, 1])
        """
        _, first, of = np.unique(packed(exchange, position), return_index=True, return_inverse=True)
        number = np.arange(len(first)) - np.searchsorted(exchange[first], exchange[first])
        return cls(
            of=of.reshape(-1).astype(np.int32),
            position=position[first],
            exchange=exchange[first],
            number=number.astype(np.int32),
        )


def waiting(steps: Steps) -> tuple[Indices, Indices]:
    """Return steps, and those that wait for them: away from the root the one nearer to it comes first."""
    inner = steps.nearer >= 0
    before, after = (np.empty(np.count_nonzero(inner), dtype=np.int32) for _ in range(2))
    count = 0
    for part in parts_of(len(inner)):
        itself = part.start + np.flatnonzero(inner[part]).astype(np.int32)
        nearer, up = steps.nearer[itself], steps.upwards[steps.kind[itself]]
        found = slice(count, count + len(itself))
        before[found], after[found] = np.where(up, itself, nearer), np.where(up, nearer, itself)
        count = found.stop
    return before, after


def first_places(steps: Steps, messages: Messages, of_transfer: Indices) -> Indices:
    """Return the first place of the transfers that each step carries. [steps]"""
    place = of_transfer[steps.of]
    shared = messages.size[messages.message] > 1
    if not shared.any():
        return place
    np.minimum.at(place, steps.at_leaf[shared], of_transfer[shared])

    # What each carries goes over the one nearer to the root as well, from the deepest on.
    rows = np.flatnonzero(shared[steps.of])
    depth = steps.depth[steps.kind[rows]]
    rows = rows[np.argsort(depth, kind="stable")]
    cuts = np.searchsorted(np.sort(depth), np.arange(int(depth.max()) + 2))
    for edges in range(len(cuts) - 2, 0, -1):
        deep = rows[cuts[edges] : cuts[edges + 1]]
        np.minimum.at(place, steps.nearer[deep], place[deep])
    return place


def furthest_first(steps: Steps, link: Indices, places: Places, place: Indices) -> Indices:
    """Return the positions of steps in an order in which those with most steps to come go first.

    So a pipeline has no gaps: a link over which k boxes go is done after k of them. On each link the steps of
    an exchange have the same positions as before, given out anew.

    Parameters
    ----------
    link
        Of each kind of step.
    place
        Of each step, as it was.
    """
    # By kind and by place: link, exchange, most to come, place; and link and place alone. [kinds], [places]
    left = np.where(steps.upwards, steps.depth, steps.height)
    exchanges, lefts = int(places.exchange.max()) + 1, int(left.max()) + 1
    numbers = int(places.number.max()) + 1
    of_kind = (link.astype(np.int64) * exchanges * lefts + lefts - 1 - left) * numbers
    of_place = places.exchange.astype(np.int64) * lefts * numbers + places.number
    keys = (int(link.max()) + 1) * exchanges * lefts * numbers
    of_link = link.astype(np.int64) * len(places.position)

    # Some whole exchanges at a time.
    position = np.empty(len(steps.of), dtype=np.int32)
    size = np.diff(steps.start)
    for some in some_exchanges(places.exchange[places.of], size):
        rows = ranges(steps.start[some], size[some])
        kind, old = steps.kind[rows], place[rows].astype(np.int64)
        order = order_by(of_kind[kind] + of_place[old], keys)
        old += of_link[kind]
        old.sort()
        position[rows[order]] = places.position[old % len(places.position)]
    return position


def some_exchanges(exchange: Indices, size: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the transfers of some whole exchanges at a time, with about `_AT_ONCE` steps, in order.

    Parameters
    ----------
    size
        Steps of each transfer.

    >>> [some.tolist() for some in some_exchanges(np.array([0, 1, 0]), np.array([2, _AT_ONCE, 1]))]
    [[0, 2], [1]]
    """
    steps = np.cumsum(np.bincount(exchange, size))
    part = ((steps - 1) // _AT_ONCE).astype(np.int64)[exchange]
    by_part = np.argsort(part, kind="stable")
    found = np.split(by_part, np.flatnonzero(np.diff(part[by_part])) + 1)
    return found if len(size) else []


def order_by(key: NDArray[np.int64], keys: int) -> NDArray[np.int64]:
    """Return the order of rows by key, which is below `keys`; of those with the same key the first is first.

    >>> key = np.array([1, 0, 1, 0])
    >>> order_by(key, keys=2).tolist(), order_by(key, keys=2**62).tolist()
    ([1, 3, 0, 2], [1, 3, 0, 2])
    """
    bits = len(key).bit_length()
    if keys << bits >= 2**63:
        return np.argsort(key, kind="stable")
    # In one number with the row keys differ, and are sorted several times faster.
    rows = key << bits
    rows |= np.arange(len(key))
    rows.sort()
    rows &= (1 << bits) - 1
    return rows


def numbered(*columns: NDArray[Any]) -> Indices:
    """Return the same number for rows that are equal in all columns. [rows]"""
    return np.unique(packed(*columns), return_inverse=True)[1].reshape(-1).astype(np.int32)
