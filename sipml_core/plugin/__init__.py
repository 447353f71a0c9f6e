"""The contract with plugins: interfaces to subclass, hooks to implement, the registry of what is installed.

In: entry points of the group ``sipml``. Out: a `Registry` of checked classes by role and name.
Imports only `model`, `fields` and `errors`.
"""

from sipml_core.plugin.deferred import Deferred
from sipml_core.plugin.hookspecs import hookimpl
from sipml_core.plugin.interfaces import (
    Allocator,
    AllReduce,
    Communication,
    Component,
    Convergence,
    DemandForecast,
    Estimator,
    Exchange,
    GpuModel,
    Placer,
    PlansAhead,
    Scheduler,
    Topology,
    WeightedOrder,
    WeightedRing,
    Workload,
)
from sipml_core.plugin.registry import API_VERSION, Entry, Registry, installed, load
from sipml_core.plugin.signals import interrupts_blocked

__all__ = [
    "API_VERSION",
    "AllReduce",
    "Allocator",
    "Communication",
    "Component",
    "Convergence",
    "Deferred",
    "DemandForecast",
    "Entry",
    "Estimator",
    "Exchange",
    "GpuModel",
    "Placer",
    "PlansAhead",
    "Registry",
    "Scheduler",
    "Topology",
    "WeightedOrder",
    "WeightedRing",
    "Workload",
    "hookimpl",
    "installed",
    "interrupts_blocked",
    "load",
]
