"""Parameters and FLOPs of the models: published totals, and hand arithmetic layer by layer."""

import pytest

from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.model.opgraph import Phase, Role
from sipml_core.workloads import SIZED_WORKLOADS, Gpt, Megatron, ResNet50, Transformer
from sipml_core.workloads.backward import ADAM_FLOPS

MATRIX_KINDS = {"conv", "matmul", "attention"}


def matrix_flops(graph, phase):
    return sum(op.flops for op in graph.ops if op.phase is phase and op.kind in MATRIX_KINDS)


def parameters(graph, prefix):
    return sum(t.elements for t in graph.tensors if t.role is Role.PARAMETER and t.name.startswith(prefix))


@pytest.fixture(scope="module")
def resnet():
    return ResNet50(ResNet50.Options()).graph(1, "fp32")


def test_resnet50_has_the_published_parameters(resnet):
    """25 557 032: torchvision's table of models, resnet50."""
    assert resnet.parameter_elements == 25_557_032


def test_resnet50_layers_by_hand(resnet):
    """Stem 7*7*3*64 + 2*64; the first block 64*64 + 9*64*64 + 64*256 + 64*256, norms 2*(64+64+256+256)."""
    assert parameters(resnet, "stem") == 9408 + 128
    assert parameters(resnet, "stage1.0") == 4096 + 36864 + 16384 + 16384 + 1280
    assert parameters(resnet, "fc") == 2048 * 1000 + 1000


def test_resnet50_has_53_convolutions_and_norms(resnet):
    """1 + 3 * (3 + 4 + 6 + 3) + 4 shortcuts."""
    forward = [op for op in resnet.ops if op.phase is Phase.FORWARD]
    assert sum(op.kind == "conv" for op in forward) == 53
    assert sum(op.kind == "norm" for op in forward) == 53


def test_resnet50_forward_is_4_09_gmac(resnet):
    """torchvision gives 4.09 GMAC for v1.5. By hand: per stage, over output positions p^2."""
    macs = 112**2 * 49 * 3 * 64 + 2048 * 1000
    before = 64
    for blocks, c, p, stride in ((3, 64, 56, 1), (4, 128, 28, 2), (6, 256, 14, 2), (3, 512, 7, 2)):
        first = (p * stride) ** 2 * before * c
        shortcut = p**2 * before * 4 * c
        macs += first + shortcut + (blocks - 1) * p**2 * 4 * c * c
        macs += blocks * p**2 * (9 * c * c + 4 * c * c)
        before = 4 * c
    assert macs == pytest.approx(4.09e9, rel=0.001)
    assert matrix_flops(resnet, Phase.FORWARD) == 2 * macs


def test_backward_of_matrix_ops_is_twice_the_forward(resnet):
    """Data and weight gradient cost what the forward op costs; images need no gradient."""
    stem = 2 * 112**2 * 49 * 3 * 64
    assert matrix_flops(resnet, Phase.BACKWARD) == 2 * matrix_flops(resnet, Phase.FORWARD) - stem


def test_flops_and_activations_scale_with_samples():
    """Twice the samples: twice the forward FLOPs, the same parameters."""
    one, two = (ResNet50(ResNet50.Options()).graph(n, "mixed") for n in (1, 2))
    assert two.flops(Phase.FORWARD) == 2 * one.flops(Phase.FORWARD)
    assert two.flops(Phase.OPTIMIZER) == one.flops(Phase.OPTIMIZER)


def test_transformer_parameters_by_hand():
    """Encoder layer 12 h^2 + 13 h, decoder layer 16 h^2 + 19 h, one vocabulary matrix: 356 M."""
    graph = Transformer(Transformer.Options()).graph(1, "mixed")
    h = 1024
    assert parameters(graph, "encoder0.") == 12 * h * h + 13 * h
    assert parameters(graph, "decoder0.") == 16 * h * h + 19 * h
    assert graph.parameter_elements == 11 * (28 * h * h + 32 * h) + 32000 * h == 356_089_856


def test_transformer_flops_by_hand():
    """Two FLOPs per weight and token, attention 4 s t h, the decoder's keys from the source."""
    o = Transformer.Options(source_sequence=96, target_sequence=64)
    graph = Transformer(o).graph(3, "mixed")
    h, s, t = 1024, 96, 64
    encoder = 2 * s * 12 * h * h + 4 * s * s * h
    decoder = 2 * t * (4 + 2 + 8) * h * h + 2 * s * 2 * h * h + 4 * t * t * h + 4 * t * s * h
    total = 3 * (11 * (encoder + decoder) + 2 * t * h * 32000)
    assert matrix_flops(graph, Phase.FORWARD) == total
    assert matrix_flops(graph, Phase.BACKWARD) == 2 * total


@pytest.mark.parametrize(("layers", "hidden", "heads"), [(12, 768, 12), (16, 1536, 16)])
def test_gpt_flops_follow_the_megatron_formula(layers, hidden, heads):
    """24 n s h^2 (1 + s / 6h) per layer and 2 n s h V: Narayanan et al. 2021, appendix."""
    n, s, v = 2, 2048, 51200
    options = Gpt.Options(layers=layers, hidden=hidden, heads=heads, sequence=s, vocabulary=v)
    graph = Gpt(options).graph(n, "mixed")
    formula = layers * 24 * n * s * hidden**2 * (1 + s / (6 * hidden)) + 2 * n * s * hidden * v
    assert matrix_flops(graph, Phase.FORWARD) == pytest.approx(formula, rel=1e-12)
    assert matrix_flops(graph, Phase.BACKWARD) == pytest.approx(2 * formula, rel=1e-12)


def test_gpt2_medium_has_the_known_parameters():
    """354 823 168: GPT-2 medium as published (Hugging Face, gpt2-medium)."""
    assert Gpt(Gpt.Options()).graph(1, "fp32").parameter_elements == 354_823_168


def test_megatron_is_18_billion_in_a_few_thousand_ops():
    """V h + s h + 40 (12 h^2 + 13 h) + 2 h; a graph is metadata, of a size that goes with the layers."""
    graph = Megatron(Megatron.Options()).graph(8, "mixed")
    assert len(graph.ops) < 100 * 40
    h = 6144
    assert graph.parameter_elements == 51200 * h + 2048 * h + 40 * (12 * h * h + 13 * h) + 2 * h
    assert graph.parameter_elements == 18_449_756_160


@pytest.mark.parametrize("workload", SIZED_WORKLOADS)
def test_optimizer_counts_adam_for_what_each_op_uses(workload):
    """12 FLOPs per parameter that an op holds; a tied matrix is updated where each user lives."""
    graph = workload(workload.Options()).graph(1, "mixed")
    for op in graph.ops:
        if op.phase is Phase.OPTIMIZER:
            held = sum(
                graph.tensor[o.tensor].elements
                for o in graph.op[op.follows].reads
                if graph.tensor[o.tensor].role is Role.PARAMETER
            )
            assert op.flops == ADAM_FLOPS * held


@pytest.mark.parametrize(
    ("precision", "activation", "parameter"), [("fp32", 4, 4), ("tf32", 4, 4), ("mixed", 2, 2)]
)
def test_element_sizes_follow_the_precision(precision, activation, parameter):
    """Weights and activations take what `PRECISIONS` says, token numbers 8 bytes, masks 1."""
    graph = Gpt(Gpt.Options(layers=1)).graph(1, precision)
    assert graph.tensor["embedding.weight"].element_bytes == parameter
    assert graph.tensor["layer0.mlp.fc1.y"].element_bytes == activation
    assert graph.tensor["tokens"].element_bytes == 8
    assert graph.tensor["positions.mask"].element_bytes == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 5}, "heads must divide hidden = 1024, got 5; nearest: 4"),
        ({"heads": 0}, "heads must be from 1 to 1048576, got 0"),
        ({"layers": 0}, "layers must be from 1 to 1000, got 0"),
        ({"layers": 100_000}, "layers must be from 1 to 1000, got 100000"),
        ({"hidden": 2**31 - 1}, "hidden must be from 1 to 1048576, got 2147483647"),
        ({"sequence": 2**30}, "sequence must be from 1 to 1048576, got 1073741824"),
        ({"vocabulary": 2**63}, "vocabulary must be from 2 to 16777216, got 9223372036854775808"),
        ({"vocabulary": 1}, "vocabulary must be from 2 to 16777216, got 1"),
    ],
)
def test_impossible_shapes_are_refused(options, message):
    """The message names the key, the rule and the value."""
    with pytest.raises(ConfigError, match=message):
        Gpt.Options(**options)


def test_a_batch_whose_elements_cannot_be_counted_is_refused():
    """2^20 pictures of 2^16 x 2^16 x 3 are 3 x 2^52 elements, which no 64-bit product of a few may reach."""
    with pytest.raises(InfeasibleError, match="tensor 'images' has 1048576 x 65536 x 65536 x 3 elements"):
        ResNet50(ResNet50.Options(image=65536)).graph(2**20, "mixed")
    with pytest.raises(ConfigError, match="image must be from 32 to 65536, got 4294967296"):
        ResNet50.Options(image=2**32)


def test_small_images_no_samples_and_unknown_precision_are_refused():
    """Each names what is wrong."""
    with pytest.raises(ConfigError, match="image must be from 32 to 65536, got 16"):
        ResNet50.Options(image=16)
    with pytest.raises(ConfigError, match="samples must be at least 1, got 0"):
        ResNet50(ResNet50.Options()).graph(0, "mixed")
    with pytest.raises(ConfigError, match="no precision 'mixd'; did you mean 'mixed'"):
        ResNet50(ResNet50.Options()).graph(1, "mixd")
