"""What `run` and `search` choose from where the experiment leaves it open."""

import attrs
import pytest

from sipml_core.cases.candidates import batches, run_candidates, search_candidates
from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.experiment.reading import read_experiment
from sipml_core.plugin.interfaces import Convergence


@pytest.fixture
def job(fakes, monkeypatch):
    """job(...): a job of the fake workload, whose default batch is 64, measured at the batches given."""

    def read(measured=range(1, 10**9), gpus=4, search=None, workload=None, **strategy):
        tables = {
            "title": "candidates",
            "cluster": {"gpus": gpus, "bandwidth_gbps": 100},
            "workload": {"name": "tiny", "strategy": strategy, "search": search or {}, **(workload or {})},
            "topology": {"name": "switch"},
        }

        def convergence(self, global_batch):
            return Convergence(steps=1.0, extrapolated=global_batch not in measured, source="a test")

        monkeypatch.setattr(fakes.TinyModel, "convergence", convergence)
        return read_experiment(tables, fakes.fake_registry()).jobs[0]

    return read


def test_batches_lie_within_a_factor_of_16_of_the_default(job):
    """Powers of two times 64, where all are measured: 64 / 16 to 64 x 16."""
    assert batches(job(), 4) == [4, 8, 16, 32, 64, 128, 256, 512, 1024]


def test_a_batch_in_the_strategy_takes_the_place_of_the_default(job):
    assert batches(job(global_batch=160), 2) == [10, 20, 40, 80, 160, 320, 640, 1280, 2560]


def test_where_fewer_than_two_are_measured_the_factor_is_4(job):
    """16 to 256, measured or not."""
    for measured in ([], [64]):
        assert batches(job(measured), 4) == [16, 32, 64, 128, 256]


def test_where_two_are_measured_only_they_are_tried(job):
    assert batches(job([4, 1024]), 4) == [4, 1024]


def test_batches_that_are_named_are_tried_whatever_was_measured(job):
    assert batches(job([], search={"global_batches": [7, 3, 7]}), 4) == [3, 7]


def test_batches_are_multiples_of_the_gpus_where_there_is_a_sample_for_each(job):
    """24 GPUs: 4, 8 and 16 are fewer samples than GPUs; 32 is nearer to 24 than to 48, 64 to 72, ..."""
    assert batches(job(), 24) == [4, 8, 16, 24, 72, 120, 264, 504, 1032]


def degrees(candidates):
    return [(candidate.mp, candidate.dp) for candidate in candidates]


#: 12 = 1 x 12 = 2 x 6 = 3 x 4 = 4 x 3 = 6 x 2 = 12 x 1.
DIVISORS = [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]


def test_all_divisors_are_candidates_not_only_powers_of_two(job):
    twelve = job(gpus=12, search={"global_batches": [24]}, global_batch=24)
    assert degrees(search_candidates(twelve, 12)) == DIVISORS
    assert degrees(run_candidates(twelve, 12)) == DIVISORS


def test_run_leaves_out_degrees_that_do_not_divide_the_batch(job):
    """Batch 8: 12, 6 and 3 replicas are refused; named degrees are taken as they are."""
    assert degrees(run_candidates(job(gpus=12, global_batch=8), 12)) == [(3, 4), (6, 2), (12, 1)]
    assert degrees(run_candidates(job(gpus=12, global_batch=12, mp=4), 12)) == [(4, 3)]


def test_run_refuses_a_batch_that_no_degree_divides(job, monkeypatch):
    """There always is mp = N, dp = 1; so only where that is taken away."""
    monkeypatch.setattr("sipml_core.cases.candidates.divisors", lambda gpus: [1, 2])
    with pytest.raises(ConfigError, match="must be a multiple of dp=2"):
        run_candidates(job(gpus=4, global_batch=1), 4)


def test_search_keeps_what_does_not_divide_with_the_reason(job):
    one, two, *_ = search_candidates(job(gpus=8, search={"global_batches": [4]}), 8)
    assert (one.plan, one.mp, one.dp, one.global_batch) == (None, 1, 8, 4)
    assert "multiple of dp=8, got 4" in one.refusal
    assert (two.mp, two.dp, two.plan.global_batch, two.refusal) == (2, 4, 4, "")


def test_layouts_multiply_but_not_for_pure_data_parallelism(job):
    """With mp = 1 there is nothing to cut or to place: one candidate for each batch."""
    both = job(gpus=8, search={"global_batches": [8, 16], "mp": [2], "layouts": ["auto", "sample"]})
    tried = [(c.global_batch, c.mp, c.layout, c.placer) for c in search_candidates(both, 8)]
    assert tried == [
        (batch, mp, layout, "algorithm1")
        for batch in (8, 16)
        for mp, layout in ((1, "auto"), (2, "auto"), (2, "sample"))
    ]


def test_degrees_that_do_not_divide_the_gpus_are_refused(job):
    with pytest.raises(InfeasibleError, match=r"none of search.mp = \[3, 5\] divides 8 GPUs"):
        search_candidates(job(gpus=8, search={"mp": [3, 5]}), 8)


def test_each_placer_named_is_tried(job, fakes):
    """Two of them, under either layout."""
    base = job(gpus=2, search={"global_batches": [4], "mp": [2], "layouts": ["auto", "sample"]})

    class Other(fakes.TinyPlacer):
        name = "other"

    placers = (base.placer, Other(None))
    tried = search_candidates(attrs.evolve(base, placers=placers), 2)
    assert [(c.layout, c.placer) for c in tried[1:]] == [
        ("auto", "algorithm1"), ("auto", "other"), ("sample", "algorithm1"), ("sample", "other"),
    ]  # fmt: skip


def plans(candidates):
    return [
        (
            c.plan.pp,
            c.plan.mp,
            c.plan.dp,
            c.plan.micro_samples,
            c.plan.schedule,
            c.plan.zero,
            c.plan.recompute,
        )
        for c in candidates
        if c.plan
    ]


def test_what_is_named_of_a_plan_multiplies(job):
    """Two numbers of stages, two levels of sharing: each with each degree; the rest as in [plan]."""
    search = {"global_batches": [8], "mp": [2], "pp": [1, 2], "zero": [0, 1]}
    tried = plans(search_candidates(job(gpus=4, search=search, micro_batch=2), 4))
    assert tried == [
        (pp, mp, 4 // pp // mp, 2, "1f1b", zero, "none") for pp in (1, 2) for mp in (1, 2) for zero in (0, 1)
    ]


def test_interleaved_gets_chunks_and_what_does_not_divide_a_reason(job):
    """Two chunks where the plan names none; micro-batches that are no multiple of the stages are refused."""
    search = {
        "global_batches": [6],
        "mp": [1],
        "pp": [2],
        "schedules": ["interleaved"],
        "micro_batches": [1, 3],
    }
    one, two = search_candidates(job(gpus=2, search={**search, "max_bubble": 1.0}), 2)
    assert (one.plan.chunks, one.plan.micro_batches) == (2, 6)
    assert (two.plan.chunks, two.plan.micro_batches) == (2, 2)
    (odd,) = search_candidates(job(gpus=2, search={**search, "micro_batches": [2]}), 2)
    assert odd.plan is None
    assert "needs micro-batches in multiples of pp=2, got 3" in odd.refusal


def test_long_bubbles_are_refused_where_stages_are_searched(job):
    """(p - 1) / (m + p - 1) = 3 / 5 at p = 4, m = 2; named by [plan] alone they are tried."""
    search = {"global_batches": [2], "mp": [1], "pp": [4]}
    (refused,) = search_candidates(job(gpus=4, search=search, micro_batch=1), 4)
    assert refused.refusal == (
        "2 micro-batches in 4 stages leave a GPU waiting for 60% of an iteration, search.max_bubble is 50%"
    )
    (tried,) = search_candidates(job(gpus=4, search={**search, "max_bubble": 0.6}, micro_batch=1), 4)
    assert tried.plan.bubble == 0.6
    del search["pp"]
    (named,) = search_candidates(job(gpus=4, search=search, pp=4, micro_batch=1), 4)
    assert named.plan


def test_the_whole_plan_is_all_that_can_be(job):
    """2 GPUs, batch 4: every number of stages, micro-batch, schedule, level; what is named is kept."""
    search = {"global_batches": [4], "whole_plan": True, "max_bubble": 1.0, "recompute": ["none"]}
    tried = plans(search_candidates(job(gpus=2, search=search), 2))
    alone = {(1, 2, 1, b, "1f1b", 0, "none") for b in (1, 2, 4)}
    replicas = {(1, 1, 2, b, "1f1b", zero, "none") for b in (1, 2) for zero in range(4)}
    stages = {(2, 1, 1, b, s, 0, "none") for b in (1, 2, 4) for s in ("1f1b", "zb-h1")}
    interleaved = {(2, 1, 1, b, "interleaved", 0, "none") for b in (1, 2)}
    assert len(tried) == len(set(tried))
    assert set(tried) == alone | replicas | stages | interleaved


def test_more_recomputed_or_shared_is_needless_where_less_fits(job):
    """Level 3 after 1 and 2, not after 0, which sends as much as 1 and updates more; full after none."""
    search = {"global_batches": [4], "mp": [1], "pp": [1], "micro_batches": [1], "whole_plan": True}
    tried = search_candidates(job(gpus=2, search=search), 2)
    places = {(c.plan.zero, c.plan.recompute): at for at, c in enumerate(tried)}
    after = {key: {tried[other].plan for other in tried[at].needless_after} for key, at in places.items()}
    levels = {key: {(plan.zero, plan.recompute) for plan in plans} for key, plans in after.items()}
    assert levels[0, "none"] == levels[1, "none"] == set()
    assert levels[2, "none"] == {(1, "none")}
    assert levels[3, "none"] == {(1, "none"), (2, "none")}
    assert levels[0, "full"] == {(0, "none"), (0, "selective")}
    assert levels[2, "selective"] == {(1, "none"), (1, "selective"), (2, "none")}
    for at, candidate in enumerate(tried):
        assert all(other != at for other in candidate.needless_after)


def test_stages_divide_the_gpus_that_degrees_are_of(job):
    """8 GPUs in 2 stages: mp x dp is 4 for each candidate."""
    staged = job(gpus=8, pp=2, global_batch=16)
    assert {(c.mp, c.dp) for c in search_candidates(staged, 8)} == {(1, 4), (2, 2), (4, 1)}
    assert {c.plan.pp for c in run_candidates(staged, 8) if c.plan} == {2}
    with pytest.raises(ConfigError, match="pp must divide 9 GPUs, got 2; nearest: 1 or 3"):
        search_candidates(staged, 9)
