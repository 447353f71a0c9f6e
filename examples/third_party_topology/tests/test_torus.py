import numpy as np
import pytest
from sipml_torus_rotor import Torus

from sipml_core.errors import ConfigError
from sipml_core.model import Cluster
from sipml_core.testing import TopologyConformance


class TestConformance(TopologyConformance):
    topology = Torus


def build(gpus, **options):
    return Torus(Torus.Options(**options)).build(Cluster(gpus=gpus, bandwidth_gbps=400))


def hops(fabric, src, dst):
    return int((fabric.route(np.array([src]), np.array([dst])).links >= 0).sum())


def test_every_gpu_sends_on_four_links_of_a_quarter():
    """12 GPUs, 3 x 4: 48 links of 100 Gbps."""
    assert build(12).link_gbps.tolist() == [100.0] * 48


def test_distances_wrap_round_both_dimensions():
    """3 x 4: GPU 0 to GPU 11 (row 2, column 3) is one step up and one left; to GPU 2, two along the row."""
    fabric = build(12)
    assert [hops(fabric, 0, gpu) for gpu in (3, 8, 11, 2, 6)] == [1, 1, 2, 2, 3]


def test_two_columns_are_joined_by_two_links():
    """2 x 1 is a pair with two parallel links of B/2."""
    assert build(2).link_gbps.tolist() == [200.0] * 4


def test_neighbours_in_the_order_are_neighbours_in_the_torus():
    fabric = build(16)
    order = fabric.hints.order
    assert [hops(fabric, a, b) for a, b in zip(order, np.roll(order, -1), strict=True)] == [1] * 16


def test_rows_that_do_not_divide_are_refused():
    with pytest.raises(ConfigError, match=r"rows must divide cluster.gpus = 12, got 5"):
        build(12, rows=5)
