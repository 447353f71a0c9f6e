"""What circuits are planned for, on whole jobs: bytes, gating pairs, and the job's own schedule."""

import pytest

from sipml_core.cases import run_experiment
from sipml_core.errors import ConfigError
from sipml_core.experiment import read_experiment, resolved_tables
from sipml_core.searching import search

# With one layout, that of ports, so that only circuits differ.
RING = {"name": "sip-ring", "reach_hops": 6, "rounds": 1}
OCS = {"name": "sip-ocs", "switches": 16, "interval_us": 100, "reconfiguration_us": 20, "rounds": 1}
ONE_SHOT = {"name": "sip-ocs", "switches": 16, "rounds": 1}


def tables(topologies, bandwidth_gbps, mp=4, workload=None, **plan):
    """A model on 16 GPUs, the Transformer if none is named, a sample for each."""
    return {
        "title": "demand",
        "cluster": {"gpus": 16, "bandwidth_gbps": bandwidth_gbps},
        "workload": workload or {"name": "transformer"},
        "plan": {"mp": mp, "global_batch": 16, "exchange": "direct", **plan},
        "topology": [{**table, "label": str(k)} for k, table in enumerate(topologies)],
    }


@pytest.fixture
def run(registry):
    def rows(*topologies, bandwidth_gbps=2000, **plan):
        cases = run_experiment(read_experiment(tables(topologies, bandwidth_gbps, **plan), registry)).cases
        assert all(case.ran for case in cases), [case.reason for case in cases]
        return cases

    return rows


def rule_of(case):
    return next((note for note in case.notes if note.startswith("circuits are planned")), "")


@pytest.mark.parametrize(
    ("network", "exchange"),
    [
        pytest.param(RING, "direct", id="ring-direct"),
        pytest.param(OCS, "chain", id="ocs-chain"),
        pytest.param(ONE_SHOT, "direct", id="one-shot-direct"),
        pytest.param(RING, "chain", id="ring-chain", marks=pytest.mark.slow),
        pytest.param(OCS, "direct", id="ocs-direct", marks=pytest.mark.slow),
        pytest.param(ONE_SHOT, "chain", id="one-shot-chain", marks=pytest.mark.slow),
    ],
)
def test_the_rule_that_is_kept_is_never_worse_than_bytes(run, network, exchange):
    """Bytes are among those that are tried; the row names the one that was kept."""
    by_bytes, kept = run(network, {**network, "demand": "auto"}, exchange=exchange)
    assert kept.iteration_us <= by_bytes.iteration_us
    assert kept.network_bytes == by_bytes.network_bytes
    assert rule_of(kept).startswith("circuits are planned ")
    assert rule_of(by_bytes) == ""


def test_activations_need_not_wait_behind_gradients(run):
    """At 2 Tbps and mp 4 a standing circuit for those who wait takes more than a tenth off the iteration, on
    both networks, re-planned or not."""
    for network in (RING, OCS, ONE_SHOT):
        by_bytes, gating = run(network, {**network, "demand": "gating"})
        assert gating.iteration_us < 0.9 * by_bytes.iteration_us
        assert rule_of(gating) == "circuits are planned with gating pairs never below the largest demand"


def test_where_circuits_are_few_bytes_decide(run):
    """Two wavelengths in one direction, three in the other: standing demand would take 1.1 times as long."""
    by_bytes, gating = run(RING, {**RING, "demand": "gating"}, bandwidth_gbps=125, mp=2)
    assert gating.iteration_us == by_bytes.iteration_us
    assert rule_of(gating).endswith("by bytes: too few to give every pair of the job two at once")


@pytest.mark.slow
def test_of_several_iterations_one_chooses_the_rule(run):
    """The rule of one iteration is that of two."""
    auto = {**RING, "demand": "auto"}
    (one,), (two,) = run(auto), run(auto, iterations=2)
    assert rule_of(one) == rule_of(two) != ""


def test_a_network_without_circuits_has_nothing_to_plan(run):
    (case,) = run({"name": "elect-flat", "demand": "gating"})
    assert "demand 'gating' is not used: there are no circuits" in case.notes


@pytest.mark.slow
def test_an_oracle_is_hardly_ever_slower_than_a_window(run):
    """It may be 2 % slower, where runs that share circuits in turns differ by as much at the least change. On
    5 wavelengths overdue arrivals once made it 2.2 times as slow; at mp 4 it gains a tenth."""
    window, oracle = run(RING, {**RING, "estimator": "oracle"}, bandwidth_gbps=125, mp=2)
    assert oracle.iteration_us <= 1.02 * window.iteration_us
    for network in (RING, OCS):
        window, oracle = run(network, {**network, "estimator": "oracle"})
        assert oracle.iteration_us <= 0.9 * window.iteration_us


def test_plans_that_are_kept_are_not_counted(run):
    """A job that re-plans only when a twentieth of its demand moved makes fewer plans."""
    always, seldom = run(OCS, {**OCS, "replan_above": 0.05})
    assert seldom.decisions < always.decisions
    assert seldom.network_bytes == always.network_bytes


def told(case):
    return next((note for note in case.notes if note.startswith("layout")), "")


def test_a_layout_that_knows_the_circuits_is_faster_where_bandwidth_is_low(run):
    """One round prices what ports give. At 250 Gbps and mp 4 a quarter of them carries the activations, on
    circuits that are set once: knowing that takes more than a quarter off the iteration."""
    once, thrice = run(ONE_SHOT, {**ONE_SHOT, "rounds": 3}, bandwidth_gbps=250)
    assert thrice.iteration_us < 0.75 * once.iteration_us
    gain = f"{1 - thrice.iteration_us / once.iteration_us:.1%}"
    assert told(thrice) == f"layout and circuits were chosen in turn, 2 rounds: {gain} less than in one round"
    assert told(once) == ""


def test_a_run_has_two_rounds_where_nobody_says_how_many(run):
    """Of ports, and of the circuits that are planned then: links that are shared have their prices, too."""
    usual, twice = run({"name": "sip-ocs"}, {"name": "sip-ocs", "rounds": 2}, bandwidth_gbps=250)
    assert (usual.iteration_us, usual.one_round_us) == (twice.iteration_us, twice.one_round_us)
    assert usual.iteration_us < usual.one_round_us
    assert told(usual) == told(twice) != ""


@pytest.mark.parametrize("network", [RING, OCS], ids=["ring", "ocs"])
def test_more_rounds_are_never_worse_than_one(run, network):
    once, twice = run(network, {**network, "rounds": 2}, workload={"name": "resnet50"})
    assert twice.iteration_us <= once.iteration_us
    assert told(twice)


def test_a_layout_that_is_named_is_chosen_once(run):
    once, twice = run(ONE_SHOT, {**ONE_SHOT, "rounds": 2}, layout="sample")
    assert twice.iteration_us == once.iteration_us
    assert told(twice) == ""


def test_what_was_chosen_stands_in_the_resolved_tables(registry):
    """And nothing where nothing was chosen, as in results of earlier versions."""
    read = read_experiment(tables([RING, {**OCS, "demand": "auto", "replan_above": 0.1}], 2000), registry)
    usual, chosen = resolved_tables(read)["topology"]
    assert not {"demand", "replan_above"} & set(usual)
    assert (chosen["demand"], chosen["replan_above"]) == ("auto", 0.1)
    again = read_experiment(resolved_tables(read), registry)
    assert again.interconnects[1].circuit_keys == read.interconnects[1].circuit_keys


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "demand",
            "gatings",
            "demand must be one of bytes, gating, auto, got 'gatings'; did you mean 'gating'?",
        ),
        ("replan_above", 2, "replan_above must be from 0 to 1, got 2"),
    ],
)
def test_what_cannot_be_is_refused(registry, key, value, message):
    with pytest.raises(ConfigError) as refused:
        read_experiment(tables([RING, {**OCS, key: value}], 2000), registry)
    assert str(refused.value).startswith("topology[1].")
    assert message in str(refused.value)


def test_a_search_chooses_layouts_and_circuits_in_turn(registry):
    """Unless the topology says how often. What it simulates, and says of one round, is what a run does, and
    its estimates know both layouts: that of the first round takes a quarter longer."""
    both = tables([{"name": "sip-ocs"}, ONE_SHOT], 250, workload={"name": "transformer", "layers": 2})
    both["search"] = {"global_batches": [16], "mp": [4], "top": 2}
    (result,) = search([read_experiment(both, registry)])
    turns, once = [row for row in result.rows if row.mp == 4]
    (run, run_once) = run_experiment(read_experiment(both, registry)).cases
    assert turns.one_round_us == once.iteration_us == run_once.iteration_us == run.one_round_us
    assert once.one_round_us is None
    assert turns.iteration_us < 0.8 * once.iteration_us
    assert abs(turns.error) < 0.05
    assert turns.estimate_us < 0.8 * once.estimate_us
