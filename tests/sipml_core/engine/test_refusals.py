"""Runs that cannot go on, limits, and input that is refused."""

import attrs
import numpy as np
import pytest

from sipml_core.engine import kernel as kernel_module
from sipml_core.engine.simulation import CircuitSettings, open_session, simulate
from sipml_core.errors import ConfigError, LimitError, SipmlError, StalledError, TooSlowError
from sipml_core.model.progress import Progress


@attrs.frozen
class Always:
    """The same capacity for every circuit at every decision."""

    gbps: float
    interval_us: float | None = 1.0
    dark_us: float = 0.0

    def decide(self, now_us, sent_bytes, backlog_bytes):
        size = len(sent_bytes)
        return CircuitSettings(
            gbps=np.full(size, self.gbps), kept_gbps=np.zeros(size), dark_us=np.full(size, self.dark_us)
        )


@pytest.fixture
def dark(kit):
    """Seven transfers on seven circuits."""
    job = kit.job(8)
    for peer in range(1, 8):
        job.send(f"to {peer}", 0, peer, 1000.0)
    tasks = job.build()
    return tasks, kit.wires(tasks)


def test_circuits_without_a_driver_stall(dark, kernel):
    """Five of the seven are named, with their pair and circuit."""
    with pytest.raises(StalledError) as caught:
        simulate(*dark, kernel=kernel)
    message = str(caught.value)
    assert message.startswith("nothing can run at 0 us and 7 of 7 tasks remain: ")
    assert "transfer 0 (0 -> 1, 1000 bytes) waits on circuit 0->1 at 0 Gbps" in message
    assert message.count("waits on") == 5
    assert message.endswith("; and 2 more")
    assert "\n" not in message


@pytest.mark.parametrize("interval_us", [None, 1.0])
def test_a_driver_that_leaves_all_dark_stalls(dark, kernel, interval_us):
    """However often it is asked."""
    with pytest.raises(StalledError, match="waits on circuit 0->1 at 0 Gbps"):
        simulate(*dark, driver=Always(0.0, interval_us), kernel=kernel)


def test_reconfiguring_longer_than_the_interval_stalls(dark):
    """Every decision makes all circuits dark again before they carry anything."""
    with pytest.raises(StalledError):
        simulate(*dark, driver=Always(100.0, interval_us=1.0, dark_us=2.0))


def test_bytes_that_move_between_dark_decisions_are_no_stall(kit, kernel):
    """Dark for 0.5 of every 1 us: 6250 bytes an interval. 75 MB take 12 000, more than may be fruitless."""
    job = kit.job(2)
    job.send("long", 0, 1, 75e6)
    tasks = job.build()
    timeline = simulate(tasks, kit.wires(tasks), driver=Always(100.0, dark_us=0.5), kernel=kernel)
    assert timeline.total_us == pytest.approx(12_000.0)


def test_a_long_computation_is_no_stall(kit):
    """Decisions without effect do not matter while something still moves: 20 000 of them here."""
    job = kit.job(2)
    job.task("long", 0, 20_000.0)
    job.task("other", 1, 1.0)
    job.send("blocked", 1, 0, 1000.0, after=["other"])
    tasks = job.build()

    class Late(Always):
        def decide(self, now_us, sent_bytes, backlog_bytes):
            return Always(100.0 if now_us >= 20_000.0 else 0.0).decide(now_us, sent_bytes, backlog_bytes)

    timeline = simulate(tasks, kit.wires(tasks), driver=Late(0.0))
    assert timeline.total_us == pytest.approx(20_000.08)


def test_a_dead_link_stalls(kit, kernel):
    """A fixed link of 0 Gbps, named by its number in the fabric; what queues behind is counted too."""
    job = kit.job(2)
    job.send("x", 0, 1, 1000.0)
    job.task("after", 1, 1.0, after=["x"])
    tasks = job.build()
    with pytest.raises(StalledError, match=r"2 of 2 tasks remain: transfer 0 .* waits on link 0 at 0 Gbps"):
        simulate(tasks, kit.network(tasks, [0.0], lambda *_: [0]), kernel=kernel)


def test_a_transfer_behind_a_blocked_one_says_so(kit, kernel):
    """With one transfer per source, a dark circuit holds up the other peers."""
    job = kit.job(3)
    job.send("dark", 0, 1, 1000.0)
    job.send("held up", 0, 2, 1000.0)
    tasks = job.build()
    network = kit.network(tasks, [100.0], lambda _, dst: [1] if dst == 1 else [0], circuits=[(0, 1)])
    with pytest.raises(
        StalledError, match=r"circuit 0->1 .* transfer 1 .* waits behind another transfer of GPU 0"
    ):
        simulate(tasks, network, queue="source", kernel=kernel)


@pytest.mark.parametrize("driver", [None, Always(100.0)])
def test_a_cycle_stalls_and_is_named(kit, kernel, driver):
    """The part outside the cycle runs, tasks that only wait for the cycle are not blamed."""
    job = kit.job(2)
    job.task("start", 0, 1.0)
    job.task("in cycle", 0, 1.0, after=["start", "x"])
    job.send("x", 0, 1, 1000.0, after=["in cycle"])
    job.task("after", 1, 1.0, after=["x"])
    tasks = job.build()
    with pytest.raises(StalledError, match="3 of 4 tasks remain: a dependency cycle of 2: ") as caught:
        simulate(tasks, kit.wires(tasks), driver=driver, kernel=kernel)
    assert tasks.node_name(job.node("in cycle")) in str(caught.value)
    assert tasks.node_name(job.node("x")) in str(caught.value)
    assert tasks.node_name(job.node("after")) not in str(caught.value)


def test_simulated_time_limit(kit, kernel):
    """Ten tasks of 1 us: a limit of 10 us lets them end, one of 9.5 us does not."""
    job = kit.job(1)
    for k in range(10):
        job.task(f"t{k}", 0, 1.0)
    tasks = job.build()
    network = kit.ports(tasks, 100.0)
    assert simulate(tasks, network, max_time_us=10.0, kernel=kernel).total_us == 10.0
    with pytest.raises(
        TooSlowError, match=r"simulated-time limit of 9.5 us .max_time_us. reached with 1 of 10 tasks left"
    ):
        simulate(tasks, network, max_time_us=9.5, kernel=kernel)


def test_wall_clock_limit(kit, kernel):
    """A run that would take a million decisions is stopped by the clock."""
    job = kit.job(2)
    job.task("long", 0, 1e9)
    job.send("x", 0, 1, 1000.0, after=["long"])
    tasks = job.build()
    with pytest.raises(LimitError, match=r"wall-clock limit of 0.01 s reached at .* with 2 of 2 tasks left"):
        simulate(tasks, kit.wires(tasks), driver=Always(1.0), max_wall_s=0.01, kernel=kernel)


def test_progress_is_reported_now_and_then(kit, monkeypatch):
    """Fractions between 0 and 1 that never fall."""
    monkeypatch.setattr("sipml_core.engine.simulation._PROGRESS_S", 0.0)
    monkeypatch.setattr("sipml_core.engine.simulation._SLICE", 10)
    job = kit.job(1)
    for k in range(100):
        job.task(f"t{k}", 0, 1.0)
    tasks = job.build()
    seen = []
    simulate(tasks, kit.ports(tasks, 100.0), progress=Progress(watch=lambda _, done: seen.append(done)))
    assert seen == sorted(seen)
    assert seen[0] == 0.1


def test_unknown_names_get_the_nearest(kit):
    """Queue disciplines and kernels."""
    tasks = kit.job(1).build()
    network = kit.ports(tasks, 1.0)
    with pytest.raises(ConfigError, match="no queue discipline 'pairs'; did you mean 'pair'"):
        open_session(tasks, network, queue="pairs")
    with pytest.raises(ConfigError, match="no kernel 'rust'"):
        open_session(tasks, network, kernel="rust")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": 3}, "made for 3 GPUs"),
        ({"transfer_pair": []}, "and 0 transfers"),
        ({"transfer_pair": [1]}, "does not give each transfer the pair of its ends"),
        ({"pair_src": [1], "pair_dst": [0]}, "does not give each transfer the pair of its ends"),
        ({"pair_link": [7, 0]}, "pair_link must be from 0 to 3"),
        ({"pair_link": [-1, 0]}, "pair_link must be from 0 to 3"),
        ({"pair_start": [0, 0], "pair_link": [], "pair_weight": []}, "must cross at least one link"),
        ({"pair_start": [0, 3]}, "pair_start must go from 0 to 2"),
        ({"pair_weight": [1.0]}, "with one weight for each entry"),
        ({"pair_weight": [1.0, 0.0]}, "pair_weight must be positive and finite"),
        ({"pair_weight": [1.0, np.nan]}, "pair_weight must be positive and finite"),
        ({"pair_latency_us": []}, "differ in length"),
    ],
)
def test_a_network_of_other_tasks_is_refused(kit, kernel, change, message):
    """Before anything is read out of bounds."""
    job = kit.job(2)
    job.send("x", 0, 1, 1.0)
    tasks = job.build()
    network = attrs.evolve(kit.ports(tasks, 1.0), **change)
    with pytest.raises(SipmlError, match=message):
        open_session(tasks, network, kernel=kernel)


def test_capacities_must_be_numbers(kit, kernel):
    """NaN and negative capacities are refused."""
    job = kit.job(2)
    job.send("x", 0, 1, 1.0)
    tasks = job.build()
    session = open_session(tasks, kit.wires(tasks), kernel=kernel)
    for wrong in (np.nan, -1.0, np.inf):
        with pytest.raises(SipmlError, match="finite and not negative"):
            session.set_capacity(np.array([0], dtype=np.int32), np.array([wrong]))


def test_a_missing_extension_says_what_to_do(kit, monkeypatch):
    """One line: a C compiler is needed, and how to reinstall."""
    monkeypatch.setattr(kernel_module, "_engine", None)
    tasks = kit.job(1).build()
    with pytest.raises(SipmlError, match=r"needs a C compiler .* reinstall"):
        simulate(tasks, kit.ports(tasks, 1.0))
