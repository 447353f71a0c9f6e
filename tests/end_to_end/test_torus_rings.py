"""All-reduces over all links of a torus: closed forms, bytes on every link, and what falls back to a ring."""

import math

import numpy as np
import pytest

from sipml_core.cases.case import Case
from sipml_core.cases.compilation import compile_case
from sipml_core.cases.reuse import Reuse
from sipml_core.cases.simulating import Clock, simulate_case
from sipml_core.collectives import TorusRings
from sipml_core.engine.simulation import simulate
from sipml_core.errors import InfeasibleError
from sipml_core.experiment.reading import read_experiment
from sipml_core.lowering.collectives import Rings
from sipml_core.model.groupshape import ReplicaShape, torus_filled
from sipml_core.model.plan import Plan
from sipml_core.model.taskbuilder import TaskBuilder

BYTES_PER_US = 125.0  # of 1 Gbps
SIZE = 8e6


def all_reduce(sizes, steps="fluid"):
    """An all-reduce of `SIZE` bytes over all GPUs of a torus, and nothing else."""
    gpus = math.prod(sizes)
    shape = ReplicaShape(replicas=gpus, devices=1, torus=sizes)
    chosen, builder = TorusRings(None), TaskBuilder(gpus, ("sync",))
    rings = Rings(builder=builder, steps=steps, tier_orders=chosen.orders(shape))
    rings.all_reduce(np.arange(gpus, dtype=np.int32).reshape(1, *chosen.tiers(shape)), SIZE)
    return builder.build()


@pytest.mark.parametrize("steps", ["fluid", "explicit"])
@pytest.mark.parametrize("sizes", [(5,), (4, 4), (3, 3, 3), (2, 2, 2)])
def test_all_links_of_equal_sides_are_busy_all_the_time(timeline_of, sizes, steps):
    """2 (n - 1) / n S at the bandwidth of all 2 D links of a GPU, and every link carries the same."""
    gpus = math.prod(sizes)
    timeline, network = timeline_of(all_reduce(sizes, steps), "torus", 600.0, shape=sizes)
    sent_bytes = 2 * (gpus - 1) / gpus * SIZE
    assert timeline.total_us == pytest.approx(sent_bytes / (600 * BYTES_PER_US), rel=1e-9)
    links = 2 * len(sizes) * gpus
    assert timeline.link_bytes == pytest.approx(np.full(links, sent_bytes / (2 * len(sizes))), rel=1e-9)
    assert len(network.link_gbps) == links


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_gather"])
def test_half_of_an_all_reduce_takes_half_the_time(timeline_of, collective):
    """(n - 1) / n S at the bandwidth of all links, of buckets of S / 3 and 2 S / 3."""
    builder, shape = TaskBuilder(16, ("sync",)), ReplicaShape(replicas=16, devices=1, torus=(4, 4))
    rings = Rings(
        builder=builder, steps="fluid", tiers=(4, 4), tier_orders=TorusRings(None).orders(shape),
        priority=np.array([[0], [1]]),
    )  # fmt: skip
    members = np.tile(np.arange(16, dtype=np.int32), (2, 1))
    getattr(rings, collective)(members, np.array([[SIZE / 3], [SIZE * 2 / 3]]))
    timeline, _ = timeline_of(builder.build(), "torus", 400.0, shape=(4, 4))
    assert timeline.total_us == pytest.approx(15 / 16 * SIZE / (400 * BYTES_PER_US), rel=1e-9)
    assert timeline.link_bytes == pytest.approx(np.full(64, 15 / 16 * SIZE / 4), rel=1e-9)


@pytest.mark.parametrize("sizes", [(3, 6), (4, 8)])
def test_links_of_unequal_sides_carry_the_same(timeline_of, sizes):
    """In pieces, of which some are on their way along rows while others are along columns: the same bound."""
    gpus = math.prod(sizes)
    timeline, _ = timeline_of(all_reduce(sizes), "torus", 400.0, shape=sizes)
    sent_bytes = 2 * (gpus - 1) / gpus * SIZE
    assert timeline.total_us == pytest.approx(sent_bytes / (400 * BYTES_PER_US), rel=1e-9)
    assert timeline.link_bytes == pytest.approx(np.full(4 * gpus, sent_bytes / 4), rel=1e-9)


def test_both_engines_agree(timeline_of, scheduled):
    """Of a torus whose links are shared for a while."""
    tasks = all_reduce((2, 3))
    _, network, _ = scheduled(tasks, "torus", 400.0, shape=(2, 3), hop_latency_us=0.5)
    ours, reference = (simulate(tasks, network, kernel=kernel) for kernel in ("c", "reference"))
    assert ours.end_us == pytest.approx(reference.end_us, rel=1e-12)


@pytest.mark.parametrize("name", ["sip-ring-2d", "sip-ocs-bcube"])
def test_rows_and_columns_of_circuits_carry_all_they_can(timeline_of, name):
    """Each GPU has half of its wavelengths, or links, along its row: as fast as an ideal switch."""
    timeline, _ = timeline_of(all_reduce((4, 4)), name, 1600.0, shape=(4, 4))
    ideal_us = 2 * 15 / 16 * SIZE / (1600 * BYTES_PER_US)
    assert timeline.total_us == pytest.approx(ideal_us, rel=1e-9)


def forms(registry, topology, fold=True, gpus=16, **plan):
    """Variants of a small job on so many GPUs of a network."""
    tables = {
        "title": "torus",
        "cluster": {"gpus": gpus, "bandwidth_gbps": 400},
        "engine": {"fold": "auto" if fold else "never"},
        "workload": {
            "name": "gpt", "layers": 1, "hidden": 256, "heads": 4, "sequence": 64, "vocabulary": 1000,
            "strategy": {"global_batch": gpus, "layout": "tensor", "bucket_bytes": "1 GB", **plan},
        },
        "topology": topology,
    }  # fmt: skip
    experiment = read_experiment(tables, registry)
    case = Case.of(experiment, experiment.jobs[0], experiment.interconnects[0], experiment.jobs[0].plan(gpus))
    return compile_case(case, Reuse())


def test_auto_tries_it_where_replicas_fill_a_torus(registry):
    """mp 4 takes the rows of 4 x 4, so that replicas are columns: one dimension, both ways. Pairs of GPUs are
    no rows."""
    torus = {"name": "torus", "shape": [4, 4]}

    def names(topology, **plan):
        return {form.plan.all_reduce for form in forms(registry, topology, **plan)}

    assert "torus-rings" in names(torus, mp=1, dp=16)
    assert "torus-rings" in names(torus, mp=4, dp=4)
    assert "torus-rings" not in names(torus, mp=2, dp=8)
    assert "torus-rings" in names(torus, mp=1, dp=16, zero=1)
    assert "torus-rings" not in names({"name": "elect-flat"}, mp=1, dp=16)
    with pytest.raises(InfeasibleError, match="whole dimensions, and there is none: use 'flat'"):
        names(torus, mp=2, dp=8, all_reduce="torus-rings")


def test_groups_that_stand_for_all_give_the_time_of_all(registry):
    """A job on a torus repeats along its first dimension: one row of four is simulated."""
    torus = {"name": "torus", "shape": [4, 4]}
    plan = {"mp": 1, "dp": 16, "all_reduce": "torus-rings"}
    (folded,), (whole,) = (forms(registry, torus, fold, **plan) for fold in (True, False))
    assert folded.tasks.gpus == 16
    assert len(folded.tasks.src) == len(whole.tasks.src) / 4
    times_us = [simulate(form.tasks, form.network).total_us for form in (folded, whole)]
    assert times_us[0] == pytest.approx(times_us[1], rel=1e-9)


def test_replicas_that_fill_some_dimensions():
    """On 2 x 3 x 4 groups of four are rows, and their replicas planes of six; and the other way round."""
    plan = Plan(mp=4, dp=6, global_batch=6)
    assert torus_filled(plan.positions, (2, 3, 4)) == (2, 3)
    assert torus_filled(plan.positions.T, (2, 3, 4)) == (4,)
    assert torus_filled(np.array([[0], [2], [1], [3]]), (4,)) == ()


def test_rings_in_two_dimensions_fold_by_rows(registry):
    """8 x 4 with reach 2: columns can be planned by two rows, whose 8 GPUs stand for all 32."""
    grid, found = {"name": "sip-ring-2d", "shape": [8, 4], "reach_hops": 2}, {}
    for fold in (True, False):
        for form in forms(registry, grid, fold, gpus=32, mp=4, exchange="chain"):
            assert len(form.simulated) == (8 if fold else 32)
            time_us = simulate_case(form, Clock(60.0)).row.measured_us
            assert found.setdefault(form.plan.all_reduce, time_us) == pytest.approx(time_us, rel=1e-9)
    assert found.keys() == {"flat", "torus-rings"}


@pytest.mark.parametrize("zero", [1, 3])
def test_shared_states_use_all_links_as_well(registry, zero):
    """The same bytes as on one ring, which takes longer; folded as when all are simulated."""
    torus, found = {"name": "torus", "shape": [4, 4]}, {}
    for fold in (True, False):
        for form in forms(registry, torus, fold, mp=1, dp=16, zero=zero):
            found[form.plan.all_reduce, fold] = simulate(form.tasks, form.network).total_us
            if not fold:
                found[form.plan.all_reduce] = form.tasks.size_bytes.sum()
    assert found["torus-rings"] == pytest.approx(found["flat"], rel=1e-12)
    assert found["torus-rings", True] == pytest.approx(found["torus-rings", False], rel=1e-9)
    assert found["torus-rings", False] < found["flat", False]


@pytest.mark.parametrize(("gbps", "tried"), [(100, True), (50, False)])
def test_it_needs_circuits_to_four_counterparts(registry, gbps, tried):
    """With two wavelengths along a row and two along a column; one each would go one way round only."""
    found = forms(registry, {"name": "sip-ring-2d", "shape": [4, 4], "bandwidth_gbps": gbps}, mp=1, dp=16)
    assert ("torus-rings" in {form.plan.all_reduce for form in found}) == tried
