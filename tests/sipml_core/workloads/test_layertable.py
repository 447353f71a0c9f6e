"""A table of layers: counts by hand, the models it can say, refusals."""

import pytest

from sipml_core.errors import ConfigError
from sipml_core.experiment import read_experiment, resolved_tables
from sipml_core.model import Phase
from sipml_core.plugin import load
from sipml_core.workloads import LayerTable
from sipml_core.workloads.layertable import LayerRow

#: One Llama layer, twice: hidden 32, 4 heads on 2 of keys, feed-forward 48, 50 tokens.
BLOCK = (
    {"kind": "norm", "rms": True},
    {"kind": "attention", "heads": 4, "groups": 2},
    {"kind": "norm", "rms": True},
    {"kind": "dense", "features": 48, "activation": "swiglu", "bias": False},
)
DECODER = (
    {"kind": "embedding", "rows": 50, "features": 32},
    *BLOCK,
    {"kind": "repeat", "times": 2},
    {"kind": "norm", "rms": True},
)


def table(*rows, classes=50, **options):
    layers = tuple(LayerRow(**row) for row in rows)
    return LayerTable(LayerTable.Options(layers=layers, classes=classes, **options))


def forward(graph, kind):
    return sum(op.flops for op in graph.ops if op.phase is Phase.FORWARD and op.kind == kind)


def test_a_perceptron_by_hand():
    """8 -> 16 -> 3 with biases: 8 * 16 + 16 + 16 * 3 + 3 parameters, 2 FLOPs for each weight and sample."""
    model = table({"kind": "dense", "features": 16, "activation": "relu"}, classes=3, features=8)
    graph = model.graph(5, "fp32")
    assert graph.parameter_elements == 8 * 16 + 16 + 16 * 3 + 3
    assert forward(graph, "matmul") == 5 * 2 * (8 * 16 + 16 * 3)
    assert model.sample_tokens is None
    assert model.token_flops is None


def test_a_convolutional_network_by_hand():
    """8 x 8 x 3 pictures, 3 x 3 kernels at stride 2: 4 x 4 x 6, normalised, averaged, 10 classes."""
    model = table(
        {"kind": "conv", "channels": 6, "kernel": 3, "stride": 2}, {"kind": "norm"}, classes=10, image=8
    )
    graph = model.graph(2, "fp32")
    assert graph.parameter_elements == 9 * 3 * 6 + 2 * 6 + 6 * 10 + 10
    assert forward(graph, "conv") == 2 * 2 * 16 * 9 * 3 * 6
    assert forward(graph, "pool") == 2 * 16 * 6


def test_experts_by_hand():
    """A router of 8 x 4, and 4 experts of 3 x 8 x 12, of which a token meets 2."""
    model = table(
        {"kind": "embedding", "rows": 20, "features": 8},
        {"kind": "moe", "experts": 4, "per_token": 2, "features": 12, "residual": True},
        classes=20, sequence=6,
    )  # fmt: skip
    graph = model.graph(1, "mixed")
    weights = 8 * 4 + 4 * 3 * 8 * 12
    assert graph.parameter_elements == 20 * 8 + weights + 20 * 8 + 20
    assert forward(graph, "matmul") == 6 * 2 * (8 * 4 + 2 * 3 * 8 * 12 + 20 * 8)
    assert model.token_flops.products == 6 * (8 * 4 + 2 * 3 * 8 * 12 + 20 * 8)


@pytest.mark.parametrize("attention", ["fused", "plain"])
def test_a_decoder_is_the_llama_of_the_same_sizes(configured, attention):
    """The same products and pairs, but residuals, rotary positions and biases of classes."""
    model = table(*DECODER, sequence=16, attention=attention)
    llama = configured("llama", attention=attention)
    found, known = model.graph(3, "mixed"), llama.graph(3, "mixed")
    assert forward(found, "matmul") == forward(known, "matmul")
    assert forward(found, "attention") == forward(known, "attention")
    assert found.parameter_elements == known.parameter_elements + 50
    assert model.token_flops.products == llama.token_flops.products
    assert model.token_flops.attention == llama.token_flops.attention


def test_rows_are_repeated():
    """The last two rows three times in all."""
    model = table(
        {"kind": "dense", "features": 4}, {"kind": "norm"}, {"kind": "dense", "features": 4},
        {"kind": "repeat", "times": 3, "last": 2}, classes=2, features=4,
    )  # fmt: skip
    names = [op.name for op in model.graph(1, "fp32").ops if op.phase is Phase.FORWARD]
    assert names[:7] == ["dense0", "norm1", "dense2", "norm3", "dense4", "norm5", "dense6"]


@pytest.mark.interconnects
def test_a_table_is_read_from_an_experiment_and_repeats_itself():
    """Resolved options are the tables that were read; nothing of another kind of layer is in them."""
    tables = {
        "title": "t",
        "cluster": {"gpus": 4, "bandwidth_gbps": 100.0},
        "plan": {"mp": 2, "dp": 2, "global_batch": 4},
        "workload": [
            {"name": "layers", "layers": [dict(row) for row in DECODER], "classes": 50, "sequence": 16}
        ],
        "topology": [{"name": "elect-flat"}],
    }
    experiment = read_experiment(tables, load())
    resolved = resolved_tables(experiment)
    assert resolved["workload"][0]["layers"] == list(DECODER)
    assert read_experiment(resolved, load()) == experiment


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"kind": "dense"}], {"features": 4}, r"layers\[0\]\.features is required of a layer of kind"),
        (
            [{"kind": "norm", "heads": 2}],
            {"features": 4},
            r"layers\[0\]\.heads is no size of a layer of kind 'norm'; allowed: rms",
        ),
        ([], {"features": 4}, "layers must have at least one layer"),
        ([{"kind": "dense", "features": 4}], {}, "features is required where the first layer is of kind"),
        ([{"kind": "conv", "channels": 4}], {}, "image is required where the first layer is a conv"),
        (
            [{"kind": "attention", "heads": 3}],
            {"features": 4},
            "heads must divide 4, got 3; nearest: 2",
        ),
        (
            [{"kind": "attention", "heads": 4, "groups": 3}],
            {"features": 4},
            "groups must divide 4, got 3; nearest: 2",
        ),
        (
            [{"kind": "dense", "features": 5, "residual": True}],
            {"features": 4},
            "dense has a residual, so it must make the 4 features that it reads, got 5",
        ),
        (
            [{"kind": "dense", "features": 4}, {"kind": "conv", "channels": 4}],
            {"features": 4},
            "a conv reads pictures",
        ),
        (
            [{"kind": "dense", "features": 4}, {"kind": "embedding", "rows": 4, "features": 4}],
            {"features": 4},
            "an embedding can only be the first layer",
        ),
        (
            [{"kind": "norm"}, {"kind": "repeat", "times": 2, "last": 2}],
            {"features": 4},
            r"layers\[1\]\.last must be at most the 1 layers before it that are no embedding, got 2",
        ),
        (
            [{"kind": "norm"}, {"kind": "repeat", "times": 1000}, {"kind": "norm"}],
            {"features": 4},
            "layers must be at most 1000, repeated ones counted, got 1001",
        ),
        (
            [{"kind": "moe", "experts": 2, "per_token": 3, "features": 4}],
            {"features": 4},
            "per_token must be at most the 2 experts, got 3",
        ),
        ([{"kind": "conv", "channels": 4, "kernel": 9}], {"image": 8}, "must be at most 8, got 9, 1"),
        ([{"kind": "norm"}], {"features": 4, "curve": "paper"}, "curve: the paper has no point"),
    ],
)  # fmt: skip
def test_layers_that_do_not_fit_are_refused(rows, options, message):
    """Where, what, and what is allowed."""
    with pytest.raises(ConfigError, match=message):
        table(*rows, **options)


def test_an_unknown_kind_names_those_that_are_known():
    with pytest.raises(ConfigError, match=r"kind must be one of .*dense.*, got 'dens'"):
        LayerRow(kind="dens")
