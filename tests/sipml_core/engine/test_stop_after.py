"""Runs that stop when named nodes have ended, and drivers of circuits that are asked then."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from sipml_core.engine.session import State
from sipml_core.engine.simulation import CircuitSettings, open_session, simulate
from sipml_core.errors import SipmlError


def nodes(*numbers):
    return np.array(numbers, dtype=np.int32)


def circuits(gbps, dark_us=0.0):
    """Settings whose circuits are all dark for so long."""
    return CircuitSettings(gbps=gbps, kept_gbps=np.zeros(len(gbps)), dark_us=np.full(len(gbps), dark_us))


@attrs.define
class Phased:
    """Gives one answer after the other (then None), and remembers what it was told when."""

    answers: list[CircuitSettings | None]
    phase_nodes: list[np.ndarray]
    interval_us: float | None = None
    phase: int = 0
    told: list[tuple[float, int, list[float], list[float]]] = attrs.Factory(list)

    def begin_phase(self, phase):
        self.phase = phase

    def decide(self, now_us, sent_bytes, backlog_bytes):
        self.told.append((now_us, self.phase, sent_bytes.tolist(), backlog_bytes.tolist()))
        return self.answers.pop(0) if self.answers else None

    @property
    def times(self):
        return [now_us for now_us, *_ in self.told]


#: Nodes of the job below.
T, X, Y = 0, 1, 2


@pytest.fixture
def chain(kit):
    """Transfer x, 12 500 bytes from GPU 0 to 1; then task t for 2 us; then y, as many from GPU 1 to 2.

    Each has a circuit of its own: 1 us at 100 Gbps.
    """
    job = kit.job(3)
    job.task("t", 1, 2.0, after=["x"])
    job.send("x", 0, 1, 12_500.0)
    job.send("y", 1, 2, 12_500.0, after=["t"])
    tasks = job.build()
    return tasks, kit.wires(tasks)


@pytest.fixture
def session(chain, kernel):
    """A run of it with both circuits lit."""
    made = open_session(*chain, kernel=kernel)
    made.set_capacity(nodes(0, 1), np.array([100.0, 100.0]))
    return made


def test_a_run_stops_once_when_the_last_of_the_nodes_has_ended(session):
    """x ends at 1, t at 3, y at 4."""
    session.stop_after(nodes(T, X))
    assert (session.run(), session.now_us, session.ended) == (State.REACHED, 3.0, 2)
    assert (session.run(), session.now_us) == (State.DONE, 4.0)


def test_nodes_that_have_ended_stop_it_at_once(session):
    session.run(until_us=2.0)
    session.stop_after(nodes(X))
    assert (session.run(), session.now_us) == (State.REACHED, 2.0)
    assert session.run() is State.DONE


def test_other_nodes_replace_those_before_and_none_stop_nothing(session):
    session.stop_after(nodes(X))
    session.stop_after(nodes(T))
    assert (session.run(), session.now_us) == (State.REACHED, 3.0)
    session.stop_after(nodes(Y))
    session.stop_after(nodes())
    assert session.run() is State.DONE


@pytest.mark.parametrize("bad", [-1, 3])
def test_nodes_that_do_not_exist_are_refused(session, bad):
    with pytest.raises(SipmlError):
        session.stop_after(nodes(X, bad))


def test_a_driver_is_asked_when_a_phase_ends(chain, kernel):
    """At 3, when t ends and y is ready, without an interval; the circuit of y is dark until 3.5."""
    driver = Phased([circuits([100.0, 0.0]), circuits([0.0, 100.0], dark_us=0.5)], [nodes(T)])
    timeline = simulate(*chain, driver=driver, kernel=kernel)
    assert timeline.total_us == pytest.approx(4.5)
    assert timeline.dark_us[-1] == pytest.approx([0, 0.5, 0.5])
    assert timeline.link_bytes == pytest.approx([12_500, 12_500])
    assert driver.told == [
        (0.0, 0, [0.0, 0.0], [12_500.0, 0.0]),
        (3.0, 1, [pytest.approx(12_500.0), 0.0], [0.0, 12_500.0]),
    ]


def test_it_is_asked_even_where_nothing_was_sent_and_nothing_waits(kit, kernel):
    """Task t ends at 2, task u at 5: the circuit changes while u runs, and carries from 5 to 6."""
    job = kit.job(2)
    job.task("t", 0, 2.0)
    job.task("u", 0, 3.0, after=["t"])
    job.send("x", 0, 1, 12_500.0, after=["u"])
    tasks = job.build()
    driver = Phased([circuits([0.0]), circuits([100.0], dark_us=2.5)], [nodes(0)])
    timeline = simulate(tasks, kit.wires(tasks), driver=driver, kernel=kernel)
    assert (timeline.total_us, driver.times) == (pytest.approx(6.0), [0.0, 2.0])


def test_circuits_settle_before_the_next_decision(chain, kernel):
    """Changed at 1 and dark until 4: the phase that ends at 3 is answered at 4, as is the interval of 3.5."""
    driver = Phased(
        [circuits([100.0, 0.0]), circuits([0.0, 50.0], dark_us=3.0), circuits([0.0, 100.0])],
        [nodes(X), nodes(T)],
        interval_us=3.5,
    )
    timeline = simulate(*chain, driver=driver, kernel=kernel)
    assert driver.times == [0.0, 1.0, 4.0]
    assert timeline.total_us == pytest.approx(5.0)


def test_phases_that_end_together_are_one_question(chain, kernel):
    driver = Phased([circuits([100.0, 100.0])], [nodes(X), nodes(X), nodes(T)])
    simulate(*chain, driver=driver, kernel=kernel)
    assert [(now_us, phase) for now_us, phase, *_ in driver.told] == [(0.0, 0), (1.0, 2), (3.0, 3)]


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(4))
def test_both_kernels_agree_on_random_phases(kit, seed, queue):
    """Random graphs and settings, asked at the ends of four random sets of nodes and every 5 us: the same
    ends, accounts and questions."""
    rng = np.random.default_rng(seed)
    tasks, base = kit.random_job(rng, gpus=5)
    pairs = list(zip(base.pair_src.tolist(), base.pair_dst.tolist(), strict=True))
    network = kit.network(
        tasks, [100.0] * 5, lambda src, dst: [src, 5 + pairs.index((src, dst))], circuits=pairs
    )
    waited_for = np.flatnonzero(np.diff(tasks.succ_start))
    phases = [rng.choice(waited_for, size=6).astype(np.int32) for _ in range(4)]
    answers = [circuits(rng.choice([50.0, 100.0], len(pairs)), rng.choice([0.0, 1.0])) for _ in range(9)]
    runs = []
    for name in ("c", "reference"):
        driver = Phased(list(answers), phases, interval_us=5.0)
        runs.append((simulate(tasks, network, driver=driver, queue=queue, kernel=name), driver))
    (a, by_c), (b, by_reference) = runs
    for name in ("end_us", "compute_us", "exposed_us", "dark_us", "link_bytes"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-7, err_msg=name)
    assert by_c.times == pytest.approx(by_reference.times)
    assert by_c.phase == by_reference.phase == 4
