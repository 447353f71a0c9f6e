"""A NetworkX graph is enough to make a fabric."""

import subprocess
import sys
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.model.fabric import Fabric
from sipml_core.model.hints import FabricHints
from sipml_core.model.network import check_routes


def crossed(fabric, src, dst):
    """Names of the links one pair crosses, in order."""
    links = fabric.route(np.array([src], np.int32), np.array([dst], np.int32)).links[0]
    return [fabric.link_name(k) for k in links if k >= 0]


def all_pairs(gpus):
    src, dst = np.divmod(np.arange(gpus * gpus, dtype=np.int32), np.int32(gpus))
    return src[src != dst], dst[src != dst]


def star(gpus=3, gbps=100.0):
    """GPUs round one switch."""
    graph = nx.Graph()
    graph.add_nodes_from([f"g{i}" for i in range(gpus)], gpu=True)
    graph.add_edges_from([(f"g{i}", "switch") for i in range(gpus)], gbps=gbps, latency_us=0.5)
    return graph


def fat_tree(leaves=4, spines=4, gpus_per_leaf=4):
    graph = nx.Graph()
    graph.add_nodes_from(range(leaves * gpus_per_leaf), gpu=True)
    for leaf in range(leaves):
        for k in range(gpus_per_leaf):
            graph.add_edge(leaf * gpus_per_leaf + k, f"leaf{leaf}", gbps=100)
        for spine in range(spines):
            graph.add_edge(f"leaf{leaf}", f"spine{spine}", gbps=100)
    return graph


def test_a_switch_is_no_gpu_and_an_undirected_edge_is_a_link_each_way():
    fabric = Fabric.from_networkx(star())
    assert (fabric.gpus, fabric.fixed_links) == (3, 6)
    assert crossed(fabric, 0, 2) == ["g0->switch", "switch->g2"]
    assert crossed(fabric, 2, 0) == ["g2->switch", "switch->g0"]


def test_latencies_of_the_edges_add_up():
    routes = Fabric.from_networkx(star()).route(*all_pairs(3))
    assert routes.latency_us.tolist() == [1.0] * 6


def test_gpus_may_be_numbered_by_hand():
    graph = star()
    for i, name in enumerate(["g2", "g0", "g1"]):
        graph.nodes[name]["gpu"] = i
    assert crossed(Fabric.from_networkx(graph), 0, 1) == ["g2->switch", "switch->g0"]


def test_quantities_may_be_text_or_numpy_numbers():
    graph = star(gbps="2 Tbps")
    graph.edges["g0", "switch"]["gbps"] = np.float32(100)
    graph.edges["g0", "switch"]["latency_us"] = "500 ns"
    fabric = Fabric.from_networkx(graph)
    assert sorted(fabric.link_gbps) == [100, 100, 2000, 2000, 2000, 2000]


def test_directed_edges_are_one_way():
    graph = nx.DiGraph()
    graph.add_nodes_from([0, 1, 2], gpu=True)
    graph.add_edges_from([(0, 1), (1, 2), (2, 0)], gbps=10)
    fabric = Fabric.from_networkx(graph)
    assert fabric.fixed_links == 3
    assert crossed(fabric, 1, 0) == ["1->2", "2->0"]


def test_parallel_edges_are_links_of_their_own_and_pairs_spread_over_them():
    """Two switches joined by two edges: 64 pairs across must not all take the same one."""
    graph = nx.MultiGraph()
    graph.add_nodes_from(range(16), gpu=True)
    graph.add_edges_from([(i, "a" if i < 8 else "b") for i in range(16)], gbps=100)
    graph.add_edges_from([("a", "b"), ("a", "b")], gbps=100)
    fabric = Fabric.from_networkx(graph)
    middle = {crossed(fabric, i, j)[1] for i in range(8) for j in range(8, 16)}
    assert middle == {"a->b", "a->b#2"}
    assert {
        crossed(Fabric.from_networkx(graph, routing="shortest"), i, j)[1] for i in range(8) for j in (8, 15)
    } == {"a->b"}


def test_routes_have_the_fewest_links():
    """Against NetworkX's own breadth-first search, on a graph with many ties."""
    graph = nx.connected_watts_strogatz_graph(40, 4, 0.3, seed=1)
    nx.set_node_attributes(graph, True, "gpu")
    nx.set_edge_attributes(graph, 10.0, "gbps")
    fabric = Fabric.from_networkx(graph)
    src, dst = all_pairs(40)
    links = fabric.route(src, dst).links
    want = dict(nx.all_pairs_shortest_path_length(graph))
    assert [(row >= 0).sum() for row in links] == [want[i][j] for i, j in zip(src, dst, strict=True)]


def test_routes_are_paths():
    """Each link starts where the one before ended; the first at the source, the last at the target."""
    graph = fat_tree()
    fabric = Fabric.from_networkx(graph)
    for src, dst in zip(*all_pairs(16), strict=True):
        hops = [name.split("->") for name in crossed(fabric, src, dst)]
        assert hops[0][0] == str(src)
        assert hops[-1][1] == str(dst)
        assert all(a[1] == b[0] for a, b in pairwise(hops))


def test_ecmp_spreads_pairs_over_spines_and_each_pair_keeps_one_path():
    """48 pairs of ordered leaf pairs x 4 x 4 = 192 over 4 spines: 48 each on average, none below half."""
    fabric = Fabric.from_networkx(fat_tree())
    pairs = [(i, j) for i in range(16) for j in range(16) if i // 4 != j // 4]
    spines = [crossed(fabric, i, j)[2].split("->")[0] for i, j in pairs]
    assert min(spines.count(f"spine{k}") for k in range(4)) >= 24
    assert spines == [crossed(fabric, i, j)[2].split("->")[0] for i, j in pairs]


def test_a_pairs_route_does_not_depend_on_which_others_are_asked_for():
    fabric = Fabric.from_networkx(fat_tree())
    src, dst = all_pairs(16)
    together = fabric.route(src, dst).links
    alone = fabric.route(src[[100, 17]], dst[[100, 17]]).links
    assert together[[100, 17]].tolist() == alone.tolist()


def test_routes_do_not_depend_on_pythonhashseed():
    program = (
        "import networkx as nx, numpy as np\n"
        "from sipml_core.model.fabric import Fabric\n"
        "g = nx.relabel_nodes(nx.complete_bipartite_graph(6, 4), lambda i: f'n{i}')\n"
        "nx.set_edge_attributes(g, 10.0, 'gbps')\n"
        "nx.set_node_attributes(g, {f'n{i}': True for i in range(6)}, 'gpu')\n"
        "f = Fabric.from_networkx(g)\n"
        "print(f.route(*np.triu_indices(6, 1)).links.tolist())\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(printed) == 1


def test_groups_of_unequal_size():
    """A server of 3 GPUs and one of 1: nothing is assumed of how GPUs are grouped."""
    graph = nx.Graph()
    graph.add_nodes_from(range(4), gpu=True)
    graph.add_edges_from([(0, "a"), (1, "a"), (2, "a"), (3, "b"), ("a", "b")], gbps=10)
    fabric = Fabric.from_networkx(graph)
    assert crossed(fabric, 0, 1) == ["0->a", "a->1"]
    assert crossed(fabric, 0, 3) == ["0->a", "a->b", "b->3"]


def test_a_port_limits_only_gpus_whose_edges_exceed_it():
    """GPU 1 of a line has 2 x 100 Gbps and a port of 150; the ends have 100 and need none."""
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, True, "gpu")
    nx.set_edge_attributes(graph, 100.0, "gbps")
    fabric = Fabric.from_networkx(graph, port_gbps=150.0)
    assert crossed(fabric, 0, 1) == ["0->1", "ingress 1"]
    assert crossed(fabric, 1, 2) == ["egress 1", "1->2"]
    assert crossed(fabric, 0, 2) == ["0->1", "1->2"]
    assert fabric.link_gbps[-2:].tolist() == [150.0, 150.0]


def test_gpus_that_do_not_forward_are_bypassed():
    """0 - 1 - 2 are joined directly, and by a longer way through two switches."""
    graph = nx.Graph([(0, 1), (1, 2), (0, "a"), ("a", "b"), ("b", 2)])
    nx.set_node_attributes(graph, {0: True, 1: True, 2: True}, "gpu")
    nx.set_edge_attributes(graph, 10.0, "gbps")
    assert crossed(Fabric.from_networkx(graph), 0, 2) == ["0->1", "1->2"]
    fabric = Fabric.from_networkx(graph, gpus_forward=False)
    assert crossed(fabric, 0, 2) == ["0->a", "a->b", "b->2"]
    assert crossed(fabric, 0, 1) == ["0->1"]


def test_a_pair_that_only_gpus_join_is_refused_when_they_do_not_forward():
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, True, "gpu")
    nx.set_edge_attributes(graph, 10.0, "gbps")
    with pytest.raises(InfeasibleError, match=r"GPU 0 \(0\) to GPU 2 \(2\).*gpus_forward"):
        crossed(Fabric.from_networkx(graph, gpus_forward=False), 0, 2)


def test_routes_have_any_number_of_links():
    """A ring of 64 forwarding GPUs: 32 links to the opposite one, and the two ports."""
    graph = nx.cycle_graph(64)
    nx.set_node_attributes(graph, True, "gpu")
    nx.set_edge_attributes(graph, 10.0, "gbps")
    links = crossed(Fabric.from_networkx(graph, port_gbps=15), 0, 32)
    assert (links[0], len(links), links[-1]) == ("egress 0", 34, "ingress 32")


def test_a_torus_of_three_dimensions_has_routes():
    """8 x 8 x 8: 4 steps along each dimension to the farthest."""
    graph = nx.grid_graph((8, 8, 8), periodic=True)
    nx.set_node_attributes(graph, True, "gpu")
    nx.set_edge_attributes(graph, 10.0, "gbps")
    fabric = Fabric.from_networkx(graph)
    far = list(graph.nodes).index((4, 4, 4))
    assert len(crossed(fabric, 0, far)) == 12


def test_a_disconnected_graph_is_refused_with_both_parts_named():
    graph = nx.union(
        star(2), nx.relabel_nodes(star(4), {"switch": "s", **{f"g{i}": f"h{i}" for i in range(4)}})
    )
    with pytest.raises(
        ConfigError, match=r"no path joins \{g0, g1\} \(2 GPUs\) and \{h0, h1, h2, ...\} \(4 GPUs\)"
    ):
        Fabric.from_networkx(graph)


def test_a_one_way_street_is_disconnected_too():
    graph = nx.DiGraph([(0, 1)])
    nx.set_node_attributes(graph, True, "gpu")
    nx.set_edge_attributes(graph, 10.0, "gbps")
    with pytest.raises(ConfigError, match=r"\{0\} \(1 GPU\) and \{1\} \(1 GPU\) in both directions"):
        Fabric.from_networkx(graph)


def test_a_switch_that_no_gpu_needs_may_hang_loose():
    graph = star()
    graph.add_node("spare")
    assert Fabric.from_networkx(graph).gpus == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gbps": 0}, "edge g0->switch: gbps must be positive, got 0"),
        ({"gbps": float("nan")}, "edge g0->switch: gbps must be"),
        ({"gbps": "fast"}, "edge g0->switch: gbps must be a bandwidth"),
        ({"gbps": None}, "edge g0->switch: gbps must be a bandwidth"),
        ({"latency_us": -1}, "edge g0->switch: latency_us must be at least 0, got -1"),
    ],
)
def test_a_bad_edge_is_refused_by_name(change, message):
    graph = star()
    graph.edges["g0", "switch"].update(change)
    with pytest.raises(ConfigError, match=message):
        Fabric.from_networkx(graph)


def test_an_edge_without_a_capacity_is_refused_by_name():
    graph = star()
    del graph.edges["g1", "switch"]["gbps"]
    with pytest.raises(ConfigError, match="edge g1->switch: gbps is required"):
        Fabric.from_networkx(graph)


def test_a_loop_is_refused_by_name():
    graph = star()
    graph.add_edge("g1", "g1", gbps=10)
    with pytest.raises(ConfigError, match="edge g1->g1 joins a node to itself"):
        Fabric.from_networkx(graph)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ({}, "the graph has no GPU"),
        ({"g0": 0, "g1": 2}, r"2 GPUs must be numbered 0..1, and none is 1"),
        ({"g0": 0, "g1": 0}, "nodes g0 and g1 are both GPU 0"),
        ({"g0": 0, "g1": True}, "node g1: gpu must be True on every GPU or a number"),
        ({"g0": "yes"}, "node g0: gpu must be True"),
    ],
)
def test_gpus_that_are_not_numbered_properly_are_refused(marks, message):
    graph = star()
    for node in graph:
        graph.nodes[node].pop("gpu", None)
    nx.set_node_attributes(graph, marks, "gpu")
    with pytest.raises(ConfigError, match=message):
        Fabric.from_networkx(graph)


def test_a_mistyped_routing_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'ecmp'"):
        Fabric.from_networkx(star(), routing="ecpm")


def test_other_properties_reach_the_fabric():
    hints = FabricHints(tiers=(("server", 2), ("rack", 4)))
    fabric = Fabric.from_networkx(star(4), hints=hints, notes=("a note",))
    assert (fabric.hints.server_gpus, fabric.words.notes) == (2, ("a note",))


def test_all_pairs_of_1024_gpus_are_routed():
    """1 047 552 routes over 64 leaves and 16 spines."""
    graph = fat_tree(leaves=64, spines=16, gpus_per_leaf=16)
    links = Fabric.from_networkx(graph).route(*all_pairs(1024)).links
    assert links.shape == (1024 * 1023, 4)


def test_numpy_truth_values_mark_gpus():
    """As they come out of a mask: np.True_ is True, np.False_ is no mark."""
    graph = nx.Graph([("a", "b"), ("b", "c")])
    nx.set_edge_attributes(graph, 100, "gbps")
    nx.set_node_attributes(graph, dict(zip("abc", np.array([True, False, True]), strict=True)), "gpu")
    assert Fabric.from_networkx(graph).gpus == 2


def planes(count=4, gbps=25.0, gpus=2):
    """GPUs joined to every one of so many switches."""
    graph = nx.Graph()
    graph.add_nodes_from(range(gpus), gpu=True)
    graph.add_edges_from([(gpu, f"s{k}") for gpu in range(gpus) for k in range(count)], gbps=gbps)
    return graph


def shares(fabric, src, dst):
    """{name: weight} of the links that one pair crosses."""
    routes = fabric.route(np.array([src]), np.array([dst])).flat()
    return {fabric.link_name(k): w for k, w in zip(routes.links, routes.weight, strict=True)}


def test_equal_planes_are_sprayed_by_default():
    """Four planes of B/4: a quarter over each."""
    assert shares(Fabric.from_networkx(planes()), 0, 1) == {
        name: 0.25 for k in range(4) for name in (f"0->s{k}", f"s{k}->1")
    }


def test_four_planes_of_a_quarter_give_the_whole_bandwidth():
    """12 500 bytes at 100 Gbps take 1 us, also where a port of 100 Gbps is asked for."""
    from sipml_core.engine import simulate
    from sipml_core.model.network import Network
    from sipml_core.testing.jobs import transfers_only

    tasks = transfers_only(2, [0], [1], [12_500.0])
    for port_gbps in (None, 100.0):
        network = Network.of(Fabric.from_networkx(planes(), port_gbps=port_gbps), tasks)
        assert simulate(tasks, network).total_us == pytest.approx(1.0)


@pytest.mark.parametrize("spoil", ["a slower link", "a link between planes", "a GPU without one"])
def test_planes_that_are_not_equal_are_not_sprayed_by_default(spoil):
    graph = planes(gpus=3)
    if spoil == "a slower link":
        graph.edges[1, "s2"]["gbps"] = 10.0
    elif spoil == "a link between planes":
        graph.add_edges_from([("s0", f"s{k}") for k in (1, 2, 3)], gbps=25.0)
    else:
        graph.remove_edge(1, "s2")
    fabric = Fabric.from_networkx(graph)
    assert set(shares(fabric, 0, 2).values()) == {1.0}


def test_spraying_gives_each_shortest_path_the_same_part():
    """Of three paths of three links, two share a->b: 0 takes two thirds there, and a third through c."""
    graph = nx.DiGraph()
    graph.add_nodes_from([0, 1], gpu=True)
    paths = [(0, "a"), ("a", "b"), ("a", "d"), ("b", 1), ("d", 1), (0, "c"), ("c", "e"), ("e", 1), (1, 0)]
    graph.add_edges_from(paths, gbps=10.0, latency_us=1.0)
    graph.edges["c", "e"]["latency_us"] = 5.0
    fabric = Fabric.from_networkx(graph, routing="spray", port_gbps=15.0)
    third = pytest.approx(1 / 3)
    assert shares(fabric, 0, 1) == {
        "egress 0": 1.0, "0->a": pytest.approx(2 / 3), "a->b": third, "a->d": third, "b->1": third,
        "d->1": third, "0->c": third, "c->e": third, "e->1": third, "ingress 1": 1.0,
    }  # fmt: skip
    assert fabric.route(np.array([0]), np.array([1])).latency_us.tolist() == [7.0]


def test_sprayed_routes_of_many_pairs_are_those_of_each_alone():
    fabric = Fabric.from_networkx(fat_tree(), routing="spray")
    src, dst = all_pairs(16)
    together = fabric.route(src, dst)
    for k in (0, 17, 100):
        alone = fabric.route(src[[k]], dst[[k]])
        entries = slice(together.start[k], together.start[k + 1])
        assert together.links[entries].tolist() == alone.links.tolist()
        assert together.weight[entries].tolist() == alone.weight.tolist()


@pytest.mark.parametrize("routing", ["ecmp", "shortest", "spray"])
def test_routes_of_a_graph_lead_from_link_to_link(routing):
    """Whatever the way, and with ports."""
    fabric = Fabric.from_networkx(fat_tree(), routing=routing, port_gbps=50.0)
    pairs = all_pairs(16)
    check_routes(fabric, *pairs, fabric.route(*pairs))
