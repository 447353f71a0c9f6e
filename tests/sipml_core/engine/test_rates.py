"""How links are shared: max-min fairness, on both kernels."""

import numpy as np
import pytest

from sipml_core.engine.reference import max_min_rates
from sipml_core.engine.session import State
from sipml_core.engine.simulation import open_session


def rates_at_start(tasks, network, kernel, queue="pair"):
    session = open_session(tasks, network, kernel=kernel, queue=queue)
    session.run(until_us=0.0)
    active = session.active()
    return dict(zip(active.transfer.tolist(), active.gbps.tolist(), strict=True))


def bottlenecks(network, active):
    """For each active transfer, the links of its route that are full and on which none is faster."""
    routes = [
        [k for k in network.pair_links[network.transfer_pair[t]].tolist() if k >= 0] for t in active.transfer
    ]
    load, fastest = np.zeros(len(network.link_gbps)), np.zeros(len(network.link_gbps))
    for route, rate in zip(routes, active.gbps, strict=True):
        for link in route:
            load[link] += rate
            fastest[link] = max(fastest[link], rate)
    full = load >= network.link_gbps * (1 - 1e-9)
    found = [
        [link for link in route if full[link] and rate >= fastest[link] * (1 - 1e-9)]
        for route, rate in zip(routes, active.gbps, strict=True)
    ]
    return load, found


def test_two_flows_into_one_port_get_half_each(kit, kernel):
    """Two senders, one receiver of 100 Gbps: 50 Gbps each."""
    job = kit.job(3)
    job.send("x", 0, 2, 1e6)
    job.send("y", 1, 2, 1e6)
    tasks = job.build()
    assert rates_at_start(tasks, kit.ports(tasks, 100.0), kernel) == {0: 50.0, 1: 50.0}


def test_source_queue_shares_receivers_but_not_senders(kit, kernel):
    """One transfer per sender; the heads of two senders still share the receiver."""
    job = kit.job(3)
    job.send("x", 0, 2, 1e6)
    job.send("waits", 0, 1, 1e6)
    job.send("y", 1, 2, 1e6)
    tasks = job.build()
    assert rates_at_start(tasks, kit.ports(tasks, 100.0), kernel, queue="source") == {0: 50.0, 2: 50.0}


def test_max_min_on_a_line_of_links(kit, kernel):
    """Links of 10, 20 and 100; flows 0 on all, 1 on the first, 2 on the second, 3 on the third.

    The first link gives 5 to flows 0 and 1; the second leaves 15 to flow 2, the third 95 to flow 3.
    """
    routes = {0: [0, 1, 2], 1: [0], 2: [1], 3: [2]}
    weighted = {flow: dict.fromkeys(links, 1.0) for flow, links in routes.items()}
    assert max_min_rates(weighted, [10.0, 20.0, 100.0]) == {0: 5.0, 1: 5.0, 2: 15.0, 3: 95.0}
    job = kit.job(5)
    for peer in range(1, 5):
        job.send(f"to {peer}", 0, peer, 1e6)
    tasks = job.build()
    network = kit.network(tasks, [10.0, 20.0, 100.0], lambda _, dst: routes[dst - 1])
    assert rates_at_start(tasks, network, kernel) == {0: 5.0, 1: 5.0, 2: 15.0, 3: 95.0}


def test_dark_link_gives_rate_zero_and_frees_the_rest(kit, kernel):
    """A flow that also crosses a dark circuit takes nothing from the port it shares."""
    job = kit.job(3)
    job.send("dark", 0, 1, 1e6)
    job.send("lit", 0, 2, 1e6)
    tasks = job.build()
    network = kit.network(tasks, [100.0], lambda _, dst: [0, 1] if dst == 1 else [0], circuits=[(0, 1)])
    assert rates_at_start(tasks, network, kernel) == {0: 0.0, 1: 100.0}


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(8))
def test_every_flow_has_a_bottleneck_and_no_link_is_overfull(kit, seed, queue):
    """What defines max-min fairness, at every state of random runs: no link above 100 % (1e-9), and
    each flow crosses a full link on which no other flow is faster."""
    tasks, network = kit.random_job(np.random.default_rng(seed), gpus=12, tasks=20, sends=150)
    session = open_session(tasks, network, queue=queue)
    while session.run(max_events=1) is not State.DONE:
        active = session.active()
        load, found = bottlenecks(network, active)
        assert (load <= network.link_gbps * (1 + 1e-9)).all()
        assert all(found)
        assert (active.gbps > 0).all()


def test_no_link_drifts_above_capacity_in_a_long_run(kit):
    """The same after thousands of changes on links that are never empty."""
    rng = np.random.default_rng(5)
    job = kit.job(16)
    for k in range(6000):
        src, dst = rng.choice(16, size=2, replace=False).tolist()
        job.send(f"s{k}", src, dst, float(rng.exponential(1e4)))
    tasks = job.build()
    network = kit.ports(tasks, 100.0)
    session = open_session(tasks, network)
    while session.run(max_events=211) is not State.DONE:
        load, found = bottlenecks(network, session.active())
        assert (load <= network.link_gbps * (1 + 1e-9)).all()
        assert all(found)


@pytest.mark.parametrize("seed", range(12))
def test_rates_stay_fair_when_capacities_fall_by_orders_of_magnitude(kit, seed):
    """From 100 Gbps to 1 Mbps or to nothing, and back: what rounding leaves of the larger rates is not taken
    for a rate of the smaller ones."""
    rng = np.random.default_rng(seed)
    tasks, network = kit.random_job(rng, gpus=12, tasks=10, sends=120, weighted=seed % 2 == 1)
    session = kit.watched(tasks, network)
    links = np.arange(len(network.link_gbps), dtype=np.int32)
    for step in range(1, 120):
        session.run(until_us=0.5 * step)
        changed = links[rng.random(len(links)) < rng.choice([0.05, 0.3, 1.0])]
        session.set_capacity(changed, rng.choice([0.0, 0.001, 40.0, 160.0], size=len(changed)))
    session.set_capacity(links, np.full(len(links), 100.0))
    assert session.run() is State.DONE
