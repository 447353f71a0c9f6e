"""Collectives inside a group, lowered and simulated: their times are the closed forms.

S bytes are gathered by, or summed over, n GPUs of B each; servers hold n / u of them and have one uplink.
"""

import pytest

from sipml_core.collectives import Chain, Direct, Ring, Tiers
from sipml_core.engine.simulation import simulate
from sipml_core.lowering.treesteps import Trees
from sipml_core.lowering.wholejob import lower
from sipml_core.model.cluster import Cluster
from sipml_core.model.groupshape import GroupShape
from sipml_core.model.network import Network
from sipml_core.model.plan import Plan

pytestmark = pytest.mark.interconnects

BYTES_PER_US = 125.0  # of 1 Gbps
ELEMENTS = 24_000  # of 4 bytes


def part(device, devices):
    return device * ELEMENTS // devices, (device + 1) * ELEMENTS // devices


def gathering(hand, n):
    """Device i makes one n-th of x, and each needs all of it."""
    hand.tensor("x", ELEMENTS)
    hand.op("a", us=0.0, parts=n, writes=["x"])
    hand.op("b", us=0.0, parts=n, reads=["x"])
    for maker in range(n):
        for user in range(n):
            hand.edge(f"a.{maker}", f"b.{user}", "x", part(maker, n))
    return hand.placed([*range(n), *range(n)], mp=n)


def scattering(hand, n):
    """Each device makes a part of the sum x, and device i needs one n-th of the sum."""
    hand.tensor("x", ELEMENTS)
    hand.op("a", us=0.0, parts=n, writes=["x"])
    hand.op("b", us=0.0, parts=n, reads=["x"])
    for maker in range(n):
        for user in range(n):
            hand.edge(f"a.{maker}", f"b.{user}", "x", part(user, n))
    return hand.placed([*range(n), *range(n)], mp=n)


def reducing(hand, n):
    """Each makes a part of the sum x, device i adds up one n-th of it, and each needs all of the sum."""
    hand.tensor("x", ELEMENTS)
    hand.tensor("y", ELEMENTS)
    hand.op("a", us=0.0, parts=n, writes=["x"])
    hand.op("b", us=0.0, parts=n, reads=["x"], writes=["y"])
    hand.op("c", us=0.0, parts=n, reads=["y"])
    for maker in range(n):
        for user in range(n):
            hand.edge(f"a.{maker}", f"b.{user}", "x", part(user, n))
            hand.edge(f"b.{maker}", f"c.{user}", "y", part(maker, n))
    return hand.placed([*range(n), *range(n), *range(n)], mp=n)


#: Collective -> the job, and how often it passes everything on.
COLLECTIVES = {"all-gather": (gathering, 1), "reduce-scatter": (scattering, 1), "all-reduce": (reducing, 2)}


@pytest.fixture
def time_us(registry):
    """time_us(placement, exchange, topology, gbps, tiers, **options): the time of the one collective. [us]"""

    def run(placement, exchange, name, gbps, tiers=(), **options):
        n = placement.limits.devices
        cluster = Cluster(gpus=n, bandwidth_gbps=gbps, launch_us=0.0, minimum_op_us=0.0)
        topology = registry.find("topology", name)
        fabric = topology(topology.Options(**options)).build(cluster)
        parents = exchange(None).parents(GroupShape.of(devices=n, tiers=tiers))
        plan = Plan(mp=n, dp=1, global_batch=1)
        tasks = lower(placement, plan, cluster, trees=Trees(parents=parents, relays=False))
        return simulate(tasks, Network.of(fabric, tasks)).total_us

    return run


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(("servers", "size"), [(2, 4), (2, 3), (4, 2), (3, 4)])
def test_tiers_send_the_least_through_an_uplink(hand, time_us, collective, servers, size):
    """With uplinks of 1 Gbps, 100 000 times slower than the ports: S (u - 1) / u a pass, each way, which is
    2 S (u - 1) / u of an all-reduce. Sent directly, every GPU of a server has what comes in for itself:
    n / u times as much."""
    job, passes = COLLECTIVES[collective]
    placement = job(hand, servers * size)
    cluster = {"name": "elect-cluster", "gbps": 1e5, "server_gpus": size, "uplink_gbps": 1}
    least_us = passes * 4.0 * ELEMENTS * (servers - 1) / servers / BYTES_PER_US
    assert time_us(placement, Tiers, tiers=(size,), **cluster) == pytest.approx(least_us, rel=1e-3)
    assert time_us(placement, Direct, **cluster) == pytest.approx(size * least_us, rel=1e-3)


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("exchange", [Direct, Ring])
@pytest.mark.parametrize("n", [2, 3, 6, 8])
def test_on_a_switch_all_ports_are_full_until_the_end(hand, time_us, collective, exchange, n):
    """(n - 1) / n S / B a pass; an all-reduce takes 2 (n - 1) / n S / B (Patarasuk and Yuan 2009)."""
    job, passes = COLLECTIVES[collective]
    expected_us = passes * (n - 1) / n * 4.0 * ELEMENTS / (8 * BYTES_PER_US)
    assert time_us(job(hand, n), exchange, "elect-flat", 8) == pytest.approx(expected_us, rel=1e-9)


def test_the_chain_passes_on_what_the_server_in_the_middle_only_forwards(hand, time_us):
    """Three servers of 4: the one in the middle sends its S / 3 both ways, and S / 3 from either side to the
    other: 4 S / 3 through its uplink, twice as much as tiers. What it forwards has come in by then."""
    expected_us = 4.0 * ELEMENTS * 4 / 3 / BYTES_PER_US
    found_us = time_us(gathering(hand, 12), Chain, "elect-cluster", 1e5, server_gpus=4, uplink_gbps=1)
    assert found_us == pytest.approx(expected_us, rel=1e-5)


@pytest.mark.parametrize("exchange", [Chain, Ring])
@pytest.mark.parametrize(("n", "size"), [(6, 4), (12, 8), (7, 3)])
def test_groups_that_straddle_servers_pass_everything_on(hand, time_us, exchange, n, size):
    """Faster than directly where the last server is smaller; at least what must cross the fullest border."""
    placement = gathering(hand, n)
    cluster = {"name": "elect-cluster", "gbps": 1e5, "server_gpus": size, "uplink_gbps": 1}
    direct_us, passed_us = (time_us(placement, way, **cluster) for way in (Direct, exchange))
    into_last = n - (n - 1) // size * size
    least_us = 4.0 * ELEMENTS * (1 - min(size, into_last) / n) / BYTES_PER_US
    assert least_us * (1 - 1e-9) <= passed_us < direct_us
