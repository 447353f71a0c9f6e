"""`plot` and `report`: which files they write, of a file or of a folder, and what they refuse in one line."""

import sys

import pytest
from click.testing import CliRunner

from sipml_core.cli.main import main

EXPERIMENT = """
title = "cli"
[cluster]
gpus = 4
bandwidth_gbps = "200 Gbps"
[[workload]]
name = "gpt"
layers = 1
hidden = 64
heads = 2
sequence = 16
vocabulary = 100
strategy = { mp = 2, dp = 2, global_batch = 4 }
[search]
mp = [1, 2]
global_batches = [4]
[[topology]]
name = "elect-flat"
"""


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture
def folder(file, tmp_path):
    assert call("run", file, "--out", tmp_path / "out").exit_code == 0
    return tmp_path / "out"


def refused(*arguments):
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    return line


def test_pictures_stand_beside_the_result_in_the_kind_asked_for(folder):
    pytest.importorskip("matplotlib")
    done = call("plot", folder, "times", "traffic", "--format", "pdf", "--width", "3.3", "--no-title")
    assert done.exit_code == 0, done.stderr
    files = sorted((folder / "pictures").iterdir())
    assert [file.name for file in files] == ["times.pdf", "traffic.pdf"]
    assert all(file.read_bytes().startswith(b"%PDF") for file in files)
    before = [file.read_bytes() for file in files]
    call("plot", folder, "times", "traffic", "--format", "pdf", "--width", "3.3", "--no-title")
    assert [file.read_bytes() for file in files] == before


def test_a_search_has_a_front(file, tmp_path):
    pytest.importorskip("matplotlib")
    assert call("search", file, "--no-cache", "--jobs", "1", "--out", tmp_path / "found").exit_code == 0
    assert call("plot", tmp_path / "found").exit_code == 0
    assert (tmp_path / "found" / "pictures" / "pareto.png").stat().st_size > 1000
    line = refused("plot", tmp_path / "found", "timeline")
    assert "of a search there is the picture pareto, not timeline" in line


def test_a_folder_of_a_run_and_a_search_has_the_pictures_of_both(file, folder, tmp_path):
    """Both commands write to results/TITLE by themselves."""
    pytest.importorskip("matplotlib")
    assert call("search", file, "--no-cache", "--jobs", "1", "--out", folder).exit_code == 0
    assert call("plot", folder, "pareto").exit_code == 0
    assert [path.name for path in (folder / "pictures").iterdir()] == ["pareto.png"]
    assert call("plot", folder, "times", "pareto", "--out", tmp_path / "two").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == ["pareto.png", "times.png"]


def test_what_is_made_of_result_json_stands_beside_it(folder, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert call("plot", folder / "result.json", "times").exit_code == 0
    assert (folder / "pictures" / "times.png").exists()
    assert call("report", folder / "result.json").exit_code == 0
    assert (folder / "report.html").exists()


def test_letters_that_the_font_lacks_are_no_warning(file, tmp_path):
    """Warnings are errors here."""
    pytest.importorskip("matplotlib")
    file.write_text(file.read_text().replace('name = "elect-flat"', 'name = "elect-flat"\nlabel = "小"'))
    assert call("plot", file, "times", "--out", tmp_path).exit_code == 0


def test_a_page_of_a_file_and_of_its_folder_is_the_same(file, folder, tmp_path):
    assert call("report", folder).exit_code == 0
    assert call("report", file, "--out", tmp_path / "page.html").exit_code == 0
    page = (folder / "report.html").read_text()
    assert page == (tmp_path / "page.html").read_text()
    assert call("report", folder, folder, "--out", tmp_path / "two.html").exit_code == 0
    assert (tmp_path / "two.html").read_text().count("<h1>") == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("plot", "OUT", "timelime"), "no picture 'timelime'; did you mean 'timeline'"),
        (("plot", "OUT", "pipeline"), "has one stage and one micro-batch: no pipeline to draw"),
        (("plot", "OUT", "pareto"), "the picture pareto is of a search"),
        (("plot", "OUT", "links", "--topology", "moon"), "no case of moon that ran"),
        (("plot", "OUT", "links", "--gpus", "4"), "--gpus must be from 0 to 3, got 4; nearest: 3"),
        (("plot", "OUT", "links", "--window", "1s..2s"), "--window must begin before the run"),
        (("report", "EMPTY"), "holds no result: `run` writes result.json and experiment.toml"),
        (("report", "nowhere.toml"), "cannot read nowhere.toml"),
        (("explain", "EMPTY"), "holds no result"),
    ],
)
def test_refusals_are_one_line(folder, tmp_path, arguments, line):
    pytest.importorskip("matplotlib")
    (tmp_path / "empty").mkdir()
    places = {"OUT": folder, "EMPTY": tmp_path / "empty"}
    options = () if arguments[0] == "explain" else ("--out", tmp_path / "to" / "x.html")
    assert line in refused(*(places.get(word, word) for word in arguments), *options)


def test_without_matplotlib_plot_says_what_is_missing_and_report_works(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "figures need matplotlib: python -m pip install matplotlib" in refused("plot", folder)
    assert call("report", folder).exit_code == 0
