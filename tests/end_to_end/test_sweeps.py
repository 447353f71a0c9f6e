"""Laws of whole sweeps: a row for each run, the same bytes wherever and however often they were run."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest
from click.testing import CliRunner

import sipml_core as sipml
from sipml_core.cases.running import run_experiment
from sipml_core.cli.main import main
from sipml_core.errors import ConfigError
from sipml_core.executing import InThisProcess, Shard, WorkerProcesses
from sipml_core.experiment.reading import read_experiment
from sipml_core.report.sweepreport import sweep_csv, sweep_footnotes, write_sweep
from sipml_core.searching import Unfinished, workers
from sipml_core.store import ResultStore
from sipml_core.sweeping import carry_out_sweep, read_sweep

SMALL_GPT = {"name": "gpt", "layers": 1, "hidden": 128, "heads": 4, "sequence": 32, "vocabulary": 500}
TABLES = {
    "title": "small",
    "cluster": {"gpus": 8, "bandwidth_gbps": 400},
    "workload": [{**SMALL_GPT, "plan": {"global_batch": 16}}],
    "topology": [{"name": "elect-flat"}, {"name": "sip-ring"}],
}
#: Two bandwidths, two degrees, two networks: eight runs; mp = 3 divides no GPUs and is left out.
SWEEP = {
    "title": "Small",
    "experiment": TABLES,
    "axes": {"cluster.bandwidth_gbps": ["100 Gbps", "400 Gbps"], "workload.plan.mp": [1, 2, 3]},
    "only": ["8 % {workload.plan.mp} == 0"],
    "figure": {},
}
SEARCHED = {**SWEEP, "do": "search", "axes": {"cluster.bandwidth_gbps": [100, 400]}, "only": []}


@pytest.fixture
def carried_out(registry, tmp_path):
    """carried_out(tables, executor, ...): what a sweep of the tables finds."""

    def run(tables=SWEEP, executor=None, store=None, **changes):
        store = ResultStore(tmp_path / "store") if store is None else store
        return carry_out_sweep(read_sweep(tables), registry, executor or InThisProcess(), store, **changes)

    return run


@pytest.fixture
def simulated(monkeypatch):
    """Names of the cases that this process simulates from now on."""
    names = []
    simulate = workers.simulate_variants

    def noted(case, reuse, clock):
        names.append((case.interconnect.label, case.interconnect.cluster.bandwidth_gbps, case.plan.mp))
        return simulate(case, reuse, clock)

    monkeypatch.setattr(workers, "simulate_variants", noted)
    return names


def test_each_run_is_the_row_that_run_gives_it(carried_out, registry):
    """A row for each network at each point, with the values of the axes as they were resolved."""
    rows = carried_out().records()
    assert [(r["cluster.bandwidth_gbps"], r["workload.plan.mp"], r["topology"]) for r in rows] == [
        (gbps, mp, name) for gbps in (100.0, 400.0) for mp in (1, 2) for name in ("elect-flat", "sip-ring")
    ]
    tables = json.loads(json.dumps(TABLES))
    tables["workload"][0]["plan"]["mp"] = 2
    alone = run_experiment(read_experiment(tables, registry)).rows()
    for row, case in zip(rows[-2:], alone, strict=True):
        assert {key: row[key] for key in case if key != "notes"} == {
            key: value for key, value in case.items() if key != "notes"
        }
    assert {row["topology.reach_hops"] for row in rows} == {None, 16}
    assert len({row["hash"] for row in rows}) == 8


def test_what_is_in_the_store_is_not_simulated_again(carried_out, simulated):
    """The second time nothing is; with another bandwidth beside, only what is new."""
    first = carried_out()
    assert len(simulated) == 8
    simulated.clear()
    assert sweep_csv(carried_out()) == sweep_csv(first)
    assert simulated == []
    more = {**SWEEP, "axes": {"cluster.bandwidth_gbps": [100, 200], "workload.plan.mp": [1]}}
    carried_out(more)
    assert sorted(simulated) == [("elect-flat", 200.0, 1), ("sip-ring", 200.0, 1)]


def test_search_and_sweep_share_results(carried_out, simulated):
    """The winners of a search over mp = 1 and 2 have been simulated when the sweep names these plans."""
    named = {**SEARCHED, "experiment": {**TABLES, "search": {"mp": [1, 2]}}}
    found = carried_out(named)
    assert {row.result.status for row in found.rows} == {"simulated"}
    simulated.clear()
    carried_out()
    assert simulated == []


def test_one_process_and_four_give_the_same_bytes(carried_out):
    one = sweep_csv(carried_out(store=ResultStore(None)))
    assert sweep_csv(carried_out(SWEEP, WorkerProcesses(4), ResultStore(None))) == one


@pytest.mark.parametrize("tables", [SWEEP, SEARCHED], ids=["run", "search"])
def test_shards_give_the_bytes_of_the_whole(carried_out, tmp_path, tables):
    """The first finds that results are missing, the second that all are there; so does who asks for all."""
    one = sweep_csv(carried_out(tables, store=ResultStore(None)))
    shared = ResultStore(tmp_path / "shared")
    first, second = (carried_out(tables, store=shared, shard=Shard(number, 2)) for number in (2, 1))
    assert isinstance(first, Unfinished)
    assert 0 < first.known < first.of
    assert sweep_csv(second) == one
    assert sweep_csv(carried_out(tables, store=shared)) == one


def test_what_cannot_run_is_a_row_and_is_tried_again_only_if_asked(carried_out, simulated):
    """A GPU of 1 MB is too small for any of them; the others stand."""
    tables = {**SWEEP, "axes": {"gpu.memory": ["1 MB", "32 GB"], "workload.plan.mp": [2]}}
    found = carried_out(tables)
    assert [row.result.status for row in found.rows] == ["infeasible", "infeasible", "ok", "ok"]
    assert "the GPU has 1 MB" in found.rows[0].result.reason
    assert not found.complete
    simulated.clear()
    assert sweep_csv(carried_out(tables)) == sweep_csv(found)
    assert simulated == []
    carried_out(tables, retry_failed=True)
    assert len(simulated) == 2


def test_a_case_that_asks_for_what_cannot_be_is_a_row_too(carried_out):
    """Circuits are wanted of a network that has none: the other network of the sweep still runs."""
    tables = {**SWEEP, "axes": {"topology.elect-flat.scheduler": ["ring-fast"], "workload.plan.mp": [2]}}
    statuses = {row.result.topology: row.result.status for row in carried_out(tables).rows}
    assert statuses == {"elect-flat": "failed", "sip-ring": "ok"}


class Mortal(InThisProcess):
    """Ends at whatever simulates mp = 2 on a ring."""

    remote = True

    def each(self, function, pieces, received, lost=None):
        for number, sent in enumerate(pieces):
            ring = any(trial.interconnect == 1 for trial in sent.batch.trials)
            if ring and '"mp": 2' in sent.tables[0]:
                lost(number)
            else:
                received(number, function(sent))


def test_a_run_that_ends_its_process_is_a_row(carried_out, monkeypatch):
    """It went down together with the switch, in one batch; alone, the switch runs."""
    monkeypatch.setattr("sipml_core.searching.answering.MOST_TOGETHER", 2)
    monkeypatch.setattr(Mortal, "workers", 0.5)  # a batch of two
    rows = carried_out(executor=Mortal()).records()
    failed = [row for row in rows if row["status"] == "failed"]
    assert [(row["mp"], row["topology"]) for row in failed] == [(2, "sip-ring")] * 2
    assert all("a worker process ended before its work was done" in row["reason"] for row in failed)
    assert [row["status"] for row in rows].count("ok") == 6


def test_a_full_disk_loses_only_what_was_running(carried_out, simulated, monkeypatch):
    """The fourth record cannot be written; the next start finds three, and simulates the other five."""
    replace, written = os.replace, []

    def fills(source, target):
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        written.append(target)
        replace(source, target)

    with monkeypatch.context() as full:
        full.setattr(os, "replace", fills)
        with pytest.raises(ConfigError, match=r"cannot write to the store .*: No space left on device"):
            carried_out()
    simulated.clear()
    assert len(carried_out().rows) == 8
    assert len(simulated) == 5


def test_a_worker_of_another_version_is_refused(registry):
    sent = workers.Sent(
        batch=workers.TrialBatch("simulation", ()),
        tried="run",
        tables=(),
        identity={"sipml": "0.0.9"},
        packages=("sipml_core",),
    )
    with pytest.raises(ConfigError, match=r"a worker has sipml 0\.1\.0, here it is 0\.0\.9"):
        workers.perform(sent)


def test_a_frame_has_the_axes_as_numbers(carried_out):
    pytest.importorskip("pandas")
    frame = carried_out().to_frame()
    assert frame.groupby(["cluster.bandwidth_gbps", "topology"]).size().to_dict() == {
        (gbps, name): 2 for gbps in (100.0, 400.0) for name in ("elect-flat", "sip-ring")
    }
    assert frame["iteration_us"].min() > 0


def test_more_runs_than_the_limit_are_refused_with_their_number(carried_out, simulated):
    with pytest.raises(ConfigError, match="the sweep has 8 runs, more than --limit 7"):
        carried_out(limit=7)
    assert simulated == []


def test_conditions_that_leave_nothing_are_refused(carried_out):
    with pytest.raises(ConfigError, match="the sweep has no point; its conditions leave none"):
        carried_out({**SWEEP, "only": ["{workload.plan.mp} > 8"]})


def test_shards_need_a_store_that_they_share(carried_out):
    with pytest.raises(ConfigError, match="need a store that all of them see: --store FOLDER"):
        carried_out(store=ResultStore(None), shard=Shard(1, 2))


def test_series_choose_rows_and_the_figure_is_the_same_bytes(carried_out, tmp_path):
    """Of a search the best of all, and that of pure data parallelism, which is never faster."""
    series = [
        {"label": "best", "topology": "elect-flat"},
        {"label": "DP only", "topology": "elect-flat", "pure_dp": True},
    ]
    found = carried_out({**SEARCHED, "series": series, "figure": {"y": ["iteration_ms", "mp"]}})
    rows = found.records()
    assert [row["series"] for row in rows] == ["best", "DP only"] * 2
    assert [row["mp"] for row in rows if row["series"] == "DP only"] == [1, 1]
    for best, pure in zip(rows[::2], rows[1::2], strict=True):
        assert best["time_to_goal_s"] <= pure["time_to_goal_s"]
    assert [(row["series"], row["x"]) for row in found.drawn()] == [
        ("best", 100.0), ("best", 400.0), ("DP only", 100.0), ("DP only", 400.0),
    ]  # fmt: skip
    written = [
        [path.read_bytes() for path in write_sweep(found, "small", tmp_path, picture=True)] for _ in "12"
    ]
    assert written[0] == written[1]
    assert {path.suffix for path in tmp_path.glob("small.*")} == {".csv", ".png", ".svg"}


@pytest.mark.parametrize("do", ["run", "search"])
def test_each_combination_of_other_axes_is_a_line_of_its_series(carried_out, do):
    """Bandwidth is drawn along: two plans of the ring are two lines, and the flat network is not drawn."""
    asked = {
        **SWEEP,
        "do": do,
        "axes": {"cluster.bandwidth_gbps": [100, 400], "workload.plan.global_batch": [8, 16]},
        "only": [],
        "series": [{"label": "ring", "topology": "sip-ring"}],
    }
    lines = [(row["series"], row["x"]) for row in carried_out(asked).drawn()]
    assert lines == [(f"ring, global_batch {batch}", gbps) for batch in (8, 16) for gbps in (100.0, 400.0)]


@pytest.mark.parametrize("do", ["run", "search"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"series": [{"label": "s", "topology": "sip-rin"}]},
            "no topology is labelled 'sip-rin'; did you",
        ),
        ({"figure": {"series": ["sip-rng"]}}, "figure.series: no series 'sip-rng'; did you mean 'sip-ring'"),
    ],
)
def test_lines_that_cannot_be_are_refused_before_anything_runs(
    carried_out, monkeypatch, do, changes, message
):
    monkeypatch.setattr(workers, "simulate_variants", None)
    with pytest.raises(ConfigError, match=message):
        carried_out({**SWEEP, **changes, "do": do})


def test_a_figure_of_no_row_is_left_out_and_the_table_written(carried_out, tmp_path):
    """No plan has 64 devices in a group."""
    found = carried_out({**SWEEP, "series": [{"label": "wide", "topology": "sip-ring", "mp": 64}]})
    assert write_sweep(found, "small", tmp_path, picture=True) == [tmp_path / "small.csv"]
    assert sweep_footnotes(found, "small") == ["no run is of a series of the figure: nothing to draw"]


def test_python_gives_the_rows_of_the_command(tmp_path):
    (tmp_path / "e.toml").write_text(TOML)
    store = tmp_path / "store"
    found = sipml.sweep(tmp_path / "e.toml", {"cluster.bandwidth_gbps": ["100 Gbps", 200]}, store=store)
    answer = CliRunner().invoke(
        main,
        ["sweep", str(tmp_path / "e.toml"), "--set", "cluster.bandwidth_gbps=100 Gbps,200", "--jobs", "1",
         "--store", str(store), "--out", str(tmp_path / "out")],
    )  # fmt: skip
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "out" / "e.csv").read_text() == sweep_csv(found)
    assert "gpt on elect-flat, cluster.bandwidth_gbps = 200: ok" in answer.stderr


def test_axes_in_python_may_be_arrays_and_ranges_of_the_tables_of_an_experiment(tmp_path):
    tables = tomllib.loads(TOML)
    axes = {"cluster.bandwidth_gbps": np.linspace(100, 200, 2), "seed": range(2)}
    found = sipml.sweep(tables, axes, store=tmp_path)
    places = [(row["cluster.bandwidth_gbps"], row["seed"]) for row in found.records()]
    assert places == [(100.0, 0), (100.0, 1), (200.0, 0), (200.0, 1)]


TOML = """title = "small"
cluster = { gpus = 8, bandwidth_gbps = 400 }
topology = [{ name = "elect-flat" }]
[[workload]]
name = "gpt"
layers = 1
hidden = 128
heads = 4
sequence = 32
vocabulary = 500
plan = { mp = 2, global_batch = 16 }
"""

#: A tenth of a second each: circuits are planned again every few microseconds.
SLOW = TOML.replace(
    '{ name = "elect-flat" }', '{ name = "sip-ring", interval_us = 4, reconfiguration_us = 1 }'
)


def test_a_killed_sweep_loses_only_what_was_running(tmp_path):
    """Killed when the first results are kept; the second start finds them and does the rest."""
    (tmp_path / "e.toml").write_text(SLOW.replace("global_batch = 16", "global_batch = 16, iterations = 10"))
    store, out = ResultStore(tmp_path / "store"), tmp_path / "out"
    command = [
        sys.executable, "-m", "sipml_core", "sweep", "e.toml", "--jobs", "1", "--store", str(store.folder),
        "--out", str(out), "--set", "cluster.bandwidth_gbps=" + ",".join(map(str, range(100, 108))),
    ]  # fmt: skip
    first = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    until = time.monotonic() + 60
    while len(list(store.files())) < 2 and time.monotonic() < until:
        time.sleep(0.005)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    kept = {path: path.stat().st_mtime_ns for path in store.files()}
    assert 2 <= len(kept) < 8
    assert not list(out.glob("*.csv"))
    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert len((out / "e.csv").read_text().splitlines()) == 1 + 8
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
