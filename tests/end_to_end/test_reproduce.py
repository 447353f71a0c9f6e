"""Laws of the reproduction: the files are well formed, verdicts are arithmetic, figures are bytes."""

import csv

import attrs
import pytest
from click.testing import CliRunner

from sipml_core.cli.main import main
from sipml_core.errors import ConfigError
from sipml_core.executing import InThisProcess
from sipml_core.model.progress import SILENT
from sipml_core.report.reproduction import draw, finding_tables, verdict_table, write_finding
from sipml_core.reproduce import numbers as numbers_module
from sipml_core.reproduce.numbers import carry_out
from sipml_core.reproduce.study import Claim, Study, read_study, study_names, study_text
from sipml_core.store import ResultStore
from sipml_core.sweeping import FigureTable, Point, Series, line_name, read_sweep


def test_all_studies_of_the_paper_are_there():
    assert study_names() == [
        "fig1", "fig5", "fig6", "ablations", "claims", "degree", "demand", "latency", "memory",
        "reconfiguration", "scale", "script",
    ]  # fmt: skip


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", study_names())
def test_every_experiment_of_every_study_is_valid(registry, name, quick):
    """Each file reads, and each series is an interconnect of each experiment."""
    study = read_study(name)
    source = read_study(study.results_of) if study.results_of else study
    found = list(source.experiments(registry, quick))
    assert len(found) == len(source.points(quick)) * len(source.tables) >= 2
    for _, experiment in found:
        labels = {interconnect.label for interconnect in experiment.interconnects}
        assert {s.topology for s in study.series} <= labels


@pytest.mark.parametrize("name", study_names())
def test_studies_choose_layouts_on_circuits_as_often_as_a_run(registry, name):
    """Links that are shared have several prices in a study, so circuits have two: of ports and of plans."""
    for _, experiment in read_study(name).experiments(registry, quick=True):
        if any(interconnect.scheduler for interconnect in experiment.interconnects):
            assert {job.search.rounds for job in experiment.jobs if job.search.mp != (1,)} <= {2}


@pytest.mark.parametrize("name", [name for name in study_names() if not read_study(name).results_of])
def test_a_study_is_a_sweep_that_anybody_may_copy(registry, tmp_path, name):
    """The file by itself, without its claims, asks for the same experiments at the same points."""
    study = read_study(name)
    assert not study.claim
    (tmp_path / "mine.toml").write_text(study_text(name))
    copy = read_sweep(tmp_path / "mine.toml")
    assert copy.do == "search"
    assert list(copy.experiments(registry, quick=True)) == list(study.experiments(registry, quick=True))


def test_the_figure_5_of_the_paper_is_asked_for_in_full(registry):
    """Three models, B from 128 to 8192 Gbps by doubling, 1024 GPUs, six networks."""
    study = read_study("fig5")
    assert [study.place(point, {})[0] for point in study.points()] == [128 * 2**k for k in range(7)]
    experiments = [experiment for _, experiment in study.experiments(registry, quick=False)]
    assert {job.label for e in experiments for job in e.jobs} == {"resnet50", "transformer", "megatron"}
    assert {i.cluster.gpus for e in experiments for i in e.interconnects} == {1024}
    assert len(study.series) == 6


def test_latency_is_swept_at_five_times_its_value(registry):
    study = read_study("latency")
    for point, experiment in study.experiments(registry):
        x, _ = study.place(point, {})
        options = {i.label: i.topology.options for i in experiment.interconnects}["re-planned"]
        assert (options.reconfiguration_us, options.interval_us) == (x, 5 * x)


def test_reconfiguration_asks_for_what_it_says(registry):
    """Six latencies at four bandwidths: by interval every 5 r, 20 us at least; by phase as often where a pair
    waits."""
    study = read_study("reconfiguration")
    asked = set()
    for point, experiment in study.experiments(registry):
        x, _ = study.place(point, {})
        networks = {each.label: each for each in experiment.interconnects}
        assert {each.circuit_keys.demand for each in networks.values()} == {"auto"}
        for label, network in networks.items():
            options = network.topology.options
            if "once" not in label:
                assert (options.reconfiguration_us, options.interval_us) == (x, max(20.0, 5 * x))
            assert network.circuit_keys.replan == ("phase" if "phase" in label else "interval")
        asked.add((x, networks["ocs set once"].cluster.bandwidth_gbps))
    assert len(asked) == 6 * 4


def test_panels_are_by_the_axes_that_are_not_drawn_along(registry):
    """Bandwidths stand beside the model; values that go with the latency, the axis, do not."""
    study = read_study("reconfiguration")
    names = {line_name(study, point, "gpt") for point in study.points()}
    assert names == {f"gpt, bandwidth_gbps {gbps}" for gbps in (250, 1000, 4000, 16000)}
    latency = read_study("latency")
    assert {line_name(latency, point, "gpt") for point in latency.points()} == {"gpt"}


def test_demand_has_the_settings_of_figure_5(registry):
    """At each bandwidth the GPU, the engine and the jobs of `fig5`, and by bytes its networks."""
    study, figure = read_study("demand"), {}
    for point, experiment in read_study("fig5").experiments(registry):
        for job in experiment.jobs:
            figure[point.values["cluster.bandwidth_gbps"], job.label] = experiment
    for point, experiment in study.experiments(registry):
        networks = {each.label: each for each in experiment.interconnects}
        for job in experiment.jobs:
            same = figure[point.values["cluster.bandwidth_gbps"], job.label]
            assert (experiment.gpu, experiment.precision) == (same.gpu, same.precision)
            theirs = {each.topology.name: each.topology.options for each in same.interconnects}
            for label in ("ocs by bytes", "ring by bytes"):
                made = networks[label]
                assert made.topology.options == theirs[made.topology.name]
                assert made.circuit_keys.demand == "bytes"
                assert networks[label.replace("bytes", "need")].circuit_keys.demand == "auto"


def test_ablations_begin_with_figure_5_and_change_no_network(registry):
    """The first point is what `fig5` simulates at 8192 Gbps; the others name no topology."""
    study = read_study("ablations")
    _, base = next(study.experiments(registry, quick=False))
    figure = next(
        experiment
        for point, experiment in read_study("fig5").experiments(registry, quick=False)
        if point.values["cluster.bandwidth_gbps"] == 8192 and experiment.title == "fig5"
    )
    assert study.point[0].set == ()
    assert (base.gpu, base.precision, base.engine) == (figure.gpu, figure.precision, figure.engine)
    assert set(base.interconnects) <= set(figure.interconnects)
    for job, of_figure in zip(base.jobs, figure.jobs, strict=True):
        assert (job.label, job.table, job.placer) == (of_figure.label, of_figure.table, of_figure.placer)
        assert set(job.search.global_batches) < set(of_figure.search.global_batches)
    assert not [change for p in study.point for change in p.set if change.startswith("topology")]


def small_study(**changes):
    """A small GPT on two interconnects at two bandwidths."""
    fields = dict(
        title="Small",
        do="search",
        figure=FigureTable(x_label="bandwidth [Gbps]", y=("time_to_accuracy_h",)),
        series=(
            Series(label="Elect-Flat", topology="elect-flat"),
            Series(label="Elect-Flat, DP only", topology="elect-flat", pure_dp=True),
            Series(label="SiP-OCS", topology="sip-ocs"),
        ),
        point=tuple(Point(x=x, set=(f"cluster.bandwidth_gbps={x}",), quick=x == 100) for x in (100.0, 200.0)),
        experiment=(
            {
                "title": "small",
                "quick": ["cluster.gpus=4"],
                "cluster": {"gpus": 8, "bandwidth_gbps": 1},
                "search": {"global_batches": [8], "mp": [1, 2], "top": 1},
                "workload": [
                    {
                        "name": "gpt",
                        "layers": 1,
                        "hidden": 128,
                        "heads": 4,
                        "sequence": 32,
                        "vocabulary": 500,
                        "curve": "paper",
                    }
                ],
                "topology": [{"name": "elect-flat"}, {"name": "sip-ocs"}],
            },
        ),
    )
    return Study(**{**fields, **changes})


@pytest.fixture(scope="module")
def finding(registry):
    """The small study as it is."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        return carried_out(registry, monkeypatch, small_study())


def carried_out(registry, monkeypatch, study, quick=False):
    monkeypatch.setattr(numbers_module, "read_study", {"small": study}.__getitem__)
    return carry_out(
        ["small"],
        registry,
        quick=quick,
        executor=InThisProcess(),
        store=ResultStore(None),
        progress=SILENT,
    )[0]


def test_a_study_has_a_number_for_every_series_at_every_point(finding):
    """Never faster than pure data parallelism alone is the best of all."""
    assert len(finding.numbers) == 3 * 2
    of = {(n.series, n.x): n for n in finding.numbers}
    for x in (100.0, 200.0):
        best, pure = of["Elect-Flat", x], of["Elect-Flat, DP only", x]
        assert pure.mp == 1
        assert best.time_to_accuracy_s <= pure.time_to_accuracy_s
        assert best.time_to_accuracy_h == pytest.approx(best.time_to_accuracy_s / 3600)
        assert best.throughput_per_s == pytest.approx(8 / (best.iteration_us * 1e-6))


def test_quick_takes_fewer_points_and_its_own_changes(registry, monkeypatch):
    finding = carried_out(registry, monkeypatch, small_study(), quick=True)
    assert {n.x for n in finding.numbers} == {100.0}
    assert {n.gpus for n in finding.numbers} == {4}


def test_figures_and_numbers_are_the_same_bytes_every_time(finding, tmp_path):
    finding = attrs.evolve(finding, study=small_study(figure=FigureTable(y=("time_to_accuracy_h", "mp"))))
    written = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        paths = write_finding(finding, tmp_path / name, picture=True)
        written.append({path.name: path.read_bytes() for path in paths})
    assert written[0] == written[1]
    assert set(written[0]) == {"small.csv", "small.png", "small.svg"}
    assert len(list(finding_tables(finding))) == 2


def test_named_points_are_rows_and_are_not_joined(registry, monkeypatch, tmp_path):
    """Names stand in the order of x, in the table, under the figure and in the CSV file."""
    points = (Point(x=2, set=(), label="second"), Point(x=1, set=(), label="first"))
    finding = carried_out(registry, monkeypatch, small_study(point=points, figure=FigureTable()))
    (table,) = finding_tables(finding)
    assert [str(column.header) for column in table.columns[1:]] == [s.label for s in finding.study.series]
    assert [str(cell) for cell in table.columns[0].cells] == ["first", "second"]
    panel = draw(finding).axes[0]
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["first", "second"]
    assert {line.get_linestyle() for line in panel.get_lines()} == {"None"}
    (path,) = write_finding(finding, tmp_path, picture=False)
    rows = csv.DictReader(path.read_text().splitlines())
    assert {(row["x"], row["label"]) for row in rows} == {("1", "first"), ("2", "second")}


def test_what_ablations_do_to_pure_data_parallelism(registry, monkeypatch):
    """Nothing is cut, so tau says nothing, nor which way round a ring of full ports goes; overheads cost;
    one bucket cannot overlap more than several; fp32 moves twice the bytes.
    """
    tables = {**small_study().experiment[0], "strategy": {"counter_rotating": True, "bucket_bytes": 1e5}}
    points = read_study("ablations").point
    finding = carried_out(registry, monkeypatch, small_study(point=points, experiment=(tables,)))
    times_us = {n.label: n.iteration_us for n in finding.numbers if n.series == "Elect-Flat, DP only"}
    base_us = times_us["nothing: as fig5"]
    assert times_us["tau = 1 us"] == base_us
    assert times_us["one ring of replicas"] == pytest.approx(base_us)
    assert times_us["no launch latency, no minimum op"] < base_us < times_us["one bucket of gradients"]
    assert times_us["fp32"] > base_us
    assert times_us["tau = 1 us, no launch, no minimum"] == times_us["no launch latency, no minimum op"]


def test_extrapolated_points_are_hollow_and_said_to_be(finding):
    """The small GPT is measured at batches from 1536 on; 8 is not among them."""
    assert all(n.extrapolated for n in finding.numbers)
    figure = draw(finding)
    assert "hollow" in figure.get_suptitle()
    faces = {
        line.get_markerfacecolor() for line in figure.axes[0].get_lines() if line.get_linestyle() == "None"
    }
    assert "white" in faces


def test_verdicts_have_a_table(registry, monkeypatch):
    both = Claim(text="same", paper="1x", over=("SiP-OCS",), under=("Elect-Flat",), smallest_at_least=1)
    finding = carried_out(registry, monkeypatch, small_study(claim=(both,)))
    assert verdict_table(finding).row_count == 1
    assert finding.verdicts[0].points == 2


def test_a_series_of_no_interconnect_is_refused(registry, monkeypatch):
    with pytest.raises(ConfigError, match="no topology is labelled 'sip-ring'"):
        carried_out(
            registry, monkeypatch, small_study(series=(Series(label="SiP-Ring", topology="sip-ring"),))
        )


def test_a_mistyped_study_gets_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'fig5'"):
        read_study("fig55")


def test_an_unknown_quantity_is_refused():
    with pytest.raises(ConfigError, match="y must be numbers of the table, got 'speed'"):
        FigureTable(y=("speed",))


@pytest.mark.slow
def test_the_quick_reproduction_runs(tmp_path):
    """All studies at 64 GPUs: a figure and numbers each, and verdicts: two on all models, 18 on one each."""
    answer = CliRunner().invoke(
        main, ["reproduce", "all", "--quick", "--no-store", "--out", str(tmp_path)], catch_exceptions=False
    )
    assert answer.exit_code == 0, answer.output
    kinds = {name: {p.suffix for p in tmp_path.glob(f"{name}.*")} for name in study_names()}
    assert kinds.pop("claims") == {".csv"}
    assert all(found == {".csv", ".png", ".svg"} for found in kinds.values())
    assert len((tmp_path / "claims.csv").read_text().splitlines()) == 1 + 2 + 6 * 3
