"""Exchanges inside a model-parallel group: for each maker, the tree along which its result goes.

An all-gather sends every device's result down the tree of which it is the root. A reduce-scatter takes the
same trees upwards: parts of a sum are added up on the way to the device that needs the sum. An all-reduce
is both (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.collectives.linktrees import LinkTrees
from sipml_core.errors import InfeasibleError
from sipml_core.model import GroupShape
from sipml_core.plugin import Exchange

#: From whom each device gets what each root makes, [roots, devices].
Parents = NDArray[np.int32]


def _roots_and_devices(devices: int) -> tuple[Parents, Parents]:
    """Return the root and the device of every entry of a table of parents. [devices, devices] each"""
    root, device = np.indices((devices, devices), dtype=np.int32)
    return root, device


class Direct(Exchange):
    """From each maker to each user."""

    name = "direct"
    summary = "from each maker to each user, all at once"

    def offered(self, shape: GroupShape) -> bool:
        """See `Exchange.offered`."""
        return True

    def parents(self, shape: GroupShape) -> Parents:
        """Return trees of one level.

        >>> Direct(None).parents(GroupShape.of(devices=3)).tolist()
        [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
        """
        return _roots_and_devices(shape.devices)[0]


class Chain(Exchange):
    """From device to device along the line of the group, both ways from each maker.

    Every segment between two neighbours is crossed once by each result, and two peers are enough.
    """

    name = "chain"
    summary = "from device to device along the line of the group: two peers are enough"

    def offered(self, shape: GroupShape) -> bool:
        """See `Exchange.offered`: where peers are few or share links, and not all are neighbours anyway."""
        return shape.devices > 2 and (shape.few_peers or not shape.ports_only)

    def parents(self, shape: GroupShape) -> Parents:
        """Return trees of two branches.

        >>> Chain(None).parents(GroupShape.of(devices=4)).tolist()
        [[0, 0, 1, 2], [1, 1, 1, 2], [1, 2, 2, 2], [1, 2, 3, 3]]
        """
        root, device = _roots_and_devices(shape.devices)
        return np.asarray(device - np.sign(device - root), dtype=np.int32)


class Ring(Exchange):
    """From device to device round a ring of the group's GPUs in order, half of them each way.

    As a ring of a communication library does that visits one server after the other.
    """

    name = "ring"
    summary = "from device to device round a ring in the order of the servers, half each way"

    def offered(self, shape: GroupShape) -> bool:
        """See `Exchange.offered`: where the GPUs share links that are not those of units they fill.

        Every result crosses from unit to unit round the ring: between two units it does so twice, which
        `Tiers` and `Chain` avoid.
        """
        fills_units = bool(shape.units) and not shape.straddles
        return shape.devices > 2 and not (shape.few_peers or shape.ports_only or fills_units)

    def parents(self, shape: GroupShape) -> Parents:
        """Return trees of two branches; the device opposite is reached by the ascending one.

        >>> Ring(None).parents(GroupShape.of(devices=4)).tolist()
        [[0, 0, 1, 0], [1, 1, 1, 2], [3, 2, 2, 2], [3, 0, 3, 3]]
        """
        n = shape.devices
        if shape.reach_hops is not None and n - 1 > shape.reach_hops:
            raise InfeasibleError(
                f"exchange 'ring' joins the first and the last of {n} GPUs, {n - 1} hops apart on the fibre; "
                f"the reach is {shape.reach_hops}: use 'chain' or 'direct'"
            )
        root, device = _roots_and_devices(n)
        ahead = (device - root) % n
        step = np.where(ahead == 0, 0, np.where(ahead <= n // 2, -1, 1))
        return ((device + step) % n).astype(np.int32)


class Tiers(Exchange):
    """Once into each other unit, to the counterpart of the maker, which passes it on to the others there.

    With u units, (u - 1) / u of all results enter each unit: the least that any algorithm can do. Inside the
    innermost one they go down `LinkTrees` where its GPUs have links of their own.
    """

    name = "tiers"
    summary = "once to the counterpart in each other server (and rack), which passes it on inside"

    def offered(self, shape: GroupShape) -> bool:
        """See `Exchange.offered`: where the group fills several units, and a GPU may have many peers."""
        return bool(shape.units) and not (shape.straddles or shape.few_peers or shape.ports_only)

    def parents(self, shape: GroupShape) -> Parents:
        """Return trees of one level for each kind of unit, and one inside the innermost.

        >>> Tiers(None).parents(GroupShape.of(devices=4, tiers=(2,))).tolist()
        [[0, 0, 0, 2], [1, 1, 3, 1], [2, 0, 2, 2], [1, 3, 3, 3]]
        """
        if not shape.units or shape.straddles:
            raise InfeasibleError(
                f"exchange 'tiers' needs groups that fill several servers equally, and {shape.devices} GPUs "
                "do not: use 'ring' or 'direct'"
            )
        root, device = _roots_and_devices(shape.devices)
        # Outside in: who has the innermost place of the root gets it across; the others from that one.
        parents = root.copy()
        for unit in sorted(shape.units, reverse=True):
            own_place, root_place = device % unit, root % unit
            parents = np.where(own_place == root_place, parents, device - own_place + root_place)
        # Inside the innermost units: from which place each place gets what comes from one. [inner, inner]
        inner = min(shape.units)
        trees = _inside(shape, inner)
        own_place, root_place = device % inner, root % inner
        inside = device - own_place + trees[root_place, own_place]
        return np.where(own_place == root_place, parents, inside).astype(np.int32)


def _inside(shape: GroupShape, inner: int) -> Parents:
    """Return trees over the links that every innermost unit has; directly, where links do not join them."""
    if shape.links:
        units = np.arange(shape.devices).reshape(-1, inner)
        gbps = np.array(shape.links)[units[:, :, None], units[:, None, :]].min(axis=0)
        one = GroupShape.of(devices=inner, links=tuple(map(tuple, gbps.tolist())))
        if LinkTrees(None).offered(one):
            return LinkTrees(None).parents(one)
    return _roots_and_devices(inner)[0]
