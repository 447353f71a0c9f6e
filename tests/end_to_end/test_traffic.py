"""Bytes that a job sends: gradients element by element, Megatron's all-reduces, tied embeddings."""

import numpy as np
import pytest

from sipml_core.cases.case import Case
from sipml_core.cases.compilation import compile_case
from sipml_core.cases.reuse import Reuse
from sipml_core.experiment.reading import read_experiment
from sipml_core.model.opgraph import Role

GPT = {"name": "gpt", "layers": 1, "hidden": 32, "heads": 4, "sequence": 16, "vocabulary": 96}


def compiled(registry, workload, *, mp, dp, layout, global_batch, tau_us):
    """A job on Elect-Flat whose kernels are cut as finely as mp allows."""
    tables = {
        "title": "traffic",
        "cluster": {"gpus": mp * dp, "bandwidth_gbps": 800, "launch_us": 0, "minimum_op_us": 0},
        "workload": {
            **workload,
            "strategy": {
                "mp": mp, "dp": dp, "layout": layout, "global_batch": global_batch, "tau_us": tau_us,
            },
        },
        "topology": {"name": "elect-flat"},
    }  # fmt: skip
    experiment = read_experiment(tables, registry)
    job, interconnect = experiment.jobs[0], experiment.interconnects[0]
    return compile_case(Case.of(experiment, job, interconnect, job.plan(mp * dp)), Reuse())[0]


def slices(op, operand, shape, dim, parts, part):
    """What one part of an op touches of a parameter: no parameter here has halos or strides."""
    box = []
    for axis, size in zip(operand.axes, shape, strict=True):
        start, stop = 0, size
        if dim is not None and axis.dim == dim and parts > 1:
            base, larger = divmod(op.dims[dim], parts)
            start = part * base + min(part, larger)
            stop = start + base + (part < larger)
        box.append(slice(start, stop))
    return tuple(box)


def bytes_by_element(case, dp):
    """2 (n l - 1) bytes per byte of each element that n devices of a group make or update."""
    placement = case.variant.placement
    balanced, graph = placement.graph, placement.graph.graph
    holders = {}
    for index, op in enumerate(graph.ops):
        parts = balanced.first[index + 1] - balanced.first[index]
        for operand in dict.fromkeys((*op.reads, *op.writes)):
            tensor = graph.tensor[operand.tensor]
            if tensor.role is Role.GRADIENT:
                held, _ = holders.setdefault(tensor.parameter, (np.zeros(tensor.shape, np.int64), tensor))
                for part in range(parts):
                    device = int(placement.device[balanced.first[index] + part])
                    box = slices(op, operand, tensor.shape, balanced.split_dim[index], parts, part)
                    held[box] |= 1 << device
    total = 0.0
    for held, tensor in holders.values():
        sets, elements = np.unique(held, return_counts=True)
        for devices, count in zip(sets.tolist(), elements.tolist(), strict=True):
            total += 2 * (devices.bit_count() * dp - 1) * count * tensor.element_bytes
    return total


@pytest.mark.parametrize(
    ("workload", "layout", "mp", "dp"),
    [
        ({"name": "resnet50"}, "tensor", 4, 1),
        ({"name": "resnet50"}, "tensor", 2, 2),
        ({"name": "resnet50"}, "sample", 4, 2),
        ({"name": "resnet50"}, "auto", 4, 2),
        *((GPT, "sample", mp, dp) for mp, dp in ((1, 4), (2, 2), (4, 2), (4, 1))),
    ],
)
def test_each_parameter_is_synchronised_once_over_those_who_hold_it(registry, workload, layout, mp, dp):
    """Column, row, head, sample and spatial cuts, counted element by element from the op graph."""
    case = compiled(registry, workload, mp=mp, dp=dp, layout=layout, global_batch=4 * dp, tau_us=0.01)
    assert case.traffic.gradients == pytest.approx(bytes_by_element(case, dp), rel=1e-12)
    assert case.tasks.size_bytes.sum() * case.repeats == pytest.approx(case.traffic.total, rel=1e-12)


@pytest.mark.parametrize("layout", ["tensor", "auto"])
def test_a_tied_matrix_is_synchronised_once(registry, layout):
    case = compiled(registry, GPT, mp=4, dp=2, layout=layout, global_batch=8, tau_us=0.01)
    assert case.traffic.gradients == pytest.approx(bytes_by_element(case, 2), rel=1e-12)


@pytest.mark.parametrize("mp", [2, 4])
def test_a_tensor_parallel_layer_sends_four_all_reduces(registry, mp):
    """Two forward, two backward (Shoeybi et al. 2019, section 3): 4 x 2 (k - 1) S per layer and group."""
    batch, sequence, hidden, dp = 8, 64, 128, 2
    sent = []
    for layers in (2, 3):
        shape = {"layers": layers, "hidden": hidden, "heads": 4, "sequence": sequence, "vocabulary": 512}
        case = compiled(
            registry,
            {"name": "gpt", **shape},
            mp=mp,
            dp=dp,
            layout="tensor",
            global_batch=batch * dp,
            tau_us=0.001,
        )
        element_bytes = case.variant.placement.graph.graph.tensor["embedding.y"].element_bytes
        sent.append(case.traffic.activations)
    size_bytes = batch * sequence * hidden * element_bytes
    assert sent[1] - sent[0] == dp * 4 * 2 * (mp - 1) * size_bytes


def test_a_tied_embedding_is_synchronised_among_its_holders(registry):
    """Cut by features for the lookup and by vocabulary for the logits, an element lies on at most two GPUs
    of a group: 2 (2 l - 1) M bytes at most for each of its two gradients. Other parameters of this GPT are on
    one GPU (2 (l - 1) M) or, norms and biases of rows, on all (2 (k l - 1) M)."""
    mp, dp = 8, 2
    gpt = {"name": "gpt", "layers": 2, "hidden": 64, "heads": 4, "sequence": 16, "vocabulary": 128}
    case = compiled(registry, gpt, mp=mp, dp=dp, layout="tensor", global_batch=8 * dp, tau_us=0.01)
    graph = case.variant.placement.graph.graph
    tied = graph.tensor["embedding.weight"].size_bytes
    once = sum(t.size_bytes for t in graph.tensors if t.role == "parameter" and len(t.shape) > 1) - tied
    on_all = graph.parameter_bytes - tied - once
    at_most = 2 * 2 * (2 * dp - 1) * tied + 2 * (dp - 1) * once + 2 * (mp * dp - 1) * on_all
    assert case.traffic.gradients <= at_most * 1.05
