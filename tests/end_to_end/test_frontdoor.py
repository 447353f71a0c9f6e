"""The front door: from a path or values to a result, in a script or a notebook."""

import subprocess
import sys
import tomllib
from pathlib import Path

import attrs
import numpy as np
import pytest

import sipml_core as sipml
from sipml_core.errors import ConfigError
from sipml_core.experiment import (
    Experiment,
    Interconnect,
    Job,
    StrategyTable,
    read_experiment,
    resolved_tables,
)
from sipml_core.gpus import V100
from sipml_core.model import Cluster
from sipml_core.placement import Algorithm1
from sipml_core.plugin import hookimpl
from sipml_core.workloads import Gpt

ROOT = Path(__file__).parents[2]

TOML = """
title = "door"

[cluster]
gpus = 8
bandwidth_gbps = "400 Gbps"
gpu_speed = { "3" = 0.5 }

[[workload]]
name = "gpt"
layers = 1
hidden = 64
heads = 4
sequence = 32
vocabulary = 100
strategy = { mp = 2, dp = 4, global_batch = 8 }

[[topology]]
name = "elect-flat"

[[topology]]
name = "sip-ring"
reach_hops = 4
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(TOML)
    return path


def by_hand(registry):
    """The experiment of `TOML`, put together from components."""
    elect_flat, sip_ring = registry.find("topology", "elect-flat"), registry.find("topology", "sip-ring")
    ring_fast, window = registry.find("scheduler", "ring-fast"), registry.find("estimator", "window")
    cluster = Cluster(gpus=8, bandwidth_gbps=400, gpu_speed={"3": 0.5})
    gpt = Gpt.Options(layers=1, hidden=64, heads=4, sequence=32, vocabulary=100)
    return Experiment(
        title="door",
        gpu=V100(V100.Options()),
        jobs=(
            Job(
                label="gpt",
                workload=Gpt(gpt),
                table=StrategyTable(mp=2, dp=4, global_batch=8),
                placer=Algorithm1(Algorithm1.Options()),
            ),
        ),
        interconnects=(
            Interconnect(label="elect-flat", topology=elect_flat(elect_flat.Options()), cluster=cluster),
            Interconnect(
                label="sip-ring",
                topology=sip_ring(sip_ring.Options(reach_hops=4)),
                cluster=cluster,
                scheduler=ring_fast(ring_fast.Options()),
                estimator=window(window.Options()),
            ),
        ),
    )


def test_an_experiment_built_in_python_equals_the_one_of_its_file(registry, file):
    """And differs from it in any one option; equal ones have equal hashes where they have any."""
    built = by_hand(registry)
    assert built == sipml.load(file)
    assert built != sipml.load(file, set={"topology.sip-ring.reach_hops": 5})
    assert built != sipml.load(file, set={"workload.layers": 2})
    ring = sipml.load(file).interconnects[1].topology
    assert (ring == built.interconnects[1].topology, hash(ring)) == (
        True,
        hash(built.interconnects[1].topology),
    )


def test_both_run_to_the_same_result(registry, file):
    assert sipml.run(file) == sipml.run(by_hand(registry))


EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.toml") if path.name != "sweep.toml")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_resolved_tables_are_those_of_an_equal_experiment(registry, example):
    """Whatever was left to defaults, in whatever unit."""
    experiment = sipml.load(example)
    assert read_experiment(resolved_tables(experiment), registry) == experiment


@pytest.mark.parametrize(
    "changes",
    [
        {"workload.strategy.exchange": "chain", "workload.strategy.all_reduce": "flat"},
        {"workload.strategy.placer": {"name": "aligned"}, "workload.search": {"placers": ["algorithm1"]}},
        {"topology.elect-flat.bandwidth_gbps": "1 Tbps", "gpu": {"name": "h100", "precision": "fp32"}},
        {"engine": {"max_time_us": "2 s", "fold": "auto"}, "seed": 2**63 - 1, "baseline": "sip-ring"},
        {"topology.sip-ring.scheduler": "ring-mcf", "topology.sip-ring.estimator": "oracle"},
        {"workload.search": {"global_batches": [8, 16], "mp": [1, 2], "layouts": ["tensor"], "top": 3}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_is_set_stands_in_the_resolved_tables(registry, file, changes):
    experiment = sipml.load(file, set=changes)
    assert experiment != sipml.load(file)
    assert read_experiment(resolved_tables(experiment), registry) == experiment


def test_set_changes_a_file_by_paths_and_python_values(file):
    experiment = sipml.load(file, set={"cluster.bandwidth_gbps": "4 Tbps", "topology.sip-ring.reach_hops": 2})
    assert {each.cluster.bandwidth_gbps for each in experiment.interconnects} == {4000.0}
    assert experiment.interconnects[1].topology.options.reach_hops == 2
    with pytest.raises(ConfigError, match=r"x\.toml: cluster\.gpus must be from 1 to 65536, got 0"):
        sipml.load(file, set={"cluster.gpus": 0})


def test_tables_stand_for_a_file(file):
    """And stay as they are."""
    tables = tomllib.loads(TOML)
    assert sipml.load(tables) == sipml.load(file)
    assert sipml.load(tables, set={"seed": 1}) == sipml.load(file, set={"seed": 1})
    assert tables == tomllib.loads(TOML)
    for function in (sipml.load, sipml.run, sipml.search):
        with pytest.raises(ConfigError, match="must be the name of a TOML file, its tables or an Experiment"):
            function(3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": [-1]}, "--gpus must be 0 or more, got -1"),
        ({"gpus": [8]}, "--gpus must be from 0 to 7, got 8"),
        ({"window_us": (5, 1)}, r"--window must begin before it ends, got 5 us\.\.1 us"),
        ({"width_in": -1}, "width_in must be from 1.5 to 40"),
    ],
)
def test_a_plot_of_what_is_not_there_is_refused(file, options, message):
    result = sipml.run(file, details=True)
    with pytest.raises(ConfigError, match=message):
        sipml.plot(result, "timeline", topology="elect-flat", **options)


def test_a_plot_needs_a_result_and_no_name_of_a_folder():
    with pytest.raises(ConfigError, match=r"result of run\(\.\.\., details=True\), got 'results/small'"):
        sipml.plot("results/small", "times")


@pytest.mark.parametrize("function", [sipml.run, sipml.search])
def test_set_is_for_files_only(file, function):
    with pytest.raises(ConfigError, match="set= changes a file that is read"):
        function(sipml.load(file), set={"seed": 1})


def test_rows_have_the_columns_of_the_summary(file):
    result = sipml.run(file, set={"title": "rows"})
    flat, ring = result.rows()
    assert (flat["topology"], flat["status"], flat["speedup"]) == ("elect-flat", "ok", 1.0)
    assert ring["options"].startswith("reach_hops = 4")
    assert result.case("gpt", "sip-ring").iteration_us == ring["iteration_us"]
    assert result.title == "rows"


def test_a_frame_needs_pandas_and_says_so(file, monkeypatch):
    result = sipml.run(file)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="to_frame needs pandas: python -m pip install pandas"):
        result.to_frame()


def test_a_frame_has_a_row_for_each_case(file):
    pytest.importorskip("pandas")
    result = sipml.run(file)
    frame = result.to_frame()
    assert list(frame["topology"]) == ["elect-flat", "sip-ring"]
    assert list(frame["iteration_us"]) == [case.iteration_us for case in result.cases]


def test_search_takes_a_path_and_keeps_answers_where_it_is_told(file, tmp_path):
    found = sipml.search(
        file, set={"workload.search": {"mp": [2], "global_batches": [8]}}, store=tmp_path / "c"
    )
    assert {case.topology for case in found.best} == {"elect-flat", "sip-ring"}
    assert list((tmp_path / "c").rglob("*.json"))


def test_plan_circuits_takes_a_matrix_or_its_file(tmp_path):
    """Three GPUs in a circle: each gets all 16 circuits of 125 Gbps to its next one."""
    dense = np.array([[0, 5, 0], [0, 0, 5], [5, 0, 0]])
    np.save(tmp_path / "tm.npy", dense)
    for matrix in (dense, tmp_path / "tm.npy"):
        plan = sipml.plan_circuits("sip-ocs", matrix, bandwidth="2 Tbps")
        capacity = {(row["src"], row["dst"]): row["capacity_gbps"] for row in plan.rows()}
        assert capacity == {(0, 1): 2000.0, (1, 2): 2000.0, (2, 0): 2000.0}
    with pytest.raises(ConfigError, match="switches"):
        sipml.plan_circuits("sip-ocs", dense, set={"switches": 0})


def test_observers_get_the_timelines(registry, file, monkeypatch):
    """`sipml_run_finished` sees when each node of each case ran."""
    seen = []

    class Watcher:
        @hookimpl
        def sipml_run_finished(self, result):
            seen.extend(result.timelines)

    registry.manager.register(Watcher(), name="watcher")
    monkeypatch.setattr("sipml_core.frontdoor.load_plugins", lambda: registry)
    try:
        result = sipml.run(file)
    finally:
        registry.manager.unregister(name="watcher")
    assert [timeline.total_us for timeline in seen] == pytest.approx([c.iteration_us for c in result.cases])


def test_an_observer_that_raises_is_a_warning(registry, file, monkeypatch):
    class Watcher:
        @hookimpl
        def sipml_run_started(self, experiment):
            raise RuntimeError("no luck")

    registry.manager.register(Watcher(), name="watcher")
    monkeypatch.setattr("sipml_core.frontdoor.load_plugins", lambda: registry)
    try:
        with pytest.warns(UserWarning, match="'watcher' failed in sipml_run_started: RuntimeError: no luck"):
            assert sipml.run(file).complete
    finally:
        registry.manager.unregister(name="watcher")


def test_the_package_is_light_until_something_is_asked_of_it():
    """`import sipml_core` brings no numpy; `sipml_core.run` does."""
    code = (
        "import sys, sipml_core as s; print('numpy' in sys.modules, 'attrs' in sys.modules); s.run; "
        "print('numpy' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False", "True"]
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        sipml.rum  # noqa: B018


def test_an_evolved_experiment_runs(file):
    """What a loop in a notebook does."""
    experiment = sipml.load(file)
    seeds = [attrs.evolve(experiment, seed=seed) for seed in (1, 2)]
    assert [sipml.run(each).seed for each in seeds] == [1, 2]
