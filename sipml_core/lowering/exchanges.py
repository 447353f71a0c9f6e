"""Exchanges inside a group along trees: what many need, or many add to, passes from device to device.

Where many GPUs need what one has made, or add to what one needs, an `Exchange` says along which trees it
goes. A step of a tree starts when the one before it has arrived in full; adding up is free.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.grouptasks import GroupTasks, Indices, unique_pairs
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
    if not len(direct.device):
        return direct
    messages = _messages(direct, tasks)
    steps = _steps(messages, trees, direct.position, tasks.placement.devices)

    # What each step is of, and whether it goes towards the root. [steps]
    of, inner = steps.of, np.flatnonzero(steps.nearer >= 0)
    up = messages.upwards[of]

    # Steps that wait for each other: away from the root the one nearer to it comes first.
    itself, nearer = inner.astype(np.int32), steps.nearer[inner]
    before = np.where(up[inner], itself, nearer)
    after = np.where(up[inner], nearer, itself)

    # The step at the beginning of each transfer, and at its end. [transfers]
    starts = np.where(messages.upwards, steps.at_leaf, steps.at_root)
    ends = np.where(messages.upwards, steps.at_root, steps.at_leaf)
    made, maker = unique_pairs(starts[direct.made], direct.maker)
    consumer, arrival = unique_pairs(direct.consumer, ends[direct.arrival])
    found = Transfers(
        sender=np.where(up, steps.child, steps.parent),
        device=np.where(up, steps.parent, steps.child),
        tensor=direct.tensor[of],
        lo=direct.lo[of],
        hi=direct.hi[of],
        size_bytes=direct.size_bytes[of],
        position=steps.position,
        maker=maker,
        made=made,
        before=before,
        after=after,
        arrival=arrival,
        consumer=consumer,
    )
    again = direct.maker >= tasks.graph.subops
    left = np.where(up, steps.depth, steps.height)
    return _furthest_first(found, _numbered(direct.tensor, again)[of], left)


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


@attrs.frozen(kw_only=True, eq=False)
class _Steps:
    """The edges of the trees of all messages, each once: a step of the exchange. Arrays are [steps].

    In the order of the first transfer of each, which is the first of those that reach it over fewest edges.
    """

    #: That transfer.
    of: Indices
    #: Ends of the edge, away from the root and towards it.
    child: Indices
    parent: Indices
    #: The next step towards the root, -1: there is none.
    nearer: Indices
    #: Steps between it and the root, and the most steps between it and a leaf on its other side.
    depth: Indices
    height: Indices
    #: Position of the first task that waits for any of its transfers.
    position: Indices
    #: The steps at the leaf, and at the root, of each transfer. [transfers]
    at_leaf: Indices
    at_root: Indices


def _steps(messages: _Messages, trees: Trees, position: Indices, devices: int) -> _Steps:
    """Return the steps of messages.

    They are found from the leaves to the roots, the deepest first. Ways of one message that meet go on as
    one, so that no edge is looked at for each transfer that crosses it.
    """
    group, transfers = len(trees.parents), len(messages.root)
    depth = _depths(messages, trees)
    by_depth = np.argsort(depth, kind="stable")
    cuts = np.searchsorted(depth[by_depth], np.arange(int(depth.max()) + 2))
    leaf_key = messages.message.astype(np.int64) * devices + messages.leaf

    # The steps of each depth, as columns: message and device away from the root in one number; the first
    # transfer, and in front of it the edges that it has crossed; position; height.
    found: list[list[NDArray[np.int64]]] = []
    # The same of those found last, where they stand one edge on; and the steps that they are there.
    coming = [np.zeros(0, dtype=np.int64) for _ in range(4)]
    nearer: list[NDArray[np.int64]] = []
    at_leaf, count = np.empty(transfers, dtype=np.int64), 0
    for edges in range(len(cuts) - 2, -1, -1):
        begin = by_depth[cuts[edges] : cuts[edges + 1]]
        beginning = (leaf_key[begin], begin, position[begin], np.zeros(len(begin), dtype=np.int64))
        key, first, place, height = (
            np.concatenate([here, more]) for here, more in zip(beginning, coming, strict=True)
        )

        # Rows with one key are one step; of those in `order` the first are `new`.
        order = np.argsort(key, kind="stable")
        new = np.flatnonzero(np.diff(key[order], prepend=-1))
        step = np.empty(len(key), dtype=np.int64)
        step[order] = count + np.repeat(np.arange(len(new)), np.diff(new, append=len(key)))
        at_leaf[begin] = step[: len(begin)]
        nearer.append(step[len(begin) :])
        count += len(new)

        key = key[order[new]]
        first, place = (np.minimum.reduceat(column[order], new) for column in (first, place))
        height = np.maximum.reduceat(height[order], new)
        found.append([key, first, place, height])
        root, child = messages.root[first % transfers], key % devices
        parent = child - child % group + trees.parents[root % group, child % group]
        coming = [key - child + parent, first + transfers, place, height + 1]
    nearer.append(np.full(len(found[-1][0]), -1))

    # The step at the root, on the way of each: itself of those at depth 0, found last.
    towards, top = np.concatenate(nearer), np.arange(count)
    sizes = [len(columns[0]) for columns in found]
    for block, end in zip(sizes[-2::-1], (count - np.cumsum(sizes[:0:-1])).tolist(), strict=True):
        top[end - block : end] = top[towards[end - block : end]]

    # Numbered by first transfer.
    key, first, place, height = (np.concatenate(column) for column in zip(*found, strict=True))
    of = first % transfers
    order = np.argsort(of * devices + key % devices)  # all different: a transfer has one message
    number = np.empty(count + 1, dtype=np.int32)
    number[order], number[-1] = np.arange(count, dtype=np.int32), -1
    of, child = of[order], key[order] % devices
    root = messages.root[of]
    edges_left = np.repeat(np.arange(len(sizes))[::-1], sizes)[order]
    tree = child - child % group + trees.parents[root % group, child % group]
    return _Steps(
        of=of.astype(np.int32),
        child=child.astype(np.int32),
        parent=np.where(edges_left == 0, root, tree).astype(np.int32),
        nearer=number[towards[order]],
        depth=edges_left.astype(np.int32),
        height=height[order].astype(np.int32),
        position=place[order].astype(np.int32),
        at_leaf=number[at_leaf],
        at_root=number[top[at_leaf]],
    )


def _depths(messages: _Messages, trees: Trees) -> NDArray[np.int64]:
    """Return the edges between the last one on the way from leaf to root and the leaf. [transfers]

    Device d of pipeline stage s is s group + d; what crosses stages goes straight to its user.
    """
    group = len(trees.parents)
    roots = np.arange(group)[:, None]
    # Where each device's way to each root is after so many edges. [roots, devices]
    depth, at = np.full((group, group), -1), np.array(trees.parents)
    for edges in range(group):
        depth[(at == roots) & (depth < 0)] = edges
        at = np.take_along_axis(trees.parents, at, axis=1)

    straight = messages.root // group != messages.leaf // group
    if not trees.relays:
        straight |= messages.alone
    found = np.where(straight, 0, depth[messages.root % group, messages.leaf % group])
    if (found < 0).any():
        raise ValueError("parents of an exchange must lead to the root: they go in a circle")
    return found


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


def _furthest_first(transfers: Transfers, exchange: Indices, left: Indices) -> Transfers:
    """Return the steps of one exchange in an order in which those with most steps to come go first.

    So a pipeline has no gaps: a link over which k boxes go is done after k of them. `left` says how many
    steps are to come after each.
    """
    # On each link the same positions as before, given out anew.
    link = _key(exchange, transfers.sender, transfers.device)
    old = transfers.position
    position = np.empty_like(old)
    order = np.argsort(_key(link, left.max() - left, old), kind="stable")
    position[order] = np.sort(_key(link, old)) % (int(old.max()) + 1)
    return attrs.evolve(transfers, position=position)
