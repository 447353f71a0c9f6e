"""The core's own placers, GPU models and estimators pass the suites of a stranger's."""

from sipml_core.estimators import Backlog, Oracle, Window
from sipml_core.gpus import A100, V100
from sipml_core.placement import PLACERS
from sipml_core.testing import EstimatorConformance, GpuModelConformance, PlacerConformance


class TestAlgorithm1(PlacerConformance):
    placer = PLACERS[0]


class TestAligned(PlacerConformance):
    placer = PLACERS[1]


class TestV100(GpuModelConformance):
    gpu_model = V100


class TestA100(GpuModelConformance):
    gpu_model = A100


class TestWindow(EstimatorConformance):
    estimator = Window


class TestBacklog(EstimatorConformance):
    estimator = Backlog


class TestOracle(EstimatorConformance):
    estimator = Oracle
