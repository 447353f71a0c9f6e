"""Circuits during a run: decisions, dark times, carried capacity, and what the driver is told."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from sipml_core.engine.simulation import CircuitSettings, open_session, simulate
from sipml_core.errors import ConfigError, PluginError


def circuits(gbps, kept_gbps=None, dark_us=0.0):
    """Settings for as many circuits as there are values in `gbps`."""
    gbps = np.asarray(gbps, dtype=float)
    kept_gbps = np.broadcast_to(0.0 if kept_gbps is None else kept_gbps, gbps.shape)
    return CircuitSettings(gbps=gbps, kept_gbps=kept_gbps, dark_us=np.broadcast_to(dark_us, gbps.shape))


@attrs.define
class Script:
    """Gives one answer after the other (then None), and remembers what it was told."""

    answers: list[CircuitSettings | None]
    interval_us: float | None = None
    told: list[tuple[float, list[float], list[float]]] = attrs.Factory(list)

    def decide(self, now_us, sent_bytes, backlog_bytes):
        self.told.append((now_us, sent_bytes.tolist(), backlog_bytes.tolist()))
        return self.answers.pop(0) if self.answers else None


@pytest.fixture
def one(kit):
    """One transfer of 18 750 bytes over a circuit of its own."""
    job = kit.job(2)
    job.send("x", 0, 1, 18_750.0)
    tasks = job.build()
    return tasks, kit.wires(tasks)


def test_a_circuit_lit_at_once(one, kernel):
    """18 750 bytes at 100 Gbps: 1.5 us, none of it dark."""
    timeline = simulate(*one, driver=Script([circuits([100.0])]), kernel=kernel)
    assert timeline.total_us == pytest.approx(1.5)
    assert timeline.dark_us[-1] == pytest.approx([0, 0])
    assert timeline.decisions == 1


def test_a_dark_circuit_carries_nothing_at_first(one, kernel):
    """2 us dark, then 1.5 us: both ends wait in the dark for 2 us and exposed for 1.5 us."""
    driver = Script([circuits([100.0], dark_us=2.0)])
    timeline = simulate(*one, driver=driver, kernel=kernel)
    assert timeline.total_us == pytest.approx(3.5)
    assert timeline.dark_us[-1] == pytest.approx([2, 2])
    assert timeline.exposed_us[-1] == pytest.approx([1.5, 1.5])
    assert timeline.link_busy_us == pytest.approx([1.5])


def test_what_is_left_alone_goes_on_carrying(one, kernel):
    """25 Gbps for 2 us carry 6250 bytes, 100 Gbps the other 12 500 in 1 us; nothing is dark."""
    driver = Script([circuits([100.0], kept_gbps=25.0, dark_us=2.0)])
    timeline = simulate(*one, driver=driver, kernel=kernel)
    assert timeline.total_us == pytest.approx(3.0)
    assert timeline.dark_us[-1] == pytest.approx([0, 0])


def test_circuits_light_up_each_at_its_time(kit, kernel):
    """Dark for 1 and 3 us, then 1 us of sending: ends at 2 and 4."""
    job = kit.job(4)
    job.send("x", 0, 1, 12_500.0)
    job.send("y", 2, 3, 12_500.0)
    tasks = job.build()
    driver = Script([circuits([100.0, 100.0], dark_us=[1.0, 3.0])])
    timeline = simulate(tasks, kit.wires(tasks), driver=driver, kernel=kernel)
    assert timeline.end_us == pytest.approx([2, 4])
    assert timeline.dark_us[-1] == pytest.approx([1, 1, 3, 3])


def test_a_newer_decision_overrides_a_pending_one(one, kernel):
    """Decided at 0: lit at 5. Decided at 2 instead: 50 Gbps at once, 100 at 3: it ends at 4."""
    driver = Script(
        [circuits([100.0], dark_us=5.0), circuits([100.0], kept_gbps=50.0, dark_us=1.0)], interval_us=2.0
    )
    timeline = simulate(*one, driver=driver, kernel=kernel)
    assert timeline.total_us == pytest.approx(4.0)
    assert [now for now, _, _ in driver.told] == [0.0, 2.0]


def test_none_keeps_everything_pending_changes_too(one, kernel):
    """Decided at 0: lit at 3. The answers at 1, 2, 3, 4 are None: it ends at 4.5."""
    driver = Script([circuits([100.0], dark_us=3.0)], interval_us=1.0)
    timeline = simulate(*one, driver=driver, kernel=kernel)
    assert timeline.total_us == pytest.approx(4.5)
    assert timeline.decisions == 5


def test_the_driver_is_told_what_was_sent_and_what_waits(kit, kernel):
    """18 750 and 12 500 bytes queue on one pair; 12 500 leave in each interval of 1 us."""
    job = kit.job(2)
    job.send("x", 0, 1, 18_750.0)
    job.send("y", 0, 1, 12_500.0)
    tasks = job.build()
    driver = Script([circuits([100.0])], interval_us=1.0)
    assert simulate(tasks, kit.wires(tasks), driver=driver, kernel=kernel).total_us == pytest.approx(2.5)
    assert driver.told == [
        (0.0, [0.0], [31_250.0]),
        (1.0, [pytest.approx(12_500.0)], [pytest.approx(18_750.0)]),
        (2.0, [pytest.approx(12_500.0)], [pytest.approx(6_250.0)]),
    ]


def test_the_driver_is_not_asked_while_nothing_concerns_it(kit, kernel):
    """Asked at 0, then not while the GPU computes until 5; at 5 a transfer waits, at 6 something was sent."""
    job = kit.job(2)
    job.task("t", 0, 5.0)
    job.send("x", 0, 1, 6_250.0, after=["t"])
    job.task("u", 1, 4.0, after=["x"])
    tasks = job.build()
    driver = Script([circuits([100.0])], interval_us=1.0)
    timeline = simulate(tasks, kit.wires(tasks), driver=driver, kernel=kernel)
    assert timeline.total_us == pytest.approx(9.5)
    assert [now for now, _, _ in driver.told] == [0.0, 5.0, 6.0]


def test_without_an_interval_the_driver_is_asked_once(one, kernel):
    """One-shot: at time 0, before the first byte."""
    driver = Script([circuits([1.0])])
    assert simulate(*one, driver=driver, kernel=kernel).total_us == pytest.approx(150.0)
    assert driver.told == [(0.0, [0.0], [18_750.0])]


def test_a_driver_without_circuits_is_never_asked(kit, kernel):
    """The job uses no circuit link."""
    job = kit.job(2)
    job.send("x", 0, 1, 12_500.0)
    tasks = job.build()
    driver = Script([], interval_us=1.0)
    assert simulate(tasks, kit.ports(tasks, 100.0), driver=driver, kernel=kernel).decisions == 0
    assert driver.told == []


def test_a_circuit_behind_a_shared_port(kit, kernel):
    """Two circuits of 100 Gbps leave one GPU whose egress is 100: 50 each; 12 500 bytes each take 2 us."""
    job = kit.job(3)
    job.send("x", 0, 1, 12_500.0)
    job.send("y", 0, 2, 12_500.0)
    tasks = job.build()
    network = kit.network(tasks, [100.0], lambda _, dst: [0, dst], circuits=[(0, 1), (0, 2)])
    driver = Script([circuits([100.0, 100.0])])
    assert simulate(tasks, network, driver=driver, kernel=kernel).end_us == pytest.approx([2, 2])


def test_mixed_waiting_counts_as_exposed(kit, kernel):
    """GPU 0 sends over a lit circuit and a dark one: exposed until the lit one is done at 1, then dark
    until 4. GPU 1 only receives over the lit one, GPU 2 only over the dark one. The second ends at 5."""
    job = kit.job(3)
    job.send("lit", 0, 1, 12_500.0)
    job.send("dark", 0, 2, 12_500.0)
    tasks = job.build()
    driver = Script([circuits([100.0, 100.0], dark_us=[0.0, 4.0])])
    timeline = simulate(tasks, kit.wires(tasks), driver=driver, kernel=kernel)
    assert timeline.exposed_us[-1] == pytest.approx([2, 1, 1])
    assert timeline.dark_us[-1] == pytest.approx([3, 0, 4])
    assert timeline.idle_us[-1] == pytest.approx([0, 4, 0])


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(6))
def test_both_kernels_agree_under_random_decisions(kit, seed, queue):
    """Random graphs on circuits behind shared ports, re-decided every 2 us with random dark times: the same
    ends, accounts and decisions."""
    rng = np.random.default_rng(seed)
    tasks, base = kit.random_job(rng, gpus=5)
    pairs = list(zip(base.pair_src.tolist(), base.pair_dst.tolist(), strict=True))
    network = kit.network(
        tasks,
        [100.0] * 5,
        lambda src, dst: [src, 5 + pairs.index((src, dst))],
        latency_us=0.3,
        circuits=pairs,
    )
    answers = [
        circuits(
            rng.choice([0.0, 50.0, 100.0], size=len(pairs)),
            rng.choice([0.0, 25.0], size=len(pairs)),
            rng.choice([0.0, 0.5, 3.0], size=len(pairs)),
        )
        for _ in range(8)
    ]
    answers.append(circuits([100.0] * len(pairs)))
    a, b = (
        simulate(tasks, network, driver=Script(list(answers), interval_us=2.0), queue=queue, kernel=kernel)
        for kernel in ("c", "reference")
    )
    for name in ("end_us", "compute_us", "exposed_us", "dark_us", "link_bytes", "link_busy_us"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-7, err_msg=name)
    assert a.decisions == b.decisions
    spent_us = a.compute_us + a.exposed_us + a.dark_us
    assert (spent_us <= a.snapshot_us[:, None] * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (circuits([1.0, 1.0]), "gbps of 1 circuits, got 2"),
        (circuits([-1.0]), "gbps must be finite and not negative, got -1.0 for circuit 0"),
        (circuits([1.0], dark_us=np.inf), "dark_us must be finite"),
    ],
)
def test_answers_that_make_no_sense_are_refused(one, answer, message):
    """The message names the field, the rule and the value."""
    with pytest.raises(PluginError, match=message):
        simulate(*one, driver=Script([answer]))


@pytest.mark.parametrize("interval_us", [0.0, -1.0, np.nan, np.inf])
def test_intervals_must_be_positive(one, interval_us):
    """An interval of nothing would never let time pass."""
    with pytest.raises(ConfigError, match="interval_us must be positive"):
        simulate(*one, driver=Script([], interval_us=interval_us))


def test_a_session_can_be_led_by_hand(one, kernel):
    """Advance to 1, light the circuit, look at the rate."""
    session = open_session(*one, kernel=kernel)
    session.run(until_us=1.0)
    assert (session.now_us, session.moving) == (1.0, False)
    session.set_capacity(np.array([0], dtype=np.int32), np.array([50.0]))
    assert session.active().gbps.tolist() == [50.0]
    assert session.moving
    session.run()
    assert session.timeline().total_us == pytest.approx(4.0)
