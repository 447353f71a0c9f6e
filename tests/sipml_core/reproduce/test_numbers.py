"""From searches to numbers and verdicts: which field goes where, and which time is divided by which."""

import attrs
import pytest

from sipml_core.executing import InThisProcess
from sipml_core.model.progress import SILENT
from sipml_core.reproduce import numbers as numbers_module
from sipml_core.reproduce.numbers import carry_out, judge, verdicts_on
from sipml_core.reproduce.study import Claim, Study
from sipml_core.searching.searchresult import SearchResult
from sipml_core.store import ResultStore
from sipml_core.sweeping import Point, Series, SweepPoint


def test_hours_milliseconds_and_samples_per_second(fakes):
    """7200 s; 4000 us; 96 samples in 4000 us."""
    number = fakes.number()
    assert (number.time_to_accuracy_h, number.iteration_ms, number.throughput_per_s) == (2.0, 4.0, 24_000.0)
    gap = fakes.number(time_to_accuracy_s=None, iteration_us=None)
    assert (gap.time_to_accuracy_h, gap.iteration_ms, gap.throughput_per_s) == (None, None, None)


def found(rows):
    return SearchResult(
        title="s", seed=0, version="1", baseline="net", experiment={}, rows=tuple(rows), best=(), sources={}
    )


@pytest.fixture
def numbers(fakes, monkeypatch):
    """numbers(rows, series): what a study of one point makes of the rows of its search."""

    def of(rows, *series):
        study = Study(title="s", series=series, point=(Point(x=5.0, set=(), label="five"),))
        study = attrs.evolve(study, experiment=({"title": "s"},))
        monkeypatch.setattr(numbers_module, "read_study", {"s": study}.__getitem__)
        monkeypatch.setattr(
            Study,
            "experiments",
            lambda self, registry, quick: [(SweepPoint(values={}, named=self.point[0]), "an experiment")],
        )
        monkeypatch.setattr(numbers_module, "search", lambda experiments, **_: [found(rows)])
        (finding,) = carry_out(
            ["s"], None, quick=False, executor=InThisProcess(), store=ResultStore(None), progress=SILENT
        )
        return finding.numbers

    return of


BEST = Series(label="best of all", topology="net")
PURE = Series(label="pure", topology="net", pure_dp=True)


def test_each_field_of_a_number_is_that_of_the_fastest_candidate(fakes, numbers):
    rows = [fakes.search_row(time_to_accuracy_s=14.0, mp=6), fakes.search_row(tight_memory=True)]
    (number,) = numbers(rows, BEST)
    assert attrs.asdict(number) == {
        "workload": "model", "series": "best of all", "x": 5.0, "label": "five", "gpus": 24, "mp": 3, "dp": 8,
        "global_batch": 96, "iteration_us": 1000.0, "steps_to_accuracy": 13_000.0, "time_to_accuracy_s": 13.0,
        "estimate_error": 0.2, "extrapolated": True, "tight_memory": True, "reason": "",
    }  # fmt: skip


def test_a_series_of_pure_data_parallelism_takes_the_fastest_of_mp_1(fakes, numbers):
    rows = [fakes.search_row(mp=1, dp=24, time_to_accuracy_s=seconds) for seconds in (40.0, 30.0)]
    best, pure = numbers([*rows, fakes.search_row()], BEST, PURE)
    assert (best.mp, best.time_to_accuracy_s) == (3, 13.0)
    assert (pure.mp, pure.dp, pure.time_to_accuracy_s) == (1, 24, 30.0)


def test_a_series_of_one_degree_takes_the_fastest_of_it(fakes, numbers):
    rows = [
        fakes.search_row(mp=mp, time_to_accuracy_s=seconds)
        for mp, seconds in ((8, 40.0), (8, 30.0), (4, 1.0))
    ]
    (number,) = numbers(rows, attrs.evolve(BEST, mp=8))
    assert (number.mp, number.time_to_accuracy_s) == (8, 30.0)


def test_the_public_scripts_arithmetic_adds_bytes_over_a_bandwidth(fakes, numbers):
    """1000 us and 13 s; 250 000 bytes at min(5, 2) Gbps = 1000 us: twice both. At 5 Gbps 400 us more."""
    for gbps, factor in ((2.0, 2.0), (8.0, 1.4)):
        series = attrs.evolve(BEST, added_bytes={"model": 250e3}, added_gbps=gbps)
        (number,) = numbers([fakes.search_row(time_to_accuracy_s=13.0)], series)
        assert number.iteration_us == pytest.approx(1000 * factor)
        assert number.time_to_accuracy_s == pytest.approx(13.0 * factor)


def test_a_claim_on_each_model_has_a_verdict_for_each(fakes):
    """6 / 3 in one, 5 / 4 in the other: only the first is at least 1.5."""
    known = [timed(fakes, *point) for point in (("slow", 1, 6), ("a", 1, 3))]
    known += [timed(fakes, *point, workload="other") for point in (("slow", 1, 5), ("a", 1, 4))]
    found = verdicts_on(claim(smallest_at_least=1.5, each_model=True), known)
    assert [(v.claim, v.smallest, v.verdict == "holds") for v in found] == [
        ("A beats B: model", 2.0, True), ("A beats B: other", 1.25, False),
    ]  # fmt: skip
    assert len(verdicts_on(claim(smallest_at_least=1.5), known)) == 1


def test_the_reason_is_that_of_the_candidate_that_came_furthest(fakes, numbers):
    """One that was estimated before one that was not; and of pure data parallelism, one with mp = 1."""
    gone = {"iteration_us": None, "time_to_accuracy_s": None, "status": "infeasible"}
    rows = [
        fakes.search_row(**gone, mp=1, reason="no room", estimate_us=None),
        fakes.search_row(**gone, reason="stalled"),
        fakes.search_row(**gone, reason="no reach", estimate_us=None),
    ]
    best, pure = numbers(rows, BEST, PURE)
    assert (best.reason, pure.reason) == ("stalled", "no room")
    assert (best.mp, best.dp, best.global_batch, best.time_to_accuracy_s, best.gpus) == (None,) * 4 + (24,)


def timed(fakes, series, x, hours, **changes):
    return fakes.number(series=series, x=x, time_to_accuracy_s=3600.0 * hours, extrapolated=False, **changes)


def claim(**limits):
    return Claim(text="A beats B", paper="2x", over=("slow",), under=("a", "b"), **limits)


def test_a_claim_is_the_time_of_over_by_the_time_of_under_the_fastest_of_each(fakes):
    """At x = 1: 6 / min(3, 2) = 3; at x = 2: 6 / min(4, 5) = 1.5. In another workload 5 / 4."""
    known = [timed(fakes, *point) for point in (("slow", 1, 6), ("a", 1, 3), ("b", 1, 2))]
    known += [timed(fakes, *point) for point in (("slow", 2, 6), ("a", 2, 4), ("b", 2, 5))]
    known += [timed(fakes, *point, workload="other") for point in (("slow", 1, 5), ("a", 1, 4))]
    verdict = judge(claim(smallest_at_least=1.25, largest_at_least=3, largest_at_most=3), known)
    assert attrs.asdict(verdict) == {
        "claim": "A beats B", "paper": "2x", "smallest": 1.25, "largest": 3.0, "points": 3, "unjudged": 0,
        "verdict": "holds", "by_workload": {"model": (1.5, 3.0), "other": (1.25, 1.25)},
        "extrapolated": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"smallest_at_least": 2.0}, "differs: smallest ratio 1.5, at least 2 expected (-25%)"),
        ({"largest_at_least": 6.0}, "differs: largest ratio 3, at least 6 expected (-50%)"),
        ({"largest_at_most": 2.0}, "differs: largest ratio 3, at most 2 expected (+50%)"),
    ],
)
def test_a_verdict_says_by_how_much_we_differ(fakes, limits, said):
    points = (("slow", 1, 6), ("a", 1, 2), ("slow", 2, 6), ("a", 2, 4))
    assert judge(claim(**limits), [timed(fakes, *point) for point in points]).verdict == said


def test_a_claim_may_compare_other_points_and_begin_late(fakes):
    """`over` at half of x: at x = 4 it is 8 h / 4 h, and x = 2 lies below `from_x`."""
    points = (("slow", 1, 9), ("slow", 2, 8), ("a", 2, 1), ("a", 4, 4))
    verdict = judge(claim(over_x=0.5, from_x=3), [timed(fakes, *point) for point in points])
    assert (verdict.smallest, verdict.largest, verdict.points, verdict.unjudged) == (2.0, 2.0, 1, 0)


def test_a_point_at_which_one_side_cannot_run_is_no_evidence(fakes):
    known = [timed(fakes, "slow", 1, 6), attrs.evolve(timed(fakes, "a", 1, 2), time_to_accuracy_s=None)]
    verdict = judge(claim(), known)
    assert verdict.verdict == "no point to judge by"
    assert (verdict.points, verdict.unjudged) == (0, 1)


@pytest.mark.parametrize("which", ["slow", "a"])
def test_a_verdict_is_extrapolated_if_either_side_is(fakes, which):
    known = [timed(fakes, "slow", 1, 6), timed(fakes, "a", 1, 2)]
    marked = [attrs.evolve(number, extrapolated=number.series == which) for number in known]
    assert judge(claim(), marked).extrapolated
    assert not judge(claim(), known).extrapolated
