"""Laws from a review: gradients element by element, Megatron's all-reduces, dark time, small rings."""

import math

import numpy as np
import pytest
from sipml_ring import plan as ring_plan

from sipml_core.cases.case import Case
from sipml_core.cases.compilation import compile_case
from sipml_core.cases.reuse import Reuse
from sipml_core.engine.simulation import simulate
from sipml_core.errors import ConfigError
from sipml_core.estimators import Window
from sipml_core.experiment.reading import read_experiment
from sipml_core.model.cluster import Cluster
from sipml_core.model.network import Network
from sipml_core.model.opgraph import Role
from sipml_core.model.taskbuilder import TaskBuilder
from sipml_core.model.traffic import TrafficMatrix
from sipml_core.plugin.registry import load
from sipml_core.scheduling.driver import ScheduledCircuits, job_bytes

REGISTRY = load()
GPT = {"layers": 1, "hidden": 32, "heads": 4, "sequence": 16, "vocabulary": 96}
BYTES_PER_US = 125.0  # of 1 Gbps


def compiled(workload, *, mp, dp, layout, global_batch, tau_us):
    """A job on Elect-Flat whose kernels are cut as finely as mp allows."""
    tables = {
        "title": "review",
        "cluster": {"gpus": mp * dp, "bandwidth_gbps": 800, "launch_us": 0, "minimum_op_us": 0},
        "workload": {
            **workload,
            "strategy": {
                "mp": mp, "dp": dp, "layout": layout, "global_batch": global_batch, "tau_us": tau_us,
            },
        },
        "topology": {"name": "elect-flat"},
    }  # fmt: skip
    experiment = read_experiment(tables, REGISTRY)
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


@pytest.mark.parametrize(("mp", "dp"), [(1, 4), (2, 2), (4, 2), (4, 1)])
@pytest.mark.parametrize(
    ("workload", "layout"),
    [
        ({"name": "resnet50"}, "tensor"),
        ({"name": "resnet50"}, "sample"),
        ({"name": "resnet50"}, "auto"),
        ({"name": "gpt", **GPT}, "sample"),
    ],
)
def test_each_parameter_is_synchronised_once_over_those_who_hold_it(workload, layout, mp, dp):
    """Column, row, head, sample and spatial cuts, counted element by element from the op graph."""
    case = compiled(workload, mp=mp, dp=dp, layout=layout, global_batch=4 * dp, tau_us=0.01)
    assert case.traffic.gradients == pytest.approx(bytes_by_element(case, dp), rel=1e-12)
    assert case.tasks.size_bytes.sum() * case.repeats == pytest.approx(case.traffic.total, rel=1e-12)


@pytest.mark.parametrize("layout", ["tensor", "auto"])
def test_a_tied_matrix_is_synchronised_once(layout):
    case = compiled({"name": "gpt", **GPT}, mp=4, dp=2, layout=layout, global_batch=8, tau_us=0.01)
    assert case.traffic.gradients == pytest.approx(bytes_by_element(case, 2), rel=1e-12)


@pytest.mark.parametrize("mp", [2, 4])
def test_a_tensor_parallel_layer_sends_four_all_reduces(mp):
    """Two forward, two backward (Shoeybi et al. 2019, section 3): 4 x 2 (k - 1) S per layer and group."""
    batch, sequence, hidden, dp = 8, 64, 128, 2
    sent = []
    for layers in (2, 3):
        shape = {"layers": layers, "hidden": hidden, "heads": 4, "sequence": sequence, "vocabulary": 512}
        case = compiled(
            {"name": "gpt", **shape}, mp=mp, dp=dp, layout="tensor", global_batch=batch * dp, tau_us=0.001
        )
        element_bytes = case.variant.placement.graph.graph.tensor["embedding.y"].element_bytes
        sent.append(case.traffic.activations)
    size_bytes = batch * sequence * hidden * element_bytes
    assert sent[1] - sent[0] == dp * 4 * 2 * (mp - 1) * size_bytes


def run_on_ring(tasks, bandwidth_gbps, **options):
    topology = REGISTRY.find("topology", "sip-ring")
    cluster = Cluster(gpus=tasks.gpus, bandwidth_gbps=bandwidth_gbps)
    fabric = topology(topology.Options(**options)).build(cluster)
    network = Network.of(fabric, tasks)
    scheduler = REGISTRY.find("scheduler", topology.scheduler)
    driver = ScheduledCircuits(
        control=fabric.circuits,
        scheduler=scheduler(scheduler.Options()),
        estimator=Window(Window.Options()).start(network, tasks),
        network=network,
        total_bytes=job_bytes(network, tasks),
    )
    return simulate(tasks, network, driver=driver), fabric


@pytest.mark.parametrize("gpus", [2, 3, 5, 8, 12, 17, 18, 33])
@pytest.mark.parametrize("wavelengths", [2, 8, 64, 65])
def test_neighbours_on_a_small_ring_use_the_way_round_as_well(gpus, wavelengths):
    """All clockwise wavelengths, one segment each; the way round takes N - 1 of N segments, so each
    counter-clockwise wavelength serves one pair, if that is within reach."""
    builder, here = TaskBuilder(gpus), np.arange(gpus)
    builder.transfers(here, (here + 1) % gpus, 2e4, 0)
    timeline, _ = run_on_ring(builder.build(), 25 * wavelengths)
    half = wavelengths // 2
    around = 0 if gpus - 1 > 16 else half if gpus == 2 else half // gpus
    lit_gbps = 25 * (wavelengths - half + around)
    assert timeline.total_us == pytest.approx(2e4 / (lit_gbps * BYTES_PER_US), rel=1e-9)


def dark_us(interval_us, tau_us):
    """From the decision that changes a ring's only wavelength until it carries again, in `hwsim`."""
    builder = TaskBuilder(40, ("gap",))
    first = builder.transfers([0], [1], 4e5, 0)
    gap = builder.tasks([5], 3000.0, 0, 0)
    second = builder.transfers([0], [2], 1e6, 0)
    builder.depend(first, gap)
    builder.depend(gap, second)
    options = {"reconfiguration": "hwsim", "interval_us": interval_us, "tau_us": tau_us}
    timeline, fabric = run_on_ring(builder.build(), 25, **options)
    decided_us = math.ceil(timeline.start_us[-1] / interval_us - 1e-9) * interval_us
    expected = fabric.circuits.retuning._stages(np.array([100.0])).words_us[0]
    return timeline.end_us[-1] - 1e6 / (25 * BYTES_PER_US) - decided_us, expected


def test_a_retuned_circuit_is_dark_for_as_long_as_its_rings_take():
    measured, expected = dark_us(1000.0, 40.0)
    assert measured == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("interval_us", "tau_us"), [(100.0, 40.0), (20.0, 10.0)])
def test_rings_slower_than_the_interval_between_plans_are_refused(interval_us, tau_us):
    """The next plan would keep the wavelength, and so light at once a circuit that still retunes."""
    with pytest.raises(ConfigError, match="interval_us must exceed"):
        dark_us(interval_us, tau_us)


def test_dark_time_of_slow_rings_is_whole_where_the_interval_has_room():
    """A retune of tau 10 us, with 100 us between plans."""
    measured, expected = dark_us(100.0, 10.0)
    assert measured >= expected * (1 - 1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_what_carries_on_is_what_both_plans_have(seed):
    """Pair, direction and index of every circuit, compared by brute force; no segment used twice."""
    rng = np.random.default_rng(seed)
    gpus, wavelengths = int(rng.integers(3, 36)), int(rng.integers(2, 13))
    before, previous = set(), None
    for _ in range(4):
        demand = np.zeros((gpus, gpus))
        for _ in range(2 * gpus):
            src = int(rng.integers(gpus))
            demand[src, (src + rng.integers(1, 17)) % gpus] += rng.random() ** 3
        np.fill_diagonal(demand, 0)
        plan = ring_plan(TrafficMatrix.from_dense(demand), wavelengths=wavelengths, previous=previous)
        held = plan.circuits
        rows = zip(plan.src[held.pair], plan.dst[held.pair], held.direction, held.index, strict=True)
        circuits = {tuple(int(value) for value in row) for row in rows}
        taken = set()
        for src, dst, direction, index in circuits:
            low, high = (src, dst) if direction == 0 else (dst, src)
            used = {((low + s) % gpus, direction, index) for s in range((high - low) % gpus)}
            assert not used & taken
            taken |= used
        for k, pair in enumerate(zip(plan.src.tolist(), plan.dst.tolist(), strict=True)):
            mine = {circuit for circuit in circuits if circuit[:2] == pair}
            assert plan.gbps[k] == 25 * len(mine)
            if previous is not None:
                assert plan.kept_gbps[k] == 25 * len(mine & before)
                assert (plan.dark_us[k] > 0) == bool(mine - before)
        before, previous = circuits, plan
