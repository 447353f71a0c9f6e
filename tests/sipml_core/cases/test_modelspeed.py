"""Utilisation, exposed time by kind and memory by kind of a small language model, against their formulas."""

import numpy as np
import pytest

from sipml_core.cases import run_experiment
from sipml_core.cases.exposure import exposed_by_kind
from sipml_core.cases.modelspeed import rerun_share
from sipml_core.experiment import read_experiment
from sipml_core.model import GRADIENT, PIPELINE, TENSOR, TaskBuilder, Timeline
from sipml_core.plugin import load
from sipml_core.workloads import Gpt, ResNet50

pytestmark = pytest.mark.interconnects

GPT = {"name": "gpt", "layers": 4, "hidden": 256, "heads": 4, "sequence": 128, "vocabulary": 1000}


def run(workload, **plan):
    tables = {
        "title": "t",
        "cluster": {"gpus": 8, "bandwidth_gbps": 100.0},
        "gpu": {"name": "a100"},
        "plan": {"mp": 2, "pp": 2, "dp": 2, "global_batch": 16, "micro_batch": 2, "layout": "tensor"} | plan,
        "workload": [workload],
        "topology": [{"name": "elect-flat"}],
    }
    (case,) = run_experiment(read_experiment(tables, load())).cases
    return case


@pytest.fixture(scope="module")
def case():
    return run(GPT, recompute="full")


def test_utilisation_by_hand(case):
    """16 samples of 128 tokens; 72 L h^2 (1 + s / 6h + V / 12 L h) FLOPs a token; 312 TFLOP/s of an A100."""
    tokens_per_s_gpu = 16 * 128 / (case.iteration_us * 1e-6) / 8
    token_flops = 72 * 4 * 256**2 * (1 + 128 / (6 * 256) + 1000 / (12 * 4 * 256))
    assert case.tokens_per_s_gpu == pytest.approx(tokens_per_s_gpu)
    assert case.model_tflops_gpu == pytest.approx(tokens_per_s_gpu * token_flops / 1e12)
    assert case.mfu == pytest.approx(tokens_per_s_gpu * token_flops / 312e12)
    half_attention = 6 * 4 * 128 * 256
    assert case.mfu_needed == pytest.approx(tokens_per_s_gpu * (token_flops - half_attention) / 312e12)
    assert case.mfu_needed < case.mfu < case.hfu < case.mfu * 4 / 3


def test_what_tokens_cost(case):
    """300 billion tokens by default, in days of 86 400 s, and hours of all 8 GPUs."""
    seconds = 300e9 / (8 * case.tokens_per_s_gpu)
    assert case.training_days == pytest.approx(seconds / 86_400)
    assert case.training_gpu_hours == pytest.approx(8 * seconds / 3600)
    assert case.time_to_goal_s == pytest.approx(seconds)


def test_bytes_and_waits_by_kind_add_up(case):
    """Gradients are what the row says; what is waited for is what the engine calls exposed."""
    kinds = ("tensor", "pipeline", "expert", "context")
    sent = [getattr(case, f"{kind}_bytes") for kind in kinds]
    assert sum(sent) + case.gradient_bytes == pytest.approx(case.network_bytes)
    assert sent[0] > 0
    assert sent[2:] == [0.0, 0.0]
    waits = [getattr(case, f"{kind}_exposed_us") for kind in (*kinds, "gradient")]
    assert sum(waits) == pytest.approx(case.exposed_us)


def test_a_boundary_of_stages_carries_activations_and_their_gradients(case):
    """Two replicas of 8 samples send 2 x 8 x 128 x 256 x 2 bytes forward, and as much back.

    The embedding, which both stages have, adds nothing: its gradient is summed with those of the replicas.
    """
    assert case.pipeline_bytes == 2 * (2 * 8 * 128 * 256 * 2)


def test_memory_by_kind_is_that_of_the_fullest(case):
    """It adds up, and bf16 weights and gradients take the same; Adam and the fp32 copy 6 times as much."""
    parts = [
        getattr(case, f"memory_{kind}_bytes")
        for kind in ("parameters", "gradients", "optimizer", "activations")
    ]
    assert sum(parts) == pytest.approx(case.memory_bytes)
    assert parts[0] == parts[1] == parts[2] / 6


def test_without_a_recomputation_hardware_does_what_the_model_needs():
    case = run(GPT)
    assert case.hfu == case.mfu


def test_models_that_are_no_language_models_have_no_such_columns():
    case = run({"name": "resnet50", "image": 32}, layout="sample", pp=1, dp=4)
    assert case.tokens_per_s_gpu is None
    assert case.mfu is None
    assert case.tensor_bytes is None


def test_recomputing_everything_adds_a_third():
    """96 in place of 72 (Narayanan et al. 2021), and nothing for another model."""
    gpt = Gpt(Gpt.Options(layers=2))
    graph = gpt.graph(1, "mixed")
    every = np.ones(len(graph.ops), dtype=np.bool_)
    assert rerun_share(graph, gpt, every) == pytest.approx(1 / 3)
    assert rerun_share(graph, gpt, ~every) == 0
    resnet = ResNet50(ResNet50.Options(image=32))
    assert rerun_share(graph, resnet, every) == 0


def timeline(spans):
    start_us, end_us = np.array(spans, dtype=float).T
    none = np.zeros((1, 2))
    return Timeline(
        start_us=start_us, end_us=end_us, snapshot_us=np.array([end_us.max()]), compute_us=none,
        exposed_us=none, dark_us=none, link_bytes=np.zeros(0), link_busy_us=np.zeros(0), events=0,
    )  # fmt: skip


@pytest.fixture
def tasks():
    """A task on GPU 0, and four transfers: tensor in and out, one between stages, one of gradients."""
    builder = TaskBuilder(2)
    builder.tasks(0, 1.0, 0, 0)
    builder.transfers(
        [1, 0, 1, 1], 1 - np.array([1, 0, 1, 1]), 1.0, 0, kind=[TENSOR, TENSOR, PIPELINE, GRADIENT]
    )
    return builder.build()


def test_what_blocks_first_is_blamed_first(tasks):
    """Computes in [2, 4]; tensor in [0, 1] and [3, 5], a stage in [0, 6], gradients in [5, 9].

    So tensor has 1 + 1, the stage [1, 2] and [5, 6], and gradients what is left, [6, 9].
    """
    times = timeline([(2, 4), (0, 1), (3, 5), (0, 6), (5, 9)])
    found = exposed_by_kind(tasks, times, np.array([0]), 0.0, 7.0)
    assert found.tolist() == [2.0, 2.0, 0.0, 0.0, 3.0]


def test_an_earlier_iteration_does_not_count_and_dark_time_is_left_out(tasks):
    """From 4 on: tensor [4, 5], the stage [5, 6], gradients [6, 9]; 2.5 us of these 5 were not dark."""
    times = timeline([(2, 4), (0, 1), (3, 5), (0, 6), (5, 9)])
    found = exposed_by_kind(tasks, times, np.array([0]), 4.0, 2.5)
    assert found.tolist() == [0.5, 0.5, 0.0, 0.0, 1.5]


def test_of_many_changes_some_gpus_stand_for_all(tasks, monkeypatch):
    """With room for a ninth of the changes one GPU of two is looked at: the first."""
    monkeypatch.setattr("sipml_core.cases.exposure.MAX_CHANGES", 5)
    times = timeline([(2, 4), (0, 1), (3, 5), (0, 6), (5, 9)])
    found = exposed_by_kind(tasks, times, np.array([0, 1]), 0.0, 7.0)
    assert found.tolist() == [2.0, 2.0, 0.0, 0.0, 3.0]
