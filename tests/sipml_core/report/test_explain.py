"""How ops are cut: each column shows the field it says."""

import pytest

from sipml_core.errors import ConfigError
from sipml_core.experiment.reading import read_experiment
from sipml_core.model import Prices
from sipml_core.model.opgraph import Split
from sipml_core.partition.layouts import Choice, Layout
from sipml_core.report import explain
from sipml_core.report.explain import strategy_tables

TABLES = {
    "title": "explain",
    "cluster": {"gpus": 24, "bandwidth_gbps": 100},
    "workload": {"name": "tiny", "strategy": {"mp": 3, "dp": 8, "global_batch": 96}},
    "topology": [{"name": "switch"}, {"name": "switch", "label": "again"}],
}


@pytest.fixture
def explained(fakes, monkeypatch):
    """explained(layout): the tables of an experiment whose ops are cut so."""

    def tables(layout, **changes):
        prices = Prices(group_gbps=100.0, replica_gbps=50.0)
        monkeypatch.setattr(explain, "case_layouts", lambda *_: {layout: prices})
        return list(strategy_tables(read_experiment({**TABLES, **changes}, fakes.fake_registry())))

    return tables


def choice(op, **changes):
    fields = dict(
        dim="o", split=Split.COLUMN, parts=3, compute_us=20.0, traffic_us=30.0, sync_us=40.0,
        runner_up="along i", runner_up_extra_us=50.0,
    )  # fmt: skip
    return Choice(op=op, **{**fields, **changes})


def test_every_column_shows_the_field_it_says(explained, columns):
    """Layers 1 and 2 are cut alike: one line, with the sums of both. The last op has no second best."""
    alone = choice("loss", dim=None, split=None, parts=1, runner_up=None, runner_up_extra_us=None)
    choices = (choice("layer1.mlp"), choice("layer2.mlp", compute_us=2.0, sync_us=4.0), alone)
    (table,) = explained(Layout(name="auto", dims={}, choices=choices))
    assert columns(table) == {
        "ops": ["layer*.mlp", "loss"],
        "like it": ["2", "1"],
        "cut along": ["o", "whole"],
        "as": [Split.COLUMN.value, "-"],
        "parts": ["3", "1"],
        "compute": ["22 us", "20 us"],
        "traffic": ["60 us", "30 us"],
        "sync": ["44 us", "40 us"],
        "next best": ["along i", "-"],
        "would add": ["100 us", "-"],
    }
    assert table.title.plain == (
        "tiny on switch: mp 3 x dp 8, global batch 96, layout 'auto', cut as if a GPU had 100 Gbps "
        "inside its group and 50 Gbps for gradients"
    )


def test_a_fixed_layout_has_dimensions_and_who_does_what(explained, columns):
    fixed = Layout(name="megatron", dims={"norm": "n", "product": None}, duplicated=frozenset({"norm"}))
    (table,) = explained(fixed)
    assert columns(table) == {
        "ops": ["norm", "product"],
        "like it": ["1", "1"],
        "cut along": ["n", "whole"],
        "each GPU does": ["all of it", "its part"],
    }
    (plain,) = explained(Layout(name="tensor", dims={"norm": "n"}))
    assert columns(plain) == {"ops": ["norm"], "like it": ["1"], "cut along": ["n"]}


def test_there_is_nothing_to_explain_without_degrees(explained):
    with pytest.raises(ConfigError, match="tiny has no mp or dp to explain"):
        explained(Layout(name="auto", dims={}), workload={"name": "tiny"})
