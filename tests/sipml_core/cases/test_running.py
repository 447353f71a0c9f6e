"""A job small enough to be worked by hand, from its tables to its result: every number and every ratio."""

import numpy as np
import pytest

from sipml_core.cases import run_experiment
from sipml_core.experiment.reading import read_experiment
from sipml_core.model.fabric import Fabric
from sipml_core.model.routes import Routes
from sipml_core.placement import PLACERS
from sipml_core.plugin.hookspecs import hookimpl
from sipml_core.plugin.interfaces import Convergence, Topology, Workload
from sipml_core.plugin.registry import Source, collect

#: 1 byte in a us.
BYTE_PER_US_GBPS = 0.008


class Switch(Topology):
    """Every GPU sends and receives at its bandwidth."""

    name = "switch"
    summary = "an ideal switch"

    def build(self, cluster):
        gpus = cluster.gpus

        def route(src, dst):
            links = np.column_stack([src, gpus + np.asarray(dst, dtype=np.int64)])
            return Routes(links=links, latency_us=np.zeros(len(links)))

        return Fabric(gpus=gpus, link_gbps=np.full(2 * gpus, cluster.bandwidth_gbps), route=route)


class Slower(Switch):
    """Three quarters of the bandwidth."""

    name = "slower"

    def build(self, cluster):
        gpus = cluster.gpus
        whole = super().build(cluster)
        return Fabric(gpus=gpus, link_gbps=0.75 * whole.link_gbps, route=whole.route)


@pytest.fixture
def run(two_layers, gpu):
    """run(...): the cases of two replicas of a perceptron. [ops of 40 us, gradients of 96 and 120 bytes]"""

    class Perceptron(Workload):
        name = "perceptron"
        summary = "two linear layers"
        default_global_batch = 16

        def graph(self, samples, precision):
            return two_layers(samples)

        def convergence(self, global_batch):
            return Convergence(steps=1000.0, extrapolated=global_batch > 16, source="a test")

    class Plugin:
        @hookimpl
        def sipml_workloads(self):
            return [Perceptron]

        @hookimpl
        def sipml_gpu_models(self):
            return [type(gpu)]

        @hookimpl
        def sipml_placers(self):
            return PLACERS

        @hookimpl
        def sipml_topologies(self):
            return [Switch, Slower]

    registry = collect([(Source(plugin="by-hand", distribution="tests"), Plugin())])

    def cases(topologies=("switch",), baseline=None, **strategy):
        tables = {
            "title": "by hand",
            "baseline": baseline or topologies[0],
            "cluster": {
                "gpus": 2, "bandwidth_gbps": BYTE_PER_US_GBPS, "launch_us": 0, "minimum_op_us": 0,
            },
            "gpu": {"name": "flop-clock", "precision": "fp32"},
            "workload": {
                "name": "perceptron", "strategy": {"mp": 1, "dp": 2, "global_batch": 16, **strategy},
            },
            "topology": [{"name": name} for name in topologies],
        }  # fmt: skip
        return run_experiment(read_experiment(tables, registry)).cases

    return cases


def test_every_number_of_a_result(run):
    """f0 f1 weight1 data1 weight0 take 200 us; then each GPU sends 2 (1/2) (96 + 120) bytes in 216 us; two
    optimizer ops take 80 us. Weights, gradients and Adam's two moments: 4 x 216 bytes; activations of 8
    samples: 4 bytes x 8 x (4 + 6)."""
    (case,) = run()
    expected = {
        "workload": "perceptron", "topology": "switch", "gpus": 2, "bandwidth_gbps": BYTE_PER_US_GBPS,
        "mp": 1, "dp": 2, "global_batch": 16, "scheduler": "", "all_reduce": "flat", "exchange": "direct",
        "iteration_us": 496.0, "compute_us": 280.0, "exposed_us": 216.0, "dark_us": 0.0, "idle_us": 0.0,
        "network_bytes": 432.0, "gradient_bytes": 432.0, "decisions": 0, "steps_to_accuracy": 1000.0,
        "time_to_accuracy_s": 0.496, "extrapolated": False, "speedup": 1.0,
        "notes": ("simulated 1 of 2 groups",),
    }  # fmt: skip
    assert {name: getattr(case, name) for name in expected} == {
        name: pytest.approx(value) if isinstance(value, float) else value for name, value in expected.items()
    }
    assert 280.0 <= case.lower_bound_us <= 496.0
    assert case.memory_bytes > 4 * 216


def test_only_the_last_of_several_iterations_counts(run):
    """Optimizers of this graph write nothing that f0 and f1 wait for: those 80 us of the last iteration run
    while gradients of the one before it are exchanged, and belong to it."""
    (case,) = run(iterations=3)
    assert (case.iteration_us, case.compute_us, case.exposed_us) == pytest.approx((416.0, 200.0, 216.0))
    assert (case.network_bytes, case.gradient_bytes) == pytest.approx((432.0, 432.0))
    assert case.time_to_accuracy_s == pytest.approx(0.416)


@pytest.mark.parametrize("baseline", ["switch", "slower"])
def test_the_speed_up_is_the_time_of_the_baseline_by_the_time_of_the_case(run, baseline):
    """496 us, and 280 + 216 / 0.75 = 568 us."""
    time_us = {"switch": 496.0, "slower": 568.0}
    cases = run(tuple(time_us), baseline=baseline)
    assert {case.topology: case.iteration_us for case in cases} == pytest.approx(time_us)
    speedups = {name: time_us[baseline] / time for name, time in time_us.items()}
    assert {case.topology: case.speedup for case in cases} == pytest.approx(speedups)


def test_a_batch_outside_the_measured_range_is_marked(run):
    (case,) = run(global_batch=32)
    assert case.extrapolated
