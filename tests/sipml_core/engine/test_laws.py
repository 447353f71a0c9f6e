"""Laws that hold for every job: bytes, time accounts, lower bounds, determinism."""

import hashlib
import os
import subprocess
import sys

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipml_core.engine.bounds import bounds, lower_bound_us
from sipml_core.engine.kernel import critical_path_us
from sipml_core.engine.simulation import simulate
from sipml_core.errors import StalledError


def expected_link_bytes(tasks, network):
    total = np.zeros(len(network.link_gbps))
    for t in range(tasks.transfers):
        pair = network.transfer_pair[t]
        for k in range(network.pair_start[pair], network.pair_start[pair + 1]):
            total[network.pair_link[k]] += network.pair_weight[k] * tasks.size_bytes[t]
    return total


def digest(timeline):
    """Of all bytes of a timeline."""
    result = hashlib.sha256()
    for field in attrs.fields(type(timeline)):
        value = getattr(timeline, field.name)
        result.update(b"" if value is None else np.asarray(value).tobytes())  # None: not recorded
    return result.hexdigest()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), queue=st.sampled_from(["pair", "source"]))
def test_laws_of_random_jobs(kit, seed, queue):
    """Bytes sent equal bytes on every link, and no link carries more than its capacity allows; the four
    states of each GPU add up to the time; no node ends before it starts; nothing beats the lower bound."""
    tasks, network = kit.random_job(np.random.default_rng(seed))
    timeline = simulate(tasks, network, queue=queue)
    assert timeline.link_bytes == pytest.approx(expected_link_bytes(tasks, network), rel=1e-9)
    most = timeline.link_busy_us * network.link_gbps * kit.gbps_bytes
    assert (timeline.link_bytes <= most * (1 + 1e-9)).all()
    assert (timeline.link_busy_us <= timeline.total_us * (1 + 1e-9)).all()
    spent_us = timeline.compute_us + timeline.exposed_us + timeline.dark_us + timeline.idle_us
    whole_us = np.broadcast_to(timeline.snapshot_us[:, None], spent_us.shape)
    assert spent_us == pytest.approx(whole_us, rel=1e-9)
    assert (timeline.end_us >= timeline.start_us).all()
    assert timeline.total_us == pytest.approx(timeline.end_us.max())
    assert timeline.total_us >= lower_bound_us(tasks, network) * (1 - 1e-9)


def test_compute_account_is_the_sum_of_durations(kit, kernel):
    """Each GPU computes for as long as its tasks last, whatever else happens."""
    tasks, network = kit.random_job(np.random.default_rng(3))
    timeline = simulate(tasks, network, kernel=kernel)
    on_gpu = tasks.gpu >= 0
    expected = np.bincount(tasks.gpu[on_gpu], weights=tasks.duration_us[on_gpu], minlength=tasks.gpus)
    assert timeline.compute_us[-1] == pytest.approx(expected)


def job_of_four(kit):
    """a (2 us), ab (25 000 bytes), b (3 us); c and d (6 us each) on GPU 2; cb (37 500 bytes)."""
    job = kit.job(3)
    job.task("a", 0, 2.0)
    job.task("b", 1, 3.0, after=["ab"])
    job.task("c", 2, 6.0)
    job.task("d", 2, 6.0)
    job.send("ab", 0, 1, 25_000.0, after=["a"])
    job.send("cb", 2, 1, 37_500.0)
    tasks = job.build()
    return tasks, kit.network(
        tasks, [100.0, 50.0], lambda src, _: [0, 1] if src == 0 else [1], latency_us=1.0
    )


def test_bounds_by_hand(kit):
    """Task 2 us, then 25 000 bytes over 100 and 50 Gbps (4 us) with 1 us of latency, then 3 us: a path of
    10 us. The 50 Gbps link also carries 37 500 bytes of another pair: 10 us. GPU 2 computes 6 + 6 us."""
    tasks, network = job_of_four(kit)
    found = bounds(tasks, network)
    assert found.critical_path_us == pytest.approx(10.0)
    assert found.busiest_link_us == pytest.approx(10.0)
    assert found.busiest_gpu_us == pytest.approx(12.0)
    assert lower_bound_us(tasks, network) == pytest.approx(12.0)


@pytest.mark.parametrize(
    ("since_us", "path_us", "link_us", "gpu_us"),
    [(0, 10, 10, 12), (1, 9, 9, 11), (4, 6, 4, 8), (10.5, 3, 0, 3), (13, 1, 0, 1), (14, 0, 0, 0)],
)
def test_bounds_of_the_rest_by_hand(kit, since_us, path_us, link_us, gpu_us):
    """The job of the test above, run: the 50 Gbps (6250 bytes/us) are cb's alone until a ends at 2, then
    halved; both end at 11, b at 14. At 4, ab (5 us alone) has been under way for 2 and cb for 4, so 3 us
    and 12 500 bytes of each are left at least; b then takes 3, and 2 of c and all 6 of d are to come."""
    tasks, network = job_of_four(kit)
    timeline = simulate(tasks, network)
    assert timeline.total_us == pytest.approx(14.0)
    found = bounds(tasks, network, timeline, since_us)
    assert found.critical_path_us == pytest.approx(path_us)
    assert found.busiest_link_us == pytest.approx(link_us)
    assert found.busiest_gpu_us == pytest.approx(gpu_us)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), queue=st.sampled_from(["pair", "source"]), at=st.floats(0, 1))
def test_no_rest_of_a_run_is_shorter_than_its_bound(kit, seed, queue, at):
    """At whatever moment a run is looked at."""
    tasks, network = kit.random_job(np.random.default_rng(seed))
    timeline = simulate(tasks, network, queue=queue)
    since_us = at * timeline.total_us
    left_us = timeline.total_us - since_us
    assert lower_bound_us(tasks, network, timeline, since_us) <= left_us + 1e-9 * timeline.total_us


@pytest.mark.parametrize("seed", range(5))
def test_critical_path_is_the_longest_of_all_paths(kit, seed):
    """Against plain recursion: a node ends its own time after the latest of its predecessors, whichever of
    them comes first."""
    rng = np.random.default_rng(seed)
    tasks, _ = kit.random_job(rng)
    node_us = rng.exponential(1.0, size=tasks.nodes)
    before = [[] for _ in range(tasks.nodes)]
    for node in range(tasks.nodes):
        for after in tasks.successors[tasks.succ_start[node] : tasks.succ_start[node + 1]].tolist():
            before[after].append(node)

    def end_us(node):
        return node_us[node] + max((end_us(b) for b in before[node]), default=0.0)

    longest_us = max(end_us(node) for node in range(tasks.nodes))
    assert critical_path_us(tasks, node_us) == pytest.approx(longest_us, rel=1e-12)


def test_bounds_leave_circuits_out(kit):
    """A circuit's capacity is a scheduler's matter: the latency is all that is sure."""
    job = kit.job(2)
    job.send("x", 0, 1, 1e6)
    tasks = job.build()
    assert lower_bound_us(tasks, kit.wires(tasks, latency_us=2.0)) == pytest.approx(2.0)


def test_bounds_of_nothing_and_of_a_dead_link(kit):
    """An empty job takes no time; a link of 0 Gbps never lets a byte through."""
    tasks = kit.job(2).build()
    assert lower_bound_us(tasks, kit.ports(tasks, 100.0)) == 0.0
    job = kit.job(2)
    job.send("x", 0, 1, 1.0)
    tasks = job.build()
    assert lower_bound_us(tasks, kit.network(tasks, [0.0], lambda *_: [0])) == np.inf


def test_bounds_refuse_a_cycle(kit):
    """No path is longest in a cycle."""
    job = kit.job(1)
    job.task("a", 0, 1.0, after=["b"])
    job.task("b", 0, 1.0, after=["a"])
    tasks = job.build()
    with pytest.raises(StalledError, match="cycle"):
        bounds(tasks, kit.ports(tasks, 100.0))


def test_the_same_input_gives_the_same_bytes(kit, kernel):
    """Two runs of one job agree in every bit."""
    tasks, network = kit.random_job(np.random.default_rng(9), gpus=8, sends=80)
    first, second = (digest(simulate(tasks, network, kernel=kernel)) for _ in range(2))
    assert first == second


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import conftest, test_laws
import numpy as np
from sipml_core.engine.simulation import simulate
for kernel in ("c", "reference"):
    tasks, network = conftest.random_job(np.random.default_rng(9), gpus=8, sends=80)
    print(test_laws.digest(simulate(tasks, network, kernel=kernel)))
"""


def test_hash_seeds_change_nothing():
    """Nothing depends on the order of sets or on PYTHONHASHSEED."""
    script = SCRIPT.format(folder=os.path.dirname(__file__))
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
