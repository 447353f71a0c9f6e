"""Several weighted paths a pair: a transfer of rate x takes weight * x of each link, on both kernels."""

import numpy as np
import pytest

from sipml_core.engine.bounds import bounds
from sipml_core.engine.reference import max_min_rates
from sipml_core.engine.session import State
from sipml_core.engine.simulation import open_session, simulate

#: Fields of a timeline that hold times or bytes.
ACCOUNTS = ("start_us", "end_us", "compute_us", "exposed_us", "dark_us", "link_bytes", "link_busy_us")


def one_transfer(kit, gbps, weights, size=12_500.0):
    """A transfer whose route is {link: weight}."""
    job = kit.job(2)
    job.send("x", 0, 1, size)
    tasks = job.build()
    return tasks, kit.network(tasks, gbps, lambda *_: weights)


def planes(tasks, kit, count, gbps):
    """Egress, an equal part over each of `count` planes (gbps / count out of and into each), ingress."""
    gpus = tasks.gpus
    edge = [gbps] * 2 * gpus
    inner = [gbps / count] * 2 * gpus * count

    def route(src, dst):
        first = 2 * gpus
        out = {first + plane * gpus + src: 1 / count for plane in range(count)}
        into = {first + (count + plane) * gpus + dst: 1 / count for plane in range(count)}
        return {src: 1.0, gpus + dst: 1.0, **out, **into}

    return kit.network(tasks, edge + inner, route)


def test_four_planes_of_a_quarter_give_the_whole_bandwidth(kit, kernel):
    """12 500 bytes over four planes of 25 Gbps take 1 us, as over one link of 100 Gbps."""
    job = kit.job(2)
    job.send("x", 0, 1, 12_500.0)
    tasks = job.build()
    timeline = simulate(tasks, planes(tasks, kit, 4, 100.0), kernel=kernel)
    assert timeline.total_us == pytest.approx(1.0)


def test_planes_share_like_the_switch_they_make_up(kit, kernel):
    """Random transfers over four planes of B/4 end when they do on one ideal switch of B."""
    rng = np.random.default_rng(3)
    job = kit.job(6)
    for k in range(60):
        src, dst = rng.choice(6, size=2, replace=False).tolist()
        job.send(f"s{k}", src, dst, float(rng.exponential(1e4)))
    tasks = job.build()
    split, whole = (
        simulate(tasks, network, kernel=kernel)
        for network in (planes(tasks, kit, 4, 100.0), kit.ports(tasks, 100.0))
    )
    np.testing.assert_allclose(split.end_us, whole.end_us, rtol=1e-9)


def test_the_port_still_limits(kit, kernel):
    """Two planes of 100 Gbps each behind a port of 100: not more than 100."""
    tasks, network = one_transfer(kit, [100.0, 100.0, 100.0], {0: 1.0, 1: 0.5, 2: 0.5})
    assert simulate(tasks, network, kernel=kernel).total_us == pytest.approx(1.0)


def test_the_narrowest_part_holds_back_all_paths(kit, kernel):
    """A quarter over 10 Gbps allows 40, three quarters over 60 allow 80: 40 Gbps, 18 750 bytes in 3.75 us."""
    tasks, network = one_transfer(kit, [10.0, 60.0], {0: 0.25, 1: 0.75}, size=18_750.0)
    timeline = simulate(tasks, network, kernel=kernel)
    assert timeline.total_us == pytest.approx(3.75)
    assert timeline.link_bytes == pytest.approx([4687.5, 14_062.5])


def test_unequal_weights_by_hand(kit, kernel):
    """Links of 30 and 100 Gbps. x puts half on each, y all on the first, z all on the second.

    The first gives x and y 20 each (0.5 * 20 + 20 = 30); the second has 100 - 10 = 90 left for z.
    """
    routes = {1: {0: 0.5, 1: 0.5}, 2: {0: 1.0}, 3: {1: 1.0}}
    by_flow = {peer - 1: route for peer, route in routes.items()}
    assert max_min_rates(by_flow, [30.0, 100.0]) == {0: 20.0, 1: 20.0, 2: 90.0}
    job = kit.job(4)
    for peer in routes:
        job.send(f"to {peer}", 0, peer, 1e6)
    tasks = job.build()
    network = kit.network(tasks, [30.0, 100.0], lambda _, dst: routes[dst])
    session = open_session(tasks, network, kernel=kernel)
    session.run(until_us=0.0)
    assert session.active().gbps == pytest.approx([20.0, 20.0, 90.0])


def test_a_dark_path_stops_the_others(kit, kernel):
    """All paths advance together: nothing moves until the dark circuit lights up."""
    job = kit.job(2)
    job.send("x", 0, 1, 12_500.0)
    tasks = job.build()
    network = kit.network(tasks, [100.0], lambda *_: {0: 0.5, 1: 0.5}, circuits=[(0, 1)])
    session = open_session(tasks, network, kernel=kernel)
    session.run(until_us=2.0)
    assert session.active().gbps.tolist() == [0.0]
    session.set_capacity(np.array([1], dtype=np.int32), np.array([100.0]))
    assert session.active().gbps == pytest.approx([200.0])
    session.run()
    assert session.timeline().dark_us[-1] == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(10))
def test_kernels_agree_at_every_state(kit, seed, queue):
    """Random graphs on random weighted routes whose capacities change: the same rates after each step."""
    rng = np.random.default_rng(300 + seed)
    tasks, network = kit.random_job(rng, tasks=10, sends=80, weighted=True)
    assert (network.pair_weight != 1).any()
    a, b = kit.watched(tasks, network, queue), open_session(tasks, network, queue=queue, kernel="reference")
    links = np.arange(len(network.link_gbps), dtype=np.int32)
    until_us = 0.0
    for _ in range(60):
        until_us += float(rng.exponential(1.0))
        assert a.run(until_us) == b.run(until_us)
        fast, slow = a.active(), b.active()
        assert fast.transfer.tolist() == slow.transfer.tolist()
        np.testing.assert_allclose(fast.gbps, slow.gbps, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(a.carried_bytes(), b.carried_bytes(), rtol=1e-9, atol=1e-4)
        np.testing.assert_allclose(a.backlog_bytes(), b.backlog_bytes(), rtol=1e-9, atol=1e-4)
        changed = links[rng.random(len(links)) < 0.3]
        gbps = rng.choice([0.0, 40.0, 100.0, 160.0], size=len(changed))
        for session in (a, b):
            session.set_capacity(changed, gbps)


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(6))
def test_whole_runs_agree_and_keep_the_laws(kit, seed, queue):
    """Both kernels; bytes are conserved by weight, and nothing beats the lower bound."""
    tasks, network = kit.random_job(np.random.default_rng(400 + seed), weighted=True)
    a, b = (simulate(tasks, network, queue=queue, kernel=kernel) for kernel in ("c", "reference"))
    for name in ACCOUNTS:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-9, err_msg=name)
    expected = np.zeros(len(network.link_gbps))
    for t in range(tasks.transfers):
        pair = network.transfer_pair[t]
        for k in range(network.pair_start[pair], network.pair_start[pair + 1]):
            expected[network.pair_link[k]] += network.pair_weight[k] * tasks.size_bytes[t]
    assert a.link_bytes == pytest.approx(expected, rel=1e-9)
    assert a.total_us >= bounds(tasks, network).lower_bound_us * (1 - 1e-9)


def test_a_link_that_comes_twice_counts_with_both_weights(kit, kernel):
    """Two halves over one link are the whole: the same bits as one entry of weight 1."""
    tasks, whole = kit.random_job(np.random.default_rng(5))
    halves = kit.halved(whole)
    one, two = (simulate(tasks, network, kernel=kernel) for network in (whole, halves))
    for name in ACCOUNTS:
        assert np.array_equal(getattr(one, name), getattr(two, name)), name


def test_bounds_respect_weights(kit):
    """A quarter of 12 500 bytes over 10 Gbps takes 2.5 us, three quarters over 50 take 1.5 us."""
    tasks, network = one_transfer(kit, [10.0, 50.0], {0: 0.25, 1: 0.75})
    found = bounds(tasks, network)
    assert found.busiest_link_us == pytest.approx(2.5)
    assert found.critical_path_us == pytest.approx(2.5)
    assert simulate(tasks, network).total_us == pytest.approx(2.5)


def test_routes_may_have_hundreds_of_links(kit, kernel):
    """A chain of 300 links, the narrowest in the middle."""
    gbps = [100.0] * 300
    gbps[150] = 50.0
    job = kit.job(2)
    job.send("x", 0, 1, 12_500.0)
    tasks = job.build()
    network = kit.network(tasks, gbps, lambda *_: list(range(300)))
    assert simulate(tasks, network, kernel=kernel).total_us == pytest.approx(2.0)


def test_a_watched_run_goes_to_its_end(kit):
    """The check of rates after every change finds nothing wrong."""
    tasks, network = kit.random_job(np.random.default_rng(7), sends=200, weighted=True)
    assert kit.watched(tasks, network).run() is State.DONE
