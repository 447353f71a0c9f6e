"""Laws of whole runs: real workloads, every interconnect, from tables to results."""

import copy
import json
import os
import re
import subprocess
import sys

import attrs
import numpy as np
import pytest

from sipml_core.cases import ExperimentRun, check_experiment, run_experiment
from sipml_core.cases.case import Case
from sipml_core.cases.compilation import compile_case
from sipml_core.cases.reuse import Reuse
from sipml_core.engine.simulation import simulate
from sipml_core.errors import ConfigError
from sipml_core.experiment.reading import read_experiment
from sipml_core.model import CircuitControl, CircuitPlan
from sipml_core.model.fabric import Fabric
from sipml_core.model.progress import Progress
from sipml_core.plugin.interfaces import Scheduler, Topology
from sipml_core.report.resultfiles import write_result
from sipml_core.searching import search

INTERCONNECTS = ["elect-flat", "elect-cluster", "sip-ocs", "sip-ring"]

SMALL_GPT = {"name": "gpt", "layers": 2, "hidden": 256, "heads": 4, "sequence": 64, "vocabulary": 1000}


def tables(workload=SMALL_GPT, topologies=INTERCONNECTS, gpus=8, bandwidth_gbps=800, **plan):
    plan = {"mp": 2, "dp": 4, "global_batch": 16, "tau_us": 1, **plan}
    return {
        "title": "laws",
        "cluster": {"gpus": gpus, "bandwidth_gbps": bandwidth_gbps},
        "gpu": {"name": "v100"},
        "workload": [{**workload, "strategy": plan}],
        "topology": [t if isinstance(t, dict) else {"name": t} for t in topologies],
    }


def run(registry, experiment):
    return run_experiment(read_experiment(experiment, registry))


def times(registry, experiment):
    return {case.topology: case.iteration_us for case in run(registry, experiment).cases}


@pytest.mark.parametrize("degrees", [(1, 8), (2, 4), (4, 2), (8, 1)])
@pytest.mark.parametrize("jitter", [0, 0.3])
def test_nothing_ends_before_the_physical_bound(registry, degrees, jitter):
    """Busiest port, busiest GPU, critical path with every transfer alone: no network beats them."""
    mp, dp = degrees
    experiment = tables(mp=mp, dp=dp)
    experiment["cluster"]["jitter"] = jitter
    for case in run(registry, experiment).cases:
        assert case.iteration_us >= case.lower_bound_us * (1 - 1e-9), case.topology


@pytest.mark.parametrize("workload", [SMALL_GPT, {"name": "resnet50"}], ids=lambda w: w["name"])
def test_the_four_states_of_a_gpu_add_up(registry, workload):
    """compute + exposed + dark + idle = iteration, as means over GPUs."""
    for case in run(registry, tables(workload, iterations=2)).cases:
        parts = case.compute_us + case.exposed_us + case.dark_us + case.idle_us
        assert parts == pytest.approx(case.iteration_us, rel=1e-9), case.topology


def test_each_account_of_a_result_is_that_of_the_timeline(registry):
    """On a ring that is re-planned, so that all four differ: means over GPUs, of the whole run."""
    experiment = read_experiment(tables(topologies=["sip-ring"], bandwidth_gbps=75), registry)
    (job,), (interconnect,) = experiment.jobs, experiment.interconnects
    (case,) = run_experiment(experiment).cases
    forms = compile_case(Case.of(experiment, job, interconnect, job.plan(8)), Reuse())
    (form,) = [form for form in forms if form.plan.exchange == case.exchange]
    timeline = simulate(form.tasks, form.network, driver=form.circuits)
    names = ("compute_us", "exposed_us", "dark_us", "idle_us")
    expected = {name: float(getattr(timeline, name)[-1].mean()) for name in names}
    assert len({round(value) for value in expected.values()} - {0}) == 4
    assert {name: getattr(case, name) for name in names} == pytest.approx(expected)
    assert case.decisions == timeline.decisions > 0


def test_the_bound_is_what_nothing_beats(registry):
    """`sharing = "bound"` reports the lower bound itself, below every simulated interconnect."""
    bound = {"name": "elect-flat", "label": "ideal", "sharing": "bound"}
    result = times(registry, tables(topologies=[*INTERCONNECTS, bound]))
    assert result["ideal"] <= min(result.values()) * (1 + 1e-12)


def test_every_interconnect_carries_the_same_bytes(registry):
    """Traffic is made by the strategy, not by the network."""
    cases = run(registry, tables(layout="tensor")).cases
    assert len({case.network_bytes for case in cases}) == 1
    assert all(0 < case.gradient_bytes < case.network_bytes for case in cases)


def test_pure_data_parallelism_sends_only_the_all_reduce(registry):
    """2 (n - 1) M over all members for M bytes of fp16 gradients."""
    case = run(registry, tables(mp=1, dp=8)).cases[0]
    workload = registry.find("workload", "gpt")
    graph = workload(workload.Options(**{k: v for k, v in SMALL_GPT.items() if k != "name"})).graph(
        2, "mixed"
    )
    assert case.gradient_bytes == pytest.approx(2 * 7 * 2 * graph.parameter_elements, rel=1e-9)
    assert case.network_bytes == pytest.approx(case.gradient_bytes, rel=1e-12)


def test_a_slow_gpu_bounds_the_iteration(registry):
    """A GPU at half speed computes for twice as long, and everybody waits for it."""
    fast = run(registry, tables(topologies=["elect-flat"])).cases[0]
    slowed = tables(topologies=["elect-flat"])
    slowed["cluster"]["gpu_speed"] = {"3": 0.5}
    slow = run(registry, slowed).cases[0]
    assert slow.iteration_us >= 2 * fast.compute_us * (1 - 1e-9)


def test_more_bandwidth_is_never_slower_here(registry):
    """Not a theorem in general (docs: scheduling anomalies); it holds for this job."""
    slow, fast = times(registry, tables(bandwidth_gbps=100)), times(registry, tables(bandwidth_gbps=1600))
    assert all(fast[name] <= slow[name] for name in INTERCONNECTS)


def test_same_input_same_bytes_on_any_hash_seed(tmp_path):
    """Two processes with different PYTHONHASHSEED write the same three files."""
    experiment = tmp_path / "e.toml"
    experiment.write_text(
        'title = "same"\n[cluster]\ngpus = 8\nbandwidth_gbps = 800\njitter = 0.1\n'
        '[[workload]]\nname = "gpt"\nlayers = 2\nhidden = 256\nheads = 4\nsequence = 64\nvocabulary = 1000\n'
        "strategy = { mp = 2, dp = 4, global_batch = 16 }\n"
        + "".join(f'[[topology]]\nname = "{name}"\n' for name in INTERCONNECTS)
    )
    written = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "sipml_core", "run", str(experiment), "--out", str(out)],
            check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        written.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
    assert written[0] == written[1]
    assert set(written[0]) == {"result.json", "summary.csv", "experiment.toml"}


def test_another_seed_changes_the_noise_and_nothing_else(registry):
    experiment = tables(topologies=["elect-flat"])
    experiment["cluster"]["jitter"] = 0.2
    one = run(registry, experiment).cases[0]
    again = run(registry, copy.deepcopy(experiment)).cases[0]
    experiment["seed"] = 1
    other = run(registry, experiment).cases[0]
    assert one == again
    assert one.iteration_us != other.iteration_us
    assert one.network_bytes == other.network_bytes


def test_the_written_configuration_repeats_the_run(registry, tmp_path):
    """experiment.toml holds the tables that were run; running them gives the same result."""
    import tomllib

    result = run(registry, tables())
    write_result(result, tmp_path)
    repeated = run(registry, tomllib.loads((tmp_path / "experiment.toml").read_text()))
    assert repeated.cases == result.cases
    stored = json.loads((tmp_path / "result.json").read_text())
    assert [case["iteration_us"] for case in stored["cases"]] == [case.iteration_us for case in result.cases]


def test_a_model_that_does_not_fit_is_refused_with_numbers(registry):
    """18 B parameters in mixed precision with Adam: 16 bytes each = 288 GB and more on one V100 of 32 GB."""
    experiment = tables({"name": "megatron"}, ["elect-flat"], mp=1, dp=8, global_batch=8)
    (case,) = run(registry, experiment).cases
    assert case.status == "infeasible"
    assert re.search(r"does not fit: .* GB.* the GPU has 32 GB", case.reason)
    assert (case.mp, case.dp, case.iteration_us, case.speedup) == (1, 8, None, None)


def test_validate_accepts_what_runs_and_refuses_what_does_not(registry):
    checks = list(check_experiment(read_experiment(tables(), registry)))
    assert [(check.fits, check.degrees) for check in checks] == [(True, ((2, 4),))] * len(INTERCONNECTS)
    experiment = tables({"name": "megatron"}, ["elect-flat"], mp=1, dp=8, global_batch=8)
    (check,) = check_experiment(read_experiment(experiment, registry))
    assert not check.fits
    assert "cannot run: " in check.line
    assert "does not fit" in check.line


@pytest.mark.parametrize("layout", ["tensor", "sample"])
@pytest.mark.parametrize("bandwidth_gbps", [100, 3200])
def test_on_a_ring_the_faster_exchange_is_taken_and_named(registry, layout, bandwidth_gbps):
    """Auto is the better of both, whichever it is."""

    def case(exchange):
        ring = [{"name": "sip-ring", "reach_hops": 8}]
        job = {"mp": 8, "dp": 3, "global_batch": 24, "layout": layout, "exchange": exchange}
        return run(registry, tables(topologies=ring, gpus=24, bandwidth_gbps=bandwidth_gbps, **job)).cases[0]

    direct, chain = case("direct"), case("chain")
    assert (direct.exchange, chain.exchange) == ("direct", "chain")
    assert case("auto") == min(chain, direct, key=lambda case: case.iteration_us)


def test_progress_does_not_go_back(registry, monkeypatch):
    """Also where a case is simulated in two forms, one after the other."""
    monkeypatch.setattr("sipml_core.engine.simulation._PROGRESS_S", 0.0)
    told: list[float] = []
    experiment = tables(topologies=["sip-ring"], gpus=64, mp=4, dp=16, global_batch=64)
    run_experiment(
        read_experiment(experiment, registry),
        progress=Progress(watch=lambda case, fraction: told.append(fraction)),
    )
    assert told == sorted(told)
    assert 0.5 < told[-1] <= 1


def test_without_circuits_the_exchange_is_direct(registry):
    (case,) = run(registry, tables(topologies=["elect-flat"], mp=4, dp=2)).cases
    assert case.exchange == "direct"


@pytest.mark.parametrize("exchange", ["direct", "chain"])
def test_a_single_group_on_a_ring_talks_within_reach(registry, exchange):
    """16 GPUs, reach 2. Equal slices on equal devices are too far apart for a direct exchange; along a chain
    everyone talks to a neighbour, and the ring of gradients closes where the fibres do."""
    ring = [{"name": "sip-ring", "reach_hops": 2}]
    job = {"mp": 16, "dp": 1, "global_batch": 16, "layout": "megatron", "placer": "aligned", "tau_us": 0.1}
    experiment = tables(topologies=ring, gpus=16, exchange=exchange, **job)
    if exchange == "direct":
        assert "more than 2 hops apart" in run(registry, experiment).cases[0].reason
    else:
        assert run(registry, experiment).cases[0].network_bytes > 0


def test_the_reason_is_that_of_the_exchange_which_came_further(registry):
    """A direct exchange ends at the reach, but to lift that would not help: along a chain there is not
    enough memory."""
    ring = [{"name": "sip-ring", "reach_hops": 2}]
    job = {"mp": 16, "dp": 1, "global_batch": 16, "layout": "megatron", "placer": "aligned"}
    (case,) = run(registry, tables({"name": "megatron"}, topologies=ring, gpus=16, **job)).cases
    assert "does not fit" in case.reason


def test_circuits_do_not_depend_on_the_last_digit_of_a_demand(registry):
    """Both engines add bytes up in orders of their own. On a ring where many pairs want the same and some
    must wait, who does is decided by the rules, not by 1e-10 bytes more."""
    ring = [{"name": "sip-ring", "reach_hops": 2, "all_dark": True}]
    gpt = {"name": "gpt", "layers": 1, "hidden": 64, "heads": 4, "sequence": 32, "vocabulary": 200}
    job = {"mp": 2, "dp": 5, "global_batch": 20, "layout": "tensor", "exchange": "direct"}
    case = tables(gpt, topologies=ring, gpus=10, bandwidth_gbps=75, **job)
    case["cluster"]["gpu_speed"] = {"9": 0.7}
    experiment = read_experiment(case, registry)
    (job,), (interconnect,) = experiment.jobs, experiment.interconnects
    ends = []
    for kernel in ("c", "reference"):
        (form,) = compile_case(Case.of(experiment, job, interconnect, job.plan(10)), Reuse())
        run_ = simulate(form.tasks, form.network, driver=form.circuits, queue="source", kernel=kernel)
        ends.append(run_.end_us)
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9)


def test_degrees_left_out_are_searched(registry):
    """The fastest of all divisors: no worse than any of them."""
    searched = tables(topologies=["elect-flat"])
    del searched["workload"][0]["strategy"]["mp"], searched["workload"][0]["strategy"]["dp"]
    best = run(registry, searched).cases[0]
    each = [
        times(registry, tables(topologies=["elect-flat"], mp=mp, dp=8 // mp))["elect-flat"]
        for mp in (1, 2, 4, 8)
    ]
    assert best.iteration_us == min(each)


def test_a_wall_clock_limit_stops_the_run(registry):
    """Before anything is prepared: every case is a row, and says so."""
    result = run_experiment(read_experiment(tables({"name": "resnet50"}), registry), max_wall_s=1e-6)
    assert {(case.status, case.reason) for case in result.cases} == {
        ("unfinished", "the wall-clock limit of 1e-06 s was reached")
    }
    assert len(result.cases) == len(INTERCONNECTS)


def test_a_wall_clock_limit_bounds_preparation(registry, monkeypatch):
    """A placer that never ends is ended by the clock, in the middle of its work."""

    def forever(self, graph, limits):
        while True:
            pass

    placer = registry.find("placer", "algorithm1")
    monkeypatch.setattr(placer, "place", forever)
    result = run_experiment(read_experiment(tables(), registry), max_wall_s=0.5)
    assert {case.status for case in result.cases} == {"unfinished"}


def test_an_interrupt_keeps_what_ran(registry, monkeypatch):
    """The third simulation is interrupted: two rows are results, two say that the run ended before."""
    simulated = []

    def interrupted(*arguments, **options):
        simulated.append(arguments)
        if len(simulated) == 3:
            raise KeyboardInterrupt
        return simulate(*arguments, **options)

    monkeypatch.setattr("sipml_core.cases.simulating.simulate", interrupted)
    running = ExperimentRun(read_experiment(tables(mp=1, dp=8), registry))
    with pytest.raises(KeyboardInterrupt):
        running.go()
    assert running.anything
    cases = running.result().cases
    assert [case.status for case in cases] == ["ok", "ok", "unfinished", "unfinished"]
    assert cases[2].reason == "the run ended before"


def test_one_infeasible_case_does_not_lose_the_others(registry):
    """Two hops are not enough on a ring of 16; the speed-up of the baseline is not known then."""
    ring = {"name": "sip-ring", "reach_hops": 2}
    job = {"mp": 16, "dp": 1, "global_batch": 16, "layout": "megatron", "placer": "aligned", "tau_us": 0.1}
    result = run(registry, tables(topologies=[ring, "elect-flat"], gpus=16, exchange="direct", **job))
    unfit, ran = result.cases
    assert (unfit.status, ran.status, ran.speedup, result.complete) == ("infeasible", "ok", None, False)
    assert ran.iteration_us > 0


class Broken(Topology):
    """A network that breaks as its option says."""

    name = "broken"
    summary = "for tests"

    @attrs.frozen(kw_only=True)
    class Options:
        how: str = "build"

    def build(self, cluster):
        if self.options.how == "build":
            raise ZeroDivisionError("no hops")
        if self.options.how == "exit":
            raise SystemExit(0)
        if self.options.how == "none":
            return None
        if self.options.how == "route":
            return Fabric(gpus=cluster.gpus, link_gbps=np.ones(1), route=lambda src, dst: None)

        def late(src, dst):
            return 1 / 0

        return Fabric(gpus=cluster.gpus, link_gbps=np.ones(1), route=late)


class Breaks(Scheduler):
    """Raises where it is asked for a plan."""

    name = "breaks"
    summary = "for tests"
    plans = CircuitControl

    @attrs.frozen(kw_only=True)
    class Options:
        error: type[BaseException] = RuntimeError

    def plan(self, control, traffic, previous):
        raise self.options.error("no plan")


class Matrix(Breaks):
    """Returns capacities as a matrix."""

    def plan(self, control, traffic, previous):
        return CircuitPlan(
            gpus=traffic.gpus, src=traffic.src, dst=traffic.dst, gbps=np.ones((1, traffic.pairs))
        )


def test_arrays_of_a_scheduler_that_are_none_end_its_row_alone(registry):
    experiment = read_experiment(tables(topologies=["elect-flat", "sip-ocs"]), registry)
    sound, ocs = experiment.interconnects
    broken = attrs.evolve(ocs, scheduler=Matrix(Matrix.Options()))
    first, second = run_experiment(attrs.evolve(experiment, interconnects=(sound, broken))).cases
    assert first.ran
    assert second.status == "failed"
    assert second.reason.startswith("scheduler 'breaks': expected an array of rank 1, got shape (1, ")


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_a_scheduler_that_breaks_in_a_search_is_named_in_its_rows(registry, error):
    """Estimates plan circuits, too; pure data parallelism on the switch is searched all the same."""
    asked = tables(topologies=["elect-flat", "sip-ocs"])
    asked["search"] = {"mp": [2], "global_batches": [16]}
    experiment = read_experiment(asked, registry)
    sound, ocs = experiment.interconnects
    broken = attrs.evolve(ocs, scheduler=Breaks(Breaks.Options(error=error)))
    (found,) = search([attrs.evolve(experiment, interconnects=(sound, broken))])
    reasons = {row.reason for row in found.rows if row.topology == ocs.label}
    (reason,) = reasons
    assert reason.startswith("failed: scheduler 'breaks' of ")
    assert reason.endswith(f"failed: {error.__name__}: no plan")
    assert {row.status for row in found.rows if row.topology == sound.label} >= {"simulated"}


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("build", "failed: ZeroDivisionError: no hops"),
        ("exit", "failed: SystemExit: 0"),
        ("none", "build returned a NoneType, not a Fabric"),
        ("route", "route returned a NoneType, not Routes"),
        ("late", "failed: ZeroDivisionError: division by zero"),
    ],
)
def test_a_topology_that_breaks_is_a_row_that_names_it(registry, how, reason):
    """And the others run."""
    experiment = read_experiment(tables(topologies=["elect-flat"]), registry)
    (sound,) = experiment.interconnects
    broken = attrs.evolve(sound, label="mine", topology=Broken(Broken.Options(how=how)))
    result = run_experiment(attrs.evolve(experiment, interconnects=(broken, sound)))
    first, second = result.cases
    assert (first.status, second.status) == ("failed", "ok")
    assert first.reason.startswith("topology 'broken' of ")
    assert reason in first.reason


def test_what_is_too_large_to_simulate_is_a_row_before_it_is_made(registry):
    """10^9 samples one by one on 4 replicas are 250 million micro-batches of each."""
    (case,) = run(registry, tables(topologies=["elect-flat"], global_batch=10**9, micro_batch=1)).cases
    assert case.status == "infeasible"
    assert "a simulation has 500 million at most: raise micro_batch or dp" in case.reason


def test_timelines_stand_beside_their_cases_and_are_not_written(registry, tmp_path):
    result = run(registry, tables())
    for case, timeline in zip(result.cases, result.timelines, strict=True):
        assert timeline.total_us == pytest.approx(case.iteration_us)
    write_result(result, tmp_path)
    assert "timelines" not in json.loads((tmp_path / "result.json").read_text())


def test_the_largest_compute_time_is_shown_and_unevenness_noted(registry):
    """A GPU at a quarter of the speed computes four times as long: more than 1.5 times the mean of 8."""
    even = run(registry, tables(topologies=["elect-flat"], mp=1, dp=8)).cases[0]
    assert even.compute_max_us == pytest.approx(even.compute_us)
    slowed = tables(topologies=["elect-flat"], mp=1, dp=8)
    slowed["cluster"]["gpu_speed"] = {"3": 0.25}
    case = run(registry, slowed).cases[0]
    assert case.compute_max_us == pytest.approx(4 * even.compute_us, rel=0.01)
    assert [note for note in case.notes if "uneven" in note]
    assert not [note for note in even.notes if "uneven" in note]


def test_tokens_per_second_and_the_time_for_a_number_of_them(registry):
    """A GPT has no curve of its own: 16 samples of 64 tokens an iteration, 1e6 tokens as asked for."""
    workload = {**SMALL_GPT, "training_tokens": 1e6}
    (case,) = run(registry, tables(workload, topologies=["elect-flat"])).cases
    assert case.samples_per_s == pytest.approx(16 / (case.iteration_us * 1e-6))
    assert case.tokens_per_s == pytest.approx(64 * case.samples_per_s)
    assert (case.goal, case.time_to_accuracy_s, case.steps_to_accuracy) == ("1 million tokens", None, None)
    assert case.time_to_goal_s == pytest.approx(1e6 / case.tokens_per_s)
    curve = {**SMALL_GPT, "curve": "paper"}
    (anchored,) = run(registry, tables(curve, topologies=["elect-flat"])).cases
    assert (anchored.goal, anchored.time_to_goal_s) == ("accuracy", anchored.time_to_accuracy_s)


def test_a_simulated_time_limit_stops_the_run(registry):
    experiment = tables(topologies=["elect-flat"])
    experiment["engine"] = {"max_time_us": 5}
    (case,) = run(registry, experiment).cases
    assert case.status == "unfinished"
    assert "simulated-time limit of 5 us" in case.reason


def test_one_gpu_needs_no_network(registry):
    """N = 1: no transfer, no exposed time, on every interconnect."""
    for case in run(registry, tables(gpus=1, mp=1, dp=1)).cases:
        assert case.network_bytes == 0
        assert case.iteration_us == pytest.approx(case.compute_us, rel=1e-12)


def test_the_last_of_several_iterations_is_reported(registry):
    """Without circuits and jitter every iteration but the first is alike: 3 and 4 iterations agree."""
    three = run(registry, tables(topologies=["elect-flat"], iterations=3)).cases[0]
    four = run(registry, tables(topologies=["elect-flat"], iterations=4)).cases[0]
    assert three.iteration_us == pytest.approx(four.iteration_us, rel=1e-6)
    assert attrs.evolve(three, iteration_us=0).network_bytes == four.network_bytes


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        ({"name": "sip-ocs", "switches": 8, "estimator": "oracle"}, "circuits are set once"),
        ({"name": "elect-flat", "estimator": "backlog"}, "there are no circuits"),
        ({"name": "sip-ring", "estimator": "oracle"}, ""),
        ({"name": "sip-ocs", "switches": 8}, ""),
        ({"name": "sip-ocs", "switches": 8, "estimator": "window"}, ""),
    ],
)
def test_an_estimator_that_is_never_asked_is_noted(registry, topology, why):
    """Where the experiment chose another than would be taken anyway."""
    (case,) = run(registry, tables(topologies=[topology])).cases
    noted = [note for note in case.notes if note.startswith("estimator")]
    asked = topology.get("estimator")
    expected = [f"estimator {asked!r} is not used: {why}"] if why else []
    assert [note.removesuffix(", for the whole traffic") for note in noted] == expected


def test_the_lower_bound_is_one_of_the_iteration_it_stands_beside(registry):
    """With jitter iterations differ: seeds 0 to 7, three iterations each. And it is no empty one: a GPU's
    computation, which most of these iterations consist of, counts in full."""
    for seed in range(8):
        experiment = tables(topologies=["elect-flat"], gpus=4, mp=1, dp=4, iterations=3)
        experiment["cluster"]["jitter"], experiment["seed"] = 0.3, seed
        for case in run(registry, experiment).cases:
            assert case.iteration_us >= case.lower_bound_us * (1 - 1e-9)
            assert case.lower_bound_us >= case.compute_us * (1 - 1e-9)


def test_a_gpu_known_by_a_table_says_how_far_beyond_it_is_used(registry, tmp_path):
    """Ops measured at batch 1 alone; each of the 4 replicas of 16 samples has 4."""
    workload = registry.find("workload", "gpt")
    graph = workload(workload.Options(**{k: v for k, v in SMALL_GPT.items() if k != "name"})).graph(
        4, "mixed"
    )
    rows = "".join(f"{op.name},1,10\n" for op in graph.ops)
    (tmp_path / "ops.csv").write_text("op,batch,time_us\n" + rows)
    experiment = tables(topologies=["elect-flat"], layout="tensor")
    experiment["gpu"] = {"name": "table", "file": str(tmp_path / "ops.csv")}
    (case,) = run(registry, experiment).cases
    assert "op times are extrapolated, up to 4 times beyond what 'table' was measured at" in case.notes


def test_dark_capacity_is_accounted_whoever_waits_for_it(registry):
    """Where every decision makes all circuits dark for 10 us, each after the first costs so much."""
    ring = {"name": "sip-ring", "interval_us": 100, "reconfiguration_us": 10, "all_dark": True}
    (case,) = run(registry, tables(topologies=[ring], bandwidth_gbps=75)).cases
    assert case.decisions > 2
    expected = 10.0 * (case.decisions - 1)
    assert expected - 10.0 <= case.dark_capacity_us <= expected + 1e-6
    others = run(registry, tables(topologies=["elect-flat", {"name": "sip-ocs", "switches": 8}])).cases
    assert [case.dark_capacity_us for case in others] == [0.0, 0.0]


def test_what_cannot_be_stops_before_anything_runs_also_where_degrees_are_left_out(registry, monkeypatch):
    """A scheduler that has nothing to plan, on the second of two networks."""
    ring = {"name": "elect-flat", "label": "odd", "scheduler": "ring-fast"}
    experiment = tables(topologies=["elect-flat", ring])
    del experiment["workload"][0]["strategy"]["mp"], experiment["workload"][0]["strategy"]["dp"]
    monkeypatch.setattr("sipml_core.cases.simulating.simulate", None)
    with pytest.raises(ConfigError, match="has no circuits for 'ring-fast' to plan"):
        run(registry, experiment)
