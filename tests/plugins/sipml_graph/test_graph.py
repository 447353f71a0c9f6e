"""A network from a file: edges in CSV or TOML."""

import io

import networkx as nx
import numpy as np
import pytest
from sipml_graph import Graph

from sipml_core.cases import run_experiment
from sipml_core.errors import ConfigError
from sipml_core.experiment import read_experiment
from sipml_core.model.cluster import Cluster

CSV = """\
from, to, gbps, latency_us
gpu0, leaf, 400, 0.5
gpu1, leaf, , 0.5
gpu2, leaf, 0.1 Tbps, 500 ns
"""

TOML = """
edge = [
  { from = "alice", to = "switch", gbps = 400 },
  { from = "bob", to = "switch" },
]
[[node]]
name = "bob"
gpu = 0
[[node]]
name = "alice"
gpu = 1
"""


CSV_AS_TOML = """\
edge = [
  { from = "gpu0", to = "leaf", gbps = 400 },
  { from = "gpu1", to = "leaf" },
  { from = "gpu2", to = "leaf", gbps = 100 },
]
"""


def fabric(tmp_path, text, name="net.csv", gpus=3, gbps=200.0, **options):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return Graph(Graph.Options(file=str(path), **options)).build(Cluster(gpus=gpus, bandwidth_gbps=gbps))


def crossed(fabric, src, dst):
    links = fabric.route(np.array([src], np.int32), np.array([dst], np.int32)).links[0]
    return [(fabric.link_name(k), fabric.link_gbps[k]) for k in links if k >= 0]


def test_csv_edges_become_links_and_blanks_the_bandwidth_of_a_gpu(tmp_path):
    """B = 200: gpu0's edge of 400 gets a port of 200, gpu1's blank one is 200, gpu2's is 100."""
    net = fabric(tmp_path, CSV)
    assert crossed(net, 1, 2) == [("gpu1->leaf", 200.0), ("leaf->gpu2", 100.0)]
    assert crossed(net, 0, 1) == [("egress 0", 200.0), ("gpu0->leaf", 400.0), ("leaf->gpu1", 200.0)]
    assert net.route(np.array([0]), np.array([1])).latency_us.tolist() == [1.0]


def test_toml_names_gpus_in_node_tables(tmp_path):
    net = fabric(tmp_path, TOML, "net.toml", gpus=2, gbps=500)
    assert crossed(net, 1, 0) == [("alice->switch", 400.0), ("switch->bob", 500.0)]


def test_a_repeated_line_is_a_parallel_link(tmp_path):
    net = fabric(tmp_path, "from,to\ngpu0,gpu1\ngpu0,gpu1\n", gpus=2)
    assert [net.link_name(k) for k in range(4)] == [
        "gpu0->gpu1",
        "gpu1->gpu0",
        "gpu0->gpu1#2",
        "gpu1->gpu0#2",
    ]


def test_directed_edges_are_one_way(tmp_path):
    net = fabric(tmp_path, "from,to\ngpu0,gpu1\ngpu1,gpu2\ngpu2,gpu0\n", directed=True)
    assert [name for name, _ in crossed(net, 0, 2)] == ["gpu0->gpu1", "gpu1->gpu2"]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("from,to,gbit\ngpu0,gpu1,3\n", "net.csv", r"net.csv: line 1: 'gbit' is not a known key"),
        ("from,to,gbps\ngpu0,gpu1\n", "net.csv", "net.csv: line 2 must have 3 values"),
        ("from,to,gbps\ngpu0,,3\n", "net.csv", "net.csv: line 2: 'to' is required"),
        (
            "from,to,gbps\ngpu0,gpu1,0\n",
            "net.csv",
            r"net.csv: line 2: edge gpu0->gpu1: gbps must be positive",
        ),
        (
            "from,to\n\ngpu0,s\ngpu1,gpu1\n",
            "net.csv",
            r"net.csv: line 4: edge gpu1->gpu1 joins a node to itself",
        ),
        (
            "from,to,gbps\ngpu0,s,quick\n",
            "net.csv",
            r"net.csv: line 2: edge gpu0->s: gbps must be a bandwidth",
        ),
        (
            "edge = [{ from = 'gpu0', to = 's' }, { from = 'gpu1', to = 's', latency_us = -1 }]",
            "net.toml",
            r"net.toml: edge\[1\]: edge s->gpu1: latency_us must be at least 0",
        ),
        ("from,to\ngpu0,s\ngpu2,s\n", "net.csv", r"net.csv: 2 GPUs must be numbered 0..1, and none is 1"),
        ("from,to\ngpu0,s\ngpu1,t\n", "net.csv", "net.csv: the graph is disconnected"),
        ("from,to\na,b\n", "net.csv", r"net.csv: no node is a GPU: GPUs are called gpu0, gpu1, ...$"),
        ("from,to\ns,GPU0\n", "net.csv", "GPUs are called gpu0, gpu1, ...; 'GPU0' must be written 'gpu0'"),
        ("from,to,to\ngpu0,s,gpu1\n", "net.csv", "net.csv: line 1: the column 'to' is there twice"),
        ("\nfrom\ngpu0\n", "net.csv", "net.csv: line 2: 'to' is required"),
        (
            "from,to,gbps\ngpu0,s,100 gb/s\n",
            "net.csv",
            'gbps must say what .* write "100 Gb/s" or "100 GB/s"',
        ),
        ("from,to\n" + "g" * 140_000 + ",s\n", "net.csv", "net.csv: line 2: field larger than field limit"),
        ("", "net.csv", "net.csv is empty; its first line must name the columns: from,to,gbps,latency_us"),
        ("from,to\ngpu0,gpu1\n", "net.csv", r"net.csv joins 2 GPUs, but cluster.gpus is 3"),
        ("edges = 3", "net.toml", "net.toml: 'edges' is not a known key; did you mean 'edge'"),
        ("edge = 3", "net.toml", "net.toml: edge must be a list of tables"),
        ("edge = [{ to = 'gpu0' }]", "net.toml", r"net.toml: edge\[0\]: 'from' is required"),
        ("edge", "net.toml", "net.toml is not TOML"),
        (
            "edge = [{ from = 'gpu0', to = ['s'] }]",
            "net.toml",
            r"edge\[0\]: to must be text in quotes, got \['s'\]",
        ),
        (
            "edge = [{ from = true, to = 'gpu0' }]",
            "net.toml",
            r"edge\[0\]: from must be text in quotes, got True",
        ),
        ("node = [{ name = 3 }]\nedge = []", "net.toml", r"node\[0\]: name must be text in quotes, got 3"),
        (
            "node = [{ name = 'a', gpu = 0 }, { name = 'a', gpu = 1 }]\nedge = []",
            "net.toml",
            r"node\[1\]: the node 'a' has been named before",
        ),
        (
            "edge = " + "[" * 5000 + "]" * 5000,
            "net.toml",
            "net.toml is not TOML: it is nested more than 20 deep",
        ),
        ("node = [{ name = 'a', gpu = " + "1" * 5001 + " }]", "net.toml", "more than 4300 digits"),
        ("<graphml><graph", "net.graphml", "net.graphml is not GraphML: "),
        ("not xml", "net.graphml", "net.graphml is not GraphML: "),
        ("", "net.graphml", "net.graphml is not GraphML: "),
        ("", "net.txt", r"file must end in .csv, .toml, .graphml"),
    ],
)
def test_a_bad_file_is_refused_and_the_place_named(tmp_path, text, name, message):
    with pytest.raises(ConfigError, match=message):
        fabric(tmp_path, text, name)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"file: cannot read .*none.csv: No such file"):
        Graph(Graph.Options(file=str(tmp_path / "none.csv"))).build(Cluster(gpus=2, bandwidth_gbps=1))


@pytest.mark.parametrize(("text", "name"), [(CSV, "net.csv"), (CSV_AS_TOML, "net.toml")])
def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path, text, name):
    """As spreadsheets and editors on Windows write UTF-8."""
    assert crossed(fabric(tmp_path, "\ufeff" + text, name), 1, 2) == [
        ("gpu1->leaf", 200.0),
        ("leaf->gpu2", 100.0),
    ]


def graphml(graph):
    file = io.BytesIO()
    nx.write_graphml(graph, file)
    return file.getvalue().decode()


def test_graphml_is_read_with_its_types(tmp_path):
    """400 Gbps from alice to the switch as a number, 0.4 Tbps to bob as text; a note is not looked at."""
    graph = nx.Graph()
    graph.add_node("bob", gpu=1, colour="red")
    graph.add_node("alice", gpu=0)
    graph.add_edge("alice", "switch", gbps=400, latency_us=0.5)
    graph.add_edge("switch", "bob", gbps="0.4 Tbps", note="new")
    net = fabric(tmp_path, graphml(graph), "net.GraphML", gpus=2, gbps=500)
    assert crossed(net, 0, 1) == [("alice->switch", 400.0), ("switch->bob", 400.0)]
    assert net.route(np.array([1]), np.array([0])).latency_us.tolist() == [0.5]


def test_graphml_names_gpus_as_csv_does_and_says_itself_whether_edges_are_one_way(tmp_path):
    graph = nx.DiGraph([("gpu0", "gpu1"), ("gpu1", "gpu2"), ("gpu2", "gpu0")])
    net = fabric(tmp_path, graphml(graph), "net.graphml")
    assert [name for name, _ in crossed(net, 0, 2)] == ["gpu0->gpu1", "gpu1->gpu2"]
    with pytest.raises(
        ConfigError, match=r"directed is true, but .*net\.graphml says that its edges are not"
    ):
        fabric(tmp_path, graphml(graph.to_undirected()), "net.graphml", directed=True)


def test_endings_may_be_large(tmp_path):
    assert crossed(fabric(tmp_path, CSV, "NET.CSV"), 1, 2) == crossed(fabric(tmp_path, CSV), 1, 2)


def test_a_long_or_broken_name_stays_in_one_short_line(tmp_path):
    with pytest.raises(ConfigError) as refusal:
        fabric(tmp_path, f"from,to\n{'s' * 3000},{'s' * 3000}\n")
    assert len(str(refusal.value)) < 300 + len(str(tmp_path))


def rails(path, gpus, planes, gbps):
    """A file in which every GPU is joined to so many switches, by a link of so many Gbps each."""
    lines = [f"gpu{i},rail{k},{gbps}" for i in range(gpus) for k in range(planes)]
    path.write_text("from,to,gbps\n" + "\n".join(lines) + "\n")
    return str(path)


def iteration_us(registry, topology):
    """Of a small model on 8 GPUs of 100 Gbps, in groups of two."""
    tables = {
        "title": "planes",
        "cluster": {"gpus": 8, "bandwidth_gbps": 100},
        "workload": {
            "name": "gpt", "layers": 1, "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 100,
            "strategy": {"mp": 2, "dp": 4, "global_batch": 16},
        },
        "topology": topology,
    }  # fmt: skip
    return run_experiment(read_experiment(tables, registry)).cases[0].iteration_us


def test_a_job_on_four_planes_of_a_quarter_is_as_fast_as_on_one_switch(registry, tmp_path):
    """By default; with one plane for each pair it is slower, and on planes of half of that, too."""
    file = rails(tmp_path / "rails.csv", gpus=8, planes=4, gbps=25)
    switch = rails(tmp_path / "switch.csv", gpus=8, planes=1, gbps=100)
    ideal_us = iteration_us(registry, {"name": "graph", "file": switch})
    assert iteration_us(registry, {"name": "graph", "file": file}) == pytest.approx(ideal_us)
    assert iteration_us(registry, {"name": "graph", "file": file, "routing": "ecmp"}) > 1.1 * ideal_us
    slow = rails(tmp_path / "slow.csv", gpus=8, planes=4, gbps=12.5)
    assert iteration_us(registry, {"name": "graph", "file": slow}) > 1.05 * ideal_us


def test_spraying_may_be_asked_for(tmp_path):
    """Two spines: half over each, where ecmp would take one."""
    text = "from,to\n" + "".join(f"gpu{i},leaf{i}\nleaf{i},s0\nleaf{i},s1\n" for i in range(2))
    routes = fabric(tmp_path, text, gpus=2, routing="spray").route(np.array([0]), np.array([1]))
    assert sorted(routes.weight.tolist()) == [0.5, 0.5, 0.5, 0.5, 1.0, 1.0]
    assert fabric(tmp_path, text, gpus=2).route(np.array([0]), np.array([1])).weight is None
