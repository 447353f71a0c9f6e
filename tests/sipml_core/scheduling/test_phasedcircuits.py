"""Circuits that are planned for each phase of a job: hand-made jobs, with the exact times."""

import numpy as np
import pytest

from sipml_core.engine.simulation import simulate
from sipml_core.errors import PluginError
from sipml_core.model import (
    GRADIENT,
    TENSOR,
    CircuitControl,
    CircuitPlan,
    Fabric,
    Network,
    TaskBuilder,
    TrafficMatrix,
)
from sipml_core.scheduling.driver import ScheduledCircuits, job_bytes, planned
from sipml_core.scheduling.jobphases import TransferParts, all_job_phases, job_phases
from sipml_core.scheduling.phasedcircuits import PhasedCircuits


def job(gradient_to, iterations=1):
    """Each iteration: GPU 0 sends an activation of 125 000 bytes to 1, where a task of 5 us follows, then one
    on 0; when that has ended it sends a gradient of as many bytes to `gradient_to`, and the next begins."""
    builder = TaskBuilder(3)
    last = None
    for number in range(iterations):
        sent = builder.transfers([0], [1], 125_000.0, 2 * number, kind=TENSOR)
        works = builder.tasks([1, 0], [5.0, 0.0], 0, 0)
        summed = builder.transfers([0], [gradient_to], 125_000.0, 2 * number + 1, kind=GRADIENT)
        builder.depend([sent[0], works[0], works[1]], [works[0], works[1], summed[0]])
        if last is not None:
            builder.depend(last, sent)
        last = summed
    return builder.build(), np.repeat(np.arange(iterations), 2)


@pytest.fixture
def run(fakes):
    def ran(
        tasks,
        iteration,
        *,
        reconfiguration_us=0.0,
        circuits_per_gpu=2,
        phased=True,
        kernel="c",
        scheduler=None,
    ):
        """On circuits of 100 Gbps a GPU in all, asked every 1000 us, or once; the timeline and the driver."""
        control = CircuitControl(
            gpus=tasks.gpus,
            circuit_gbps=100.0 / circuits_per_gpu,
            circuits_per_gpu=circuits_per_gpu,
            interval_us=1000.0 if phased else None,
            reconfiguration_us=reconfiguration_us,
        )
        network = Network.of(Fabric.with_ports(circuits=control, port_gbps=100.0), tasks)
        common = {
            "control": control,
            "scheduler": scheduler or fakes.Turns(),
            "estimator": lambda *, backlog_bytes, **_: backlog_bytes,
            "network": network,
            "total_bytes": job_bytes(network, tasks),
        }
        if phased:
            driver = PhasedCircuits(
                phases=all_job_phases(network, tasks, TransferParts(iteration=iteration)), **common
            )
        else:
            driver = ScheduledCircuits(**common)
        return simulate(tasks, network, driver=driver, kernel=kernel), driver

    return ran


@pytest.mark.parametrize(
    ("phased", "reconfiguration_us", "total_us", "dark_us"),
    [
        (False, 0.0, 45.0, 0.0),  # 125 000 bytes at 50 Gbps: 20; 5; 20
        (True, 0.0, 25.0, 0.0),  # at 100 Gbps: 10; 5; 10
        (True, 4.0, 29.0, 4.0),  # 10; 5; 4 of dark; 10
        (True, 10.0, 45.0, 0.0),  # twice 10 of dark gain no more than twice 10: set once
    ],
)
@pytest.mark.parametrize("kernel", ["c", "reference"])
def test_phases_of_different_pairs(run, phased, reconfiguration_us, total_us, dark_us, kernel):
    """Half of the circuits stand idle where they are set once."""
    timeline, _ = run(*job(2), phased=phased, reconfiguration_us=reconfiguration_us, kernel=kernel)
    assert timeline.total_us == pytest.approx(total_us)
    assert timeline.link_bytes[-2:] == pytest.approx([125_000.0, 125_000.0])
    assert timeline.dark_us[-1] == pytest.approx([dark_us, 0.0, dark_us])


def test_phases_of_one_pair_need_no_change(run):
    """All circuits are where they are needed: 10, 5, 10, and one plan, however fast the change."""
    timeline, driver = run(*job(1))
    assert timeline.total_us == pytest.approx(25.0)
    assert timeline.decisions == 1
    assert driver.note.startswith(
        "circuits are set once: by estimate transfers of an iteration take 20 us so"
    )


def test_iterations_change_back(run):
    """The second activation waits for the change too: twice 10, 5, 4, 10, and 4 between."""
    timeline, driver = run(*job(2, iterations=2), reconfiguration_us=4.0)
    assert timeline.total_us == pytest.approx(29.0 + 4.0 + 29.0)
    assert driver.plans == 4
    assert driver.note == "circuits are planned at the ends of phases of the job"


def test_the_same_set_once(run, fakes):
    """What is tried beside: the plan for the whole job; none where it is that already."""
    tasks, iteration = job(2)
    _, driver = run(tasks, iteration)
    _, once = run(tasks, iteration, reconfiguration_us=10.0)
    assert once.others() == []
    (fresh,) = PhasedCircuits(
        phases=all_job_phases(driver.network, tasks, TransferParts(iteration=iteration)),
        control=driver.control,
        scheduler=fakes.Turns(),
        estimator=None,
        network=driver.network,
        total_bytes=job_bytes(driver.network, tasks),
    ).others()
    assert simulate(tasks, driver.network, driver=fresh).total_us == pytest.approx(45.0)
    assert fresh.choice != driver.choice


def test_stages_have_phases_of_their_own():
    """GPU 1, the last stage, makes its gradient for 2 when the activation of 0 has come; GPU 0 its own for 2
    after that. Until then the plan has nothing of it."""
    builder = TaskBuilder(3)
    activation = builder.transfers([0], [1], 8.0, 0, kind=TENSOR)
    works = builder.tasks([1, 0], 5.0, 0, 0)
    gradients = builder.transfers([1, 0], [2, 2], [4.0, 2.0], [1, 2], kind=GRADIENT)
    builder.depend(
        [activation[0], works[0], works[0], works[1]], [works[0], gradients[0], works[1], gradients[1]]
    )
    tasks = builder.build()
    control = CircuitControl(gpus=3, circuit_gbps=10.0, circuits_per_gpu=2)
    network = Network.of(Fabric.with_ports(circuits=control, port_gbps=20.0), tasks)
    parts = TransferParts(iteration=np.zeros(3, dtype=np.int64), stage=np.array([0, 1, 0]))
    phases = job_phases(network, tasks, parts).phases
    # Nodes: works 0 and 1, then the activation, 2, and the gradients, 3 and 4. Circuits: 0->1, 0->2, 1->2.
    assert [phase.nodes.tolist() for phase in phases] == [[0], [1], [2], [3, 4]]
    total_bytes, found = np.zeros(3), []
    for phase in phases:
        total_bytes = phase.added_to(total_bytes)
        found.append(total_bytes.tolist())
    assert found == [[8.0, 0.0, 0.0], [8.0, 0.0, 4.0], [8.0, 2.0, 4.0], [8.0, 2.0, 4.0]]


def test_a_job_of_gradients_alone_has_no_phases(run):
    builder = TaskBuilder(3)
    builder.transfers([0, 1], [1, 2], 8.0, 0, kind=GRADIENT)
    _, driver = run(builder.build(), np.zeros(2, dtype=np.int64))
    assert driver.phase_nodes == ()
    assert driver.note == "circuits are set once: no iteration sends both activations and gradients"


def test_a_job_without_phases_is_planned_by_interval_where_one_plan_leaves_out_a_pair(run):
    """GPU 0 has one circuit for two pairs: 10 us to GPU 1, and from the first interval on 10 us to GPU 2."""
    builder = TaskBuilder(3)
    builder.transfers([0, 0], [1, 2], 125_000.0, 0, kind=GRADIENT)
    tasks = builder.build()
    timeline, driver = run(tasks, np.zeros(2, dtype=np.int64), circuits_per_gpu=1)
    assert timeline.end_us == pytest.approx([10.0, 1010.0])
    assert driver.note.startswith("circuits are planned after every interval: no iteration sends both")


def test_what_waits_gets_a_circuit_at_the_next_interval(run):
    """One circuit a GPU, and the large activation of GPU 0 waits for a small one, which no plan of the phase
    would serve: 10 us from the first interval on, for what is there, and 10 000 for the large one from the
    second on."""
    builder = TaskBuilder(4)
    sends = builder.transfers([0, 0], [1, 2], [125_000.0, 125_000_000.0], [0, 1], kind=TENSOR)
    gradient = builder.transfers([0], [3], 125_000.0, 2, kind=GRADIENT)
    task = builder.tasks([0], 0.0, 0, 0)
    builder.depend(sends[:1], sends[1:])
    builder.depend(sends[1:], task)
    builder.depend(task, gradient)
    timeline, _ = run(builder.build(), np.zeros(3, dtype=np.int64), circuits_per_gpu=1)
    assert timeline.end_us[1:] == pytest.approx([1010.0, 2000.0 + 10_000.0, 12_010.0])
    assert timeline.link_bytes[-3:] == pytest.approx([125_000.0, 125_000_000.0, 125_000.0])


def test_a_scheduler_that_plans_ahead_is_told_what_the_next_phase_sends(run, fakes):
    """The first phase sends to 1, the next one to 2, and after that nothing is sent."""

    class Ahead(fakes.Turns):
        def __init__(self):
            super().__init__()
            self.told = []

        def plan_ahead(self, control, traffic, previous, later):
            self.told.append((traffic.dst.tolist(), later.dst.tolist(), later.demand.tolist()))
            return self.plan(control, traffic, previous)

    scheduler = Ahead()
    timeline, _ = run(*job(gradient_to=2), scheduler=scheduler)
    assert scheduler.told == [([1], [2], [125_000.0])]
    assert timeline.total_us == pytest.approx(10.0 + 5.0 + 10.0)


def test_what_comes_later_is_planned_for_by_the_scheduler_itself(fakes):
    """`planned` asks `plan_ahead` where a scheduler has it, and checks what that returns as any plan."""
    control = CircuitControl(gpus=3, circuit_gbps=50.0, circuits_per_gpu=2)
    now, later = (TrafficMatrix.from_pairs(3, [0], [to], [1.0]) for to in (1, 2))

    class Greedy(fakes.Turns):
        def plan_ahead(self, control, traffic, previous, later):
            both = [self.plan(control, each, previous) for each in (traffic, later)]
            ends = {"src": [0, 0], "dst": [1, 2], "gbps": np.concatenate([each.gbps for each in both])}
            return CircuitPlan(gpus=3, **ends)

    with pytest.raises(PluginError, match=r"scheduler 'turns': .*4 circuits that start at GPU 0"):
        planned(Greedy(), control, now, None, later)
    assert planned(Greedy(), control, now, None).dst.tolist() == [1]
    assert planned(fakes.Turns(), control, now, None, later).dst.tolist() == [1]


def test_bytes_that_go_by_packets_are_in_no_phase(run, fakes):
    """Nothing is planned for a pair of which the total says 0."""
    tasks, iteration = job(2)
    _, driver = run(tasks, iteration)
    made = PhasedCircuits(
        phases=all_job_phases(driver.network, tasks, TransferParts(iteration=iteration)),
        control=driver.control,
        scheduler=fakes.Turns(),
        estimator=None,
        network=driver.network,
        total_bytes=np.array([125_000.0, 0.0]),
    )
    assert made.plan.dst.tolist() == [1]
