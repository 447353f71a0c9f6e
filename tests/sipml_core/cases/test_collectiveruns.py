"""Collectives on networks: their bytes at the bandwidth of the links, bounds, and what a library adds."""

import pytest

from sipml_core.cases import CollectiveBench, bus_factor
from sipml_core.communication import Ideal, Nccl
from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.experiment import read_interconnect
from sipml_core.model import COLLECTIVE_KINDS, Cluster

pytestmark = pytest.mark.interconnects

#: 100 GB/s, and a message of 8 MB: 80 us for all of it.
GBPS, MESSAGE, WHOLE_US = 800.0, 8e6, 80.0


@pytest.fixture
def bench(registry):
    def made(gpus=8, library=None, **table):
        cluster = Cluster(gpus=gpus, bandwidth_gbps=GBPS)
        return CollectiveBench(
            interconnect=read_interconnect({"name": "elect-flat", **table}, "topology", cluster, registry),
            communication=library or Ideal(Ideal.Options()),
            exchanges=[cls(cls.Options()) for cls in registry.classes("exchange")],
            all_reduces=[cls(cls.Options()) for cls in registry.classes("all_reduce")],
        )

    return made


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("all_reduce", 2 * 7 / 8), ("all_gather", 7 / 8), ("reduce_scatter", 7 / 8), ("all_to_all", 7 / 8),
        ("broadcast", 1), ("reduce", 1), ("send", 1),
    ],
)  # fmt: skip
def test_on_an_ideal_switch_the_bus_is_the_link(bench, kind, share):
    """8 GPUs: every kind is as fast as its bytes, so that busbw, as nccl-tests define it, is 100 GB/s."""
    row = bench().time(kind, MESSAGE)
    assert row.time_us == pytest.approx(share * WHOLE_US)
    assert row.algbw_gbytes_per_s == pytest.approx(100.0 / share)
    assert row.busbw_gbytes_per_s == pytest.approx(100.0)


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
@pytest.mark.parametrize("table", [{}, {"name": "elect-cluster", "server_gpus": 4}, {"name": "sip-ring"}])
@pytest.mark.parametrize("library", [Ideal, Nccl])
def test_no_bus_is_faster_than_the_link(bench, kind, table, library):
    """Without sums in the network, whatever the algorithm; also on circuits."""
    at = bench(library=library(library.Options()), **table)
    for algorithm in at.algorithms(kind):
        try:
            row = at.time(kind, MESSAGE, algorithm)
        except InfeasibleError:
            continue
        assert 0 < row.busbw_gbytes_per_s <= 100.0 * (1 + 1e-9)


def test_sums_in_the_switch_send_all_bytes_once(bench):
    """80 us, not 140: busbw is 2 (n - 1) / n of the link, and no more."""
    row = bench(switches_add=True).time("all_reduce", MESSAGE)
    assert (row.algorithm, row.time_us) == ("in-switch", pytest.approx(WHOLE_US))
    assert row.busbw_gbytes_per_s == pytest.approx(100.0 * bus_factor("all_reduce", 8))


def test_switches_of_servers_do_not_add_across_servers(bench):
    at = bench(name="elect-cluster", server_gpus=4, switches_add=True)
    with pytest.raises(InfeasibleError, match="with all replicas inside one unit"):
        at.time("all_reduce", MESSAGE, "in-switch")


def test_small_messages_take_what_the_library_takes_to_start(bench):
    """8 bytes: 5.2 us and 7 hops of 0.79 us; twice as many hops for an all-reduce."""
    at = bench(library=Nccl(Nccl.Options()))
    assert at.time("all_gather", 8.0).time_us == pytest.approx(5.2 + 7 * 0.79, rel=1e-3)
    assert at.time("all_reduce", 8.0).time_us == pytest.approx(5.2 + 14 * 0.79, rel=1e-3)


def test_large_messages_take_what_protocols_leave_of_the_link(bench):
    """71 % of 100 GB/s, and the own eighth copied at 1060 GB/s."""
    row = bench(library=Nccl(Nccl.Options())).time("all_gather", 8e9)
    assert row.how == "ring Simple"
    assert row.time_us == pytest.approx(7e9 / 0.71e5 + 1e9 / 1060e3 + 22 + 7 * 0.3, rel=1e-6)


@pytest.mark.parametrize("kind", ["broadcast", "reduce", "all_gather", "reduce_scatter"])
def test_trees_pay_each_step_in_full(bench, kind):
    """A chain of 4 whose root is its end: a broadcast of 80 us takes three times that."""
    row = bench(gpus=4).time(kind, MESSAGE, "chain")
    steps_us = {"broadcast": 3 * WHOLE_US, "reduce": 3 * WHOLE_US}
    assert row.time_us >= steps_us.get(kind, 0.75 * WHOLE_US) * (1 - 1e-9)
    if kind in steps_us:
        assert row.time_us == pytest.approx(steps_us[kind])


def test_what_does_not_exist_is_refused_with_the_nearest(bench):
    with pytest.raises(ConfigError, match="no collective 'allreduce'; did you mean 'all_reduce'"):
        bench().time("allreduce", MESSAGE)
    with pytest.raises(ConfigError, match="no algorithm of all_gather 'rign'; did you mean 'ring'"):
        bench().time("all_gather", MESSAGE, "rign")
    with pytest.raises(ConfigError, match="at least 2 GPUs"):
        bench(gpus=1).time("all_reduce", MESSAGE)
