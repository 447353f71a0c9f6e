"""Tasks that are slowed while their GPU sends: kernels of a communication library take a part of it."""

import attrs
import numpy as np
import pytest

from sipml_core.engine.simulation import simulate
from sipml_core.errors import SipmlError

KERNELS = ("c", "reference")


def one_link(kit, tasks):
    return kit.network(tasks, [8.0], lambda *_: [0])


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_task_is_slowed_while_its_gpu_sends(kit, kernel):
    """8 Gbps move 1000 bytes a us: 10 us for 10 kB, of which a fourth is lost: 20 us of work take 22.5.

    The receiver's task, and a task after the transfer, are not slowed.
    """
    job = kit.job(2)
    job.task("sender", 0, 20.0)
    job.task("receiver", 1, 20.0)
    job.send("sent", 0, 1, 10_000.0)
    job.task("after", 0, 5.0, after=["sent"])
    tasks = attrs.evolve(job.build(), slowdown=0.25)
    end_us = simulate(tasks, one_link(kit, tasks), kernel=kernel).end_us
    assert [end_us[job.node(name)] for name in ("sender", "receiver", "sent", "after")] == [
        22.5, 20.0, 10.0, 27.5,
    ]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_transfer_that_is_no_collective_slows_nothing(kit, kernel):
    """Two transfers one after the other, of which the second slows: 10 of 20 us run first at full speed."""
    job = kit.job(2)
    job.task("task", 0, 20.0)
    job.send("free", 0, 1, 10_000.0)
    job.send("slows", 0, 1, 10_000.0)
    tasks = attrs.evolve(job.build(), slowdown=0.5, slows=[False, True])
    assert simulate(tasks, one_link(kit, tasks), kernel=kernel).end_us[0] == 10.0 + 10.0 + 5.0


@pytest.mark.parametrize("seed", range(6))
def test_the_engines_agree_on_slowed_tasks(kit, seed):
    """Random jobs on random routes: every time and every account, also of tasks slowed again and again."""
    rng = np.random.default_rng(500 + seed)
    tasks, network = kit.random_job(rng)
    slowed = attrs.evolve(tasks, slowdown=0.3, slows=rng.random(tasks.transfers) < 0.7)
    fast, slow = (simulate(slowed, network, kernel=kernel) for kernel in KERNELS)
    for name in ("start_us", "end_us", "compute_us", "exposed_us", "link_bytes"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-9)
    assert fast.events == slow.events == simulate(tasks, network).events
    real = tasks.gpu >= 0
    took_us = (fast.end_us - fast.start_us)[: tasks.compute_tasks][real]
    assert (took_us >= tasks.duration_us[real] * (1 - 1e-9)).all()
    assert (took_us <= tasks.duration_us[real] / 0.7 * (1 + 1e-9)).all()
    assert (took_us > tasks.duration_us[real] * 1.01).any()


def test_where_nothing_slows_no_bit_changes(kit):
    """Transfers are marked, and no part of a GPU is lost; or a part would be, and no transfer is marked."""
    tasks, network = kit.random_job(np.random.default_rng(1))
    plain = simulate(tasks, network)
    for changed in (
        attrs.evolve(tasks, slows=np.ones(tasks.transfers, bool)),
        attrs.evolve(tasks, slowdown=0.5, slows=np.zeros(tasks.transfers, bool)),
    ):
        assert simulate(changed, network).end_us.tolist() == plain.end_us.tolist()


@pytest.mark.parametrize("slowdown", [-0.1, 1.0, float("nan")])
def test_a_part_below_one_is_lost(kit, slowdown):
    with pytest.raises(SipmlError, match=r"slowdown must be at least 0 and below 1"):
        attrs.evolve(kit.job(1).build(), slowdown=slowdown)
