"""All-reduces of gradients over the replicas: how rings are arranged in tiers."""

from __future__ import annotations

from sipml_core.errors import InfeasibleError
from sipml_core.model import ReplicaShape
from sipml_core.plugin import AllReduce


class Flat(AllReduce):
    """One ring over all members, 2 (n - 1) / n of the bytes each."""

    name = "flat"
    summary = "one ring over all members, 2 (n - 1) / n of the bytes each"

    def offered(self, shape: ReplicaShape) -> bool:
        """See `AllReduce.offered`."""
        return True

    def tiers(self, shape: ReplicaShape) -> tuple[int, ...]:
        """Return one tier.

        >>> Flat(None).tiers(ReplicaShape(replicas=8, devices=2))
        (8,)
        """
        return (shape.replicas,)


class TwoTier(AllReduce):
    """Inside servers first, then across, then inside: 1 / u of the bytes cross where u share a server."""

    name = "two-tier"
    summary = "reduce-scatter inside servers, all-reduce across, all-gather inside"

    def offered(self, shape: ReplicaShape) -> bool:
        """See `AllReduce.offered`: where whole groups fill whole servers, several to one."""
        return bool(shape.counterparts_in)

    def tiers(self, shape: ReplicaShape) -> tuple[int, ...]:
        """Return servers, and the replicas in each.

        >>> TwoTier(None).tiers(ReplicaShape(replicas=16, devices=2, tiers=(8, 16)))
        (4, 4)
        """
        if not shape.counterparts_in:
            raise InfeasibleError(_misfit("two-tier", shape))
        inner = shape.counterparts_in[0]
        return (shape.replicas // inner, inner)


class Tiered(AllReduce):
    """As `TwoTier`, over every kind of unit that the network has: servers, racks, pods."""

    name = "tiered"
    summary = "as two-tier, over servers, racks and all other units that the network has"

    def offered(self, shape: ReplicaShape) -> bool:
        """See `AllReduce.offered`: where there are at least two kinds of units."""
        return len(shape.counterparts_in) > 1

    def tiers(self, shape: ReplicaShape) -> tuple[int, ...]:
        """Return units of the outermost kind, then how many of each kind lie in one of the kind around it.

        >>> Tiered(None).tiers(ReplicaShape(replicas=16, devices=2, tiers=(8, 16)))
        (2, 2, 4)
        """
        if not shape.counterparts_in:
            raise InfeasibleError(_misfit("tiered", shape))
        sizes = (*shape.counterparts_in, shape.replicas)
        return (*(outer // inner for inner, outer in zip(sizes[-2::-1], sizes[:0:-1], strict=True)), sizes[0])


class InSwitch(AllReduce):
    """Switches add up what passes through them: each GPU sends and receives all bytes once, not twice."""

    name = "in-switch"
    summary = "sums are made by the switches: each GPU sends and receives all bytes once"
    in_network = True

    def offered(self, shape: ReplicaShape) -> bool:
        """See `AllReduce.offered`: where one switch that adds joins all replicas."""
        return shape.adds_up

    def tiers(self, shape: ReplicaShape) -> tuple[int, ...]:
        """Return one tier.

        >>> InSwitch(None).tiers(ReplicaShape(replicas=8, devices=1, switches_add=True))
        (8,)
        """
        if not shape.adds_up:
            raise InfeasibleError(
                "all_reduce 'in-switch' needs a network whose switches add up (its option switches_add), "
                "with all replicas inside one unit: use 'flat' or 'two-tier'"
            )
        return (shape.replicas,)


def _misfit(name: str, shape: ReplicaShape) -> str:
    sizes = " or ".join(map(str, shape.tiers)) or "no"
    return (
        f"all_reduce {name!r} needs whole groups in whole servers, several to one: {shape.replicas} groups "
        f"of {shape.devices} GPUs on servers of {sizes} GPUs do not nest; use 'flat'"
    )
