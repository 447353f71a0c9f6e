"""What a recorded run says of each transfer and each link; both kernels alike, and nothing else changes."""

import attrs
import numpy as np
import pytest

from sipml_core.engine.session import Recording, State
from sipml_core.engine.simulation import open_session, simulate
from sipml_core.errors import SipmlError

RECORDING = Recording(samples=8, sample_us=0.25)


@pytest.mark.parametrize("kernel", ["c", "reference"])
def test_a_transfer_waits_for_its_queue_then_moves_then_arrives(kit, kernel):
    """8 Gbps carry 1000 bytes in 1 us; the second of two transfers of a pair waits for the first."""
    job = kit.job(gpus=2)
    job.send("a", 0, 1, 1000.0)
    job.send("b", 0, 1, 2000.0)
    job.send("none", 1, 0, 0.0)
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 8.0, latency_us=0.5), kernel=kernel, recording=RECORDING)
    found = timeline.transfers
    assert timeline.start_us.tolist() == [0.0, 0.0, 0.0]
    assert found.head_us.tolist() == [0.0, 1.0, 0.0]
    assert found.moved_us.tolist() == [0.0, 1.0, 0.0]
    assert found.left_us.tolist() == [1.0, 3.0, 0.0]
    assert timeline.end_us.tolist() == [1.5, 3.5, 0.5]
    assert set(found.held_by[:2].tolist()) <= {0, 3}  # egress of GPU 0, ingress of GPU 1
    assert found.held_by[2] == -1


@pytest.mark.parametrize("kernel", ["c", "reference"])
def test_a_transfer_does_not_move_while_its_circuit_is_dark(kit, kernel):
    job = kit.job(gpus=2)
    job.send("a", 0, 1, 1000.0)
    tasks = job.build()
    session = open_session(tasks, kit.wires(tasks), kernel=kernel, recording=RECORDING)
    assert session.run(5.0) is State.PAUSED
    session.set_capacity(np.array([0], dtype=np.int32), np.array([8.0]))
    assert session.run() is State.DONE
    found = session.timeline().transfers
    assert (found.head_us[0], found.moved_us[0], found.left_us[0]) == (0.0, 5.0, 6.0)


@pytest.mark.parametrize("kernel", ["c", "reference"])
def test_samples_of_links_follow_the_rates(kit, kernel):
    """12000 bytes at 1000 bytes/us, at most 8 samples: the interval has doubled to 2 us."""
    job = kit.job(gpus=2)
    job.send("a", 0, 1, 12_000.0)
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 8.0), kernel=kernel, recording=RECORDING)
    samples = timeline.samples
    assert samples.at_us.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    assert samples.carried_bytes[:, 0] == pytest.approx(1000.0 * samples.at_us)
    assert samples.gbps[:, 3] == pytest.approx(8.0)
    assert not samples.carried_bytes[:, 1].any()


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(6))
def test_kernels_record_the_same(kit, seed, queue):
    """Random graphs on random routes; which of several full links is named may differ, that it is one not."""
    tasks, network = kit.random_job(np.random.default_rng(300 + seed))
    a = open_session(tasks, network, queue=queue, recording=RECORDING)
    b = open_session(tasks, network, queue=queue, kernel="reference", recording=RECORDING)
    assert a.run() is b.run() is State.DONE
    fast, slow = a.timeline(), b.timeline()
    for name in ("head_us", "moved_us", "left_us"):
        np.testing.assert_allclose(
            getattr(fast.transfers, name), getattr(slow.transfers, name), rtol=1e-9, atol=1e-9, err_msg=name
        )
    sized = np.flatnonzero(tasks.size_bytes > 0)
    assert len(sized) > 20
    assert all(fast.transfers.held_by[t] in b.held_by_any[t] for t in sized)
    np.testing.assert_allclose(fast.samples.at_us, slow.samples.at_us, rtol=1e-9)
    np.testing.assert_allclose(fast.samples.carried_bytes, slow.samples.carried_bytes, rtol=1e-9, atol=1e-3)


@pytest.mark.parametrize("queue", ["pair", "source"])
def test_stations_of_a_transfer_come_in_order_and_its_bytes_at_no_more_than_capacity(kit, queue):
    tasks, network = kit.random_job(np.random.default_rng(7))
    timeline = simulate(tasks, network, queue=queue, recording=RECORDING)
    times = timeline.transfers
    first = tasks.compute_tasks
    stations = [
        timeline.start_us[first:],
        times.head_us,
        times.moved_us,
        times.left_us,
        timeline.end_us[first:],
    ]
    assert (np.diff(stations, axis=0) >= 0).all()
    assert (timeline.samples.gbps <= network.link_gbps * (1 + 1e-9)).all()
    assert timeline.samples.carried_bytes[-1] == pytest.approx(timeline.link_bytes)
    fastest_us = tasks.size_bytes / (kit.gbps_bytes * network.link_gbps.max())
    assert (times.left_us - times.moved_us >= fastest_us * (1 - 1e-9)).all()


@pytest.mark.parametrize("queue", ["pair", "source"])
def test_recording_changes_no_bit_of_a_run(kit, queue):
    tasks, network = kit.random_job(np.random.default_rng(11))
    plain = simulate(tasks, network, queue=queue)
    recorded = simulate(tasks, network, queue=queue, recording=RECORDING)
    assert plain.transfers is None
    assert plain.samples is None
    for field in attrs.fields(type(plain)):
        if field.name not in ("transfers", "samples"):
            np.testing.assert_array_equal(getattr(plain, field.name), getattr(recorded, field.name))


def test_an_odd_number_of_samples_is_refused():
    with pytest.raises(SipmlError, match=r"Recording\.samples must be even, got 7"):
        Recording(samples=7)
