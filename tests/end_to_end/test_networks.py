"""Laws of transfers on every interconnect: closed forms, conservation, and what a degree allows."""

import numpy as np
import pytest

from sipml_core.cases.case import Case
from sipml_core.cases.compilation import compile_case
from sipml_core.cases.reuse import Reuse
from sipml_core.errors import InfeasibleError
from sipml_core.experiment.reading import read_experiment
from sipml_core.lowering.collectives import Rings, ring_allreduce_tasks
from sipml_core.model.taskbuilder import TaskBuilder

BYTES_PER_US = 125.0  # of 1 Gbps


def transfers(gpus, src, dst, size_bytes):
    builder = TaskBuilder(gpus)
    builder.transfers(src, dst, size_bytes, np.zeros(len(src), int))
    return builder.build()


def neighbours(gpus, size_bytes=1e6):
    here = np.arange(gpus)
    return transfers(gpus, here, (here + 1) % gpus, np.full(gpus, size_bytes))


@pytest.mark.parametrize("gpus", [2, 3, 7, 24])
def test_one_permutation_on_optical_switches_is_the_flat_switch(timeline_of, gpus):
    """All Q circuits of B/Q go to the one peer: the time is S / B, as on Elect-Flat."""
    tasks = neighbours(gpus)
    ocs, _ = timeline_of(tasks, "sip-ocs", 1600)
    flat, _ = timeline_of(tasks, "elect-flat", 1600)
    assert ocs.total_us == pytest.approx(1e6 / (1600 * BYTES_PER_US), rel=1e-12)
    assert ocs.total_us == pytest.approx(flat.total_us, rel=1e-12)


@pytest.mark.parametrize("gpus", [40, 64])
def test_one_permutation_on_the_ring_is_the_flat_switch_at_half_bandwidth(timeline_of, gpus):
    """The neighbour is reached clockwise alone, on W/2 wavelengths: the way round is out of reach."""
    tasks = neighbours(gpus)
    ring, _ = timeline_of(tasks, "sip-ring", 1600)
    flat, _ = timeline_of(tasks, "elect-flat", 800)
    assert ring.total_us == pytest.approx(1e6 / (800 * BYTES_PER_US), rel=1e-12)
    assert ring.total_us == pytest.approx(flat.total_us, rel=1e-12)


@pytest.mark.parametrize(("name", "options"), [("elect-flat", {}), ("elect-cluster", {}), ("sip-ocs", {})])
def test_half_the_bandwidth_takes_twice_as_long(timeline_of, name, options):
    """A job of transfers alone, without latency, on a network that does not change while it runs."""
    rng = np.random.default_rng(3)
    src = rng.integers(0, 12, 60)
    dst = (src + rng.integers(1, 12, 60)) % 12
    tasks = transfers(12, src, dst, rng.integers(1, 10, 60) * 1e4)
    if name == "elect-cluster":
        whole, half = ({"uplink_gbps": 400 * scale} for scale in (1.0, 0.5))
    else:
        whole = half = options
    fast, _ = timeline_of(tasks, name, 1600, **whole)
    slow, _ = timeline_of(tasks, name, 800, **half)
    assert slow.total_us == pytest.approx(2 * fast.total_us, rel=1e-9)


@pytest.mark.parametrize("name", ["elect-flat", "elect-cluster", "sip-ocs", "sip-ring"])
@pytest.mark.parametrize("seed", range(3))
def test_bytes_are_conserved_and_no_link_is_over_full(timeline_of, name, seed):
    """Each link carries the bytes of the transfers that cross it, and no more than its capacity allows
    in the time it was in use; circuits no more than their largest capacity, dark or not."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, 16, 200)
    dst = (src + rng.choice([-3, -2, -1, 1, 2, 3], 200)) % 16
    size = rng.integers(1, 40, 200) * 1e5
    timeline, network = timeline_of(transfers(16, src, dst, size), name, 800)
    expected = np.zeros(len(network.link_gbps))
    for pair, bytes_sent in zip(network.transfer_pair, size, strict=True):
        links = network.pair_links[pair]
        expected[links[links >= 0]] += bytes_sent
    assert timeline.link_bytes == pytest.approx(expected, rel=1e-9)
    hops = (network.pair_links[network.transfer_pair] >= 0).sum(axis=1)
    assert timeline.link_bytes.sum() == pytest.approx((size * hops).sum(), rel=1e-9)
    port_gbps = np.where(network.link_gbps > 0, network.link_gbps, 800.0)
    assert (timeline.link_bytes <= port_gbps * BYTES_PER_US * timeline.link_busy_us * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", ["elect-flat", "elect-cluster", "sip-ocs", "sip-ring"])
@pytest.mark.parametrize("gpus", [2, 3, 7, 8, 24, 64])
def test_an_all_reduce_is_never_below_its_bound(timeline_of, name, gpus):
    """2 (n - 1) / n S / B (Patarasuk and Yuan 2009)."""
    size_bytes, bandwidth_gbps = 8e6, 800
    timeline, _ = timeline_of(ring_allreduce_tasks(gpus, size_bytes, steps="fluid"), name, bandwidth_gbps)
    bound_us = 2 * (gpus - 1) / gpus * size_bytes / (bandwidth_gbps * BYTES_PER_US)
    assert timeline.total_us >= bound_us * (1 - 1e-9)
    if name in ("elect-flat", "sip-ocs"):
        assert timeline.total_us == pytest.approx(bound_us, rel=1e-9)


def gradients(gpus, size_bytes, **options):
    """An all-reduce alone."""
    builder = TaskBuilder(gpus, ("sync",))
    Rings(builder=builder, **options).all_reduce(np.arange(gpus, dtype=np.int32)[None], size_bytes)
    return builder.build()


@pytest.mark.parametrize("steps", ["explicit", "fluid"])
def test_two_directions_of_the_ring_carry_twice_as_much(timeline_of, steps):
    """SiP-Ring has W/2 wavelengths each way. One logical ring uses those of one way; two that run against
    each other use all: 2 (n - 1) / n S / B, as on Elect-Flat, where it makes no difference."""
    size_bytes, gpus = 8e6, 40
    bound_us = 2 * (gpus - 1) / gpus * size_bytes / (800 * BYTES_PER_US)
    for counter_rotating, ring_us in ((False, 2 * bound_us), (True, bound_us)):
        tasks = gradients(gpus, size_bytes, steps=steps, counter_rotating=counter_rotating)
        assert tasks.size_bytes.sum() == pytest.approx(2 * (gpus - 1) * size_bytes, rel=1e-12)
        assert timeline_of(tasks, "sip-ring", 800)[0].total_us == pytest.approx(ring_us, rel=1e-9)
        assert timeline_of(tasks, "elect-flat", 800)[0].total_us == pytest.approx(bound_us, rel=1e-9)


@pytest.mark.parametrize("counter_rotating", [False, True])
@pytest.mark.parametrize(
    ("topology", "bandwidth_gbps"),
    [
        ({"name": "sip-ocs", "switches": 4}, 800),
        ({"name": "sip-ocs", "switches": 8}, 800),
        ({"name": "sip-ring"}, 75),
        ({"name": "sip-ring"}, 150),
        ({"name": "sip-ring"}, 800),
    ],
    ids=lambda value: str(value.get("switches", value["name"])) if isinstance(value, dict) else str(value),
)
@pytest.mark.parametrize(("model", "mp"), [("resnet50", 4), ("transformer", 8), ("resnet50", 16)])
def test_no_gpu_talks_to_more_peers_than_its_degree(
    registry, model, topology, bandwidth_gbps, mp, counter_rotating
):
    """MP uses at most D - 1 peers, the all-reduce one more (paper, section 3.2), and on a ring nobody
    talks beyond the reach: counted over every transfer of the job, collectives included."""
    tables = {
        "title": "degree",
        "cluster": {"gpus": 64, "bandwidth_gbps": bandwidth_gbps},
        "workload": {
            "name": model,
            "strategy": {
                "mp": mp, "dp": 64 // mp, "global_batch": 64, "layout": "tensor", "tau_us": 5,
                "counter_rotating": counter_rotating,
            },
        },
        "topology": topology,
    }  # fmt: skip
    experiment = read_experiment(tables, registry)
    job, interconnect = experiment.jobs[0], experiment.interconnects[0]
    if counter_rotating and bandwidth_gbps == 75:
        with pytest.raises(InfeasibleError, match="degree 3, 2 of it for the ring of dp"):
            compile_case(Case.of(experiment, job, interconnect, job.plan(64)), Reuse())
        return
    forms = compile_case(Case.of(experiment, job, interconnect, job.plan(64)), Reuse())
    assert {form.plan.exchange for form in forms} == {"chain", "direct"}
    for compiled in forms:
        keep_degree_and_reach(compiled)


def keep_degree_and_reach(compiled):
    pairs = np.unique(compiled.tasks.src.astype(np.int64) * 64 + compiled.tasks.dst)
    degree = compiled.fabric.hints.degree
    assert np.bincount(pairs // 64).max() <= degree
    assert np.bincount(pairs % 64).max() <= degree
    if compiled.fabric.hints.reach_hops is not None:
        hops = (pairs % 64 - pairs // 64) % 64
        assert np.minimum(hops, 64 - hops).max() <= compiled.fabric.hints.reach_hops
