"""The chain of causes through the job of conftest.py, and through queues and dark circuits."""

import attrs
import numpy as np
import pytest

from sipml_core.details import critical_path, last_cause
from sipml_core.engine import CircuitSettings, Recording, simulate
from sipml_core.model import CircuitControl, Fabric, Network, TaskBuilder


def steps(record):
    return [
        (step.what, step.name.split(",")[0], step.since_us, step.until_us) for step in critical_path(record)
    ]


def test_causes_go_through_barriers(record):
    """c waits for the barrier, and that for z, which ends after y."""
    first = record.tasks.compute_tasks
    assert last_cause(record.tasks, record.timeline).tolist() == [-1, first, first + 2, first + 2, 0, 0, 1]


def test_the_critical_path_adds_up_to_the_run(record):
    assert steps(record) == [
        ("compute", "a", 0, 10),
        ("transfer", "GPU 0 -> 1", 10, 16),
        ("compute", "b", 16, 21),
        ("transfer", "GPU 1 -> 2", 21, 24),
        ("compute", "c", 24, 26),
    ]
    assert sum(step.span_us for step in critical_path(record)) == record.timeline.total_us == 26


def recorded(record, builder, network, driver=None):
    """The record of another job, called by its kinds of work."""
    graph = builder.build()
    network = network(graph)
    timeline = simulate(graph, network, driver=driver, recording=Recording())
    none = np.full(graph.compute_tasks, -1)
    return attrs.evolve(
        record, tasks=graph, network=network, timeline=timeline, op=none, micro_batch=none, pass_kind=none,
        part=none, bucket=np.full(graph.transfers, -1), link_name=str,
    )  # fmt: skip


def test_a_transfer_waits_for_the_one_before_in_its_queue_but_not_for_its_latency(record, flat):
    """Two of 2000 bytes on one pair, latency 3 us: 2 us of the first, then 2 us and 3 us of the second."""
    builder = TaskBuilder(3, ("op",))
    builder.transfers([0, 0], [1, 1], 2000.0, [0, 1])
    found = recorded(record, builder, lambda graph: flat(graph, latency_us=3.0))
    assert [(what, since, until) for what, _, since, until in steps(found)] == [
        ("transfer", 0, 2),
        ("transfer", 2, 4),
        ("latency", 4, 7),
    ]


def test_a_busy_gpu_is_waited_for(record, flat):
    """Two tasks of one GPU, both ready at once: the second waits for the first."""
    builder = TaskBuilder(3, ("op",))
    builder.tasks([0, 0], [4.0, 3.0], [0, 1], 0)
    assert steps(recorded(record, builder, flat)) == [("compute", "op", 0, 4), ("compute", "op", 4, 7)]


def test_a_dark_circuit_is_named(record):
    """8 Gbps, dark until 5 us: 1000 bytes leave at 6."""

    class Later:
        interval_us = None

        def decide(self, now_us, sent_bytes, backlog_bytes):
            return CircuitSettings(gbps=[8.0], kept_gbps=[0.0], dark_us=[5.0])

    control = CircuitControl(gpus=3, circuit_gbps=8.0, circuits_per_gpu=1)
    fabric = Fabric.with_ports(circuits=control, port_gbps=8.0)
    builder = TaskBuilder(3, ("op",))
    builder.transfers([0], [1], 1000.0, 0)
    found = recorded(record, builder, lambda graph: Network.of(fabric, graph), Later())
    assert [(what, since, until) for what, _, since, until in steps(found)] == [
        ("dark", 0, 5),
        ("transfer", 5, 6),
    ]
    assert critical_path(found)[0].where == pytest.approx(critical_path(found)[1].where)
