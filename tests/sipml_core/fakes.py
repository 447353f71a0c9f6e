"""The smallest offers of each role: enough to check configuration without any plugin."""

import attrs

from sipml_core.fields.checks import at_least, between
from sipml_core.fields.options import option
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
