"""Networks that a formula describes: Slim Fly and Theia."""

import re
import subprocess
import sys

import networkx as nx
import pytest
from sipml_graph.generators import edge_list, slimfly, theia

from sipml_core.errors import ConfigError


@pytest.mark.parametrize(("q", "degree"), [(3, 5), (5, 7), (7, 11), (13, 19)])
def test_a_slim_fly_has_two_q_squared_routers_two_hops_apart(q, degree):
    """Degree (3 q - d) / 2 for q = 4 w + d; q = 5 is the Hoffman-Singleton graph, of 50 nodes and girth 5."""
    graph = nx.Graph(slimfly(q))
    assert len(graph) == 2 * q * q
    assert graph.size() == q * q * degree
    assert set(dict(graph.degree).values()) == {degree}
    assert nx.diameter(graph) == 2
    if q == 5:
        assert nx.girth(graph) == 5


def test_a_theia_joins_rows_and_columns():
    """4 x 4: three others in the row, three in the column, 16 x 6 / 2 links. One row: each to each."""
    graph = nx.Graph(theia(4, 4))
    assert set(dict(graph.degree).values()) == {6}
    assert (len(graph), graph.size(), nx.diameter(graph)) == (16, 48, 2)
    assert nx.diameter(nx.Graph(theia(1, 5))) == 1


def test_the_edge_list_has_gpus_on_every_switch():
    """Three switches, two GPUs each, three links."""
    lines = list(edge_list(theia(1, 3), gpus=2, gbps=100.0, latency_us=0.5))
    assert lines[0] == "from, to, gbps, latency_us"
    assert lines[1:3] == ["gpu0, s0.0, , 0.5", "gpu1, s0.0, , 0.5"]
    assert lines[-1] == "s0.1, s0.2, 100, 0.5"
    assert len(lines) == 1 + 6 + 3


def test_the_command_writes_what_the_topology_reads(tmp_path, registry):
    written = subprocess.run(
        [sys.executable, "-m", "sipml_graph", "theia", "--rows", "1", "--gpus", "1"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (tmp_path / "theia.csv").write_text(written)
    from sipml_core.model import Cluster

    graph = registry.find("topology", "graph")
    fabric = graph(graph.Options(file=str(tmp_path / "theia.csv"))).build(
        Cluster(gpus=4, bandwidth_gbps=100.0)
    )
    assert fabric.fixed_links == 2 * (4 + 6)


def test_a_slim_fly_of_no_prime_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="q must be an odd prime, got 9; nearest: 7 or 11"):
        slimfly(9)
    done = subprocess.run(
        [sys.executable, "-m", "sipml_graph", "slimfly", "--q", "4"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: theia(100_000, 100_000),
            "theia has at most 4096 switches, got 100000 x 100000; nearest: 64 x 64",
        ),
        (lambda: slimfly(10**9 + 7), "2 q^2 switches must be at most 4096, got q = 1000000007; nearest: 43"),
        (
            lambda: list(edge_list(theia(1, 2), gpus=1, gbps=0.0, latency_us=0.0)),
            "gbps must be above 0, got 0",
        ),
    ],
)
def test_what_no_cluster_has_is_refused_at_once(make, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()


def test_the_largest_slim_fly_has_the_q_that_is_named():
    """2 * 43^2 = 3698; the next prime, 47, gives 4418."""
    assert len({end for edge in slimfly(43) for end in edge}) == 3698
    with pytest.raises(ConfigError):
        slimfly(47)
