"""Fat trees: how large, who shares which link, and what hashing costs. 800 Gbps move 1 MB in 10 us."""

import networkx as nx
import numpy as np
import pytest

from sipml_core.errors import ConfigError
from sipml_core.model import Fabric
from sipml_core.testing.jobs import run_transfers, transfers_only


def test_a_tree_of_4_port_switches_joins_16_gpus(build, crossed):
    """k^3 / 4 GPUs, two on each of 8 leaves, two leaves in each of 4 pods (Al-Fares and others 2008)."""
    fabric = build("fat-tree", 16, ports=4)
    assert fabric.words.notes == ("switches of 4 ports: 8 leaves, 8 aggregation switches, 4 cores",)
    assert list(crossed(fabric, 0, 1)) == ["egress 0", "ingress 1"]
    assert [name.rsplit(" ", 1)[0] for name in crossed(fabric, 0, 2)] == [
        "egress", "leaf 0 up", "leaf 1 down", "ingress",
    ]  # fmt: skip
    assert [name.split()[0] for name in crossed(fabric, 0, 15)] == [
        "egress", "leaf", "pod", "pod", "leaf", "ingress",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "layers", "ports"), [(16, 3, 4), (17, 3, 6), (2, 2, 2), (8, 2, 4), (9, 2, 6)]
)
def test_switches_have_as_few_ports_as_will_do(build, gpus, layers, ports):
    """k^3 / 4 GPUs in three layers, k^2 / 2 in two."""
    assert build("fat-tree", gpus, layers=layers).words.notes[0].startswith(f"switches of {ports} ports")


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("ratio", [1.5, 3])
@pytest.mark.parametrize("gpus", [16, 64, 256])
def test_a_tree_has_the_oversubscription_that_is_asked_for(build, gpus, ratio, layers):
    """What a leaf's GPUs can send is so many times what leads up from it."""
    fabric = build("fat-tree", gpus, layers=layers, oversubscription=ratio, routing="spray")
    gbps = {fabric.words.link_names(link): fabric.link_gbps[link] for link in range(fabric.fixed_links)}
    into = np.flatnonzero(fabric.link_head == fabric.link_head[0])  # the leaf of GPU 0
    below = sum(fabric.link_gbps[link] for link in into if fabric.link_tail[link] < gpus)
    assert below / gbps["leaf 0 up"] == pytest.approx(ratio)


@pytest.mark.parametrize(("gpus", "ports"), [(32, 16), (256, 32)])
def test_leaves_hold_whole_servers(build, gpus, ports):
    """Half of the ports are for GPUs: 8, and 16 where 32 leaves of 8 are too many for 16 ports."""
    fabric = build("fat-tree", gpus, layers=2, server_gpus=8)
    assert fabric.words.notes[0].startswith(f"switches of {ports} ports")


def test_a_number_of_ports_that_does_not_give_the_ratio_says_so(build):
    """10 ports are 8 down and 2 up, not 3:1."""
    (note,) = build("fat-tree", 16, layers=2, ports=10, oversubscription=3).words.notes
    assert note.endswith("4:1 oversubscribed (3:1 asked)")


def test_flows_that_are_hashed_to_the_same_uplink_share_it(build, crossed, time_us):
    """Leaf 0 has two GPUs and two uplinks: both send 1 MB to the other pod, in 10 us or in 20."""
    seen = {}
    for seed in range(8):
        fabric = build("fat-tree", 16, ports=4, hash_seed=seed)
        paths = crossed(fabric, 0, 8), crossed(fabric, 1, 12)
        shared = set(paths[0]) & set(paths[1])
        seen[bool(shared)] = time_us(fabric, {(0, 8): 1e6, (1, 12): 1e6})
    assert seen == {True: pytest.approx(20.0), False: pytest.approx(10.0)}


def test_sprayed_a_tree_without_oversubscription_carries_any_permutation_at_full_speed(build, time_us):
    """Every GPU sends 1 MB to the one 5 further on: 10 us, as on one switch."""
    fabric = build("fat-tree", 16, ports=4, routing="spray")
    assert time_us(fabric, {(i, (i + 5) % 16): 1e6 for i in range(16)}) == pytest.approx(10.0)


def test_sprayed_bundles_carry_what_single_links_carry(build, rng_pairs):
    """Against the same tree drawn link by link, its shortest paths found by search: every end agrees."""
    graph = nx.Graph()
    graph.add_nodes_from((gpu, {"gpu": gpu}) for gpu in range(16))
    for gpu in range(16):
        graph.add_edge(gpu, f"leaf{gpu // 2}", gbps=800.0)
    for leaf in range(8):
        for up in range(2):
            graph.add_edge(f"leaf{leaf}", f"pod{leaf // 2}.{up}", gbps=800.0)
    for pod in range(4):
        for up in range(2):
            for core in range(2):
                graph.add_edge(f"pod{pod}.{up}", f"core{up}.{core}", gbps=800.0)
    drawn = Fabric.from_networkx(graph, routing="spray")
    ours = build("fat-tree", 16, ports=4, routing="spray")
    src, dst, size = rng_pairs
    tasks = transfers_only(16, src, dst, size)
    ends = [run_transfers(fabric, None, tasks)[1].end_us for fabric in (drawn, ours)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9)


@pytest.fixture
def rng_pairs():
    """30 transfers of 1 to 3 MB between GPUs drawn at random."""
    rng = np.random.default_rng(4)
    src = rng.integers(0, 16, 30)
    dst = (src + rng.integers(1, 16, 30)) % 16
    return src.astype(np.int32), dst.astype(np.int32), rng.uniform(1e6, 3e6, 30)


def test_oversubscribed_leaves_share_what_leads_up(build, time_us):
    """3:1 with 4 ports: a leaf of 3 GPUs has one uplink. All three send 1 MB: 30 us, inside 10."""
    fabric = build("fat-tree", 12, layers=2, ports=4, oversubscription=3)
    assert "3:1 oversubscribed" in fabric.words.notes[0]
    assert time_us(fabric, {(i, 3 + i): 1e6 for i in range(3)}) == pytest.approx(30.0)
    assert time_us(fabric, {(i, (i + 1) % 3): 1e6 for i in range(3)}) == pytest.approx(10.0)


def test_a_card_limits_what_leaves_the_server(build, time_us):
    """Inside a server 1 MB takes 10 us at 800 Gbps, across 80 us at the card's 100."""
    fabric = build("fat-tree", 16, server_gpus=8, card_gbps=100)
    assert time_us(fabric, {(0, 7): 1e6}) == pytest.approx(10.0)
    assert time_us(fabric, {(0, 8): 1e6}) == pytest.approx(80.0)


def test_on_rails_gpus_of_the_same_number_share_a_leaf(build, crossed):
    """GPU 3 of server 0 and GPU 3 of server 1 climb no tree; by servers they may."""
    rails = build("fat-tree", 16, layers=2, ports=8, server_gpus=4, wiring="rails")
    assert list(crossed(rails, 3, 15)) == ["egress 3", "card of 3 out", "card of 15 in", "ingress 15"]
    assert any(name.startswith("leaf 3 up") for name in crossed(rails, 3, 14))
    servers = build("fat-tree", 16, layers=2, ports=8, server_gpus=4)
    assert any(name.startswith("leaf 0 up") for name in crossed(servers, 3, 15))


def test_the_rail_is_changed_inside_the_server(build, crossed):
    """0 to 7: over NVLink to GPU 3, which has the rail of 7; from there on one leaf."""
    fabric = build("fat-tree", 8, server_gpus=4, wiring="rails", through_server=True)
    assert list(crossed(fabric, 0, 7)) == [
        "egress 0", "ingress 3", "egress 3", "card of 3 out", "card of 7 in", "ingress 7",
    ]  # fmt: skip


def test_flows_of_a_pair_take_paths_of_their_own(build, crossed):
    """Parts of a pair's bytes add up to 1 on each layer, over more links the more flows."""
    fabric = build("fat-tree", 54, ports=6, flows=16)
    ups = {name: part for name, part in crossed(fabric, 0, 53).items() if name.startswith("leaf 0 up")}
    assert len(ups) == 3
    assert sum(ups.values()) == pytest.approx(1.0)


def test_every_switch_on_the_way_adds_its_latency(build):
    """One inside a leaf, three inside a pod, five across."""
    fabric = build("fat-tree", 16, ports=4, hop_latency_us=0.5)
    routes = fabric.route(np.array([0, 0, 0]), np.array([1, 2, 15]))
    assert routes.latency_us.tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ports": 5}, "ports must be even, got 5; nearest: 4 or 6"),
        ({"ports": 4, "gpus": 24}, r"24 GPUs need 12 leaves, but .*ports = 6 would do"),
        ({"layers": 4}, "layers must be 2 .* or 3"),
        ({"wiring": "rails"}, "needs servers: set server_gpus"),
        ({"through_server": True}, "has no effect without wiring = 'rails'"),
        ({"routing": "spray", "flows": 2}, "have no effect with routing = 'spray'"),
        ({"oversubscription": 0.5}, "oversubscription must be from 1"),
    ],
)
def test_impossible_trees_are_refused_in_one_line(build, options, told):
    gpus = options.pop("gpus", 16)
    with pytest.raises(ConfigError, match=told) as refusal:
        build("fat-tree", gpus, **options)
    assert "\n" not in str(refusal.value)
