import pytest

from sipml_core.errors import ConfigError
from sipml_core.experiment.overrides import apply_overrides

TABLES = {
    "cluster": {"gpus": 64},
    "topology": [{"name": "sip-ring"}, {"name": "elect-flat", "label": "ideal"}, {"name": "elect-flat"}],
}


def changed(*assignments):
    return apply_overrides(TABLES, assignments)


def test_a_value_is_read_as_toml_and_text_needs_no_quotes():
    """Numbers, booleans and lists are TOML; what is none is text."""
    result = changed(
        "cluster.gpus=128", "cluster.bandwidth_gbps=2 Tbps", "gpu.name=a100", "cluster.list=[1, 2]"
    )
    assert result["cluster"] == {"gpus": 128, "bandwidth_gbps": "2 Tbps", "list": [1, 2]}
    assert result["gpu"] == {"name": "a100"}


def test_one_table_of_a_list_is_selected_by_name_label_or_number():
    assert changed("topology.sip-ring.reach_hops=8")["topology"][0]["reach_hops"] == 8
    assert "reach_hops" not in changed("topology.sip-ring.reach_hops=8")["topology"][1]
    assert changed("topology.ideal.sharing=bound")["topology"][1]["sharing"] == "bound"
    assert "sharing" not in changed("topology.ideal.sharing=bound")["topology"][2]
    assert changed("topology.2.sharing=bound")["topology"][2]["sharing"] == "bound"


def test_without_a_selector_every_table_changes():
    assert all(table["latency_us"] == 1 for table in changed("topology.latency_us=1")["topology"])


def test_the_original_tables_stay():
    changed("cluster.gpus=1")
    assert TABLES["cluster"]["gpus"] == 64


@pytest.mark.parametrize("assignment", ["gpus", "=3", "cluster.gpus.x=1", "topology.sip-ring=1"])
def test_an_assignment_that_cannot_be_made_is_refused(assignment):
    with pytest.raises(ConfigError, match="--set"):
        changed(assignment)
