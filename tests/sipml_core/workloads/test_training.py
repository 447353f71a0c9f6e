"""Every family trains: alone, in a group, with experts spread and sequences shared where it has them."""

import pytest

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

pytestmark = pytest.mark.interconnects

FAMILIES = ("llama", "mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "gpt2", "bert", "vit")
WITH_EXPERTS = ("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss")


@pytest.fixture(scope="module")
def train(configured):
    """train(family, options, **plan): the row of a small model on four GPUs."""

    def run(family, options=(), **plan):
        model = configured(family, **dict(options))
        tables = {
            "title": "t",
            "cluster": {"gpus": 4, "bandwidth_gbps": 100.0},
            "gpu": {"name": "h100"},
            "plan": {"global_batch": 8, "tau_us": 0.01, **plan},
            "workload": [{"name": "hf", "file": model.options.file, **dict(options)}],
            "topology": [{"name": "elect-flat"}],
        }
        (case,) = run_experiment(read_experiment(tables, load())).cases
        return case

    return run


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("attention", "layout"), [("fused", "auto"), ("fused", "tensor"), ("plain", "megatron")]
)
def test_a_group_trains_every_family(train, family, attention, layout):
    """Not sooner than its bound; each of two GPUs of a group has less than one that has all."""
    alone, cut = (
        train(family, {"attention": attention}, mp=mp, dp=4 // mp, layout=layout, micro_batch=2)
        for mp in (1, 2)
    )
    for case in (alone, cut):
        assert case.status == "ok"
        assert case.iteration_us >= case.lower_bound_us * (1 - 1e-9)
    assert cut.memory_bytes < alone.memory_bytes


@pytest.mark.parametrize("family", FAMILIES)
def test_stages_and_recomputation(train, family):
    """Two stages, everything made again: a GPU keeps less than one that has all layers."""
    staged = train(family, mp=1, pp=2, dp=2, micro_batch=1, recompute="full", layout="tensor")
    whole = train(family, mp=1, dp=4, micro_batch=1, layout="tensor")
    assert staged.status == whole.status == "ok"
    assert staged.memory_bytes < whole.memory_bytes


@pytest.mark.parametrize("family", WITH_EXPERTS)
def test_experts_are_spread(train, family):
    """Half of the experts on each of two replicas, which send each other rows."""
    spread = train(family, mp=1, dp=4, ep=2, zero=1)
    whole = train(family, mp=1, dp=4, zero=1)
    assert spread.expert_bytes > 0 == whole.expert_bytes
    assert spread.memory_parameters_bytes < whole.memory_parameters_bytes


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "vit"])
def test_sequences_are_shared(train, family):
    """Half of each sequence on each of two replicas, which send each other keys and values."""
    shared = train(family, mp=2, cp=2, dp=1, layout="tensor")
    assert shared.status == "ok"
    assert shared.context_bytes > 0
    whole = train(family, mp=2, dp=2, layout="tensor", global_batch=16)
    assert shared.memory_activations_bytes == pytest.approx(whole.memory_activations_bytes / 2, rel=0.05)
