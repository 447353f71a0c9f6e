"""Figures of series: no style twice, nothing cut, nothing hidden, the same bytes each time."""

import itertools

import pytest

from sipml_core.report.drawing import SeriesLook, draw_series
from sipml_core.report.plots import figure_bytes
from sipml_core.report.seriesstyles import PLACES, series_styles

pytest.importorskip("matplotlib")

TITLE = (
    "Weak scaling of a model with a name that goes on and on, at sixty-four images per GPU, on every network"
)


def rows(*series, panel="m", values=(1.0, 2.0, 4.0)):
    return [
        {"model": panel, "net": name, "gbps": 100.0 * 2**k, "iteration_ms": value, "mp": 2}
        for name in series
        for k, value in enumerate(values)
    ]


def drawn(figure):
    """The figure laid out, as a file of it is."""
    figure.draw_without_rendering()
    return figure


def test_networks_of_users_have_styles_of_their_own():
    """Twenty of them, and the paper's."""
    names = [f"my network {k}" for k in range(20)] + ["SiP-Ring", "SiP-OCS"]
    styles = series_styles(names)
    pairs = [(style.colour, style.marker) for style in styles.values()]
    assert len(set(pairs)) == len(names) <= PLACES
    assert len({(style.marker, style.dashes) for style in styles.values()}) == len(names)


def test_the_first_eight_differ_in_colour_and_marker():
    styles = series_styles(
        ["a", "b", "c", "d", "SiP-Ring", "SiP-OCS", "Elect-Flat", "Elect-Cluster 400 Gbps"]
    )
    assert len({style.colour for style in styles.values()}) == 8
    assert len({style.marker for style in styles.values()}) == 8


def test_a_series_keeps_its_style_whatever_comes_first():
    names = ["mine", "yours", "SiP-OCS", "SiP-Ring"]
    assert all(series_styles(order) == series_styles(names) for order in itertools.permutations(names))
    assert series_styles(["SiP-OCS"])["SiP-OCS"] == series_styles(names)["SiP-OCS"]
    assert series_styles(["mine"])["mine"] == series_styles(["mine", "SiP-Ring"])["mine"]


@pytest.mark.parametrize("width_in", [None, 3.3, 7.0])
def test_nothing_reaches_over_the_edge(width_in):
    """Titles, labels and legends, from the width of a column up."""
    long = [f"a network called {word}" for word in ("alpha", "beta", "gamma", "delta")]
    look = SeriesLook(panel="model", title=TITLE, subtitle="1024 GPUs", width_in=width_in)
    everything = rows(*long) + rows(*long, panel="another model")
    figure = drawn(draw_series(everything, "gbps", ("iteration_ms", "mp"), "net", look))
    edge = figure.bbox
    texts = [figure._suptitle, *figure.legends, *(axes.title for axes in figure.axes)]
    texts += [label for axes in figure.axes for label in (axes.xaxis.label, axes.yaxis.label)]
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= edge.x0 - 1, text
        assert box.x1 <= edge.x1 + 1, text
        assert box.y0 >= edge.y0 - 1, text
        assert box.y1 <= edge.y1 + 1, text
    if width_in:
        assert figure.get_figwidth() == width_in


def test_a_narrow_figure_puts_panels_below_each_other():
    figure = draw_series(
        rows("a") + rows("a", panel="n"), "gbps", ("mp",), "net", SeriesLook(panel="model", width_in=3.3)
    )
    assert {axes.get_subplotspec().colspan.start for axes in figure.axes} == {0}
    assert [axes.get_title() for axes in figure.axes] == ["m", "n"]


def test_equal_points_of_two_series_lie_apart():
    """By three points on the page, in a direction that changes no value; others stay where they are."""
    three = rows("a", "b") + rows("c", values=(9.0, 9.5, 9.9))
    figure = drawn(draw_series(three, "gbps", ("iteration_ms",), "net"))
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}
    place = {
        name: line.get_transform().transform(line.get_xydata())[0] * 72 / figure.dpi
        for name, line in lines.items()
    }
    assert place["b"][0] - place["a"][0] == pytest.approx(3.0)
    assert place["b"][1] == pytest.approx(place["a"][1])
    untouched = axes.transData.transform(lines["c"].get_xydata())[0] * 72 / figure.dpi
    assert place["c"].tolist() == pytest.approx(untouched.tolist())
    assert lines["a"].get_xydata().tolist() == lines["b"].get_xydata().tolist()


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_figure_has_the_same_bytes_each_time(kind):
    def content():
        return figure_bytes(draw_series(rows("a", "b"), "gbps", ("mp",), "net"), kind)

    assert content() == content()
    assert b"Date" not in content()


def test_a_title_may_be_left_out():
    assert draw_series(rows("a"), "gbps", ("mp",), "net")._suptitle is None
