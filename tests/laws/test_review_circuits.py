"""A reviewer's laws: what a circuit may carry, counted from wavelengths; and defects found, each pinned."""

import numpy as np
import pytest

from sipml_core.circuits.driver import ScheduledCircuits, job_bytes
from sipml_core.circuits.estimators import ESTIMATORS
from sipml_core.circuits.relay import with_relays
from sipml_core.config import read_experiment
from sipml_core.engine.simulate import CircuitSettings, simulate
from sipml_core.errors import ConfigError
from sipml_core.model.cluster import Cluster
from sipml_core.model.network import Network
from sipml_core.parallel.taskbuilder import TaskBuilder
from sipml_core.plugins import load
from sipml_core.prepare import Workbench
from sipml_core.runner import run_experiment

REGISTRY = load()
BYTES_PER_US = 125.0  # of 1 Gbps


def transfers(gpus, src, dst, size_bytes):
    builder = TaskBuilder(gpus)
    builder.transfers(src, dst, size_bytes, np.zeros(len(src), int))
    return builder.build()


def scheduled(tasks, name, bandwidth_gbps, estimator="window", **options):
    topology = REGISTRY.find("topology", name)
    cluster = Cluster(gpus=tasks.gpus, bandwidth_gbps=bandwidth_gbps)
    fabric = topology(topology.Options(**options)).build(cluster)
    network = Network.of(fabric, tasks)
    scheduler = REGISTRY.find("scheduler", topology.scheduler)
    driver = ScheduledCircuits(
        control=fabric.circuits,
        scheduler=scheduler(scheduler.Options()),
        estimator=ESTIMATORS[estimator](network, tasks),
        network=network,
        total_bytes=job_bytes(network, tasks),
    )
    return fabric, network, driver


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
    name, bandwidth_gbps, options, estimator
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


@pytest.mark.parametrize("options", [{"interval_us": 10}, {"tau_us": 20}])
def test_rings_that_settle_slower_than_plans_come_are_refused(options):
    """Up to 29 us at tau 4, up to 131 us at tau 20 (default interval 100): the next plan would take
    circuits that are still dark for kept ones, and light them early."""
    topology = REGISTRY.find("topology", "sip-ring")
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
        return CircuitSettings(gbps=gbps, carried_gbps=gbps, dark_us=np.zeros(self.circuits))


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


def test_relays_serve_what_two_hops_can():
    """All pairs of 4 GPUs alike, 2 switches: circuits to i + 1 and i + 2 reach everybody in two hops."""
    src, dst = np.nonzero(~np.eye(4, dtype=bool))
    tasks = transfers(4, src, dst, np.full(12, 1e6))
    fabric, _, driver = scheduled(tasks, "sip-ocs", 200, switches=2, relay=True)
    network = Network.of(with_relays(fabric, driver.plan), tasks)
    simulate(tasks, network, driver=driver.on(network))


def small_gpt(dp, mp, jitter=0.0, **strategy):
    return read_experiment(
        {
            "title": "review",
            "cluster": {"gpus": mp * dp, "bandwidth_gbps": 800, "jitter": jitter},
            "workload": {
                "name": "gpt", "layers": 2, "hidden": 64, "heads": 4, "sequence": 16, "vocabulary": 128,
                "strategy": {"mp": mp, "dp": dp, "global_batch": 8 * dp, "tau_us": 0.01, **strategy},
            },
            "topology": {"name": "elect-flat"},
        },
        REGISTRY,
    )  # fmt: skip


def test_a_tied_embedding_is_synchronised_among_its_holders():
    """Cut by features for the lookup and by vocabulary for the logits, an element lies on at most two GPUs
    of a group: 2 (2 l - 1) M bytes at most for each of its two gradients. Other parameters of this GPT are on
    one GPU (2 (l - 1) M) or, norms and biases of rows, on all (2 (k l - 1) M)."""
    mp, dp = 8, 2
    experiment = small_gpt(dp, mp, layout="tensor")
    job = experiment.jobs[0]
    prepared = Workbench(experiment=experiment).prepare(
        job, experiment.interconnects[0], job.strategy(mp * dp)
    )[0]
    graph = prepared.placement.graph.graph
    tied = graph.tensor["embedding.weight"].size_bytes
    once = sum(t.size_bytes for t in graph.tensors if t.role == "parameter" and len(t.shape) > 1) - tied
    on_all = graph.parameter_bytes - tied - once
    at_most = 2 * 2 * (2 * dp - 1) * tied + 2 * (dp - 1) * once + 2 * (mp * dp - 1) * on_all
    assert prepared.traffic.gradients <= at_most * 1.05


def test_the_lower_bound_is_one_of_the_iteration_it_stands_beside():
    """With jitter iterations differ: seeds 0 to 7, three iterations each. And it is no empty one: a GPU's
    computation, which most of these iterations consist of, counts in full."""
    for seed in range(8):
        experiment = small_gpt(4, 1, jitter=0.3, iterations=3)
        experiment = type(experiment)(
            **{f.name: getattr(experiment, f.name) for f in experiment.__attrs_attrs__} | {"seed": seed}
        )
        for case in run_experiment(experiment).cases:
            assert case.iteration_us >= case.lower_bound_us * (1 - 1e-9)
            assert case.lower_bound_us >= case.compute_us * (1 - 1e-9)
