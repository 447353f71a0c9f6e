"""The core's own placers and GPU models pass the suites of a stranger's."""

from sipml_core.gpus import A100, V100
from sipml_core.placement import PLACERS
from sipml_core.testing import GpuModelConformance, PlacerConformance


class TestAlgorithm1(PlacerConformance):
    placer = PLACERS[0]


class TestAligned(PlacerConformance):
    placer = PLACERS[1]


class TestV100(GpuModelConformance):
    gpu_model = V100


class TestA100(GpuModelConformance):
    gpu_model = A100
