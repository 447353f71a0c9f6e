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


def test_a_network_that_the_file_lacks_is_named_with_those_it_has():
    """Otherwise the name would become a key of every table, and be refused as one."""
    with pytest.raises(
        ConfigError, match=r"reach_hops: no topology 'sip-rng'; did you mean 'sip-ring'\? known: e"
    ):
        changed("topology.sip-rng.reach_hops=8")
    with pytest.raises(ConfigError, match=r"no topology 'sip-ocs'"):
        changed("topology.sip-ocs.interval_us=8")
    assert changed("topology.scheduler.steps=2")["topology"][1]["scheduler"] == {"steps": 2}


OWN = {
    "strategy": {"mp": 1},
    "workload": [
        {"name": "gpt", "strategy": {"mp": 2}},
        {"name": "gpt", "label": "big", "search": {"top": 3}},
        {"name": "resnet50"},
    ],
}


@pytest.mark.parametrize(
    ("assignment", "names", "instead"),
    [
        ("strategy.mp=4", "'gpt'", "workload.strategy.mp=4"),
        ("search.top=9", "'big'", "workload.search.top=9"),
    ],
)
def test_a_default_that_workloads_have_for_themselves_is_refused(assignment, names, instead):
    """It would change nothing there; the refusal names the key that would, and that key works."""
    with pytest.raises(ConfigError) as refusal:
        apply_overrides(OWN, [assignment])
    assert f"changes nothing for {names}" in str(refusal.value)
    assert f"--set {instead} changes it" in str(refusal.value)
    section, key = instead.split("=")[0].split(".")[1:]
    changed_everywhere = apply_overrides(OWN, [instead])["workload"]
    assert {table[section][key] for table in changed_everywhere} == {int(instead[-1])}


def test_a_default_that_no_workload_has_for_itself_is_set():
    assert apply_overrides(OWN, ["strategy.dp=4"])["strategy"] == {"mp": 1, "dp": 4}


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("cluster.gpus=" + "1" * 5001, "cluster.gpus: an integer has more than 4300 digits"),
        ("cluster.gpus=" + "[" * 5000 + "]" * 5000, "cluster.gpus: it is nested more than 20 deep"),
        ("a" + ".a" * 5000 + "=1", "has 5001 keys"),
        ("topology.\u00b2.x=1", "--set"),
        ("x" * 3000, "must look like"),
    ],
)
def test_values_and_paths_without_measure_are_refused_in_a_short_line(assignment, message):
    """\u00b2 is a digit to Python, and no number."""
    tables = {**TABLES, "topology": [3]}
    with pytest.raises(ConfigError) as refusal:
        apply_overrides(tables, [assignment])
    assert message in str(refusal.value)
    assert len(str(refusal.value)) < 300
