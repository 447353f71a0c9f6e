"""`new-plugin` writes a package that passes its own tests."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from sipml_core.errors import ConfigError
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load
from sipml_core.templates.scaffold import KINDS, write_experiment, write_plugin


def test_a_new_experiment_is_the_quickstart(tmp_path, monkeypatch):
    """To the byte, where it is written to the same place."""
    monkeypatch.chdir(tmp_path)
    Path("examples").mkdir()
    write_experiment(Path("examples/quickstart.toml"))
    quickstart = Path(__file__).parents[3] / "examples" / "quickstart.toml"
    assert Path("examples/quickstart.toml").read_text() == quickstart.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_of_any_kind_passes_its_own_tests(registry, tmp_path, kind):
    folder = tmp_path / "sipml-my-own"
    write_plugin("my-own", folder, registry, kind)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.interconnects
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_of_any_kind_is_found_and_its_experiment_is_sound(registry, tmp_path, monkeypatch, kind):
    """As soon as its entry point is there."""
    folder, name = tmp_path / "new", f"my-{kind}"
    write_plugin(name, folder, registry, kind)
    monkeypatch.syspath_prepend(folder)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    mine = [EntryPoint(*point, "sipml") for point in project["entry-points"]["sipml"].items()]
    found = load([*entry_points(group="sipml"), *mine])
    assert found.problems == []
    assert name in found.names(KINDS[kind][0])
    experiment = read_experiment(tomllib.loads((folder / "experiment.toml").read_text()), found)
    assert experiment.title == name


def test_an_unknown_kind_is_refused_with_the_nearest(registry, tmp_path):
    with pytest.raises(ConfigError, match="no kind of plugin 'schedular'; did you mean 'scheduler'"):
        write_plugin("mine", tmp_path / "new", registry, "schedular")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_is_formatted_python_without_a_name_left(registry, tmp_path, kind):
    for path in write_plugin("my-own", tmp_path / "new", registry, kind):
        text = path.read_text()
        assert "$" not in text.replace("$ python", "")
        if path.suffix == ".py":
            compile(text, path, "exec")
            assert max(map(len, text.splitlines())) <= 110


def test_it_is_registered_as_any_plugin_is(registry, tmp_path):
    """The entry point is named as the topology is, and leads to the module that was written."""
    files = write_plugin("hyper-cube", tmp_path / "new", registry)
    project = tomllib.loads((tmp_path / "new" / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["sipml"] == {"hyper-cube": "sipml_hyper_cube"}
    assert tmp_path / "new" / "sipml_hyper_cube.py" in files
    assert all(path.is_file() for path in files)


@pytest.mark.parametrize(
    "name", ["", "Fat", "fat_tree", "-fat", "fat-", "1fat", "fat tree", "../fat", "fat--tree"]
)
def test_a_name_that_would_make_no_package_is_refused(registry, tmp_path, name):
    with pytest.raises(ConfigError, match="name must be lower-case words joined by hyphens"):
        write_plugin(name, tmp_path / "new", registry)
    assert not (tmp_path / "new").exists()


def test_an_existing_folder_is_refused(registry, tmp_path):
    with pytest.raises(ConfigError, match="already exists; choose another folder"):
        write_plugin("hyper-cube", tmp_path, registry)


def test_a_module_that_is_installed_is_refused(registry, tmp_path, monkeypatch):
    """`sipml-testing` if somebody has a package sipml_testing."""
    (tmp_path / "sipml_testing.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="module 'sipml_testing' is already installed"):
        write_plugin("testing", tmp_path / "new", registry)


def test_the_name_of_an_installed_plugin_is_refused(registry, tmp_path):
    with pytest.raises(ConfigError, match="plugin 'core' is already installed, by plugin 'core'"):
        write_plugin("core", tmp_path / "new", registry)
    assert not (tmp_path / "new").exists()
