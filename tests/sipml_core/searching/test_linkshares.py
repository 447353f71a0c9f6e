"""What the first groups have of links: their part of the bytes, and no more than their images."""

import itertools

import attrs
import numpy as np
import pytest

from sipml_core.cases import Case, Reuse, case_traffic, search_candidates
from sipml_core.experiment import read_experiment
from sipml_core.model import Network
from sipml_core.searching.estimate import estimate
from sipml_core.searching.linkshares import shared_links


def network(pairs, links, gbps, latency_us=None):
    """A network of given pairs, each on the links of its row, one transfer each."""
    src, dst = zip(*pairs, strict=True)
    return Network.of_matrix(
        gpus=1 + max(src + dst), pair_src=src, pair_dst=dst, pair_links=np.array(links),
        pair_latency_us=np.zeros(len(pairs)) if latency_us is None else latency_us,
        transfer_pair=np.arange(len(pairs)), link_gbps=gbps, link_id=np.arange(len(gbps)),
        first_circuit=len(gbps), circuit_src=[], circuit_dst=[],
    )  # fmt: skip


#: A ring of four groups of one GPU: each sends to the next.
RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
IMAGES = np.arange(4)[:, None]
BYTES = np.full(4, 10.0)


def test_where_all_images_have_links_alike_the_first_groups_have_their_own():
    """A link each of 100 Gbps: nothing is added."""
    given = network(RING, [[0], [1], [2], [3]], np.full(4, 100.0))
    seen = shared_links(given, given.link_gbps, IMAGES, BYTES)
    assert seen.pair_links.tolist() == given.pair_links.tolist()
    assert seen.link_gbps.tolist() == [100.0] * 4


def test_a_link_that_groups_share_is_divided_by_bytes():
    """One link for all, with 10, 10, 10 and 70 bytes: a tenth is for the first."""
    given = network(RING, [[0], [0], [0], [0]], np.array([100.0]))
    seen = shared_links(given, given.link_gbps, IMAGES, np.array([10.0, 10.0, 10.0, 70.0]))
    assert seen.link_gbps.tolist() == [10.0]
    assert seen.pair_links.tolist() == [[0]] * 4


def links_of(seen):
    """Return the links of each pair, by the names that they have in the whole network, with their weights."""
    return [
        {
            int(seen.link_id[link]): float(weight)
            for link, weight in zip(links, weights, strict=True)
            if link >= 0
        }
        for links, weights in zip(seen.pair_links, seen.pair_weights, strict=True)
    ]


def test_a_pair_stands_on_a_link_as_often_as_its_images_cross_it():
    """GPU 2 and GPU 3 share a link of 100 Gbps: GPU 0 crosses that twice, its own link once."""
    given = network(RING, [[0], [1], [2], [2]], np.full(3, 100.0))
    seen = shared_links(given, given.link_gbps, IMAGES, BYTES)
    assert links_of(seen) == [{0: 1.0, 2: 2.0}]
    assert seen.link_gbps.tolist() == [100.0, 100.0]


def test_images_of_two_pairs_that_share_a_link_share_it_here_too():
    """Two groups of two GPUs that send to each other. Those of the second share a link."""
    pairs, links = [(0, 1), (1, 0), (2, 3), (3, 2)], [[0], [1], [2], [2]]
    given = network(pairs, links, np.array([60.0, 60.0, 60.0]))
    seen = shared_links(given, given.link_gbps, np.array([[0, 1], [2, 3]]), BYTES)
    assert (seen.pair_src.tolist(), seen.pair_dst.tolist()) == ([0, 1], [1, 0])
    assert links_of(seen) == [{0: 1.0, 2: 1.0}, {1: 1.0, 2: 1.0}]


def test_weights_and_latency_are_those_of_the_images():
    """GPU 3 sends half over each of two links: 5 bytes on 10 Gbps take longer than 10 on 100."""
    given = network(
        RING, [[0, -1], [1, -1], [2, -1], [3, 4]], np.array([100.0, 100.0, 100.0, 10.0, 100.0]),
        latency_us=np.array([1.0, 2.0, 5.0, 3.0]),
    )  # fmt: skip
    given = attrs.evolve(given, pair_weight=np.where(given.pair_link >= 3, 0.5, 1.0))
    seen = shared_links(given, given.link_gbps, IMAGES, BYTES)
    assert links_of(seen) == [{0: 1.0, 3: 0.5}]
    assert seen.pair_latency_us.tolist() == [5.0]


def test_pairs_keep_their_order_whatever_the_order_of_the_first_groups():
    """GPUs 1 and 0, in this order, are the first group; 3 and 2 the second, whose links are slow."""
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2)]
    given = network(pairs, [[0], [1], [2], [3]], np.array([100.0, 100.0, 20.0, 10.0]))
    seen = shared_links(given, given.link_gbps, np.array([[1, 0], [3, 2]]), BYTES)
    assert (seen.pair_src.tolist(), seen.pair_dst.tolist()) == ([0, 1], [1, 0])
    assert links_of(seen) == [{0: 1.0, 2: 1.0}, {1: 1.0, 3: 1.0}]
    assert seen.link_gbps.tolist() == [100.0, 100.0, 20.0, 10.0]


@pytest.fixture
def hyperx(tmp_path):
    """A 4 x 4 HyperX of GPUs: each is joined to those of its row and of its column, at 25 Gbps."""
    nodes = list(itertools.product(range(4), repeat=2))
    lines = ["from,to,gbps"]
    for (i, j), (k, m) in itertools.combinations(nodes, 2):
        if (i == k) != (j == m):
            lines.append(f"gpu{4 * i + j},gpu{4 * k + m},25")
    path = tmp_path / "hyperx.csv"
    path.write_text("\n".join(lines))
    return {"name": "graph", "file": str(path)}


def hyperx_case(registry, topology, mp):
    model = {"layers": 1, "hidden": 512, "heads": 8, "sequence": 64, "vocabulary": 500, "curve": "paper"}
    tables = {
        "title": "hyperx",
        "cluster": {"gpus": 16, "bandwidth_gbps": 150},
        "search": {"global_batches": [32], "mp": [mp]},
        "workload": {"name": "gpt", **model},
        "topology": topology,
    }
    experiment = read_experiment(tables, registry)
    candidates = search_candidates(experiment.jobs[0], 16)
    (candidate,) = [each for each in candidates if each.mp == mp]
    return Case.of(experiment, candidate.job, experiment.interconnects[0], candidate.checked_plan)


@pytest.mark.interconnects
@pytest.mark.parametrize("mp", [1, 2, 4, 8])
def test_no_estimate_is_below_what_the_most_loaded_link_takes(registry, hyperx, mp):
    """Bytes of a link over its capacity, of the variant where that is least: no iteration is faster."""
    case = hyperx_case(registry, hyperx, mp)
    reuse, bounds_us = Reuse(), []
    for traffic in case_traffic(case, reuse):
        link_bytes = traffic.network.link_bytes(traffic.pairs.tasks.size_bytes)
        bounds_us.append((link_bytes / traffic.capacity_gbps).max() * 8e-3)
    assert estimate(case, reuse).iteration_us >= min(bounds_us) * (1 - 1e-9)
