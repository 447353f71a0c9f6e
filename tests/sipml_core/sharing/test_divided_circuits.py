"""Jobs on circuits that they share: blocks of a ring as alone, fragments with a part of the wavelengths."""

import attrs
import numpy as np
import pytest

from sipml_core import load, run
from sipml_core.errors import InfeasibleError, PluginError
from sipml_core.model import Cluster, TrafficMatrix
from sipml_core.plugin import Allocator
from sipml_core.scheduling import planned
from sipml_core.sharing import run_shared
from sipml_core.sharing.clusterrun import is_block
from sipml_core.sharing.jobtables import read_shared
from sipml_core.sharing.speeds import Speeds
from sipml_core.sharing.views import View

pytestmark = pytest.mark.interconnects

GPT = {"name": "gpt", "layers": 1, "hidden": 256, "heads": 4, "vocabulary": 512, "sequence": 32}
RING = {"name": "sip-ring", "reach_hops": 8}


def shared(registry, jobs, topology=RING, gpus=32, gbps=200, **sharing):
    tables = {
        "title": "test", "cluster": {"gpus": gpus, "bandwidth_gbps": gbps}, "workload": [GPT],
        "plan": {"global_batch": 240}, "topology": [topology], "sharing": sharing,
        "job": [{"workload": "gpt", "iterations": 10, **job} for job in jobs],
    }  # fmt: skip
    return read_shared(tables, registry)


class Fixed(Allocator):
    """Gives each job the GPUs that are written down for it."""

    name = "fixed"
    summary = "as written down"

    def allocate(self, free, gpus, *, units, number):
        there = np.array(self.options[number], np.int32)
        return there if len(there) == gpus and free[there].all() else None


def placed(registry, places, **options):
    """Return the rows of jobs on the GPUs that are written down."""
    experiment = shared(registry, [{"name": str(k), "gpus": len(p)} for k, p in enumerate(places)], **options)
    return run_shared(attrs.evolve(experiment, allocator=Fixed(places))).rows


def test_a_job_that_has_the_whole_ring_runs_as_in_a_run_of_its_own(registry, tmp_path):
    (row,) = placed(registry, [range(12)], gpus=12)
    file = tmp_path / "own.toml"
    file.write_text(
        "title = 'own'\n[cluster]\ngpus = 12\nbandwidth_gbps = 200\n[plan]\nglobal_batch = 240\nmp = 1\n"
        "[[workload]]\nname = 'gpt'\nlayers = 1\nhidden = 256\nheads = 4\nvocabulary = 512\nsequence = 32\n"
        "[[topology]]\nname = 'sip-ring'\nreach_hops = 8\n"
    )
    (own,) = run(load(file)).cases
    assert row.placed_us == pytest.approx(own.iteration_us, rel=1e-12)


def test_jobs_on_blocks_of_a_ring_run_exactly_as_alone(registry):
    """Blocks 0-7, 8-15, 20-27 and, round the end, 28-3 of a ring of 32 cross segments of their own."""
    alone = placed(registry, [range(8)])[0].placed_us

    found = placed(registry, [range(8), range(8, 16), range(20, 28)])
    assert [row.iteration_us for row in found] == pytest.approx([alone] * 3, rel=1e-12)
    assert placed(registry, [(28, 29, 30, 31, 0, 1, 2, 3)])[0].placed_us == alone


def test_fragments_have_half_of_the_wavelengths_each_and_only_while_both_run(registry):
    """Job 0 lies on both sides of job 1: both are as on a ring of half the bandwidth while they share."""
    first, second = (0, 1, 2, 3, 6, 7), (4, 5)
    whole, half = (placed(registry, [first], gbps=gbps)[0].placed_us for gbps in (200, 100))
    inner, inner_half = (placed(registry, [second], gbps=gbps)[0].placed_us for gbps in (200, 100))
    assert half > 1.1 * whole
    assert inner_half > 1.1 * inner
    rows = placed(registry, [first, second])
    both_us = 10 * min(half, inner_half)
    left = 10 - both_us / max(half, inner_half)
    slower, alone_us = (0, whole) if half > inner_half else (1, inner)
    assert rows[1 - slower].end_us == pytest.approx(both_us)
    assert rows[slower].end_us == pytest.approx(both_us + left * alone_us)


def test_plans_of_divided_wavelengths_exist_side_by_side(registry):
    """Two jobs with all pairs of their GPUs, every second GPU of each: numbers of the second come after."""
    cls = registry.find("topology", "sip-ring")
    control = cls(cls.Options(reach_hops=8)).build(Cluster(gpus=16, bandwidth_gbps=200)).circuits
    half = control.divided(2)
    assert (half.clockwise, half.counterclockwise) == (2, 2)
    planner = registry.find("scheduler", "ring-fast")
    plans = []
    for gpus in (np.arange(0, 8, 2), np.arange(1, 8, 2)):
        src, dst = (ends.ravel() for ends in np.meshgrid(gpus, gpus))
        other = src != dst
        traffic = TrafficMatrix.from_pairs(16, src[other], dst[other], np.ones(other.sum()))
        plans.append(planned(planner(planner.Options()), half, traffic, None))

    def together(shift):
        """Return both plans as one of the whole ring, with the second on wavelengths from `shift` on."""
        paths = [plan.circuits for plan in plans]
        src, dst = (np.concatenate([getattr(plan, end) for plan in plans]) for end in ("src", "dst"))
        order = np.lexsort((dst, src))
        pair = np.argsort(order)[np.concatenate([paths[0].pair, paths[1].pair + len(plans[0].src)])]
        by_pair = np.argsort(pair, kind="stable")
        circuits = attrs.evolve(
            paths[0],
            src=src[order],
            dst=dst[order],
            pair=pair[by_pair].astype(np.int32),
            direction=np.concatenate([each.direction for each in paths])[by_pair],
            index=np.concatenate([paths[0].index, paths[1].index + shift])[by_pair].astype(np.int32),
        )
        joined = {
            name: np.concatenate([getattr(plan, name) for plan in plans])[order]
            for name in ("gbps", "kept_gbps", "dark_us", "demand", "count")
        }
        return attrs.evolve(
            plans[0], src=src[order], dst=dst[order], **joined, period_circuits=circuits, control=control
        )

    control.check(together(2))
    with pytest.raises(PluginError, match="the plan cannot exist"):
        control.check(together(0))


def test_circuits_cannot_be_divided_among_more_than_there_are(registry):
    fabric = built_ring(registry, 16)
    with pytest.raises(InfeasibleError, match="cannot be divided among 5"):
        View.of(fabric, np.arange(4, dtype=np.int32), parts=5)


def built_ring(registry, gpus):
    cls = registry.find("topology", "sip-ring")
    return cls(cls.Options(reach_hops=8)).build(Cluster(gpus=gpus, bandwidth_gbps=200))


def test_blocks_longer_than_the_reach_close_their_ring_by_folding(registry):
    """Ten GPUs with a reach of 8: no circuit from 9 to 0, but of every second one up and down."""
    (row,) = placed(registry, [range(10)])
    assert row.status == "ok"
    assert row.gpus_at == "0-9"


def test_a_job_out_of_reach_takes_a_block_or_waits(registry):
    """0-1 and 20-21 are 18 segments apart, with a reach of 8: the shortest gap is tried, else it waits."""
    rows = placed(registry, [(0, 1, 20, 21), (0, 1)])
    assert rows[0].gpus_at == "0-3"
    jobs = [
        {"name": "a", "gpus": 8}, {"name": "b", "gpus": 16, "iterations": 30}, {"name": "c", "gpus": 8},
        {"name": "d", "gpus": 12, "arrival_us": 1},
    ]  # fmt: skip
    found = {row.job: row for row in run_shared(shared(registry, jobs)).rows}
    assert found["d"].start_us == found["b"].end_us > found["c"].end_us  # 0-7 and 24-31 are too far apart
    switched = {row.job: row for row in run_shared(shared(registry, jobs, front_switch=True)).rows}
    assert switched["d"].start_us == switched["c"].end_us
    assert switched["d"].gpus_at == "16-27"


def test_circuits_of_a_job_stay_on_the_shortest_arc_that_holds_it(registry):
    """Of GPUs 0, 4, 8, 12 on a ring of 16 that is 4 to 0: from 0 to 4 on it are 12 segments, not 4.

    With a reach of 8 GPU 0 has circuits to 8 and 12 only.
    """
    view = View.of(built_ring(registry, 16), np.array([0, 4, 8, 12], np.int32))
    routes = view.fabric.route(np.array([0, 0, 0]), np.array([1, 2, 3])).flat()
    assert np.diff(routes.start).tolist() == [0, 3, 3]


@pytest.mark.parametrize(
    "topology",
    [
        {"name": "sip-ring-2d", "shape": [4, 8]},
        {"name": "sip-ocs-clos", "group_gpus": 8, "uplinks": 4},
        {"name": "sip-ocs-bcube", "shape": [4, 8]},
        {"name": "sip-rails", "server_gpus": 4},
        {"name": "sip-khop", "card_gbps": 50},
    ],
    ids=lambda topology: topology["name"],
)
def test_other_circuits_run_blocks_of_their_units_as_alone(registry, topology):
    """Two rows, groups or pairs of servers share no circuits."""
    alone = placed(registry, [range(8)], topology=topology)[0].placed_us
    found = placed(registry, [range(8), range(8, 16)], topology=topology)
    assert [row.iteration_us for row in found] == pytest.approx([alone] * 2, rel=1e-12)


def test_jobs_in_one_group_of_a_thin_clos_divide_its_links(registry):
    """Both have GPUs in groups 0 and 1, whose 4 links to middle switches are 2 for each."""
    thin = {"name": "sip-ocs-clos", "group_gpus": 8, "uplinks": 4}
    fabric = fabric_of(registry, thin)
    halves = fabric.circuits.divided(2)
    assert halves.uplinks == 2
    assert set(fabric.circuits.contested(np.arange(16), np.array([0]), np.array([8])).tolist()) == {64, 69}


def fabric_of(registry, topology):
    cls = registry.find("topology", topology["name"])
    options = {key: value for key, value in topology.items() if key != "name"}
    return cls(cls.Options(**options)).build(Cluster(gpus=32, bandwidth_gbps=200))


def test_is_block():
    assert is_block(np.array([4, 2, 3]))
    assert not is_block(np.array([1, 3]))


def test_speeds_are_found_once_for_what_is_alike(registry):
    """Blocks anywhere on the ring, of rings of any size, are one simulation."""
    experiment = shared(registry, [{"name": "a", "gpus": 4}])
    speeds = Speeds(
        fabric=built_ring(registry, 32), interconnect=experiment.interconnects[0], kinds=experiment.kinds,
        which=0, least_iterations=6, most_iterations=24,
    )  # fmt: skip
    views = [speeds.placed(0, np.arange(first, first + 4, dtype=np.int32)).view for first in (0, 9, 28)]
    assert len({view.key for view in views}) == 1
