"""`new-experiment` and `new-plugin` beside the interconnects that are installed."""

import tomllib

import pytest

from sipml_core.cli.new_commands import new_plugin
from sipml_core.errors import ConfigError
from sipml_core.experiment.reading import read_experiment
from sipml_core.templates.scaffold import KINDS, write_experiment, write_plugin


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("mine.toml", "mine"),
        ("a b.toml", "a b"),
        ("v1.2.toml", "v1.2"),
        ("50%.toml", "50-"),
        (".toml", "toml"),
    ],
)
def test_the_title_of_a_new_experiment_is_its_name(registry, tmp_path, name, title):
    """Without the characters that no title may have."""
    write_experiment(tmp_path / name)
    tables = tomllib.loads((tmp_path / name).read_text())
    assert read_experiment(tables, registry).title == title


def test_the_help_of_new_plugin_names_every_kind():
    (option,) = [each for each in new_plugin.params if each.name == "kind"]
    assert all(kind in option.help for kind in KINDS)


@pytest.mark.parametrize("name", ["sip-ring", "elect-flat", "graph"])
def test_the_name_of_an_installed_topology_is_refused(registry, tmp_path, name):
    """Whatever its module is called."""
    with pytest.raises(
        ConfigError, match=f"^topology '{name}' is already installed, by plugin '{name}' .sipml"
    ):
        write_plugin(name, tmp_path / "new", registry)
    assert not (tmp_path / "new").exists()
