"""All-reduces over replicas: which tiers they have, and when they are tried."""

import math

import pytest

from sipml_core.collectives import ALL_REDUCES, Flat, Tiered, TwoTier
from sipml_core.errors import InfeasibleError
from sipml_core.model.groupshape import ReplicaShape


@pytest.mark.parametrize(
    ("replicas", "devices", "tiers", "expected"),
    [
        (8, 2, (), {"flat": (8,)}),
        (8, 2, (8,), {"flat": (8,), "two-tier": (2, 4)}),
        (64, 2, (8, 32), {"flat": (64,), "two-tier": (16, 4), "tiered": (4, 4, 4)}),
        (4, 8, (8,), {"flat": (4,)}),
        (4, 2, (8,), {"flat": (4,)}),
        (6, 3, (4,), {"flat": (6,)}),
    ],
    ids=["no servers", "servers", "racks", "a group fills a server", "one server", "straddling"],
)
def test_tiers_multiply_to_the_replicas(replicas, devices, tiers, expected):
    """By hand: groups in a server, servers in a rack, racks."""
    shape = ReplicaShape(replicas=replicas, devices=devices, tiers=tiers)
    offered = {cls.name: cls(None).tiers(shape) for cls in ALL_REDUCES if cls(None).offered(shape)}
    assert offered == expected
    assert all(math.prod(sizes) == replicas for sizes in offered.values())


def test_the_ring_is_always_there():
    assert Flat(None).offered(ReplicaShape(replicas=1, devices=1))


@pytest.mark.parametrize("cls", [TwoTier, Tiered])
def test_groups_that_do_not_nest_are_refused_with_the_sizes(cls):
    with pytest.raises(
        InfeasibleError, match="6 groups of 3 GPUs on servers of 4 GPUs do not nest; use 'flat'"
    ):
        cls(None).tiers(ReplicaShape(replicas=6, devices=3, tiers=(4,)))
