"""Jobs whose course can be worked out by hand, on both kernels. 100 Gbps = 12500 bytes per us."""

import numpy as np
import pytest

from sipml_core.engine.simulation import simulate


def ends(job, timeline):
    names = [entry[0] for entry in (*job.computes, *job.sends)]
    return dict(zip(names, timeline.end_us.tolist(), strict=True))


@pytest.fixture
def six(kit):
    """a feeds b on GPU 1 (x) and c on GPU 2 (y); f on GPU 0 waits for both (z, w) and for d."""
    job = kit.job(3)
    job.task("a", 0, 1.0)
    job.task("b", 1, 2.0, after=["x"])
    job.task("c", 2, 1.0, after=["y"])
    job.task("d", 0, 3.0, after=["a"])
    job.task("e", 1, 1.0, after=["b"])
    job.task("f", 0, 1.0, after=["d", "z", "w"])
    job.send("x", 0, 1, 12_500.0, after=["a"])
    job.send("y", 0, 2, 25_000.0, after=["a"])
    job.send("z", 1, 0, 12_500.0, after=["b"])
    job.send("w", 2, 0, 12_500.0, after=["c"])
    return job


def test_six_ops_on_an_ideal_switch(six, kit, kernel):
    """x and y share GPU 0's egress: x ends at 1 + 2 = 3, y, alone since then, at 4. z and w share its ingress
    from 5 to 7. f ends at 8."""
    tasks = six.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    expected = {"a": 1, "b": 5, "c": 5, "d": 4, "e": 6, "f": 8, "x": 3, "y": 4, "z": 7, "w": 7}
    assert ends(six, timeline) == pytest.approx(expected)
    assert timeline.total_us == pytest.approx(8.0)


def test_accounts_of_six_ops(six, kit, kernel):
    """GPU 0 computes a, d, f = 5 us and waits for z and w from 5 to 7; GPU 1 computes 3 us and waits for x
    from 1 to 3 and z from 6 to 7; GPU 2 computes 1 us and waits from 1 to 4 and from 5 to 7."""
    tasks = six.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    assert timeline.compute_us[-1] == pytest.approx([5, 3, 1])
    assert timeline.exposed_us[-1] == pytest.approx([2, 3, 5])
    assert timeline.dark_us[-1] == pytest.approx([0, 0, 0])
    assert timeline.idle_us[-1] == pytest.approx([1, 2, 2])
    assert timeline.link_bytes == pytest.approx([37_500, 12_500, 12_500, 25_000, 12_500, 25_000])
    assert timeline.link_busy_us == pytest.approx([3, 2, 2, 2, 2, 3])


def test_six_ops_with_latency(six, kit, kernel):
    """0.5 us more for x and y, and for z and w: f ends at 9."""
    tasks = six.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0, latency_us=0.5), kernel=kernel)
    expected = {"a": 1, "b": 5.5, "c": 5.5, "d": 4, "e": 6.5, "f": 9, "x": 3.5, "y": 4.5, "z": 8, "w": 8}
    assert ends(six, timeline) == pytest.approx(expected)


def test_six_ops_on_wires_of_their_own(six, kit, kernel):
    """Nothing is shared: x ends at 2, y at 3, b and c at 4, z and w at 5, f at 6."""
    tasks = six.build()
    network = kit.network(tasks, [100.0] * 9, lambda src, dst: [3 * src + dst])
    expected = {"a": 1, "b": 4, "c": 4, "d": 4, "e": 5, "f": 6, "x": 2, "y": 3, "z": 5, "w": 5}
    assert ends(six, simulate(tasks, network, kernel=kernel)) == pytest.approx(expected)


def test_six_ops_one_transfer_per_source(six, kit, kernel):
    """x before y (same priority and time, lower id): x ends at 2, y at 4; then z has the ingress from 4 to 5,
    w from 5 to 6, and f ends at 7: earlier than with fair sharing."""
    tasks = six.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel, queue="source")
    expected = {"a": 1, "b": 4, "c": 5, "d": 4, "e": 5, "f": 7, "x": 2, "y": 4, "z": 5, "w": 6}
    assert ends(six, timeline) == pytest.approx(expected)


def test_six_ops_in_two_servers(six, kit, kernel):
    """GPU 2 stands in another server, joined by 25 Gbps each way. y gets 25 of GPU 0's 100 Gbps and lasts
    8 us; x gets 75: 1 + 4/3. w takes 4 us."""
    tasks = six.build()

    def route(src, dst):
        return [src, 3 + dst, *([6] if dst == 2 else []), *([7] if src == 2 else [])]

    timeline = simulate(tasks, kit.network(tasks, [100.0] * 6 + [25.0, 25.0], route), kernel=kernel)
    x = 1 + 4 / 3
    expected = {"a": 1, "b": x + 2, "c": 10, "d": 4, "e": x + 3, "f": 15, "x": x, "y": 9, "z": x + 3, "w": 14}
    assert ends(six, timeline) == pytest.approx(expected)


def test_chain_ends_at_the_sum_of_its_parts(kit, kernel):
    """20 tasks of 3 us joined by transfers of 1 us with 0.25 us of latency, paid twice: 20 x 3 + 19 x 1.5."""
    job = kit.job(2)
    for k in range(20):
        job.task(f"t{k}", k % 2, 3.0, after=[f"s{k - 1}"] if k else [])
        if k < 19:
            job.send(f"s{k}", k % 2, (k + 1) % 2, 12_500.0, after=[f"t{k}"], latency_steps=2.0)
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0, latency_us=0.25), kernel=kernel)
    assert timeline.total_us == pytest.approx(20 * 3 + 19 * 1.5)


def test_no_bytes_take_the_latency(kit, kernel):
    """A transfer of 0 bytes takes the latency, on a dark circuit too."""
    job = kit.job(2)
    job.send("empty", 0, 1, 0.0, latency_steps=3.0)
    tasks = job.build()
    for network in (kit.ports(tasks, 100.0, latency_us=0.5), kit.wires(tasks, latency_us=0.5)):
        assert simulate(tasks, network, kernel=kernel).total_us == 1.5


def test_the_next_in_a_queue_starts_when_the_last_byte_has_left(kit, kernel):
    """Two transfers of 1 us on one pair with a latency of 10 us: they end at 11 and 12, not at 11 and 22."""
    job = kit.job(2)
    job.send("first", 0, 1, 12_500.0)
    job.send("second", 0, 1, 12_500.0)
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0, latency_us=10.0), kernel=kernel)
    assert ends(job, timeline) == pytest.approx({"first": 11, "second": 12})


def test_a_pair_sends_by_priority_then_arrival_without_preemption(kit, kernel):
    """At 0 "low" starts, alone. "early" joins at 0.5, "urgent" at 1: both wait for it, then urgent goes."""
    job = kit.job(2)
    job.task("half", 0, 0.5)
    job.task("one", 1, 1.0)
    job.send("low", 0, 1, 25_000.0, priority=9)
    job.send("later", 0, 1, 12_500.0, priority=5, after=["one"])
    job.send("early", 0, 1, 12_500.0, priority=5, after=["half"])
    job.send("urgent", 0, 1, 12_500.0, priority=1, after=["one"])
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    expected = {"half": 0.5, "one": 1, "low": 2, "urgent": 3, "early": 4, "later": 5}
    assert ends(job, timeline) == pytest.approx(expected)


def test_a_gpu_runs_by_priority_then_id(kit, kernel):
    """All are ready at once; a task that runs is not interrupted."""
    job = kit.job(1)
    job.task("c", 0, 1.0, priority=2)
    job.task("a", 0, 1.0, priority=-1)
    job.task("d", 0, 1.0, priority=2)
    job.task("b", 0, 1.0, priority=0, after=["a"])
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    assert ends(job, timeline) == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_barriers_take_no_time_and_no_gpu(kit, kernel):
    """A long chain of barriers fires at the moment its first predecessor ends."""
    job = kit.job(1)
    job.task("work", 0, 2.0)
    job.task("other", 0, 5.0, priority=1)
    for k in range(3000):
        job.barrier(f"b{k}", after=["work"] if k == 0 else [f"b{k - 1}"])
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    assert timeline.end_us[job.node("b2999")] == 2.0
    assert timeline.start_us[job.node("b0")] == 2.0


def test_barriers_without_predecessors_fire_at_zero_once(kit, kernel):
    """Also when one releases the next at the start."""
    job = kit.job(1)
    job.barrier("first")
    job.barrier("second", after=["first"])
    job.task("work", 0, 1.0, after=["first", "second"])
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    assert timeline.end_us.tolist() == [0.0, 0.0, 1.0]
    assert timeline.events == 3


def test_a_barrier_with_a_duration_fires_so_much_later_and_occupies_no_gpu(kit, kernel):
    """Work of 2 us, then 3 us of delay; another task of the GPU runs in between, 1 us."""
    job = kit.job(1)
    job.task("work", 0, 2.0)
    job.task("between", 0, 1.0, after=["work"])
    job.barrier("host", after=["work"], us=3.0)
    job.barrier("at once", after=["host"])
    job.task("last", 0, 1.0, after=["at once"])
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    assert ends(job, timeline) == {"work": 2, "between": 3, "host": 5, "at once": 5, "last": 6}
    assert timeline.start_us[job.node("host")] == 2.0
    assert timeline.compute_us[-1, 0] == 4.0


def test_delays_run_from_the_start_where_nothing_is_before_them(kit, kernel):
    """Many at once, as the host's issue times are."""
    job = kit.job(1)
    for k in range(50):
        job.barrier(f"h{k}", us=float(k))
        job.task(f"t{k}", 0, 0.5, after=[f"h{k}"])
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    assert timeline.end_us[job.node("t49")] == 49.5


@pytest.mark.parametrize("size", [12_500.0, 0.0])
def test_start_up_is_paid_beside_bytes_and_latency(kit, kernel, size):
    """1 us of bytes (or none), two latencies of 0.5 us, 4 us of start-up, in which the next may send."""
    job = kit.job(2)
    job.send("first", 0, 1, size, latency_steps=2.0, startup_us=4.0)
    job.send("second", 0, 1, size, latency_steps=0.0)
    tasks = job.build()
    network = kit.network(tasks, [100.0], lambda src, dst: [0], latency_us=0.5)
    timeline = simulate(tasks, network, kernel=kernel)
    bytes_us = size / 12_500.0
    assert ends(job, timeline) == {"first": bytes_us + 5, "second": 2 * bytes_us}


def test_marks_take_snapshots(kit, kernel):
    """Two iterations of 1 us of compute and 2 us of exposed transfer: rows at 3, 6 and the end."""
    job = kit.job(2)
    for k in range(2):
        job.task(f"t{k}", 0, 1.0, after=[f"m{k - 1}"] if k else [])
        job.send(f"s{k}", 0, 1, 25_000.0, after=[f"t{k}"])
        job.barrier(f"m{k}", after=[f"s{k}"], mark=True)
    job.task("tail", 1, 4.0, after=["m1"])
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    assert timeline.snapshot_us == pytest.approx([3, 6, 10])
    assert timeline.compute_us[:, 0] == pytest.approx([1, 2, 2])
    assert timeline.exposed_us[:, 0] == pytest.approx([2, 4, 4])
    assert timeline.compute_us[:, 1] == pytest.approx([0, 0, 4])


@pytest.mark.parametrize("seed", range(4))
def test_twice_the_bytes_take_twice_as_long(kit, kernel, seed):
    """A job of transfers only, without latency: every end doubles with the sizes."""
    ends_us = []
    for factor in (1.0, 2.0):
        rng = np.random.default_rng(seed)
        job = kit.job(5)
        for k in range(40):
            src, dst = rng.choice(5, size=2, replace=False).tolist()
            after = [f"s{j}" for j in set(rng.integers(0, k, size=min(k, 2)).tolist())] if k else []
            job.send(f"s{k}", src, dst, factor * float(rng.exponential(1e4)), after=after)
        tasks = job.build()
        ends_us.append(simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel).end_us)
    assert ends_us[1] == pytest.approx(2 * ends_us[0], rel=1e-12)


@pytest.mark.parametrize("gpus", [2, 3, 4, 5, 6, 7, 8, 9, 12, 24, 64])
def test_ring_all_reduce_in_steps_takes_its_closed_form(kit, gpus):
    """2 (n - 1) steps of M / n bytes and one latency each: 2 (n - 1) (M / n / B + latency)."""
    job = kit.job(gpus)
    size, latency_us = 1e6, 0.5
    for step in range(2 * (gpus - 1)):
        for i in range(gpus):
            after = [f"{step - 1} {(i - 1) % gpus}"] if step else []
            job.send(f"{step} {i}", i, (i + 1) % gpus, size / gpus, after=after)
    tasks = job.build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0, latency_us=latency_us))
    assert timeline.total_us == pytest.approx(2 * (gpus - 1) * (size / gpus / 12_500 + latency_us))


def test_an_empty_job_ends_at_once(kit, kernel):
    """No nodes: time 0, and a row of zeros."""
    tasks = kit.job(2).build()
    timeline = simulate(tasks, kit.ports(tasks, 100.0), kernel=kernel)
    assert timeline.total_us == 0.0
    assert timeline.compute_us.tolist() == [[0.0, 0.0]]
