"""The steps of an exchange along trees: which edges its messages cross, one after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.grouptasks import Indices
from sipml_core.model import parts_of, ranges, sorted_unique


@frozen(kw_only=True, eq=False)
class Trees:
    """Along which trees a group exchanges."""

    #: From whom each device gets what each root makes. [roots, devices]
    parents: NDArray[np.int32]
    #: What only one device needs goes along the tree as well: nobody talks to others than its neighbours.
    relays: bool

    @property
    def direct(self) -> bool:
        """Return whether everything goes from its maker to its user in one step."""
        roots = np.arange(len(self.parents))[:, None]
        return bool((self.parents == roots).all())


@frozen(kw_only=True, eq=False)
class Messages:
    """Transfers as messages: each goes from, or to, the root of a tree. Arrays are [transfers]."""

    #: Transfers of one message go the same tree: of one box to all its users, or of all parts of one sum.
    message: Indices
    root: Indices
    #: The other end: user of the box, or maker of the part.
    leaf: Indices
    #: Parts of a sum, which go towards the root.
    upwards: NDArray[np.bool_]

    @property
    def size(self) -> NDArray[np.int64]:
        """Return the number of transfers of each message. [messages]"""
        return np.bincount(self.message)


@frozen(kw_only=True, eq=False)
class Steps:
    """The edges of the trees of all messages, each once: a step of the exchange.

    In the order of the first transfer of each, which is the first of those that reach it over fewest edges,
    then of the device away from the root.
    """

    #: That transfer; and the first step of each transfer, then the number of all. [steps], [transfers + 1]
    of: Indices
    start: NDArray[np.int64]
    #: The next step towards the root, -1: there is none. [steps]
    nearer: Indices
    #: Kind of each step: messages from one root to the same leaves, or back, have the same kinds. [steps]
    kind: Indices
    #: Whether it goes towards the root; ends of the edge, away from the root and towards it. [kinds]
    upwards: NDArray[np.bool_]
    child: Indices
    parent: Indices
    #: Steps between it and the root, and the most steps between it and a leaf on its other side. [kinds]
    depth: Indices
    height: Indices
    #: The steps at the leaf, and at the root, of each transfer. [transfers]
    at_leaf: Indices
    at_root: Indices


def tree_steps(messages: Messages, trees: Trees, devices: int) -> Steps:
    """Return the steps of messages between so many devices, of all stages.

    Most messages of an exchange between many devices are alike: only the steps of one of each kind are looked
    for, those of the others are the same but for their numbers.

    Examples
    --------
    Two boxes go from device 0 to device 2 of a line, a third to devices 1 and 2: transfers 2 and 3, of
    which the last only goes on where the other ends. Kinds 0 and 1 are of the first two boxes.

    >>> line = Trees(parents=np.array([[0, 0, 1], [1, 1, 1], [1, 2, 2]]), relays=True)
    >>> leaf, zeros = np.array([2, 2, 1, 2]), np.zeros(4, dtype=np.int32)
    >>> messages = Messages(message=np.array([0, 1, 2, 2]), root=zeros, leaf=leaf, upwards=zeros > 0)
    >>> steps = tree_steps(messages, line, devices=3)
    >>> steps.of.tolist(), steps.kind.tolist(), steps.nearer.tolist()
    ([0, 0, 1, 1, 2, 3], [0, 1, 0, 1, 2, 3], [-1, 0, -1, 2, -1, 4])
    >>> list(zip(steps.parent.tolist(), steps.child.tolist(), steps.depth.tolist(), steps.height.tolist()))
    [(0, 1, 0, 1), (1, 2, 1, 0), (0, 1, 0, 1), (1, 2, 1, 0)]
    >>> steps.at_leaf.tolist(), steps.at_root.tolist()
    ([1, 3, 4, 5], [0, 2, 4, 4])
    """
    size, count = messages.size, len(messages.message)
    # Transfers message by message: where each message begins there, and the place of each in its message.
    by_message = np.argsort(messages.message, kind="stable").astype(np.int32)
    begin = np.cumsum(size) - size
    place = np.empty(count, dtype=np.int32)
    place[by_message] = np.arange(count) - np.repeat(begin, size)

    # The transfers of one message of each pattern; and for each transfer the one of these that is like it.
    pattern, example = _patterns(messages, by_message, begin)
    few = by_message[ranges(begin[example], size[example])]
    few_begin = np.cumsum(size[example]) - size[example]
    like = few_begin[pattern[messages.message]] + place
    found = _steps(
        Messages(
            message=np.repeat(np.arange(len(example), dtype=np.int32), size[example]),
            root=messages.root[few],
            leaf=messages.leaf[few],
            upwards=messages.upwards[few],
        ),
        trees,
        devices,
    )

    # Every transfer has as many steps as the one that is like it; `shift` is from kinds to steps. [transfers]
    steps = np.diff(found.start)[like]
    start = np.concatenate([[0], np.cumsum(steps)])
    shift = (start[:-1] - found.start[like]).astype(np.int32)

    def numbered(transfer: Indices, kind: Indices) -> Indices:
        """Return the steps of some kinds in the messages of some transfers."""
        owner = by_message[begin[messages.message[transfer]] + place[few[found.of[kind]]]]
        return np.asarray(kind + shift[owner], dtype=np.int32)

    # Most steps belong to the same transfer as the one nearer to the root, and are numbered with it.
    elsewhere = (found.nearer >= 0) & (found.of[found.nearer] != found.of)
    of, nearer, kind = (np.empty(start[-1], dtype=np.int32) for _ in range(3))
    every = np.arange(count, dtype=np.int32)
    cuts = [*np.searchsorted(start, [part.start for part in parts_of(len(of))]).tolist(), count]
    for begun, end in pairwise(cuts):
        part = slice(start[begun], start[end])
        of[part] = np.repeat(every[begun:end], steps[begun:end])
        moved = np.repeat(shift[begun:end], steps[begun:end])
        kind[part] = np.arange(part.start, part.stop, dtype=np.int32) - moved
        towards = found.nearer[kind[part]]
        nearer[part] = np.where(towards < 0, -1, towards + moved)
        other = np.flatnonzero(elsewhere[kind[part]])
        nearer[part][other] = numbered(of[part][other], towards[other])
    return attrs.evolve(
        found,
        of=of,
        start=start,
        nearer=nearer,
        kind=kind,
        at_leaf=numbered(every, found.at_leaf[like]),
        at_root=numbered(every, found.at_root[like]),
    )


def _patterns(
    messages: Messages, by_message: Indices, begin: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pattern of each message, and a message of each pattern. [messages], [patterns]

    A pattern is a root, its leaves in turn, and whether these send or receive.
    """
    size = messages.size
    pattern, examples, count = np.empty(len(size), dtype=np.int64), [], 0
    for leaves in sorted_unique(size).tolist():
        alike = np.flatnonzero(size == leaves)
        # [messages of that size, leaves]
        transfer = by_message[begin[alike, None] + np.arange(leaves)]
        first = transfer[:, 0]
        key = packed(messages.upwards[first], messages.root[first], *messages.leaf[transfer].T)
        _, example, number = np.unique(key, return_index=True, return_inverse=True)
        pattern[alike] = count + number.reshape(-1)
        examples.append(alike[example])
        count += len(example)
    return pattern, np.concatenate(examples)


def _steps(messages: Messages, trees: Trees, devices: int) -> Steps:
    """Return the steps of messages, all of a kind of their own.

    They are found from the leaves to the roots, the deepest first. Ways of one message that meet go on as
    one, so that no edge is looked at for each transfer that crosses it.
    """
    group, transfers = len(trees.parents), len(messages.root)
    depth = _depths(messages, trees)
    by_depth = np.argsort(depth, kind="stable")
    cuts = np.searchsorted(depth[by_depth], np.arange(int(depth.max()) + 2))
    leaf_key = messages.message.astype(np.int64) * devices + messages.leaf

    # The steps of each depth, as columns: message and device away from the root in one number; the first
    # transfer, and in front of it the edges that it has crossed; height.
    found: list[list[NDArray[np.int64]]] = []
    # The same of those found last, where they stand one edge on; and the steps that they are there.
    coming = [np.zeros(0, dtype=np.int64) for _ in range(3)]
    nearer: list[NDArray[np.int64]] = []
    at_leaf, count = np.empty(transfers, dtype=np.int64), 0
    for edges in range(len(cuts) - 2, -1, -1):
        begin = by_depth[cuts[edges] : cuts[edges + 1]]
        beginning = (leaf_key[begin], begin, np.zeros(len(begin), dtype=np.int64))
        key, first, height = (
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
        first = np.minimum.reduceat(first[order], new)
        height = np.maximum.reduceat(height[order], new)
        found.append([key, first, height])
        root, child = messages.root[first % transfers], key % devices
        parent = child - child % group + trees.parents[root % group, child % group]
        coming = [key - child + parent, first + transfers, height + 1]
    nearer.append(np.full(len(found[-1][0]), -1))

    # The step at the root, on the way of each: itself of those at depth 0, found last.
    towards, top = np.concatenate(nearer), np.arange(count)
    sizes = [len(columns[0]) for columns in found]
    for block, end in zip(sizes[-2::-1], (count - np.cumsum(sizes[:0:-1])).tolist(), strict=True):
        top[end - block : end] = top[towards[end - block : end]]

    # Numbered by first transfer.
    key, first, height = (np.concatenate(column) for column in zip(*found, strict=True))
    of = first % transfers
    order = np.argsort(of * devices + key % devices)  # all different: a transfer has one message
    number = np.empty(count + 1, dtype=np.int32)
    number[order], number[-1] = np.arange(count, dtype=np.int32), -1
    of, child = of[order], key[order] % devices
    root = messages.root[of]
    edges_left = np.repeat(np.arange(len(sizes))[::-1], sizes)[order]
    tree = child - child % group + trees.parents[root % group, child % group]
    return Steps(
        of=of.astype(np.int32),
        start=np.searchsorted(of, np.arange(transfers + 1)),
        nearer=number[towards[order]],
        kind=np.arange(count, dtype=np.int32),
        upwards=messages.upwards[of],
        child=child.astype(np.int32),
        parent=np.where(edges_left == 0, root, tree).astype(np.int32),
        depth=edges_left.astype(np.int32),
        height=height[order].astype(np.int32),
        at_leaf=number[at_leaf],
        at_root=number[top[at_leaf]],
    )


def _depths(messages: Messages, trees: Trees) -> NDArray[np.int64]:
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
        straight |= messages.size[messages.message] == 1
    found = np.where(straight, 0, depth[messages.root % group, messages.leaf % group])
    if (found < 0).any():
        raise ValueError("parents of an exchange must lead to the root: they go in a circle")
    return found


def packed(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """Return the same key for rows that are equal in all columns, none of them negative; in order. [rows]

    >>> packed(np.array([1, 0, 1]), np.array([2, 3, 0])).tolist()
    [6, 3, 4]
    """
    key, keys = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        values = int(column.max(initial=0)) + 1
        if keys * values > 2**62:
            _, key = np.unique(key, return_inverse=True)
            keys = len(key)
        key, keys = key * values + column, keys * values
    return key
