"""The C engine against the plain Python reference: the same rates at every state, the same accounts."""

import numpy as np
import pytest

from sipml_core.engine.session import State
from sipml_core.engine.simulation import open_session, simulate

ACCOUNTS = ("start_us", "end_us", "snapshot_us", "compute_us", "exposed_us", "dark_us")
ACCOUNTS += ("link_bytes", "link_busy_us")


def same_state(a, b):
    assert a.now_us == pytest.approx(b.now_us, rel=1e-12)
    fast, slow = a.active(), b.active()
    assert fast.transfer.tolist() == slow.transfer.tolist()
    np.testing.assert_allclose(fast.gbps, slow.gbps, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(a.carried_bytes(), b.carried_bytes(), rtol=1e-9, atol=1e-4)
    np.testing.assert_allclose(a.backlog_bytes(), b.backlog_bytes(), rtol=1e-9, atol=1e-4)
    assert a.waits().tolist() == b.waits().tolist()
    assert (a.events, a.ended, a.moving) == (b.events, b.ended, b.moving)


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(12))
def test_rates_agree_at_every_state(kit, seed, queue):
    """Random graphs on random routes of up to eight links: after each event both have the same rates."""
    tasks, network = kit.random_job(np.random.default_rng(seed))
    a = kit.watched(tasks, network, queue)
    b = open_session(tasks, network, queue=queue, kernel="reference")
    while True:
        ends = {session.run(max_events=1) for session in (a, b)}
        same_state(a, b)
        assert len(ends) == 1
        if ends == {State.DONE}:
            break


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(12))
def test_rates_agree_while_capacities_change(kit, seed, queue):
    """The same when links go dark, light up and are resized at random moments."""
    rng = np.random.default_rng(100 + seed)
    tasks, network = kit.random_job(rng, tasks=10, sends=80)
    a = kit.watched(tasks, network, queue)
    b = open_session(tasks, network, queue=queue, kernel="reference")
    links = np.arange(len(network.link_gbps), dtype=np.int32)
    until_us, before_bytes = 0.0, np.zeros(len(links))
    for _ in range(60):
        until_us += float(rng.exponential(1.0))
        assert a.run(until_us) == b.run(until_us)
        same_state(a, b)
        fast, slow = (session.traffic_since(before_bytes) for session in (a, b))
        for one, other in zip(fast, slow, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-4)
        assert fast.carried_bytes.tolist() == a.carried_bytes().tolist()
        assert fast.backlog_bytes.tolist() == a.backlog_bytes().tolist()
        assert fast.sent_bytes.tolist() == np.maximum(fast.carried_bytes - before_bytes, 0.0).tolist()
        before_bytes = fast.carried_bytes * rng.choice([0.5, 1.0, 1.5], size=len(links))
        changed = links[rng.random(len(links)) < 0.3]
        gbps = rng.choice([0.0, 0.0, 40.0, 100.0, 160.0], size=len(changed))
        for session in (a, b):
            session.set_capacity(changed, gbps)
        same_state(a, b)


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(6))
def test_timelines_agree(kit, seed, queue):
    """Whole runs: every time and every account."""
    tasks, network = kit.random_job(np.random.default_rng(200 + seed))
    a = simulate(tasks, network, queue=queue, kernel="c")
    b = simulate(tasks, network, queue=queue, kernel="reference")
    for name in ACCOUNTS:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-9, err_msg=name)
    assert a.events == b.events
