"""Files that an experiment names count from its own folder."""

import copy
import importlib.util
from pathlib import Path

import attrs
import pytest
import tomli_w

from sipml_core.errors import ConfigError
from sipml_core.experiment import apply_overrides, read_experiment, read_tables, resolved_tables
from sipml_core.fields import file_path, option
from sipml_core.plugin.hookspecs import hookimpl
from sipml_core.plugin.interfaces import Estimator, GpuModel, Placer, Scheduler, Topology, Workload
from sipml_core.plugin.registry import Source, collect

_spec = importlib.util.spec_from_file_location("fakes", Path(__file__).parents[1] / "fakes.py")
fakes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fakes)


@attrs.frozen(kw_only=True)
class Named:
    measured: str = file_path("quick", doc="a name, or a .csv file", endings=(".csv",))
    file: str = file_path("a.toml", doc="a file")
    text: str = option("a.csv", doc="no file at all")


def component(base, named):
    """A class of that role whose options name files, and which can do nothing."""

    def unused(self, *arguments):
        raise NotImplementedError

    methods = dict.fromkeys(base.__abstractmethods__, unused)
    return type(
        named, (base,),
        {**methods, "name": named, "summary": "of files", "Options": Named, "default_global_batch": 64},
    )  # fmt: skip


class OfFiles:
    @hookimpl
    def sipml_topologies(self):
        return [component(Topology, "net")]

    @hookimpl
    def sipml_schedulers(self):
        return [component(Scheduler, "planner")]

    @hookimpl
    def sipml_estimators(self):
        return [component(Estimator, "seer")]

    @hookimpl
    def sipml_workloads(self):
        return [component(Workload, "model")]

    @hookimpl
    def sipml_placers(self):
        return [component(Placer, "seats")]

    @hookimpl
    def sipml_gpu_models(self):
        return [component(GpuModel, "chip")]


@pytest.fixture
def registry():
    registry = collect(
        [
            (Source(plugin="fakes", distribution="tests"), fakes.Fakes()),
            (Source(plugin="files", distribution="tests"), OfFiles()),
        ]
    )
    assert not registry.problems
    return registry


BASE = {
    "title": "files",
    "cluster": {"gpus": 4, "bandwidth_gbps": 100},
    "workload": [{"name": "tiny"}],
    "topology": [{"name": "ring"}],
}

#: Path that errors name the table by, the tables of an experiment with `table` there, what it gives to whom.
PLACES = {
    "gpu": (lambda t: {"gpu": {"name": "chip", **t}}, lambda e: e.gpu),
    "topology": (lambda t: {"topology": {"name": "net", **t}}, lambda e: e.interconnects[0].topology),
    "topology[1]": (
        lambda t: {"topology": [{"name": "ring"}, {"name": "net", **t}]},
        lambda e: e.interconnects[1].topology,
    ),
    "topology.scheduler": (
        lambda t: {"topology": [{"name": "ring", "scheduler": {"name": "planner", **t}}]},
        lambda e: e.interconnects[0].scheduler,
    ),
    "topology.estimator": (
        lambda t: {"topology": [{"name": "ring", "estimator": {"name": "seer", **t}}]},
        lambda e: e.interconnects[0].estimator,
    ),
    "workload": (lambda t: {"workload": [{"name": "model", **t}]}, lambda e: e.jobs[0].workload),
    "strategy.placer": (
        lambda t: {"strategy": {"placer": {"name": "seats", **t}}},
        lambda e: e.jobs[0].placer,
    ),
    "workload[1].strategy.placer": (
        lambda t: {
            "workload": [
                {"name": "tiny"},
                {"name": "tiny", "label": "b", "strategy": {"placer": {"name": "seats", **t}}},
            ]
        },
        lambda e: e.jobs[1].placer,
    ),
    "search.placers[1]": (
        lambda t: {"search": {"placers": ["algorithm1", {"name": "seats", **t}]}},
        lambda e: e.jobs[0].placers[1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", PLACES)
def test_every_component_that_names_files_gets_them_from_the_folder(registry, tmp_path, path):
    """Only names of files change; the tables of the experiment repeat the run from any folder."""
    tables, chosen = PLACES[path]
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.toml").touch()
    (tmp_path / "M.CSV").touch()
    given = {"measured": "M.CSV", "file": "deep/b.toml", "text": "a.csv"}
    file = tmp_path / "x.toml"
    file.write_text(tomli_w.dumps({**BASE, **tables(given)}))

    experiment = read_experiment(read_tables(file), registry)

    expected = {
        "measured": str(tmp_path / "M.CSV"),
        "file": str(tmp_path / "deep" / "b.toml"),
        "text": "a.csv",
    }
    assert chosen(experiment).options == Named(**expected)
    again = tmp_path / "deep" / "again.toml"
    again.write_text(tomli_w.dumps(resolved_tables(experiment)))
    assert read_experiment(read_tables(again), registry) == experiment


@pytest.mark.parametrize("path", PLACES)
def test_a_file_that_is_not_there_is_refused_by_its_key_and_full_name(registry, tmp_path, path):
    file = tmp_path / "x.toml"
    file.write_text(tomli_w.dumps({**BASE, **PLACES[path][0]({"measured": "m.csv"})}))
    with pytest.raises(ConfigError) as refusal:
        read_experiment(read_tables(file), registry)
    assert str(refusal.value) == (
        f"{path}.measured: there is no file {tmp_path / 'm.csv'}; relative names count from the folder of "
        "the experiment file, in --set from the working directory"
    )


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_no_file(registry, name):
    """300 letters are more than file systems allow, and a null character ends a name."""
    tables = {**BASE, "topology": [{"name": "net", "file": name}]}
    with pytest.raises(ConfigError, match=r"topology\.file: there is no file"):
        read_experiment(tables, registry)


def test_values_set_on_the_command_line_count_from_the_working_directory(registry, tmp_path, monkeypatch):
    """The experiment lies in one folder, the command runs in another; both have a file of that name."""
    for folder in ("home", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.csv").touch()
    file = tmp_path / "home" / "x.toml"
    file.write_text(tomli_w.dumps({**BASE, "topology": [{"name": "net", "file": "net.csv"}]}))
    monkeypatch.chdir(tmp_path / "here")
    for changes, folder in ((), "home"), (["topology.file=net.csv"], "here"):
        experiment = read_experiment(apply_overrides(read_tables(file), changes), registry)
        assert experiment.interconnects[0].topology.options.file == str(tmp_path / folder / "net.csv")


def test_the_tables_given_stay_as_they_are(registry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.csv").touch()
    tables = {**BASE, "topology": [{"name": "net", "file": "net.csv"}]}
    before = copy.deepcopy(tables)
    read_experiment(tables, registry)
    assert tables == before
