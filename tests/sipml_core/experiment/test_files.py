"""Files that an experiment names count from its own folder."""

import attrs
import pytest

from sipml_core.errors import ConfigError
from sipml_core.experiment.files import absolute_files, refuse_missing_files
from sipml_core.fields.options import option
from sipml_core.plugin.hookspecs import hookimpl
from sipml_core.plugin.interfaces import Placer, Scheduler, Topology, Workload
from sipml_core.plugin.registry import Source, collect


@attrs.frozen(kw_only=True)
class Named:
    measured: str = option("quick", doc="a name, or a .csv file", files=(".csv",))
    file: str = option("a.toml", doc="a file", files=("",))
    text: str = option("a.csv", doc="no file at all")


def component(base, named):
    """A class of that role whose options name files, and which can do nothing."""

    def unused(self, *arguments):
        raise NotImplementedError

    methods = dict.fromkeys(base.__abstractmethods__, unused)
    return type(
        named, (base,),
        {**methods, "name": named, "summary": "of files", "Options": Named, "default_global_batch": 1},
    )  # fmt: skip


class OfFiles:
    @hookimpl
    def sipml_topologies(self):
        return [component(Topology, "net")]

    @hookimpl
    def sipml_schedulers(self):
        return [component(Scheduler, "planner")]

    @hookimpl
    def sipml_workloads(self):
        return [component(Workload, "model")]

    @hookimpl
    def sipml_placers(self):
        return [component(Placer, "seats")]


@pytest.fixture
def registry():
    registry = collect([(Source(plugin="files", distribution="tests"), OfFiles())])
    assert not registry.problems
    return registry


@pytest.mark.parametrize(
    ("tables", "path"),
    [
        (lambda table: {"topology": {"name": "net", **table}}, "topology"),
        (lambda table: {"topology": [{"name": "net", **table}]}, "topology"),
        (lambda table: {"topology": [{"name": "x"}, {"name": "net", **table}]}, "topology[1]"),
        (lambda table: {"topology": [{"scheduler": {"name": "planner", **table}}]}, "topology.scheduler"),
        (lambda table: {"workload": [{"name": "model", **table}]}, "workload"),
        (lambda table: {"strategy": {"placer": {"name": "seats", **table}}}, "strategy.placer"),
        (
            lambda table: {"workload": [{}, {"strategy": {"placer": {"name": "seats", **table}}}]},
            "workload[1].strategy.placer",
        ),
        (lambda table: {"search": {"placers": ["x", {"name": "seats", **table}]}}, "search.placers[1]"),
    ],
)
def test_every_offer_that_names_files_gets_them_from_the_folder(registry, tmp_path, tables, path):
    """Names of files only; absolute ones stay; what is not there is refused by its key and full name."""
    given = {"measured": "quick", "file": "deep/b.toml", "text": "a.csv"}
    assert absolute_files(tables(given), registry, tmp_path) == tables(
        {**given, "file": str(tmp_path / "deep" / "b.toml")}
    )
    located = absolute_files(tables({"measured": "M.CSV"}), registry, tmp_path)
    assert located == tables({"measured": str(tmp_path / "M.CSV")})
    assert absolute_files(located, registry, tmp_path / "elsewhere") == located
    with pytest.raises(ConfigError) as refusal:
        refuse_missing_files(located, registry)
    assert str(refusal.value).startswith(f"{path}.measured: there is no file {tmp_path / 'M.CSV'}; relative")
    (tmp_path / "M.CSV").touch()
    refuse_missing_files(located, registry)


@pytest.mark.parametrize("tables", [{"topology": 3}, {"topology": [3, {"name": 4}]}, {"strategy": "x"}, {}])
def test_what_is_no_table_is_left_to_the_checks_of_configurations(registry, tmp_path, tables):
    assert absolute_files(tables, registry, tmp_path) == tables
    refuse_missing_files(tables, registry)
