"""Dragonflies: how large, and what one group can send to another. 800 Gbps move 1 MB in 10 us."""

import numpy as np
import pytest

from sipml_core.errors import ConfigError


def test_a_balanced_network_of_two_gpus_a_router_joins_72(build):
    """a = 2 p = 2 h: a h + 1 = 9 groups of a p = 8 GPUs (Kim and others 2008, section 3.1)."""
    assert build("dragonfly", 72).words.notes == (
        "9 groups of 4 routers with 2 GPUs each, 1 links between each two groups",
    )
    assert "with 3 GPUs each" in build("dragonfly", 73).words.notes[0]


def test_every_link_between_groups_ends_at_a_router_of_the_other_group(build):
    """And no router has more links than it may: here two outwards."""
    fabric = build("dragonfly", 72)
    outward = [k for k in range(fabric.fixed_links) if fabric.link_name(k).startswith("groups")]
    assert len(outward) == 9 * 8
    tail, head = (np.array(ends)[outward] - 72 for ends in (fabric.link_tail, fabric.link_head))
    assert np.bincount(tail).tolist() == np.bincount(head).tolist() == [2] * 36
    assert len(set(zip((tail // 4).tolist(), (head // 4).tolist(), strict=True))) == 72


def test_all_of_one_group_to_one_other_share_one_link_if_routes_are_minimal(build, time_us):
    """8 MB over one link: 80 us. By Valiant over 7 other groups, 8/7 MB through each: 80 / 7 us."""
    sizes = {(i, 8 + i): 1e6 for i in range(8)}
    assert time_us(build("dragonfly", 72, spread="spray"), sizes) == pytest.approx(80.0)
    valiant = build("dragonfly", 72, routing="valiant", spread="spray")
    assert time_us(valiant, sizes) == pytest.approx(80.0 / 7)


def test_valiant_takes_twice_the_links_where_traffic_is_spread_already(build, time_us):
    """GPU i of each group sends to GPU i of every other: as much over each link between groups by minimal
    routes, twice as much by Valiant's, which takes longer."""
    sizes = {(8 * g + i, 8 * h + i): 1e5 for g in range(9) for h in range(9) if g != h for i in range(8)}
    minimal_us = time_us(build("dragonfly", 72, spread="spray"), sizes)
    valiant_us = time_us(build("dragonfly", 72, routing="valiant", spread="spray"), sizes)
    assert minimal_us >= 8.0 - 1e-9  # 8 x 0.1 MB over each link
    assert valiant_us >= 2 * 8.0 - 1e-9
    assert valiant_us > minimal_us


def test_inside_a_group_nothing_leaves_it(build, crossed):
    fabric = build("dragonfly", 72, routing="valiant", spread="spray")
    assert crossed(fabric, 0, 7) == {"egress 0": 1.0, "group 0 0->3": 1.0, "ingress 7": 1.0}
    assert crossed(fabric, 0, 1) == {"egress 0": 1.0, "ingress 1": 1.0}


def test_routers_and_links_between_groups_add_their_latency(build):
    """0 to 1: one router. 0 to 7: two. Group 0 to group 1: up to four, and one long link."""
    fabric = build("dragonfly", 72, hop_latency_us=1.0, global_latency_us=10.0)
    latency = fabric.route(np.array([0, 0, 0]), np.array([1, 7, 15])).latency_us
    assert latency[:2].tolist() == [1.0, 2.0]
    assert 12.0 <= latency[2] <= 14.0


@pytest.mark.parametrize(
    ("gpus", "options", "told"),
    [
        (100, {"router_gpus": 2}, "100 GPUs need 13 groups of 8, .* join 9 groups; at most 72 GPUs"),
        (16, {"routing": "valliant"}, "routing must be one of minimal, valiant, .*did you mean 'valiant'"),
        (16, {"spread": "spray", "hash_seed": 1}, "hash_seed has no effect"),
        (16, {"router_gpus": 0}, "router_gpus must be from 1"),
    ],
)
def test_impossible_networks_are_refused_in_one_line(build, gpus, options, told):
    with pytest.raises(ConfigError, match=told) as refusal:
        build("dragonfly", gpus, **options)
    assert "\n" not in str(refusal.value)
