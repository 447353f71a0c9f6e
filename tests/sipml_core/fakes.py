"""The smallest component of each role, and results in which every field has a value of its own.

With the components configuration is checked without any plugin; with the results, that each column of
a table or a file shows the field it says.
"""

import attrs
import numpy as np

from sipml_core.fields.checks import at_least, between
from sipml_core.fields.options import option
from sipml_core.model.circuits import CircuitPlan
from sipml_core.model.results import CaseResult
from sipml_core.plugin.hookspecs import hookimpl
from sipml_core.plugin.interfaces import (
    Convergence,
    Estimator,
    GpuModel,
    Placer,
    Scheduler,
    Topology,
    Workload,
)
from sipml_core.plugin.registry import Source, collect
from sipml_core.searching.searchresult import SearchRow
from sipml_core.sweeping import Number


class TinyModel(Workload):
    name = "tiny"
    summary = "a workload of a few ops"
    default_global_batch = 64

    @attrs.frozen(kw_only=True)
    class Options:
        layers: int = option(2, doc="layers", validator=at_least(1))

    def graph(self, samples, precision):
        raise NotImplementedError

    def convergence(self, global_batch):
        return Convergence(steps=100.0, extrapolated=False, source="a test")


class TinyGpu(GpuModel):
    name = "v100"
    summary = "one microsecond for everything"

    @property
    def memory_bytes(self):
        return 16e9

    def op_time_us(self, work):
        return 1.0


class TinyPlacer(Placer):
    name = "algorithm1"
    summary = "places nothing"

    def place(self, graph, limits):
        raise NotImplementedError


class Ring(Topology):
    name = "ring"
    summary = "a ring"
    scheduler = "greedy"

    @attrs.frozen(kw_only=True)
    class Options:
        reach_hops: int = option(16, doc="reach", validator=at_least(1))

    def build(self, cluster):
        raise NotImplementedError


class Switch(Topology):
    name = "switch"
    summary = "a switch"

    def build(self, cluster):
        raise NotImplementedError


class Greedy(Scheduler):
    name = "greedy"
    summary = "a scheduler"

    def plan(self, control, traffic, previous):
        raise NotImplementedError


class Turns(Scheduler):
    """Gives the pairs of each GPU its circuits in turn, the largest demand first; `asked` are the demands."""

    name = "turns"
    summary = "circuits in turn"

    def __init__(self, options=None):
        super().__init__(options)
        self.asked = []

    def plan(self, control, traffic, previous):
        self.asked.append(dict(zip(zip(traffic.src, traffic.dst, strict=True), traffic.demand, strict=True)))
        circuits = np.zeros(traffic.pairs)
        for gpu in range(control.gpus):
            own = np.flatnonzero(traffic.src == gpu)
            own = own[np.argsort(-traffic.demand[own], kind="stable")]
            for turn in range(control.circuits_per_gpu if len(own) else 0):
                circuits[own[turn % len(own)]] += 1
        lit = circuits > 0
        return CircuitPlan(
            gpus=control.gpus,
            src=traffic.src[lit],
            dst=traffic.dst[lit],
            gbps=circuits[lit] * control.circuit_gbps,
        )


class Window(Estimator):
    name = "window"
    summary = "an estimator"

    @attrs.frozen(kw_only=True)
    class Options:
        share: float = option(1.0, doc="share", validator=between(0, 1))

    def start(self, network, tasks):
        raise NotImplementedError


class Fakes:
    """A plugin module."""

    @hookimpl
    def sipml_workloads(self):
        return [TinyModel]

    @hookimpl
    def sipml_gpu_models(self):
        return [TinyGpu]

    @hookimpl
    def sipml_placers(self):
        return [TinyPlacer]

    @hookimpl
    def sipml_topologies(self):
        return [Ring, Switch]

    @hookimpl
    def sipml_schedulers(self):
        return [Greedy]

    @hookimpl
    def sipml_estimators(self):
        return [Window]


def fake_registry():
    return collect([(Source(plugin="fakes", distribution="tests"), Fakes())])


def case_result(**changes):
    """A row of a run: no two fields have the same value, or print the same."""
    fields = dict(
        workload="model", topology="net", options="reach = 7", status="ok", reason="", gpus=24,
        bandwidth_gbps=700.0, mp=3, dp=8, global_batch=96, scheduler="planner",
        all_reduce="two-tier", exchange="chain", iteration_us=1111.0, compute_us=222.0, compute_max_us=288.0,
        exposed_us=333.0, dark_us=44.0, dark_capacity_us=51.0, idle_us=512.0, lower_bound_us=777.0,
        network_bytes=24 * 5.5e6, gradient_bytes=6.6e7, memory_bytes=8.8e9,
        decisions=17, samples_per_s=86_400.0, tokens_per_s=5_500_000.0, goal="accuracy",
        steps_to_accuracy=13_000.0, time_to_accuracy_s=99.0, extrapolated=False,
        speedup=2.5, notes=("first note", "second note"), pp=6, micro_batch=9, schedule="in order", zero=2,
        bubble=0.375,
    ) | changes  # fmt: skip
    return CaseResult(**{"time_to_goal_s": fields["time_to_accuracy_s"], **fields})


def language_result(**changes):
    """A row of a language model: no two of the columns that only such a model has have the same value."""
    fields = dict(
        tokens_per_s_gpu=2146.0, model_tflops_gpu=110.4, mfu=0.354, mfu_needed=0.332, hfu=0.471,
        tensor_exposed_us=421.0, pipeline_exposed_us=44.5, expert_exposed_us=93.5, context_exposed_us=17.5,
        gradient_exposed_us=35.9, tensor_bytes=1.6e9, pipeline_bytes=1.1e8, expert_bytes=1.2e8,
        context_bytes=1.3e8, memory_parameters_bytes=2.1e9, memory_gradients_bytes=2.2e9,
        memory_optimizer_bytes=1.6e9, memory_activations_bytes=6.5e9, training_days=25.3,
        training_gpu_hours=38_830.0,
    ) | changes  # fmt: skip
    return case_result(**fields)


def search_row(**changes):
    """A row of a search that was simulated: no two fields have the same value, or print the same."""
    fields = dict(
        workload="model", topology="net", options="reach = 7", gpus=24, bandwidth_gbps=700.0, mp=3, dp=8,
        global_batch=96, goal="accuracy", layout="tensor", placer="aligned", status="simulated", best=True,
        estimate_us=1200.0,
        iteration_us=1000.0, one_round_us=1150.0, error=0.2, steps_to_accuracy=13_000.0,
        estimate_s=15.6, time_to_accuracy_s=13.0,
        all_reduce="two-tier", exchange="chain", memory_bytes=8.8e9, extrapolated=True, tight_memory=False,
        reason="", pp=5, micro_batch=4, schedule="in order", zero=2, recompute="selective", bubble=0.375,
    ) | changes  # fmt: skip
    return SearchRow(**{"time_to_goal_s": fields["time_to_accuracy_s"], **fields})


def number(**changes):
    """A point of a study: no two fields have the same value, or print the same."""
    fields = dict(
        workload="model", series="Elect-Flat", x=100.0, label="", gpus=24, mp=3, dp=8, global_batch=96,
        iteration_us=4000.0, steps_to_accuracy=1_800_000.0, time_to_accuracy_s=7200.0, estimate_error=-0.25,
        extrapolated=True, tight_memory=False, reason="",
    )  # fmt: skip
    return Number(**{**fields, **changes})
