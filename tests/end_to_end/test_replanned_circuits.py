"""Circuits that are set anew: what they may carry, for how long they are dark, and what carries on."""

import itertools
import math

import numpy as np
import pytest
from sipml_ring import plan as ring_plan

from sipml_core.engine.simulation import CircuitSettings, simulate
from sipml_core.errors import ConfigError
from sipml_core.model.cluster import Cluster
from sipml_core.model.network import Network
from sipml_core.model.taskbuilder import TaskBuilder
from sipml_core.model.traffic import TrafficMatrix
from sipml_core.scheduling.relay import with_relays

BYTES_PER_US = 125.0  # of 1 Gbps


def transfers(gpus, src, dst, size_bytes):
    builder = TaskBuilder(gpus)
    builder.transfers(src, dst, size_bytes, np.zeros(len(src), int))
    return builder.build()


def physical(plan):
    """Wavelengths (ring) or switches (OCS) that each pair holds. {(src, dst): set}"""
    held = {}
    if hasattr(plan, "port_map"):
        for switch, src in np.argwhere(plan.port_map >= 0):
            held.setdefault((int(src), int(plan.port_map[switch, src])), set()).add(int(switch))
        return held
    for pair, *circuit in zip(
        plan.circuit_pair, plan.circuit_direction.tolist(), plan.circuit_index.tolist(), strict=True
    ):
        held.setdefault((int(plan.src[pair]), int(plan.dst[pair])), set()).add(tuple(circuit))
    return held


class Ledger:
    """A driver that holds the bytes of each window against the wavelengths of two plans."""

    def __init__(self, driver, network, dark_us):
        self.driver, self.network, self.dark_us = driver, network, dark_us
        self.interval_us = driver.interval_us
        self.window, self.full = None, 0

    def decide(self, now_us, sent_bytes, backlog_bytes):
        if self.window is not None:
            self.audit(now_us, sent_bytes)
        before = physical(self.driver.plan)
        settings = self.driver.decide(now_us, sent_bytes, backlog_bytes)
        self.window = now_us, before, physical(self.driver.plan)
        return settings

    def audit(self, now_us, sent_bytes):
        since_us, before, after = self.window
        dark_us = min(self.dark_us, now_us - since_us) if since_us else 0.0
        gbps = self.driver.control.circuit_gbps
        ends = zip(self.network.circuit_src.tolist(), self.network.circuit_dst.tolist(), strict=True)
        for pair, sent in zip(ends, sent_bytes, strict=True):
            held = after.get(pair, set())
            changed = held - before.get(pair, set())
            lit_us = len(held) * (now_us - since_us) - len(changed) * dark_us
            allowed = lit_us * gbps * BYTES_PER_US
            assert sent <= allowed * (1 + 1e-9) + 1e-3, pair
            self.full += 0 < allowed * (1 - 1e-9) < sent


@pytest.mark.parametrize("estimator", ["window", "backlog", "oracle"])
@pytest.mark.parametrize(
    ("name", "bandwidth_gbps", "options"),
    [
        ("sip-ring", 75, {"reach_hops": 4}),
        ("sip-ring", 100, {"reach_hops": 4, "interval_us": 60, "reconfiguration_us": 10}),
        ("sip-ocs", 60, {"switches": 3, "interval_us": 100, "reconfiguration_us": 25}),
    ],
)
def test_a_circuit_carries_what_its_wavelengths_can_and_changed_ones_are_dark(
    scheduled, name, bandwidth_gbps, options, estimator
):
    """In every window: wavelengths held x window, less wavelengths that changed x dark time. Many pairs
    are backlogged and send exactly that, so neither more nor less is possible."""
    rng = np.random.default_rng(7)
    src = rng.integers(0, 10, 60)
    dst = (src + rng.choice([-3, -2, -1, 1, 2, 3], 60)) % 10
    tasks = transfers(10, src, dst, rng.integers(1, 100, 60) * 1e4)
    _, network, driver = scheduled(tasks, name, bandwidth_gbps, estimator, **options)
    ledger = Ledger(driver, network, driver.control.reconfiguration_us)
    timeline = simulate(tasks, network, driver=ledger)
    assert timeline.decisions > 5
    assert ledger.full > 50


def dark_us(scheduled, interval_us, tau_us):
    """From the decision that changes a ring's only wavelength until it carries again, in `hwsim`."""
    builder = TaskBuilder(40, ("gap",))
    first = builder.transfers([0], [1], 4e5, 0)
    gap = builder.tasks([5], 3000.0, 0, 0)
    second = builder.transfers([0], [2], 1e6, 0)
    builder.depend(first, gap)
    builder.depend(gap, second)
    options = {"reconfiguration": "hwsim", "interval_us": interval_us, "tau_us": tau_us}
    tasks = builder.build()
    fabric, network, driver = scheduled(tasks, "sip-ring", 25, **options)
    timeline = simulate(tasks, network, driver=driver)
    decided_us = math.ceil(timeline.start_us[-1] / interval_us - 1e-9) * interval_us
    expected = fabric.circuits.retuning._stages(np.array([100.0])).words_us[0]
    return timeline.end_us[-1] - 1e6 / (25 * BYTES_PER_US) - decided_us, expected


def test_a_retuned_circuit_is_dark_for_as_long_as_its_rings_take(scheduled):
    measured, expected = dark_us(scheduled, 1000.0, 40.0)
    assert measured == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("interval_us", "tau_us"), [(100.0, 40.0), (20.0, 10.0)])
def test_rings_slower_than_the_interval_between_plans_are_refused(scheduled, interval_us, tau_us):
    """The next plan would keep the wavelength, and so light at once a circuit that still retunes."""
    with pytest.raises(ConfigError, match="interval_us must exceed"):
        dark_us(scheduled, interval_us, tau_us)


def test_dark_time_of_slow_rings_is_whole_where_the_interval_has_room(scheduled):
    """A retune of tau 10 us, with 100 us between plans."""
    measured, expected = dark_us(scheduled, 100.0, 10.0)
    assert measured >= expected * (1 - 1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_what_carries_on_is_what_both_plans_have(seed):
    """Pair, direction and index of every circuit, compared by brute force; no segment used twice."""
    rng = np.random.default_rng(seed)
    gpus, wavelengths = int(rng.integers(3, 36)), int(rng.integers(2, 13))
    before, previous = set(), None
    for _ in range(4):
        demand = np.zeros((gpus, gpus))
        for _ in range(2 * gpus):
            src = int(rng.integers(gpus))
            demand[src, (src + rng.integers(1, 17)) % gpus] += rng.random() ** 3
        np.fill_diagonal(demand, 0)
        plan = ring_plan(TrafficMatrix.from_dense(demand), wavelengths=wavelengths, previous=previous)
        held = plan.circuits
        rows = zip(plan.src[held.pair], plan.dst[held.pair], held.direction, held.index, strict=True)
        circuits = {tuple(int(value) for value in row) for row in rows}
        taken = set()
        for src, dst, direction, index in circuits:
            low, high = (src, dst) if direction == 0 else (dst, src)
            used = {((low + s) % gpus, direction, index) for s in range((high - low) % gpus)}
            assert not used & taken
            taken |= used
        for k, pair in enumerate(zip(plan.src.tolist(), plan.dst.tolist(), strict=True)):
            mine = {circuit for circuit in circuits if circuit[:2] == pair}
            assert plan.gbps[k] == 25 * len(mine)
            if previous is not None:
                assert plan.kept_gbps[k] == 25 * len(mine & before)
                assert (plan.dark_us[k] > 0) == bool(mine - before)
        before, previous = circuits, plan


@pytest.mark.parametrize("options", [{"interval_us": 10}, {"tau_us": 20}])
def test_rings_that_settle_slower_than_plans_come_are_refused(registry, options):
    """Up to 30 us at tau 4, up to 131 us at tau 20 (default interval 100): the next plan would take
    circuits that are still dark for kept ones, and light them early."""
    topology = registry.find("topology", "sip-ring")
    with pytest.raises(ConfigError, match="interval_us"):
        topology(topology.Options(reconfiguration="hwsim", **options)).build(
            Cluster(gpus=8, bandwidth_gbps=800)
        )


class OffFrom5To10:
    """Circuits of 8 Gbps, dark from 5 us to 10 us."""

    interval_us = 5.0

    def __init__(self, circuits):
        self.circuits = circuits

    def decide(self, now_us, sent_bytes, backlog_bytes):
        gbps = np.full(self.circuits, 0.0 if now_us == 5 else 8.0)
        return CircuitSettings.at_once(gbps)


@pytest.mark.parametrize("kernel", ["c", "reference"])
def test_what_ends_at_a_decision_does_not_wait_for_the_next(kernel):
    """625 bytes through a port of 1 Gbps take 5 us exactly, however they are shared: 5, 6 and 6 of 17."""
    sizes = np.array([5.0, 6.0, 6.0]) / 17 * 625
    tasks = transfers(4, [0, 0, 0], [1, 2, 3], sizes)
    network = Network.of_matrix(
        gpus=4, pair_src=[0, 0, 0], pair_dst=[1, 2, 3], pair_links=[[0, 1], [0, 2], [0, 3]],
        pair_latency_us=[0.0] * 3, transfer_pair=[0, 1, 2], link_gbps=[1.0, 0.0, 0.0, 0.0],
        link_id=[0, 1, 2, 3], first_circuit=1, circuit_src=[0, 0, 0], circuit_dst=[1, 2, 3],
    )  # fmt: skip
    timeline = simulate(tasks, network, driver=OffFrom5To10(3), kernel=kernel)
    assert timeline.total_us == pytest.approx(5.0, rel=1e-9)


def test_relays_serve_what_two_hops_can(scheduled):
    """All pairs of 4 GPUs alike, 2 switches: circuits to i + 1 and i + 2 reach everybody in two hops."""
    src, dst = np.nonzero(~np.eye(4, dtype=bool))
    tasks = transfers(4, src, dst, np.full(12, 1e6))
    fabric, _, driver = scheduled(tasks, "sip-ocs", 200, switches=2, relay=True)
    network = Network.of(with_relays(fabric, driver.plan), tasks)
    simulate(tasks, network, driver=driver.on(network))


@pytest.mark.parametrize("gpus", [2, 3, 5, 8, 12, 17, 18, 33])
@pytest.mark.parametrize("wavelengths", [2, 8, 64, 65])
def test_neighbours_on_a_small_ring_use_the_way_round_as_well(timeline_of, gpus, wavelengths):
    """All clockwise wavelengths, one segment each; the way round takes N - 1 of N segments, so each
    counter-clockwise wavelength serves one pair, if that is within reach."""
    builder, here = TaskBuilder(gpus), np.arange(gpus)
    builder.transfers(here, (here + 1) % gpus, 2e4, 0)
    timeline, _ = timeline_of(builder.build(), "sip-ring", 25 * wavelengths)
    half = wavelengths // 2
    around = 0 if gpus - 1 > 16 else half if gpus == 2 else half // gpus
    lit_gbps = 25 * (wavelengths - half + around)
    assert timeline.total_us == pytest.approx(2e4 / (lit_gbps * BYTES_PER_US), rel=1e-9)


class Replayed:
    """A driver of fixed plans: at each instant one circuit of the network is lit, the others are not."""

    def __init__(self, control, circuits, turns):
        self.control, self.circuits, self.turns = control, circuits, turns
        self.interval_us, self.lit, self.instants = control.interval_us, None, 0

    def decide(self, now_us, sent_bytes, backlog_bytes):
        turn = self.turns[min(self.instants, len(self.turns) - 1)]
        gbps = np.where(np.arange(self.circuits) == turn, self.control.circuit_gbps, 0.0)
        stays = self.lit in (None, turn)
        self.lit, self.instants = turn, self.instants + 1
        dark_us = np.where(gbps > 0, 0.0 if stays else self.control.reconfiguration_us, 0.0)
        return CircuitSettings(gbps=gbps, kept_gbps=gbps if stays else 0.0 * gbps, dark_us=dark_us)


@pytest.mark.parametrize("size_us", [(160, 80, 40), (250, 30, 30), (90, 90, 90), (350, 20, 120)])
def test_plans_are_near_the_best_sequence_of_all(scheduled, size_us):
    """Three pairs share the one link of GPU 0, planned every 100 us with 20 us of dark.

    The best of all 3^5 sequences carries everything and changes twice, at least. The scheduler's plans end no
    sooner. They never leave the link to a pair that has nothing while another waits: a pair that does not end
    in an interval has 80 us of it or more, so that it has the link in ceil(size / 80) intervals at most."""
    size_bytes = np.array(size_us) * 100.0 * BYTES_PER_US
    tasks = transfers(4, [0, 0, 0], [1, 2, 3], size_bytes)
    options = {"switches": 1, "interval_us": 100.0, "reconfiguration_us": 20.0}
    fabric, network, _ = scheduled(tasks, "sip-ocs", 100.0, **options)
    best_us = min(
        simulate(tasks, network, driver=Replayed(fabric.circuits, 3, turns)).total_us
        for turns in itertools.product(range(3), repeat=5)
        if finishes(turns, size_us)
    )
    assert best_us >= (sum(size_us) + 2 * 20.0) * (1 - 1e-9)
    most_us = 100.0 * sum(math.ceil(each / 80.0) for each in size_us)
    for estimator in ("window", "backlog", "oracle"):
        _, network, driver = scheduled(tasks, "sip-ocs", 100.0, estimator, **options)
        found_us = simulate(tasks, network, driver=driver).total_us
        assert best_us * (1 - 1e-9) <= found_us <= most_us, estimator


def finishes(turns, size_us):
    """Whether fixed plans, the last of which stays, serve every pair: 100 us each, 80 where it changes."""
    served_us = [0.0] * 3
    for number, turn in enumerate(turns):
        changed = number > 0 and turns[number - 1] != turn
        served_us[turn] += math.inf if number == len(turns) - 1 else 80.0 if changed else 100.0
    return all(served >= size for served, size in zip(served_us, size_us, strict=True))
