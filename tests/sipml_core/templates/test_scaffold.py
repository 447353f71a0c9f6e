"""`new-plugin` writes a package that passes its own tests."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sipml_core.errors import ConfigError
from sipml_core.templates.scaffold import write_experiment, write_plugin


def test_a_new_experiment_is_the_quickstart(tmp_path, monkeypatch):
    """To the byte, where it is written to the same place."""
    monkeypatch.chdir(tmp_path)
    Path("examples").mkdir()
    write_experiment(Path("examples/quickstart.toml"))
    quickstart = Path(__file__).parents[3] / "examples" / "quickstart.toml"
    assert Path("examples/quickstart.toml").read_text() == quickstart.read_text()


def test_a_new_plugin_passes_its_own_tests(registry, tmp_path):
    folder = tmp_path / "sipml-fat-tree"
    write_plugin("fat-tree", folder, registry)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_it_is_registered_as_any_plugin_is(registry, tmp_path):
    """The entry point is named as the topology is, and leads to the module that was written."""
    files = write_plugin("fat-tree", tmp_path / "new", registry)
    project = tomllib.loads((tmp_path / "new" / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["sipml"] == {"fat-tree": "sipml_fat_tree"}
    assert tmp_path / "new" / "sipml_fat_tree.py" in files
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
        write_plugin("fat-tree", tmp_path, registry)


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
