"""Where the GPUs of a job are to each other, as far as an algorithm that moves data may know it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen

#: What links of their own carry between members of a group, from row to column; empty: none do. [Gbps]
LinkTable = tuple[tuple[float, ...], ...]


@frozen(kw_only=True)
class GroupShape:
    """The devices of one model-parallel group. Device d of every group is at the same place in its units.

    A unit is a server, a rack, ...: GPUs inside are joined by more than they are across.

    >>> GroupShape.of(devices=16, tiers=(8, 64)).units
    (8,)
    >>> GroupShape.of(devices=8, tiers=(8,)).units
    ()
    >>> GroupShape.of(devices=6, tiers=(4,)).straddles
    True
    """

    devices: int
    #: GPUs of each kind of unit, inner first, of which the group fills several.
    units: tuple[int, ...] = ()
    #: Units of some kind hold unequal parts of the group, or parts that differ from group to group.
    straddles: bool = False
    #: Nothing but the ports of its GPUs limits what the group exchanges, whoever sends to whom.
    ports_only: bool = False
    #: A GPU holds circuits to few peers at a time.
    few_peers: bool = False
    #: Neighbours on either side that a circuit can span; None: not a ring of fibres. [hops]
    reach_hops: int | None = None
    #: Links between two GPUs of the group that no switch is part of, the same in every group.
    links: LinkTable = ()

    @classmethod
    def of(
        cls,
        *,
        devices: int,
        tiers: tuple[int, ...] = (),
        ports_only: bool = False,
        few_peers: bool = False,
        reach_hops: int | None = None,
        links: LinkTable = (),
    ) -> GroupShape:
        """Return the shape of groups of `devices` consecutive GPUs on a network with units of these sizes."""
        units = [size for size in tiers if size < devices]
        return cls(
            devices=devices,
            units=tuple(size for size in units if devices % size == 0),
            straddles=any(devices % size for size in units),
            ports_only=ports_only,
            few_peers=few_peers,
            reach_hops=reach_hops,
            links=links,
        )


@frozen(kw_only=True)
class ReplicaShape:
    """The replicas of a job: `replicas` groups of `devices` consecutive GPUs each.

    >>> ReplicaShape(replicas=8, devices=2, tiers=(4, 8)).counterparts_in
    (2, 4)
    """

    replicas: int
    devices: int
    #: GPUs of each kind of unit that the network has, inner first.
    tiers: tuple[int, ...] = ()
    #: Links between counterparts in two replicas that no switch is part of, the same for all devices.
    links: LinkTable = ()
    #: Switches add up what passes through them, inside the innermost units where there are any.
    switches_add: bool = False
    #: Sizes of the torus that the counterparts of each device fill, the last dimension fastest: lines along
    #: a dimension are rings of links of their own. Empty: they fill none.
    torus: tuple[int, ...] = ()

    @property
    def gpus(self) -> int:
        """All GPUs of the job."""
        return self.replicas * self.devices

    @property
    def adds_up(self) -> bool:
        """Whether the network can add up what all replicas send.

        >>> [ReplicaShape(replicas=4, devices=d, tiers=(8,), switches_add=True).adds_up for d in (2, 4)]
        [True, False]
        """
        return self.switches_add and (not self.tiers or self.gpus <= self.tiers[0])

    @property
    def counterparts_in(self) -> tuple[int, ...]:
        """Replicas in one unit of each kind that whole replicas fill, several to a unit, all units full."""
        full = [
            size
            for size in self.tiers
            if self.devices < size < self.gpus and size % self.devices == 0 and self.gpus % size == 0
        ]
        return tuple(size // self.devices for size in full)


def torus_filled(members: NDArray[np.int32], torus: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of the part of a torus that each line of members fills in order; empty: of none.

    A part has some dimensions whole and one place in each of the others: an axis, a plane, or all.

    Parameters
    ----------
    members
        GPUs, numbered through the torus with the last dimension fastest. [members, lines]
    torus
        Sizes of the whole.

    Examples
    --------
    Of a torus of 3 x 4: all of it; two columns; two halves of its first two rows.

    >>> torus_filled(np.arange(12)[:, None], (3, 4))
    (3, 4)
    >>> torus_filled(np.array([[0, 1], [4, 5], [8, 9]]), (3, 4))
    (3,)
    >>> torus_filled(np.array([[0, 1], [2, 3], [4, 5], [6, 7]]), (3, 4))
    ()
    """
    if not torus or members.max(initial=0) >= math.prod(torus):
        return ()
    place = np.stack(np.unravel_index(members, torus))  # [dimensions, members, lines]
    moves = (place != place[:, :1]).any(axis=(1, 2))
    whole = tuple(size for size, moved in zip(torus, moves.tolist(), strict=True) if moved)
    if math.prod(whole) != len(members):
        return ()
    expected = np.stack(np.unravel_index(np.arange(len(members)), whole)) if whole else np.empty((0, 1))
    return whole if (place[moves] == expected[:, :, None]).all() else ()
