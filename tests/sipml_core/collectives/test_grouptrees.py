"""Exchanges inside groups: trees that reach everybody, and the closed forms of what they cost."""

import numpy as np
import pytest

from sipml_core.collectives import EXCHANGES, Chain, Direct, LinkTrees, Ring, Tiers
from sipml_core.errors import InfeasibleError
from sipml_core.model.groupshape import GroupShape

#: Device 0 has a link of 2 Gbps to each other, and these are a ring of 1 Gbps.
WHEEL = ((0, 2, 2, 2, 2), (2, 0, 1, 0, 1), (2, 1, 0, 1, 0), (2, 0, 1, 0, 1), (2, 1, 0, 1, 0))

#: Two servers, in each of which the GPUs are a line.
TWO_LINES = tuple(tuple(float(abs(a - b) == 1 and a // 4 == b // 4) for b in range(8)) for a in range(8))

SHAPES = [
    GroupShape.of(devices=1),
    GroupShape.of(devices=2),
    GroupShape.of(devices=3),
    GroupShape.of(devices=7, tiers=(2,)),
    GroupShape.of(devices=8, tiers=(4,)),
    GroupShape.of(devices=24, tiers=(2, 8)),
    GroupShape.of(devices=12, tiers=(3, 6)),
    GroupShape.of(devices=6, tiers=(4,)),
    GroupShape.of(devices=5, links=WHEEL),
    GroupShape.of(devices=8, tiers=(4,), links=TWO_LINES),
]


def tables():
    """Every exchange on every shape that it can serve."""
    for shape in SHAPES:
        for exchange in EXCHANGES:
            try:
                yield exchange, shape, exchange(None).parents(shape)
            except InfeasibleError:
                assert exchange in (Tiers, LinkTrees)
                assert exchange is LinkTrees or shape.straddles or not shape.units
                assert exchange is Tiers or shape.links in ((), TWO_LINES)


@pytest.mark.parametrize(("exchange", "shape", "parents"), list(tables()))
def test_every_row_is_a_tree_that_reaches_all(exchange, shape, parents):
    """From any device, parents lead to the root in fewer steps than there are devices."""
    n = shape.devices
    assert parents.shape == (n, n)
    root = np.arange(n)[:, None]
    assert (np.diagonal(parents) == np.arange(n)).all()
    at = np.broadcast_to(np.arange(n), (n, n))
    for _ in range(n):
        at = parents[root, at]
    assert (at == root).all()


def crossings(parents, unit):
    """Results that enter each unit of so many devices, and leave it. [units] each"""
    device = np.broadcast_to(np.arange(len(parents)), parents.shape)
    across = parents // unit != device // unit
    into = np.bincount((device // unit)[across], minlength=len(parents) // unit)
    out = np.bincount((parents // unit)[across], minlength=len(parents) // unit)
    return into, out


@pytest.mark.parametrize(("servers", "unit"), [(2, 4), (3, 4), (4, 2), (4, 8)])
def test_tiers_enter_each_server_once(servers, unit):
    """(u - 1) / u of all n results enter each server, and as many leave: no algorithm can do with less."""
    shape = GroupShape.of(devices=servers * unit, tiers=(unit,))
    into, out = crossings(Tiers(None).parents(shape), unit)
    assert into.tolist() == out.tolist() == [(servers - 1) * unit] * servers


def test_direct_enters_a_server_once_for_each_gpu_there():
    """Two servers of 4: 4 results for 4 GPUs each."""
    into, _ = crossings(Direct(None).parents(GroupShape.of(devices=8, tiers=(4,))), 4)
    assert into.tolist() == [16, 16]


def test_a_chain_over_two_servers_is_as_good_as_tiers():
    into, out = crossings(Chain(None).parents(GroupShape.of(devices=8, tiers=(4,))), 4)
    assert into.tolist() == out.tolist() == [4, 4]


def test_a_ring_crosses_between_two_servers_twice():
    """Half of it goes each way round, over both borders; only the result opposite stays on one side."""
    into, _ = crossings(Ring(None).parents(GroupShape.of(devices=8, tiers=(4,))), 4)
    assert into.tolist() == [8 - 1, 8 - 1]


def test_three_levels_cross_racks_once_and_servers_once():
    """Racks of two servers of two: a result enters each other rack once, and each other server once."""
    parents = Tiers(None).parents(GroupShape.of(devices=8, tiers=(2, 4)))
    assert crossings(parents, 4)[0].tolist() == [4, 4]
    assert crossings(parents, 2)[0].tolist() == [6] * 4


def test_the_neighbours_of_chain_and_ring_are_two():
    for exchange in (Chain, Ring):
        parents = exchange(None).parents(GroupShape.of(devices=9))
        for device in range(9):
            talks_to = set(parents[:, device]) | {
                other for other in range(9) if (parents[:, other] == device).any()
            }
            assert len(talks_to - {device}) <= 2


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (GroupShape.of(devices=8, ports_only=True), ["direct"]),
        (GroupShape.of(devices=8, few_peers=True, ports_only=True), ["chain", "direct"]),
        (GroupShape.of(devices=16, tiers=(8,)), ["chain", "tiers", "direct"]),
        (GroupShape.of(devices=12, tiers=(8,)), ["chain", "ring", "direct"]),
        (GroupShape.of(devices=2, few_peers=True), ["direct"]),
    ],
)
def test_what_auto_tries(shape, names):
    """Where only ports limit, nothing beats sending directly; where links are shared, all that may."""
    assert [exchange.name for exchange in EXCHANGES if exchange(None).offered(shape)] == names


def test_what_cannot_be_is_refused_with_what_can():
    with pytest.raises(InfeasibleError, match="fill several servers equally, and 12 GPUs do not: use 'ring'"):
        Tiers(None).parents(GroupShape.of(devices=12, tiers=(8,)))
    with pytest.raises(
        InfeasibleError, match="8 GPUs, 7 hops apart on the fibre; the reach is 4: use 'chain'"
    ):
        Ring(None).parents(GroupShape.of(devices=8, reach_hops=4))


def test_tiers_use_the_links_inside_servers():
    """From 1 to 5 in the other server, and in both along the lines: 1-0 and 1-2-3, 5-4 and 5-6-7."""
    parents = Tiers(None).parents(GroupShape.of(devices=8, tiers=(4,), links=TWO_LINES))
    assert parents[1].tolist() == [1, 1, 1, 2, 5, 1, 5, 6]
