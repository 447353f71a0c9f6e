"""Pictures show what happened, with units, in a column too, and say what they cannot show."""

import json

import numpy as np
import pytest

from sipml_core.cases import run_experiment
from sipml_core.errors import ConfigError
from sipml_core.experiment import open_experiment
from sipml_core.report.casepictures import PictureLook, few_gpus
from sipml_core.report.picturefiles import PICTURES, case_picture, pictures_of
from sipml_core.report.plots import figure_bytes
from sipml_core.report.repeating import chosen_cases, repeated, search_rows, stored_rows
from sipml_core.report.resultfiles import write_result
from sipml_core.report.resultpictures import pareto_picture, times_picture

pytestmark = pytest.mark.interconnects

pytest.importorskip("matplotlib")

EXPERIMENT = """
title = "pictures"
[cluster]
gpus = 8
bandwidth_gbps = "200 Gbps"
[[workload]]
name = "gpt"
layers = 2
hidden = 128
heads = 4
sequence = 32
vocabulary = 500
strategy = { mp = 2, pp = 2, dp = 2, global_batch = 8, micro_batch = 2 }
[[topology]]
name = "elect-flat"
[[topology]]
name = "sip-ring"
interval_us = 40
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "x.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="module")
def result(file, registry):
    return run_experiment(open_experiment(file, registry), details=True)


def words_of(figure):
    figure.draw_without_rendering()
    texts = [text for axes in figure.axes for text in (axes.xaxis.label, axes.yaxis.label, axes.title)]
    texts += [text for axes in figure.axes for text in axes.get_yticklabels() + axes.get_xticklabels()]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    return [text for text in [*texts, *([figure._suptitle] if figure._suptitle else [])] if text.get_text()]


@pytest.mark.parametrize("width_in", [3.3])
@pytest.mark.parametrize("name", [name for name in PICTURES if name not in ("times", "pareto")])
def test_every_picture_fits_a_column_with_legible_letters(result, name, width_in):
    """No words over the edge, none smaller than 5 points, and a unit or a name at each axis."""
    figure = case_picture(result.details(topology="sip-ring"), name, PictureLook(width_in=width_in))
    words = words_of(figure)
    assert figure.get_figwidth() == width_in
    drawn = figure.get_tightbbox()  # [in]
    assert drawn.x0 >= -0.01
    assert drawn.x1 <= width_in + 0.01
    assert all(text.get_fontsize() >= 5 for text in words)
    assert len(words) > 1


def test_times_are_the_columns_of_the_rows_stacked(result):
    figure = times_picture(result.cases, PictureLook())
    (axes,) = figure.axes
    widths = np.array([[bar.get_width() for bar in bars] for bars in axes.containers])
    case = result.case("gpt", "sip-ring")
    shown = [case.compute_us, case.exposed_us, case.dark_us, case.idle_us]
    worth = case.iteration_us / widths[:, 1].sum()
    assert (widths[:, 1] * worth).tolist() == pytest.approx(shown)
    assert axes.get_xlabel() == "one iteration [us]"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["elect-flat", "sip-ring"]


def test_the_traffic_picture_has_the_sender_as_row(result):
    details = result.details(topology="elect-flat")
    figure = case_picture(details, "traffic")
    shown = figure.axes[0].images[0].get_array().filled(0)
    table = details.traffic()
    k = int(table["bytes"].argmax())
    assert shown[table["src"][k], table["dst"][k]] == shown.max() > 0
    assert figure.axes[1].get_ylabel().startswith("sent in the run [")


def test_the_links_that_are_busiest_are_named_first(result):
    details = result.details(topology="elect-flat")
    table = details.links()
    figure = case_picture(details, "links")
    first = figure.axes[0].texts[0].get_text()
    assert first.startswith(str(table["link"][int(table["bytes"].argmax())]))


def test_passes_are_numbered_by_micro_batch(result):
    figure = case_picture(result.details(topology="elect-flat"), "pipeline")
    assert {text.get_text() for text in figure.axes[0].texts} <= {"0", "1"}
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["stage 0", "stage 1"]


def test_few_gpus_are_shown_those_of_the_first_replica_first(result):
    details = result.details(topology="sip-ring")
    assert few_gpus(details).tolist() == list(range(8))


@pytest.mark.parametrize(
    ("topology", "name", "words"),
    [
        ("elect-flat", "circuits", "has no circuits"),
        ("elect-flat", "wavelengths", "has no circuits"),
        ("elect-flat", "timelime", "no picture 'timelime'; did you mean 'timeline'"),
    ],
)
def test_what_cannot_be_drawn_is_said(result, topology, name, words):
    with pytest.raises(ConfigError, match=words):
        case_picture(result.details(topology=topology), name)


def test_all_pictures_are_those_that_have_something_to_show(result):
    cases = chosen_cases(result, None, None)
    names = [name for name, _ in pictures_of(result, cases, (), PictureLook())]
    assert "circuits-gpt-on-sip-ring" in names
    assert "circuits-gpt-on-elect-flat" not in names
    assert names[0] == "times"


def test_a_picture_has_the_same_bytes_each_time(result):
    details = result.details(topology="sip-ring")
    one, two = (figure_bytes(case_picture(details, "links"), "svg") for _ in range(2))
    assert one == two


def test_the_front_of_a_search_is_joined():
    rows = [
        {
            "workload": "m",
            "topology": "t",
            "memory_bytes": gb * 1e9,
            "time_to_goal_s": hours * 3600,
            "reason": "",
        }
        for gb, hours in ((1, 5), (2, 6), (3, 1))
    ]
    figure = pareto_picture(rows, PictureLook())
    (line,) = [line for line in figure.axes[0].get_lines() if line.get_label() == "t"]
    assert line.get_xydata().tolist() == [[1, 5], [3, 1]]
    with pytest.raises(ConfigError, match="no candidate of this search can run"):
        pareto_picture([{**rows[0], "reason": "no room"}], PictureLook())


class TestRepeating:
    """A folder of results is simulated again, and refused where it is not what it was."""

    @pytest.fixture
    def folder(self, result, tmp_path):
        write_result(result, tmp_path)
        return tmp_path

    def test_a_result_repeats(self, folder, registry):
        again = repeated(folder, registry)
        assert [case.iteration_us for case in again.cases] == [
            row["iteration_us"] for row in stored_rows(folder)
        ]
        assert all(again.recorded)

    def test_another_time_is_refused(self, folder, registry):
        document = json.loads((folder / "result.json").read_text())
        document["cases"][0]["iteration_us"] *= 1.01
        (folder / "result.json").write_text(json.dumps(document))
        with pytest.raises(ConfigError, match="does not repeat: an iteration of gpt on elect-flat takes"):
            repeated(folder, registry)

    @pytest.mark.parametrize("missing", ["cases", "version", "seed"])
    def test_an_older_format_is_refused(self, folder, registry, missing):
        document = json.loads((folder / "result.json").read_text())
        del document[missing]
        (folder / "result.json").write_text(json.dumps(document))
        with pytest.raises(
            ConfigError, match=r"result.json has the format of .* which cannot be read; run its"
        ):
            repeated(folder, registry)

    def test_what_is_no_result_is_refused(self, tmp_path, registry):
        with pytest.raises(ConfigError, match=r"holds no result: `run` writes result.json"):
            repeated(tmp_path, registry)
        (tmp_path / "result.json").write_text("{")
        (tmp_path / "experiment.toml").write_text("")
        with pytest.raises(ConfigError, match="is no JSON"):
            repeated(tmp_path, registry)
        (tmp_path / "search.json").write_text('{"version": "0.0.1"}')
        with pytest.raises(ConfigError, match=r"has the format of sipml 0.0.1"):
            search_rows(tmp_path)

    def test_a_case_that_is_not_there_is_named_with_those_that_are(self, result):
        with pytest.raises(
            ConfigError, match=r"no case of moon that ran .*; there is: gpt on elect-flat; gpt on sip-ring"
        ):
            chosen_cases(result, None, "moon")
