"""The command line: what it answers, on which stream, with which exit status."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from sipml_core.cli.main import main

GOOD = """
title = "cli"

[cluster]
gpus = 8
bandwidth_gbps = "2 Tbps"

[[workload]]
name = "gpt"
layers = 1
hidden = 128
heads = 4
sequence = 32
vocabulary = 500
strategy = { mp = 2, dp = 4, global_batch = 16 }

[[topology]]
name = "elect-flat"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    return path


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def refused(*arguments):
    """The one line of a refusal: exit status 2, nothing on stdout, no traceback."""
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("sipml: ")
    return lines[0]


def test_run_prints_a_table_and_writes_three_files(file, tmp_path):
    result = call("run", file, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "elect-flat" in result.stdout
    assert "2 x 4" in result.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "experiment.toml", "result.json", "summary.csv",
    ]  # fmt: skip
    assert json.loads((tmp_path / "out" / "result.json").read_text())["title"] == "cli"


def test_set_and_seed_change_the_experiment_and_are_recorded(file, tmp_path):
    result = call("run", file, "--out", tmp_path, "--seed", 7, "--set", "cluster.bandwidth_gbps=1 Tbps")
    assert result.exit_code == 0, result.stderr
    written = (tmp_path / "experiment.toml").read_text()
    assert "seed = 7" in written
    assert "bandwidth_gbps = 1000.0" in written


def test_a_line_for_each_case_where_stderr_is_no_terminal(file, tmp_path):
    result = call("run", file, "--out", tmp_path)
    case, wrote = result.stderr.splitlines()
    assert re.fullmatch(r"gpt on elect-flat: ok, 0\.\d+ ms", case)
    assert wrote.startswith("wrote ")


def written(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_run_gives_the_same_files_in_two_processes_and_from_the_store(file, tmp_path, monkeypatch):
    """The third finds all in the store of the second: no case is simulated."""
    two = ["--set", 'topology=[{ name = "elect-flat" }, { name = "sip-ring" }]']
    one, other, again = (tmp_path / name for name in ("one", "other", "again"))
    assert call("run", file, *two, "--no-store", "--out", one).exit_code == 0
    store = ["--store", tmp_path / "store"]
    assert call("run", file, *two, *store, "--jobs", 2, "--out", other).exit_code == 0
    assert written(other) == written(one)
    monkeypatch.setattr("sipml_core.cases.running.fastest_of_case", None)
    assert call("run", file, *two, *store, "--out", again).exit_code == 0
    assert written(again) == written(one)


def test_compare_says_what_was_asked_and_what_came_out(file, tmp_path):
    """The bandwidth is doubled: the iteration is shorter."""
    for name, gbps in (("slow", 100), ("fast", 200)):
        call("run", file, "--set", f"cluster.bandwidth_gbps={gbps}", "--out", tmp_path / name)
    result = call("compare", tmp_path / "slow", tmp_path / "fast")
    assert result.exit_code == 0, result.stderr
    asked, came_out = result.stdout.split("what came out")
    assert re.search(r"cluster\.bandwidth_gbps\W+100\W+200\b", asked)
    assert re.search(r"iteration_us\W+1 of 1\b.* -\d", came_out)
    assert "older format" in refused("compare", tmp_path / "slow", file)


def test_what_cannot_be_is_refused_in_several_processes_too(file, tmp_path):
    """One network has no circuits for the scheduler to plan; the other could run."""
    two = 'topology=[{ name = "elect-flat", scheduler = "ring-fast" }, { name = "sip-ring" }]'
    options = ["--set", two, "--jobs", 2, "--no-store", "--out", tmp_path]
    result = call("run", file, *options)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith("has no circuits for 'ring-fast' to plan")


def test_a_store_that_cannot_be_written_is_refused(file, tmp_path):
    (tmp_path / "file").write_text("")
    for command in ("run", "sweep", "search"):
        said = refused(command, file, "--store", tmp_path / "file" / "store", "--out", tmp_path / "out")
        assert said.startswith("sipml: cannot write to the store ")
        assert "/file/store: Not a directory; choose another with --store" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "cluster.bandwith_gbps=1,2"], "is not a known key; did you mean 'bandwidth_gbps'?"),
        (["--set", "cluster.bandwidth_gbps=400,fast"], "at cluster.bandwidth_gbps = 'fast'"),
        (["--set", "cluster.gpus=8,16", "--limit", 1], "the sweep has 2 runs, more than --limit 1"),
        (["--shard", "17/16"], "--shard must be a part of a whole such as 3/16"),
        (["--shard", "1/2", "--no-store"], "need a store that all of them see"),
        (["--on", "spark://here"], "--on must be dask://HOST:PORT, or slurm"),
    ],
)
def test_sweeps_that_cannot_be_are_refused_in_one_line(file, tmp_path, options, message):
    assert message in refused("sweep", file, *options, "--jobs", 1, "--out", tmp_path)


def test_the_table_of_a_sweep_has_units_and_fits_a_narrow_terminal(file, tmp_path, monkeypatch):
    """A label in brackets is no markup; columns of less weight go first, and nothing is cut."""
    options = ["--set", "cluster.bandwidth_gbps=400,800", "--jobs", 1, "--no-store", "--out", tmp_path]
    labelled = file.read_text().replace('"elect-flat"', '"elect-flat"\nlabel = "flat [red]"')
    file.write_text(labelled)
    wide = call("sweep", file, *options).stdout
    assert "iteration [ms]" in wide
    assert "to goal [h]" in wide
    assert "flat [red]" in wide
    monkeypatch.setenv("COLUMNS", "50")
    narrow = call("sweep", file, *options).stdout
    assert max(map(len, narrow.splitlines())) <= 50
    assert "iteration [ms]" in narrow
    assert "bandwidth_gbps" in narrow
    assert "flat [red]" in narrow


def test_a_sweep_without_a_figure_is_drawn_where_that_is_asked_for(file, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    options = ["--set", "cluster.bandwidth_gbps=400,800", "--jobs", 1, "--store", tmp_path / "store"]
    assert call("sweep", file, *options, "--out", tmp_path / "plain").exit_code == 0
    assert not list((tmp_path / "plain").glob("*.png"))
    assert call("sweep", file, *options, "--out", tmp_path / "drawn", "--picture").exit_code == 0
    assert (tmp_path / "drawn" / f"{file.stem}.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "figures need matplotlib" in refused("sweep", file, *options, "--out", tmp_path, "--picture")


def test_too_little_memory_is_one_line(file, tmp_path, monkeypatch):
    def full(*_, **__):
        raise MemoryError("Unable to allocate 32.0 GiB")

    monkeypatch.setattr("sipml_core.cases.running.prepared_variants", full)
    result = call("run", file, "--no-store", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr.startswith("sipml: there is not enough memory: Unable to allocate 32.0 GiB; nothing")


def test_validate_says_what_would_run(file):
    result = call("validate", file)
    assert result.exit_code == 0, result.stderr
    assert "gpt on elect-flat: mp x dp = 2 x 4" in result.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cluster.bandwidth_gbps=0", "cluster.bandwidth_gbps must be positive"),
        ("cluster.bandwidth_gbps=-5", "cluster.bandwidth_gbps must be positive"),
        ("cluster.bandwidth_gbps=fast", "cluster.bandwidth_gbps must be a bandwidth"),
        ("cluster.gpus=0", "cluster.gpus must be from 1 to 65536, got 0"),
        ("cluster.gpus=70000", "cluster.gpus must be from 1 to 65536, got 70000"),
        ("cluster.gpus=1", "nearest valid: mp=1, dp=1"),
        ("cluster.gpus=7", "nearest valid: mp=1, dp=7 or mp=7, dp=1"),
        ("workload.strategy.global_batch=2", "must be a multiple of dp=4, got 2; nearest: 4"),
        ("topology.name=elect-flta", "no topology 'elect-flta'; did you mean 'elect-flat'?"),
        ("topology=elect-flat", "topology must be a list of tables"),
        ("topology.latency=1", "topology.latency is not a known key; did you mean 'latency_us'?"),
        ("workload.heads=3", "heads"),
        ("cluster=3", "must be a table"),
        ("cluster.launch_us=1e12", "cluster.launch_us must be from 0 to 1e+06"),
        ("workload.strategy.iterations=1000000", "iterations must be from 1 to 1000, got 1000000"),
        ("topology.scheduler=ring-fast", "has no circuits for 'ring-fast' to plan"),
    ],
)
@pytest.mark.parametrize("command", ["run", "validate"])
def test_bad_values_are_refused_in_one_line(file, tmp_path, command, change, message):
    out = ["--out", tmp_path] if command == "run" else []
    assert message in refused(command, file, "--set", change, *out)


def test_a_mistyped_ring_gets_the_ring(file):
    assert "did you mean 'sip-ring'?" in refused("validate", file, "--set", "topology.name=sip-rnig")


def test_files_that_are_missing_or_not_toml_are_refused(tmp_path):
    assert "cannot read" in refused("run", tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("title = ")
    assert "is not TOML" in refused("run", tmp_path / "bad.toml")


RACK = "from,to\ngpu0,leaf\ngpu1,leaf\n"


@pytest.fixture
def rack(file, monkeypatch):
    """An experiment on a rack.csv beside it, seen from another working directory."""
    folder, elsewhere = file.parent / "mine", file.parent / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    text = GOOD.replace('"elect-flat"', '"graph"\nfile = "rack.csv"').replace("gpus = 8", "gpus = 2")
    (folder / "rack.toml").write_text(text.replace("mp = 2, dp = 4", "mp = 2, dp = 1"))
    return folder / "rack.toml"


def test_files_count_from_the_folder_of_the_experiment(rack, tmp_path):
    """Wherever the command runs; and what it writes repeats the run from any other folder."""
    (rack.parent / "rack.csv").write_text(RACK)
    assert call("validate", rack).exit_code == 0
    assert call("validate", Path("..") / "mine" / "rack.toml").exit_code == 0
    assert call("run", rack, "--out", tmp_path / "out").exit_code == 0
    assert call("validate", tmp_path / "out" / "experiment.toml").exit_code == 0


def test_files_in_set_count_from_the_working_directory(rack):
    Path("here.csv").write_text(RACK)
    assert call("validate", rack, "--set", "topology.file=here.csv").exit_code == 0
    line = refused("validate", rack, "--set", "topology.file=none.csv")
    assert f"topology.file: there is no file {Path('none.csv').absolute()}; relative names" in line


def test_a_missing_file_is_named_in_full_and_the_rule_said(rack):
    line = refused("run", rack)
    assert f"{rack}: topology.file: there is no file {rack.parent / 'rack.csv'}; relative names" in line
    assert "count from the folder of the experiment file, in --set from the working directory" in line


def test_a_byte_order_mark_is_no_part_of_a_file(file, tmp_path):
    file.write_text("\ufeff" + GOOD, encoding="utf-8")
    assert call("validate", file).exit_code == 0
    (tmp_path / "tm.csv").write_text("\ufeff0,5\n5,0\n", encoding="utf-8")
    planned = call("circuits", "--topology", "sip-ocs", "--matrix", tmp_path / "tm.csv", "--out", tmp_path)
    assert planned.exit_code == 0, planned.stderr


def test_an_output_folder_that_cannot_be_made_is_refused_before_the_run(file, tmp_path):
    """A file stands where the folder should be."""
    (tmp_path / "taken").write_text("")
    assert "cannot write to the output folder" in refused("run", file, "--out", tmp_path / "taken" / "out")


def test_a_narrow_terminal_gets_whole_numbers(registry):
    """80 columns hold the main columns, uncut."""
    from rich.console import Console

    from sipml_core.cases.running import run_experiment
    from sipml_core.experiment.reading import read_experiment
    from sipml_core.report.tables import result_tables

    console = Console(width=80, record=True, file=io.StringIO())
    for table in result_tables(run_experiment(read_experiment(tomllib.loads(GOOD), registry)), console.width):
        console.print(table)
    text = console.export_text()
    assert "…" not in text
    assert "elect-flat" in text
    assert "baseline" in text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_an_output_that_cannot_be_written_is_one_line(file, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sipml_core", "run", str(file), "--out", str(tmp_path)],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "sipml: input or output failed" in done.stderr


def test_what_did_not_run_is_a_row_with_its_reason_and_the_status_is_one(file, tmp_path):
    """A limit of simulated time; a memory of 1 MB; both are written, shown, and end with status 1."""
    for change, status, reason in (
        ("engine.max_time_us=1", "unfinished", "simulated-time limit of 1 us"),
        ("gpu.memory=1 MB", "infeasible", "the GPU has 1 MB"),
    ):
        result = call("run", file, "--out", tmp_path / status, "--set", change)
        assert result.exit_code == 1
        assert reason in " ".join(result.stdout.split())
        assert result.stderr.splitlines()[-1] == "sipml: 1 of 1 cases did not run; each row says why"
        (row,) = csv.DictReader((tmp_path / status / "summary.csv").read_text().splitlines())
        assert (row["status"], row["iteration_us"], row["mp"]) == (status, "", "2")
        assert reason in row["reason"]


def test_validate_has_the_status_of_run(file):
    result = call("validate", file, "--set", "gpu.memory=1 MB")
    assert result.exit_code == 1
    assert "gpt on elect-flat: cannot run: " in result.stdout
    assert "is valid" not in result.stdout


HOSTILE = ["net [a]", "flat [/fast]", "[bold]", "Größe", "a: {b}"]


@pytest.mark.parametrize("label", HOSTILE)
def test_text_from_users_is_never_markup(file, tmp_path, label):
    """Labels, folders and matrices are printed as they are."""
    result = call("run", file, "--out", tmp_path / f"res{label[:4]}", "--set", f"topology.label={label}")
    assert result.exit_code == 0, result.output
    assert label in result.stdout
    (tmp_path / "tm[a].csv").write_text("0,5\n5,0\n")
    planned = call(
        "circuits", "--topology", "sip-ocs", "--matrix", tmp_path / "tm[a].csv", "--out", tmp_path / "[/o]"
    )
    assert planned.exit_code == 0, planned.output
    assert "circuits for tm[a].csv" in planned.stdout


@pytest.mark.parametrize("command", ["run", "search"])
def test_a_full_disk_under_stdout_loses_no_result(file, tmp_path, command):
    """Files are written before anything is printed; the line says where they are."""
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    more = ["--no-store", "--jobs", "1", "--top", "1"] if command == "search" else []
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sipml_core", command, str(file), "--out", str(tmp_path), *more],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"results are in {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / ("summary.csv" if command == "run" else "search.csv")).exists()


def test_letters_that_a_terminal_does_not_have_are_spelt(file, tmp_path):
    """An ASCII stdout, a label and a title that are none."""
    text = (
        file.read_text()
        .replace('title = "cli"', 'title = "Ünï"')
        .replace('"elect-flat"', '"elect-flat"\nlabel = "Größe"')
    )
    file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "sipml_core", "run", str(file)], cwd=tmp_path, capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert rb"Gr\xf6\xdfe" in done.stdout
    assert (tmp_path / "results" / "Ünï" / "summary.csv").exists()


def test_a_notebooks_backend_is_left_alone(tmp_path):
    """MPLBACKEND as notebooks set it; circuits are drawn off screen all the same."""
    pytest.importorskip("matplotlib")
    (tmp_path / "tm.csv").write_text("0,5\n5,0\n")
    asked = ["circuits", "--topology", "sip-ocs", "--matrix", "tm.csv", "--out", "o"]
    done = subprocess.run(
        [sys.executable, "-m", "sipml_core", *asked],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o" / "plan.png").exists()


def test_a_plan_without_a_picture_leaves_no_older_one(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "tm.csv").write_text("0,5\n5,0\n")
    asked = ("circuits", "--topology", "sip-ocs", "--matrix", tmp_path / "tm.csv", "--out", tmp_path / "o")
    assert call(*asked, "--picture").exit_code == 0
    assert (tmp_path / "o" / "plan.png").exists()
    assert call(*asked, "--no-picture").exit_code == 0
    assert not (tmp_path / "o" / "plan.png").exists()


OBSERVER = """
from sipml_core.plugin import hookimpl

@hookimpl
def sipml_run_finished(result):
    raise SystemExit(f"cannot phone home about {result.title}")
"""


def test_an_observer_that_raises_is_named_and_changes_nothing(file, tmp_path):
    """Not even SystemExit; it is told after the files are written."""
    package = tmp_path / "site" / "watcher-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: watcher\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[sipml]\nwatcher = watcher_module\n")
    (tmp_path / "site" / "watcher_module.py").write_text(OBSERVER)
    done = subprocess.run(
        [sys.executable, "-m", "sipml_core", "run", str(file), "--out", str(tmp_path / "out")],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = "plugin 'watcher' failed in sipml_run_finished: SystemExit: cannot phone home about cli"
    assert f"sipml: warning: {told}" in done.stderr
    assert "elect-flat" in done.stdout
    assert (tmp_path / "out" / "result.json").exists()


def test_columns_are_kept_where_there_is_no_terminal(file, tmp_path):
    """COLUMNS=60 for a pipe: no line is longer, and the answer stands whole."""
    done = subprocess.run(
        [sys.executable, "-m", "sipml_core", "run", str(file), "--out", str(tmp_path)],
        capture_output=True, text=True, env={**os.environ, "COLUMNS": "60"},
    )  # fmt: skip
    tables = done.stdout.split("gpt on elect-flat: ")[0]
    assert max(map(len, tables.splitlines())) <= 60
    assert "elect-flat" in done.stdout
    assert "baseline" in done.stdout


def test_plugins_lists_everything_and_explains_one():
    listed = call("plugins")
    assert listed.exit_code == 0
    for name in ("elect-flat", "gpt", "v100", "algorithm1"):
        assert name in listed.stdout
    page = call("plugins", "elect-flat")
    assert "latency_us" in page.stdout
    assert "did you mean 'elect-flat'?" in refused("plugins", "elect-flatt")


def test_help_teaches_and_version_is_the_packages():
    from sipml_core import __version__

    assert "Start here" in call("--help").stdout
    assert __version__ in call("--version").stdout


def test_what_help_shows_works_in_an_empty_folder(tmp_path, monkeypatch):
    """In order, for somebody who has nothing but the installed package."""
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"^ +python -m sipml_core (.*?)(?:  .*)?$", call("--help").stdout, re.MULTILINE)
    assert len(shown) == 6
    for line in shown:
        result = call(*shlex.split(line))
        assert result.exit_code == 0, (line, result.stderr)


def test_new_experiment_never_replaces_a_file(tmp_path):
    result = call("new-experiment", tmp_path / "mine.toml")
    assert result.exit_code == 0
    assert f"next: python -m sipml_core run {tmp_path / 'mine.toml'}" in result.stdout
    assert "already exists; choose another name" in refused("new-experiment", tmp_path / "mine.toml")
    assert "cannot write" in refused("new-experiment", tmp_path / "no" / "mine.toml")


def test_the_module_runs_and_starts_without_numpy():
    """--help must answer at once, so the command line imports nothing heavy before a command runs."""
    code = "import sys; import sipml_core.cli.main; print('numpy' in sys.modules, 'networkx' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]
    run = subprocess.run(
        [sys.executable, "-m", "sipml_core", "--version"], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("sipml")


def test_a_run_imports_only_what_it_uses(tmp_path):
    """On a switch nobody asks for HiGHS, graphs, figures, a search or other processes."""
    (tmp_path / "x.toml").write_text(
        'title = "x"\ncluster = { gpus = 4, bandwidth_gbps = 100 }\n'
        'workload = { name = "resnet50", strategy = { mp = 1, dp = 4, global_batch = 64 } }\n'
        'topology = { name = "elect-flat" }\n'
    )
    code = (
        "import atexit, sys; from sipml_core.cli.main import main; "
        "atexit.register(lambda: print(*sys.modules)); main(['run', 'x.toml'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded = set(run.stdout.splitlines()[-1].split())
    assert "sipml_core.engine.kernel" in loaded
    unused = {"highspy", "networkx", "matplotlib", "rich.progress", "multiprocessing", "sipml_core.searching"}
    assert not loaded & unused


def test_circuits_plans_a_matrix_and_draws_it(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "tm.csv").write_text("0,5,0\n0,0,5\n5,0,0\n")
    result = call(
        "circuits", "--topology", "sip-ocs", "--matrix", tmp_path / "tm.csv", "--out", tmp_path / "o"
    )
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["plan.csv", "plan.json", "plan.png"]
    summary = json.loads((tmp_path / "o" / "plan.json").read_text())
    assert summary["total_gbps"] == 3 * 2000  # one permutation of neighbours: all 16 circuits to one peer
    assert summary["unserved_pairs"] == []


@pytest.mark.parametrize(
    ("topology", "options", "rows"),
    [
        (
            "sip-ocs", ["--set", "switches=3"],
            [
                {"src": src, "dst": dst, "capacity_gbps": "150.0", "circuits": "3", "kept": "0",
                 "switches": "0;1;2"}
                for src, dst in ("01", "12", "20")
            ],
        ),
        (
            "sip-ring", ["--set", "reach_hops=1"],
            [
                {"src": src, "dst": dst, "capacity_gbps": "75.0", "demand": demand, "clockwise": "[0, 1, 2]",
                 "counterclockwise": "[]", "kept_gbps": "0.0", "dark_us": "25.0"}
                for src, dst, demand in (("0", "1", "5.0"), ("1", "2", "6.0"), ("2", "0", "3.0"))
            ],
        ),
    ],
)  # fmt: skip
def test_plan_csv_holds_each_field_in_its_column(tmp_path, topology, options, rows):
    """Three GPUs in a circle: each of three switches of B / 3 joins all neighbours; and on the ring the three
    clockwise wavelengths of B / 6 do, where the way round is out of reach. Nothing was lit before."""
    (tmp_path / "tm.csv").write_text("0,5,0\n0,0,6\n3,0,0\n")
    out = ["--out", tmp_path / "o", "--no-picture", "--bandwidth", "150 Gbps"]
    planned = call("circuits", "--topology", topology, "--matrix", tmp_path / "tm.csv", *out, *options)
    assert planned.exit_code == 0, planned.stderr
    assert list(csv.DictReader((tmp_path / "o" / "plan.csv").read_text().splitlines())) == rows


def test_circuits_plans_without_matplotlib_too(tmp_path, monkeypatch):
    """The README's first command installs none: the plan is written, and the missing picture is said."""
    for module in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("sipml_core.report.plots.can_draw", lambda: False)
    (tmp_path / "tm.csv").write_text("0,5,0\n0,0,5\n5,0,0\n")
    asked = ("circuits", "--topology", "sip-ocs", "--matrix", tmp_path / "tm.csv", "--out", tmp_path / "o")
    result = call(*asked)
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["plan.csv", "plan.json"]
    assert "no picture without matplotlib" in result.stderr
    assert call(*asked, "--picture").exit_code == 2


def test_circuits_refuses_what_it_cannot_plan(tmp_path):
    matrix = tmp_path / "tm.csv"
    matrix.write_text("0,5\n5,0\n")
    assert "has no circuits to plan" in refused("circuits", "--topology", "elect-flat", "--matrix", matrix)
    many = refused("circuits", "--topology", "sip-ocs", "--matrix", matrix, "--set", "switches=1000000")
    assert "switches must be from 1 to 1024, got 1000000" in many
    matrix.write_text("0,-5\n5,0\n")
    assert "must be finite and not negative" in refused(
        "circuits", "--topology", "sip-ocs", "--matrix", matrix
    )
    dense = [["0"] * 40 for _ in range(40)]
    dense[0][20] = "1"
    matrix.write_text("\n".join(",".join(row) for row in dense))
    message = refused("circuits", "--topology", "sip-ring", "--matrix", matrix, "--set", "reach_hops=4")
    assert "traffic[0, 20] is out of reach" in message


def test_a_plugin_that_fails_to_load_is_a_warning(file, tmp_path):
    """An installed distribution whose module raises: named, and the rest still works."""
    package = tmp_path / "site" / "broken_plugin-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[sipml]\nbroken = broken_plugin\n")
    (tmp_path / "site" / "broken_plugin.py").write_text("raise RuntimeError('no luck')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    shown = subprocess.run(
        [sys.executable, "-m", "sipml_core", "validate", str(file)],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    assert "plugin 'broken' (broken-plugin 1) is left out: RuntimeError: no luck" in shown.stderr
    assert "is valid" in shown.stdout


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


def gpus_of(example):
    return tomllib.loads(example.read_text()).get("cluster", {}).get("gpus", 0)


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] if gpus_of(path) > 16 else [])
        for path in EXAMPLES
        if path.name != "sweep.toml"
    ],
)
def test_the_examples_validate(example):
    """Those of large clusters are slow; they are run, too, with what they print, by examples/run_all.py."""
    result = call("validate", example)
    assert result.exit_code == 0, result.stderr


def test_a_sweep_is_told_from_an_experiment():
    (example,) = [path for path in EXAMPLES if path.name == "sweep.toml"]
    assert "is a sweep, not an experiment: python -m sipml_core sweep" in refused("validate", example)


@pytest.mark.parametrize(("seconds", "status"), [("nan", 2), ("inf", 0), ("1e300", 0)])
def test_a_limit_of_time_is_a_number_however_large(file, tmp_path, seconds, status):
    """No alarm of a system goes that far; what compares with nothing is refused."""
    result = call("run", file, "--no-store", "--out", tmp_path / "out", "--max-wall", seconds)
    assert result.exit_code == status, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert ("nan is no number of seconds" in result.output) == (status == 2)
