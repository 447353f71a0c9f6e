"""Which points a sweep has, and what it refuses before anything runs."""

import pytest

from sipml_core.errors import ConfigError
from sipml_core.sweeping.conditions import holds
from sipml_core.sweeping.points import Point
from sipml_core.sweeping.sweepfile import FigureTable, Sweep, read_sweep, with_alternatives, with_axes

TABLES = {
    "title": "small",
    "cluster": {"gpus": 8, "bandwidth_gbps": 400},
    "workload": [{"name": "gpt", "plan": {"mp": 2}}],
    "topology": [{"name": "elect-flat"}, {"name": "sip-ring"}],
}


def values(sweep, quick=False):
    return [dict(point.values) for point in sweep.points(quick)]


def test_axes_are_combined_and_zips_go_together():
    """Two bandwidths times two pairs of sizes: four points, the last factor changing fastest."""
    sweep = Sweep(axes={"b": [1, 2]}, zip=({"gpus": [8, 16], "batch": [32, 64]},))
    assert values(sweep) == [
        {"b": 1, "gpus": 8, "batch": 32},
        {"b": 1, "gpus": 16, "batch": 64},
        {"b": 2, "gpus": 8, "batch": 32},
        {"b": 2, "gpus": 16, "batch": 64},
    ]


def test_conditions_leave_points_out():
    sweep = Sweep(axes={"plan.mp": [1, 4, 16], "gpus": [4, 8]}, only=("{plan.mp} <= {gpus} / 2",))
    assert values(sweep) == [{"plan.mp": 1, "gpus": 4}, {"plan.mp": 1, "gpus": 8}, {"plan.mp": 4, "gpus": 8}]


def test_quick_takes_some_values_of_an_axis_and_some_named_points():
    points = (Point(x=1, set=(), quick=True), Point(x=2, set=()))
    sweep = Sweep(axes={"b": [1, 2, 4]}, point=points, quick={"b": [1, 4]})
    assert values(sweep, quick=True) == [{"b": 1}, {"b": 4}]
    assert len(values(sweep)) == 6


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("{n} == 8", True),
        ("{n} % 3 == 2 and not {n} > 8", True),
        ("{name} in ['a', 'sip-ring']", True),
        ("{name} != 'sip-ring' or {n} // 3 * 3 == 6", True),
        ("4 < {n} < 8", False),
        ("-{n} + 1 == -7", True),
    ],
)
def test_conditions_compare_and_compute(condition, expected):
    assert holds(condition, {"n": 8, "name": "sip-ring"}) is expected


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("{gpu} == 8", "no axis 'gpu'; did you mean 'gpus'?"),
        ("{gpus} ==", "is no condition"),
        ("__import__('os')", "is no condition"),
        ("{gpus}.real == 8", "is no condition"),
        ("{gpus} ** 9 == 8", "is no condition"),
        ("{gpus} / 0 == 8", "cannot be computed"),
        ("{name} > 8", "cannot be computed"),
        ("'a' * {gpus} == 'aa'", "are not both numbers"),
    ],
)
def test_conditions_that_are_none_are_refused(condition, message):
    with pytest.raises(ConfigError, match="only: ") as error:
        holds(condition, {"gpus": 8, "name": "a"})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"axes": {"cluster.gpus": 8}}, 'axes."cluster.gpus" must be a list of values, got 8'),
        ({"axes": {"cluster.gpus": []}}, 'axes."cluster.gpus" must be a list of values, got []'),
        (
            {"zip": [{"a": [1, 2], "b": [1]}]},
            "keys of a zip need equally many values, got a 2, b 1",
        ),
        ({"axes": {"a": [1]}, "zip": [{"a": [1]}]}, 'zip[0]."a" is an axis already'),
        ({"axes": {"cluster.gpus": [8]}, "figure": {"x": "cluster.gpu"}}, "did you mean 'cluster.gpus'?"),
        ({"axes": {"cluster.gpus": [8]}, "quick": {"gpus": [8]}}, "quick: 'gpus' is no axis"),
        ({"axis": {"cluster.gpus": [8]}}, "sweep.axis is not a known key; did you mean 'axes'?"),
        ({"do": "simulate"}, "do must be one of run, search"),
        ({"figure": {"y": ["speed"]}}, "y must be numbers of the table, got 'speed'"),
        ({"experiment": 3}, "sweep.experiment must be the name of an experiment file"),
        ({"experiment": []}, "sweep.experiment must be the name of an experiment file"),
    ],
)
def test_files_that_are_no_sweep_are_refused(tables, message):
    with pytest.raises(ConfigError) as error:
        read_sweep({"experiment": TABLES, **tables})
    assert message in str(error.value)


@pytest.mark.interconnects
@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (
            {"cluster.bandwidth": [400]},
            "at cluster.bandwidth = 400: cluster.bandwidth is not a known key; did you mean 'bandwidth",
        ),
        ({"clustr.gpus": [8]}, "experiment.clustr is not a known key; did you mean 'cluster'?"),
        (
            {"cluster.bandwidth_gbps": [400, "fast"]},
            "at cluster.bandwidth_gbps = 'fast': cluster.bandwidth_gb",
        ),
        ({"topology.sip-rng.reach_hops": [4]}, "no topology 'sip-rng'; did you mean 'sip-ring'?"),
        ({"plan.mp": [4]}, "changes nothing for 'gpt', which has a mp of its own"),
    ],
)
def test_an_axis_that_cannot_be_is_named_with_its_value(registry, axes, message):
    with pytest.raises(ConfigError) as error:
        list(with_axes(Sweep(experiment=TABLES), axes).experiments(registry))
    assert message in str(error.value)


def test_too_many_combinations_are_counted_not_made():
    sweep = Sweep(axes={f"a{n}": list(range(100)) for n in range(10)})
    with pytest.raises(ConfigError, match="the axes have 100000000000000000000 combinations"):
        sweep.points()


@pytest.mark.interconnects
def test_an_experiment_file_is_a_sweep_of_one_point(tmp_path, registry):
    (tmp_path / "e.toml").write_text(
        'title = "e"\ncluster = { gpus = 8, bandwidth_gbps = 400 }\nworkload = { name = "gpt" }\n'
        'topology = { name = "elect-flat" }\n'
    )
    (tmp_path / "s.toml").write_text('experiment = "e.toml"\naxes = { "cluster.gpus" = [8, 16] }\n')
    assert values(read_sweep(tmp_path / "e.toml")) == [{}]
    found = read_sweep(tmp_path / "s.toml").experiments(registry)
    assert [experiment.interconnects[0].cluster.gpus for _, experiment in found] == [8, 16]


def test_set_gives_axes_and_replaces_those_of_the_file():
    sweep = Sweep(axes={"cluster.gpus": [8, 16]}, quick={"cluster.gpus": [8]})
    changed = with_alternatives(sweep, ["cluster.gpus=32", "b=400 Gbps,800 Gbps", "search.mp=[1, 2],[4]"])
    assert changed.axes == {
        "cluster.gpus": [32], "b": ["400 Gbps", "800 Gbps"], "search.mp": [[1, 2], [4]],
    }  # fmt: skip
    assert changed.quick == {}
    with pytest.raises(ConfigError, match="its values go with others of a zip"):
        with_alternatives(Sweep(zip=({"a": [1], "b": [2]},)), ["a=3"])
    with pytest.raises(ConfigError, match="--set must look like"):
        with_alternatives(sweep, ["cluster.gpus"])


def test_places_on_the_axis_are_numbers_where_values_are():
    """Text with a unit as it was resolved, other text one after the other."""
    sweep = Sweep(axes={"b": ["400 Gbps", "1 Tbps"], "name": ["x", "y"]}, figure=FigureTable(x="b"))
    first, *_, last = sweep.points()
    assert sweep.place(first, {"b": 400.0}) == (400.0, "")
    assert sweep.place(last, {}) == (1.0, "1 Tbps")
    named = Sweep(point=(Point(x=3.0, set=(), label="three"),))
    assert named.place(named.points()[0], {}) == (3.0, "three")
