"""Laws that every plugin must keep, for the tests of plugin authors; nothing in sipml imports this.

Subclass a suite in a test file and pytest does the rest::

    class TestTorus(TopologyConformance):
        topology = Torus

A failure names the law that broke and the smallest case that breaks it. `options`, `sizes` and the
other class attributes of a suite change what is tried.
"""

from sipml_core.testing.allocatorlaws import AllocatorConformance
from sipml_core.testing.collectivelaws import AllReduceConformance, ExchangeConformance
from sipml_core.testing.estimators import EstimatorConformance
from sipml_core.testing.gpus import GpuModelConformance
from sipml_core.testing.laws import LawBroken
from sipml_core.testing.libraries import CommunicationConformance
from sipml_core.testing.placers import PlacerConformance
from sipml_core.testing.schedulers import SchedulerConformance
from sipml_core.testing.topologies import TopologyConformance
from sipml_core.testing.workloads import WorkloadConformance

__all__ = [
    "AllReduceConformance",
    "AllocatorConformance",
    "CommunicationConformance",
    "EstimatorConformance",
    "ExchangeConformance",
    "GpuModelConformance",
    "LawBroken",
    "PlacerConformance",
    "SchedulerConformance",
    "TopologyConformance",
    "WorkloadConformance",
]
