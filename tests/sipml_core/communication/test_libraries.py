"""Communication libraries: laws, wrong ones that are found, and NCCL against what was measured."""

import csv
from importlib.resources import files

import numpy as np
import pytest

from sipml_core.communication import Ideal, Nccl
from sipml_core.errors import ConfigError
from sipml_core.experiment import read_communication
from sipml_core.model import CollectiveCall, CollectiveCost
from sipml_core.testing import CommunicationConformance, LawBroken

LAWS = [name for name in dir(CommunicationConformance) if name.startswith("test_")]


def broken(communication):
    """Names of the laws that break."""
    suite, found = type("Suite", (CommunicationConformance,), {"communication": communication})(), []
    for name in LAWS:
        try:
            getattr(suite, name)()
        except LawBroken:
            found.append(name)
    return found


@pytest.mark.parametrize("library", [Ideal, Nccl])
def test_libraries_of_the_core_pass(library):
    assert broken(library) == []


class Eager(Ideal):
    """Large messages start sooner than small ones by more than their bytes take."""

    name = "eager"
    free = False

    def cost(self, call):
        return CollectiveCost(startup_us=1e6 if call.size_bytes < 2**20 else 0.0)


class Forgetful(Ideal):
    name = "forgetful"
    free = False
    calls = 0

    def cost(self, call):
        Forgetful.calls += 1
        return CollectiveCost(startup_us=float(Forgetful.calls))


class NotFree(Ideal):
    name = "not-free"

    def cost(self, call):
        return CollectiveCost(startup_us=1.0)


class Idle(Nccl):
    """Its kernels take fewer multiprocessors the faster they send."""

    name = "idle"

    def multiprocessors(self, gbps):
        return int(1e5 / gbps)


@pytest.mark.parametrize(
    ("library", "law"),
    [
        (Eager, "test_time_grows_with_size"),
        (Forgetful, "test_equal_calls_cost_the_same"),
        (NotFree, "test_a_library_that_is_free_costs_nothing"),
        (Idle, "test_kernels_take_a_number_of_multiprocessors"),
    ],
)
def test_wrong_libraries_are_found(library, law):
    assert law in broken(library)


def test_an_efficiency_above_1_is_refused():
    with pytest.raises(ConfigError, match=r"wire_factor must be at least 1, got 0.5"):
        CollectiveCost(wire_factor=0.5)


def nccl(**options):
    return Nccl(Nccl.Options(**options))


def cost(library, kind, size_bytes, **call):
    call = {"ranks": 8, "gbps": 3600.0, **call}
    return library.cost(CollectiveCall(kind=kind, size_bytes=size_bytes, **call))


def test_protocols_by_hand():
    """Ring of 8: 0.79 us a hop and twice the bytes over 71 % of the links; then 7.1 us, the bytes once.

    A gather has 7 steps of 0.3 us, and copies 125 MB at 1060 GB/s.
    """
    small, large = (cost(nccl(), "all_reduce", size) for size in (1e3, 1e9))
    assert small.startup_us == pytest.approx(5.2 + 14 * 0.79)
    assert small.wire_factor == pytest.approx(2 / 0.71)
    assert large.startup_us == pytest.approx(8.4 + 14 * 7.1)
    assert large.wire_factor == pytest.approx(1 / 0.71)
    assert cost(nccl(), "all_gather", 1e9).startup_us == pytest.approx(22.0 + 7 * 0.30 + 125 / 1.06)


def test_a_tree_starts_sooner_than_a_ring_over_many_servers():
    """64 servers: a ring has 126 steps of 2.7 us between them, a tree 12."""
    found = cost(nccl(), "all_reduce", 1e3, ranks=512, servers=64, gbps=400.0)
    assert found.how == "tree LL"
    assert found.startup_us == pytest.approx(5.2 + 2 * 7 * 0.79 + 12 * 2.7)


def test_a_ring_carries_more_than_a_tree():
    """Past the size where start-up counts."""
    assert cost(nccl(), "all_reduce", 1e10, ranks=16, servers=2, gbps=400.0).how == "ring Simple"


@pytest.mark.parametrize("efficiency", [0.0, 1.5])
def test_impossible_efficiencies_are_refused(registry, efficiency):
    table = {"library": "nccl", "ring_efficiency": efficiency}
    with pytest.raises(ConfigError, match=r"communication.ring_efficiency must be above 0 and at most 1"):
        read_communication(table, registry)


def test_an_unknown_library_is_refused_with_the_nearest(registry):
    with pytest.raises(ConfigError, match=r"communication.library: .* 'ncl'; did you mean 'nccl'"):
        read_communication({"library": "ncl"}, registry)


def measured_on_h100():
    """Kind, ranks, bytes, us of every row; the file counts elements of 2 bytes."""
    path = files("sipml_core.validating") / "data" / "nccl_h100.csv"
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            kind = {"alltoall": "all_to_all"}.get(row["op_name"], row["op_name"])
            yield kind, int(row["num_gpus"]), 2.0 * int(row["message_size"]), 1e3 * float(row["latency_ms"])


def test_nccl_on_h100_is_within_10_percent_where_nothing_was_fitted():
    """Median over every second row, on links of 450 GB/s and a switch that adds; 512 B to 512 MiB."""
    errors = []
    for kind, ranks, size_bytes, measured_us in list(measured_on_h100())[1::2]:
        times_us = []
        for in_network in (False, True) if ranks > 2 else (False,):
            call = CollectiveCall(
                kind=kind, ranks=ranks, size_bytes=size_bytes, gbps=3600.0, in_network=in_network
            )
            found = nccl().cost(call)
            times_us.append(found.startup_us + found.wire_factor * call.rank_bytes * 8e-3 / call.gbps)
        errors.append(abs(min(times_us) / measured_us - 1))
    assert len(errors) == 63
    assert np.median(errors) < 0.10
    assert np.quantile(errors, 0.9) < 0.25
