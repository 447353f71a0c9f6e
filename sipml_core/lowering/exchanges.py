"""Exchanges inside a group along trees: what many need, or many add to, passes from device to device.

Where many GPUs need what one has made, or add to what one needs, an `Exchange` says along which trees it
goes. A step of a tree starts when the one before it has arrived in full; adding up is free.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.grouptasks import GroupTasks, Indices
from sipml_core.lowering.transfers import Transfers


@attrs.frozen(kw_only=True, eq=False)
class Trees:
    """Along which trees a group exchanges."""

    #: From whom each device gets what each root makes. [roots, devices]
    parents: NDArray[np.int32]
    #: What only one device needs goes along the tree as well: nobody talks to others than its neighbours.
    relays: bool

    @property
    def direct(self) -> bool:
        """Whether everything goes from its maker to its user in one step."""
        roots = np.arange(len(self.parents))[:, None]
        return bool((self.parents == roots).all())


@attrs.frozen(kw_only=True, eq=False)
class _Messages:
    """Transfers as messages: each goes from, or to, the root of a tree. Arrays are [transfers]."""

    #: Transfers of one message go the same tree: of one box to all its users, or of all parts of one sum.
    message: Indices
    root: Indices
    #: The other end: user of the box, or maker of the part.
    leaf: Indices
    #: Parts of a sum, which go towards the root.
    upwards: NDArray[np.bool_]
    #: Only one device sends and only one receives.
    alone: NDArray[np.bool_]


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
    messages = _messages(direct, tasks)
    devices = tasks.placement.devices

    # One row for each transfer and each edge on its way: the end away from the root, and the one towards it.
    row, child, parent = _ways(messages, trees)

    # An edge is crossed once by each message: rows with one key are one step, numbered by first transfer.
    key = messages.message[row].astype(np.int64) * devices + child
    keys, first, of_row = np.unique(key, return_index=True, return_inverse=True)
    order = np.lexsort((keys, row[first]))
    number = np.empty(len(keys), dtype=np.int32)
    number[order] = np.arange(len(keys), dtype=np.int32)
    step = number[of_row.reshape(-1)]
    first = first[order]

    # What each step is of, and its ends. [steps]
    of, away, near = row[first], child[first], parent[first]
    up = messages.upwards[of]
    position = np.full(len(first), np.iinfo(np.int32).max, dtype=np.int32)
    np.minimum.at(position, step, direct.position[row])

    # Steps that wait for each other: away from the root the one nearer to it comes first.
    inner = near != messages.root[of]
    nearer_key = messages.message[of[inner]].astype(np.int64) * devices + near[inner]
    nearer = number[np.searchsorted(keys, nearer_key)]
    itself = np.flatnonzero(inner).astype(np.int32)
    before = np.where(up[inner], itself, nearer)
    after = np.where(up[inner], nearer, itself)

    # The step at each transfer's leaf, and the one at its root. [transfers]
    at_leaf, at_root = (np.empty(len(messages.root), dtype=np.int32) for _ in range(2))
    is_leaf, is_root = child == messages.leaf[row], parent == messages.root[row]
    at_leaf[row[is_leaf]] = step[is_leaf]
    at_root[row[is_root]] = step[is_root]
    starts = np.where(messages.upwards, at_leaf, at_root)
    ends = np.where(messages.upwards, at_root, at_leaf)

    made = np.unique(np.column_stack([starts[direct.made], direct.maker]), axis=0)
    arrived = np.unique(np.column_stack([direct.consumer, ends[direct.arrival]]), axis=0)
    found = Transfers(
        sender=np.where(up, away, near).astype(np.int32),
        device=np.where(up, near, away).astype(np.int32),
        tensor=direct.tensor[of],
        lo=direct.lo[of],
        hi=direct.hi[of],
        size_bytes=direct.size_bytes[of],
        position=position,
        maker=made[:, 1].astype(np.int32),
        made=made[:, 0].astype(np.int32),
        before=before.astype(np.int32),
        after=after.astype(np.int32),
        arrival=arrived[:, 1].astype(np.int32),
        consumer=arrived[:, 0].astype(np.int32),
    )
    again = direct.maker >= tasks.graph.subops
    return _furthest_first(found, _numbered(direct.tensor, again)[of])


def _messages(direct: Transfers, tasks: GroupTasks) -> _Messages:
    """Return which transfers are one message: a box that several need, a sum of several parts, or alone."""
    # Numbers of equal boxes, of what one maker sends of a box, and of what one device sums up. [transfers]
    box = _numbered(direct.tensor, *direct.lo.T, *direct.hi.T)
    sent = _numbered(direct.maker, box)
    again = direct.maker >= tasks.graph.subops
    summed = _numbered(box, again, direct.device)

    many = np.bincount(sent)[sent] > 1
    added = ~many & (np.bincount(summed, weights=~many)[summed] > 1)
    kind = np.where(many, 0, np.where(added, 1, 2))
    within = np.where(many, sent, np.where(added, summed, np.arange(len(sent))))
    return _Messages(
        message=_numbered(kind, within),
        root=np.where(added, direct.device, direct.sender).astype(np.int32),
        leaf=np.where(added, direct.sender, direct.device).astype(np.int32),
        upwards=added,
        alone=~many & ~added,
    )


def _ways(messages: _Messages, trees: Trees) -> tuple[Indices, Indices, Indices]:
    """Return one row for each edge between the leaf and the root of each transfer.

    Returns
    -------
    row, child, parent
        The transfer, and the ends of the edge away from the root and towards it. [edges]
    """
    # Device d of pipeline stage s is s group + d; what crosses stages goes straight to its user.
    group = len(trees.parents)
    rows, children, parents = [], [], []
    row, child = np.arange(len(messages.root), dtype=np.int32), messages.leaf
    while len(row):
        root = messages.root[row]
        place = child % group
        parent = child - place + trees.parents[root % group, place]
        straight = root // group != child // group
        if not trees.relays:
            straight |= messages.alone[row]
        parent = np.where(straight, root, parent).astype(np.int32)
        rows.append(row)
        children.append(child)
        parents.append(parent)
        on = parent != root
        row, child = row[on], parent[on]
        if len(rows) > len(trees.parents):
            raise ValueError("parents of an exchange must lead to the root: they go in a circle")
    none = np.zeros(0, dtype=np.int32)
    return (
        np.concatenate([none, *rows]),
        np.concatenate([none, *children]),
        np.concatenate([none, *parents]),
    )


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


def _furthest_first(transfers: Transfers, exchange: Indices) -> Transfers:
    """Return the steps of one exchange in an order in which those with most steps to come go first.

    So a pipeline has no gaps: a link over which k boxes go is done after k of them.
    """
    # Longest way to go after each transfer: the longest of those that wait for it, and one more. [transfers]
    left = np.zeros(len(transfers.device), dtype=np.int32)
    while (left[transfers.before] <= left[transfers.after]).any():
        np.maximum.at(left, transfers.before, left[transfers.after] + 1)

    # On each link the same positions as before, given out anew.
    link = _key(exchange, transfers.sender, transfers.device)
    position = transfers.position.copy()
    position[np.lexsort((position, -left, link))] = position[np.lexsort((position, link))]
    return attrs.evolve(transfers, position=position)
