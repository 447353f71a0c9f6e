"""The core's own placers, GPU models, estimators and workloads pass the suites of a stranger's."""

import pytest

from sipml_core.estimators import Backlog, Oracle, Window
from sipml_core.gpus import A100, V100
from sipml_core.placement import PLACERS
from sipml_core.testing import (
    EstimatorConformance,
    GpuModelConformance,
    PlacerConformance,
    WorkloadConformance,
)
from sipml_core.workloads import Gpt, LayerTable, Megatron, ResNet50, Transformer

LAYER = {"layers": 1, "hidden": 64, "heads": 4, "vocabulary": 128}


class TestAlgorithm1(PlacerConformance):
    placer = PLACERS[0]


@pytest.mark.slow
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


class TestResNet50(WorkloadConformance):
    workload = ResNet50
    options = {"image": 32}


class TestTransformer(WorkloadConformance):
    workload = Transformer
    options = {**LAYER, "feed_forward": 128, "source_sequence": 32, "target_sequence": 32}


class TestGpt(WorkloadConformance):
    workload = Gpt
    options = {**LAYER, "sequence": 32}


class TestMegatron(WorkloadConformance):
    workload = Megatron
    options = {**LAYER, "sequence": 32}


class TestLayerTable(WorkloadConformance):
    workload = LayerTable
    options = {
        "layers": [
            {"kind": "embedding", "rows": 128, "features": 64},
            {"kind": "attention", "heads": 4, "groups": 2, "residual": True},
            {"kind": "moe", "experts": 4, "per_token": 2, "features": 32, "residual": True},
        ],
        "classes": 128,
        "sequence": 32,
    }
