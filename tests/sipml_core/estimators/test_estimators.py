"""What schedulers are shown of the next interval."""

import attrs
import numpy as np
import pytest

from sipml_core.engine.simulation import simulate
from sipml_core.estimators import ESTIMATORS
from sipml_core.estimators.oracle import OracleForecast
from sipml_core.model.circuits import CircuitControl
from sipml_core.model.fabric import Fabric
from sipml_core.model.network import Network
from sipml_core.model.routes import Routes
from sipml_core.model.taskgraph import TaskGraph

FORECASTS = {made.name: made(made.Options()).start for made in ESTIMATORS}

#: Bytes that 100 Gbps carries in 1 us.
B = 12_500.0


def circuit_fabric(gpus):
    """Ports of 100 Gbps and a circuit for every pair."""

    def route(src, dst):
        links = np.column_stack([src, fabric.circuit_link(src, dst), gpus + dst])
        return Routes(links=links, latency_us=np.zeros(len(links)))

    fabric = Fabric(
        gpus=gpus,
        link_gbps=np.full(2 * gpus, 100.0),
        route=route,
        circuits=CircuitControl(gpus=gpus, circuit_gbps=25.0, circuits_per_gpu=4),
    )
    return fabric


def alternating():
    """GPU 0 computes 10 us and sends 2 us of bytes to GPU 1, computes 10 us, sends 3 us of bytes to GPU 2."""
    return TaskGraph(
        gpus=3,
        gpu=[0, 0],
        duration_us=[10.0, 10.0],
        priority=[0, 1, 0, 0],
        src=[0, 0],
        dst=[1, 2],
        size_bytes=[2 * B, 3 * B],
        latency_steps=[1.0, 1.0],
        succ_start=[0, 2, 3, 3, 3],
        successors=[1, 2, 3],
        marks=[],
        label=[],
    )


@pytest.fixture
def job():
    tasks = alternating()
    return Network.of(circuit_fabric(3), tasks), tasks


def expect(estimator, now_us, sent, backlog, interval_us=5.0):
    return estimator(
        now_us=now_us,
        interval_us=interval_us,
        sent_bytes=np.array(sent, float),
        backlog_bytes=np.array(backlog, float),
    ).tolist()


def test_window_repeats_the_last_interval_and_adds_what_is_left(job):
    """A pair that sent nothing for want of a circuit is seen by its backlog."""
    assert expect(FORECASTS["window"](*job), 5.0, [3, 0], [1, 4]) == [4.0, 4.0]


def test_backlog_is_what_is_ready_now(job):
    assert expect(FORECASTS["backlog"](*job), 5.0, [3, 0], [1, 4]) == [1.0, 4.0]


class TestOracle:
    """Its record: 2 B become ready for 0 -> 1 at 10 us, 3 B for 0 -> 2 at 20 us."""

    def test_it_knows_what_becomes_ready_in_the_next_interval(self, job):
        oracle = FORECASTS["oracle"](*job)
        assert expect(oracle, 4.0, [0, 0], [0, 0]) == [0.0, 0.0]
        assert expect(oracle, 8.0, [0, 0], [0, 0]) == [2 * B, 0.0]
        assert expect(oracle, 12.0, [B, 0], [B, 0]) == [B, 0.0]
        assert expect(oracle, 16.0, [B, 0], [0, 0]) == [0.0, 3 * B]
        assert expect(oracle, 20.5, [0, 0], [0, 3 * B]) == [0.0, 3 * B]

    def test_its_clock_follows_a_run_that_lags(self, job):
        """Until 95 us nothing was ready: the clock stands at 10 us, where the first transfer is overdue, and
        is not asked for. When it comes the clock runs again, to 15 us at 100 us and to 17 us at 102 us."""
        oracle = FORECASTS["oracle"](*job)
        assert expect(oracle, 95.0, [0, 0], [0, 0]) == [0.0, 0.0]
        assert expect(oracle, 100.0, [0, 0], [2 * B, 0], interval_us=4.0) == [2 * B, 0.0]
        assert expect(oracle, 102.0, [2 * B, 0], [0, 0], interval_us=4.0) == [0.0, 3 * B]

    def test_its_clock_follows_a_run_that_is_ahead(self, job):
        """The second transfer is ready at 11 us: nothing more is to come."""
        oracle = FORECASTS["oracle"](*job)
        assert expect(oracle, 11.0, [2 * B, 0], [0, 3 * B], interval_us=100.0) == [0.0, 3 * B]

    def test_an_overdue_arrival_stands_at_a_little_where_it_is_not_crowded(self, job):
        """A port of 100 Gbps sends 5 B in 5 us, and 3 % of that is 0.15 B: what is asked for 0 -> 1, overdue.
        What was sent in the last interval, and what waits, is asked for without a limit."""
        oracle = OracleForecast(*job, crowded=lambda: False)
        assert expect(oracle, 95.0, [0, 0], [0, 0]) == pytest.approx([0.15 * B, 0.0])
        assert expect(oracle, 100.0, [B, 0], [B, 0]) == [2 * B, 0.0]
        assert expect(oracle, 106.0, [B, 0], [0, 0]) == pytest.approx([B, 0.15 * B])

    def test_whether_it_is_crowded_is_asked_once_and_late(self, job):
        """A plan of equal demands is not made for a run that never asks for circuits."""
        asked = []
        oracle = OracleForecast(*job, crowded=lambda: asked.append(True) or False)
        assert asked == []
        for now_us in (5.0, 10.0, 15.0):
            expect(oracle, now_us, [0, 0], [0, 0])
        assert asked == [True]

    def test_a_recorded_run_may_be_given(self, job):
        """Both transfers ready at 1 us in the record."""
        network, tasks = job
        record = simulate(tasks, network.with_ports_only())
        early = attrs.evolve(record, start_us=np.minimum(record.start_us, 1.0))
        assert expect(OracleForecast(network, tasks, early), 0.0, [0, 0], [0, 0]) == [2 * B, 3 * B]

    def test_over_a_whole_run_it_announces_every_byte_once(self, job):
        """Asked each interval of the recorded run itself, expectations less backlog add up to the job."""
        network, tasks = job
        oracle = OracleForecast(network, tasks)
        announced = np.zeros(2)
        ready_us = np.array([10.0, 20.0])
        for now_us in np.arange(0.0, 40.0, 4.0):
            arrived = np.where(ready_us < now_us, tasks.size_bytes, 0.0)
            before = np.where(ready_us < now_us - 4.0, tasks.size_bytes, 0.0)
            announced += np.array(expect(oracle, now_us, arrived - before, [0, 0], interval_us=4.0))
        assert announced.tolist() == [2 * B, 3 * B]


def test_without_circuits_only_ports_limit(job):
    """The record's second transfer takes 3 us at the port's 100 Gbps."""
    network, tasks = job
    timeline = simulate(tasks, network.with_ports_only())
    assert timeline.end_us.tolist() == pytest.approx([10.0, 20.0, 12.0, 23.0])
