"""Circuits that are planned for kinds of traffic: chains with exact times, and laws on any job."""

import itertools

import attrs
import numpy as np
import pytest

from sipml_core.engine.simulation import CircuitSettings, simulate
from sipml_core.model import (
    CONTEXT,
    EXPERT,
    GRADIENT,
    PIPELINE,
    TENSOR,
    CircuitControl,
    CircuitPlan,
    Fabric,
    Network,
    TaskBuilder,
)
from sipml_core.plugin import Scheduler
from sipml_core.scheduling.driver import job_bytes
from sipml_core.scheduling.jobphases import TransferParts, all_job_phases, job_phases
from sipml_core.scheduling.kindphases import Bursts
from sipml_core.scheduling.phasedcircuits import PhasedCircuits

#: GPU 0 sends each kind to a GPU of its own, over 100 Gbps.
TO = {TENSOR: 1, EXPERT: 2, GRADIENT: 3, PIPELINE: 4, CONTEXT: 5}
BYTES_PER_US = 12_500.0


def chain(*sent):
    """GPU 0 sends one after the other: kinds, what each takes at 100 Gbps [us], and to whom, if not `TO`."""
    builder = TaskBuilder(6)
    kinds, sizes_us, to = zip(*((*each, TO[each[0]])[:3] for each in sent), strict=True)
    sizes = np.array(sizes_us) * BYTES_PER_US
    nodes = builder.transfers([0] * len(sent), list(to), sizes, 0, kind=list(kinds))
    builder.depend(nodes[:-1], nodes[1:])
    return builder.build()


def network_of(tasks, reconfiguration_us, circuits_per_gpu, kind=CircuitControl):
    control = kind(
        gpus=tasks.gpus,
        circuit_gbps=100.0 / circuits_per_gpu,
        circuits_per_gpu=circuits_per_gpu,
        interval_us=1000.0,
        reconfiguration_us=reconfiguration_us,
    )
    return control, Network.of(Fabric.with_ports(circuits=control, port_gbps=100.0), tasks)


def bursts_of(network, tasks, parts):
    return Bursts.of(network, tasks, parts, simulate(tasks, network.with_ports_only()))


@pytest.fixture
def drivers(fakes):
    """Return circuits for kinds of a job, and the same with fewer plans, which are tried beside them."""

    def made(
        tasks, reconfiguration_us=0.0, circuits_per_gpu=3, parts=None, kind=CircuitControl, scheduler=None
    ):
        parts = parts or TransferParts(iteration=np.zeros(tasks.transfers, dtype=np.int64), by_kind=True)
        control, network = network_of(tasks, reconfiguration_us, circuits_per_gpu, kind)
        first = PhasedCircuits(
            phases=all_job_phases(network, tasks, parts),
            bursts=bursts_of(network, tasks, parts),
            control=control,
            scheduler=scheduler or fakes.Turns(),
            estimator=lambda *, backlog_bytes, **_: backlog_bytes,
            network=network,
            total_bytes=job_bytes(network, tasks),
        )
        return [first, *first.others()]

    return made


ALTERNATING = [(TENSOR, 10), (EXPERT, 10), (TENSOR, 10), (EXPERT, 10), (GRADIENT, 10)]


@pytest.mark.parametrize(
    ("reconfiguration_us", "times_us"),
    [
        # Apart: 5 x 10, and 4 changes. Together two circuits carry tensors and one experts, 2 x (15 + 30),
        # and after one change gradients 10. Set once, one each: 5 x 30.
        (0.0, [50.0, 100.0, 150.0]),
        (4.0, [66.0, 104.0, 150.0]),
        # A change back is counted, too: apart 50 + 5 r by estimate, together 100 + 2 r.
        (16.0, [114.0, 116.0, 150.0]),
        (17.0, [117.0, 150.0]),
        # 100 + 2 r is no sooner than 150.
        (25.0, [150.0]),
    ],
)
def test_kinds_share_circuits_where_changes_cost_more(drivers, reconfiguration_us, times_us):
    tasks = chain(*ALTERNATING)
    found = drivers(tasks, reconfiguration_us)
    runs = [simulate(tasks, driver.network, driver=driver) for driver in found]
    assert [run.total_us for run in runs] == pytest.approx(times_us)
    for run in runs:
        assert run.link_bytes[-3:] == pytest.approx(np.array([20.0, 20.0, 10.0]) * BYTES_PER_US)
    apart = found[0].note.endswith("phases of the job: tensor, expert, gradient")
    assert apart == (reconfiguration_us < 17)
    assert len({driver.choice for driver in found}) == len(found)


def test_bursts_between_other_pairs_are_of_another_kind(drivers):
    """Tensors to 1 and to 2 in turn have circuits in turn, as tensors and experts have: 66 us."""
    tasks = chain((TENSOR, 10, 1), (TENSOR, 10, 2), (TENSOR, 10, 1), (TENSOR, 10, 2), (GRADIENT, 10, 3))
    driver = drivers(tasks, 4.0)[0]
    assert simulate(tasks, driver.network, driver=driver).total_us == pytest.approx(66.0)
    assert driver.note.endswith(": tensor, tensor (2), gradient")


def test_a_job_of_one_kind_has_the_phases_of_activations_and_gradients(drivers):
    """Node by node and byte by byte."""
    tasks = chain((TENSOR, 10), (TENSOR, 5), (GRADIENT, 10))
    (driver, *_) = drivers(tasks)
    plain = job_phases(driver.network, tasks, TransferParts(iteration=np.zeros(3, dtype=np.int64))).phases
    assert driver.note == "circuits are planned at the ends of phases of the job"
    assert [nodes.tolist() for nodes in driver.phase_nodes] == [phase.nodes.tolist() for phase in plain]


class Replayed:
    """Plans that are given, one for each phase: circuits of each pair of GPU 0."""

    def __init__(self, control, phase_nodes, circuits):
        self.interval_us, self.phase_nodes = control.interval_us, phase_nodes
        self.control, self.gbps = control, np.array(circuits) * control.circuit_gbps
        self.phase = 0

    def begin_phase(self, phase):
        self.phase = phase

    def decide(self, now_us, sent_bytes, backlog_bytes):
        now = self.gbps[self.phase]
        kept = now if now_us == 0 else np.minimum(now, self.gbps[max(self.phase - 1, 0)])
        dark_us = np.where(kept < now, self.control.reconfiguration_us, 0.0)
        return CircuitSettings(gbps=now, kept_gbps=kept, dark_us=dark_us)


@pytest.mark.parametrize("sizes_us", [(10, 10, 10), (30, 5, 20), (2, 40, 8)])
@pytest.mark.parametrize("reconfiguration_us", [0.0, 3.0, 12.0])
def test_plans_are_near_the_best_sequence_of_all(drivers, sizes_us, reconfiguration_us):
    """Two circuits of GPU 0 for three pairs in three phases: no sequence of plans is sooner than all
    transfers one after the other with both. Those that are planned take at most three changes longer, as
    estimated with the one back, or what is estimated to be sooner than that."""
    tasks = chain(*zip((TENSOR, EXPERT, GRADIENT), sizes_us, strict=True))
    found = drivers(tasks, reconfiguration_us, circuits_per_gpu=2)
    plans = [each for each in itertools.product(range(3), repeat=3) if sum(each) <= 2]
    nodes = [np.array([node], dtype=np.int32) for node in range(2)]
    best_us = min(
        simulate(tasks, found[0].network, driver=Replayed(found[0].control, nodes, plan)).total_us
        for plan in itertools.product(plans, repeat=3)
        if all(plan[phase][phase] for phase in range(3))
    )
    found_us = min(simulate(tasks, found[0].network, driver=each).total_us for each in found)
    assert sum(sizes_us) <= best_us * (1 + 1e-9)
    assert best_us <= found_us * (1 + 1e-9)
    assert found_us <= (sum(sizes_us) + 3 * reconfiguration_us) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_kinds_that_share_are_chosen_as_by_trying_all_partitions(drivers, seed):
    """Four kinds in 12 bursts, of 15 partitions; sizes of a log-normal, changes of 2 to 64 us."""
    rng = np.random.default_rng(seed)
    kinds = (TENSOR, PIPELINE, EXPERT, CONTEXT)
    tasks = chain(*zip(kinds * 3, np.tile(rng.lognormal(2, 1, 4), 3), strict=True), (GRADIENT, 5.0))
    driver = drivers(tasks, 2.0 ** (seed + 1), circuits_per_gpu=6)[0]
    parts = TransferParts(iteration=np.zeros(tasks.transfers, dtype=np.int64), by_kind=True)
    bursts = bursts_of(driver.network, tasks, parts)
    estimates = driver._estimates(bursts, np.ones(5, dtype=bool))
    assert len(estimates.kinds) == 4
    times_us = {
        numbers: estimates.shared_us(dict(zip(estimates.kinds, numbers, strict=True)))
        for numbers in itertools.product(range(4), repeat=4)
    }
    assert estimates.best()[1] == pytest.approx(min(times_us.values()))


def any_job(seed, transfers=60, gpus=8):
    """Transfers of random kinds between random GPUs, each after two tasks that follow earlier transfers."""
    rng = np.random.default_rng(seed)
    builder = TaskBuilder(gpus)
    src = rng.integers(gpus, size=transfers)
    dst = (src + rng.integers(1, gpus, size=transfers)) % gpus
    kind = rng.choice([TENSOR, PIPELINE, EXPERT, GRADIENT], size=transfers)
    kind[:4] = TENSOR, EXPERT, GRADIENT, PIPELINE
    sent = builder.transfers(src, dst, rng.integers(1, 100, size=transfers) * 1e4, 0, kind=kind.tolist())
    tasks = builder.tasks(rng.integers(gpus, size=transfers), rng.integers(1, 20, size=transfers), 0, 0)
    builder.depend(tasks, sent)
    before = [rng.integers(0, k, size=2) for k in range(1, transfers)]
    builder.depend(sent[np.concatenate(before)], np.repeat(tasks[1:], 2))
    parts = TransferParts(
        iteration=np.zeros(transfers, dtype=np.int64), stage=(src // (gpus // 2)), by_kind=True
    )
    return builder.build(), parts


class Retaining(Scheduler):
    """A circuit for each pair of GPU 0 that asks; those of the plan before stay, the newest first, where a
    port is left."""

    name = "retaining"
    summary = "circuits that stay"

    def plan(self, control, traffic, previous):
        lit = traffic.dst.tolist()
        before = [] if previous is None else previous.newest
        newest = [*lit, *(to for to in before if to not in lit)][: control.circuits_per_gpu]
        pairs = sorted(newest)
        gbps = [control.circuit_gbps] * len(pairs)
        return Retained(gpus=control.gpus, src=[0] * len(pairs), dst=pairs, gbps=gbps, newest=tuple(newest))


@attrs.frozen(kw_only=True, eq=False)
class Retained(CircuitPlan):
    newest: tuple[int, ...]


@pytest.mark.parametrize("apart_first", [True, False])
def test_an_estimate_follows_the_plan_in_force(drivers, apart_first):
    """Two circuits of 50 Gbps, 4 us dark: each burst takes 20 us. Apart, that of experts is dark once, for
    that of tensors stays beside it; that of gradients is dark, and that of tensors again when they come back:
    5 x 20 + 3 x 4. Together only the last two are. Neither depends on what was asked for before."""
    tasks = chain(*ALTERNATING)
    driver = drivers(tasks, 4.0, circuits_per_gpu=2, scheduler=Retaining(None))[0]
    parts = TransferParts(iteration=np.zeros(tasks.transfers, dtype=np.int64), by_kind=True)
    bursts = bursts_of(driver.network, tasks, parts)
    estimates = driver._estimates(bursts, np.ones(3, dtype=bool))
    expected_us = {(0, 1): 112.0, (0, 0): 108.0}
    for numbers in sorted(expected_us, reverse=apart_first):
        sharing = dict(zip(estimates.kinds, numbers, strict=True))
        assert estimates.shared_us(sharing) == pytest.approx(expected_us[numbers])


@pytest.mark.interconnects
@pytest.mark.parametrize("circuits_per_gpu", [1, 7])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_a_job_sends_is_served(drivers, registry, seed, circuits_per_gpu):
    """One circuit for up to seven pairs of a GPU, or one for each: all ends, on each way that is tried, and
    sends what it has to."""
    scheduler = registry.find("scheduler", "ocs-exact")(None)
    tasks, parts = any_job(seed)
    for driver in drivers(
        tasks, 5.0, circuits_per_gpu=circuits_per_gpu, parts=parts, kind=scheduler.plans, scheduler=scheduler
    ):
        timeline = simulate(tasks, driver.network, driver=driver)
        assert np.isfinite(timeline.end_us).all()
        circuits = slice(driver.network.first_circuit, None)
        assert timeline.link_bytes[circuits] == pytest.approx(job_bytes(driver.network, tasks))


@pytest.mark.parametrize("seed", range(4))
def test_what_the_end_of_a_phase_waits_for_counts_in_it(seed):
    """The bytes that circuits have to carry by then are no less than those of all that its nodes come after,
    and in the end those of the job."""
    tasks, parts = any_job(seed)
    _, network = network_of(tasks, 5.0, 1)
    bursts = bursts_of(network, tasks, parts)
    phases = bursts.runs({kind: kind for kind in bursts.kind.tolist()}).phases().phases
    total_bytes, ended = np.zeros(len(network.circuit_src)), np.zeros(tasks.nodes, dtype=bool)
    edges = np.repeat(np.arange(tasks.nodes), np.diff(tasks.succ_start)), tasks.successors
    for phase in phases:
        total_bytes = phase.added_to(total_bytes)
        ended[phase.nodes] = True
        while (more := ended[edges[1]] & ~ended[edges[0]]).any():
            ended[edges[0][more]] = True
        needed = network.link_bytes(np.where(ended[tasks.compute_tasks :], tasks.size_bytes, 0.0))
        assert (needed[network.first_circuit :] <= total_bytes * (1 + 1e-9)).all()
    assert total_bytes == pytest.approx(job_bytes(network, tasks))
    assert sum(len(phase.nodes) for phase in phases) == tasks.transfers
