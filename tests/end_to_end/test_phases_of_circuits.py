"""Circuits of whole jobs that are planned between phases: `replan = "phase"`."""

import json

import pytest

from sipml_core.cases import run_experiment
from sipml_core.errors import ConfigError
from sipml_core.experiment import read_experiment, resolved_tables

#: Where decisions are rare, and an iteration takes tens of milliseconds.
OCS = {"name": "sip-ocs", "switches": 4, "interval_us": 5000, "reconfiguration_us": 1000}
ONCE = {"name": "sip-ocs", "switches": 4}
RING = {"name": "sip-ring", "reach_hops": 6}
PHASE = "circuits are planned at the ends of phases of the job"


def tables(topologies, engine=None, **plan):
    """Half a GPT on 16 GPUs at 250 Gbps: two stages of two GPUs, four replicas, eight micro-batches each."""
    usual = {"mp": 2, "pp": 2, "global_batch": 64, "micro_batch": 2, "exchange": "direct", "layout": "auto"}
    return {
        "title": "phases",
        "cluster": {"gpus": 16, "bandwidth_gbps": 250},
        "workload": {"name": "gpt", "layers": 6},
        "plan": {**usual, **plan},
        "topology": [{**table, "label": str(k)} for k, table in enumerate(topologies)],
        "engine": engine or {},
    }


@pytest.fixture
def run(registry):
    def rows(*topologies, details=False, **plan):
        read = read_experiment(tables(topologies, **plan), registry)
        result = run_experiment(read, details=details)
        assert all(case.ran for case in result.cases), [case.reason for case in result.cases]
        return result if details else result.cases

    return rows


def phased(table):
    return {**table, "replan": "phase"}


def test_phases_are_no_slower_than_circuits_set_once(run):
    """Activations and gradients use different pairs: two plans gain more than a fifth here, over one and over
    one for every 5 ms; all send the same."""
    once, interval, phase = run(ONCE, OCS, phased(OCS))
    assert phase.iteration_us < 0.8 * min(once.iteration_us, interval.iteration_us)
    assert (once.decisions, phase.decisions) == (1, 2)
    assert phase.network_bytes == pytest.approx(once.network_bytes)
    assert PHASE in phase.notes
    assert not any("phase" in note for note in (*once.notes, *interval.notes))


def test_phases_come_in_each_iteration(run):
    """Two iterations change circuits three times; each takes no longer than one alone and a change."""
    (one,), (two,) = run(phased(OCS)), run(phased(OCS), iterations=2)
    assert two.decisions == 4
    assert two.iteration_us == pytest.approx(one.iteration_us, rel=0.05)


def test_slow_switches_are_set_once(run):
    """A change of 50 ms is not worth it; the row is that of circuits that are set once."""
    once, slow = run(ONCE, phased({**OCS, "interval_us": 100_000, "reconfiguration_us": 50_000}))
    assert slow.iteration_us == once.iteration_us
    assert slow.decisions == 1
    assert any(note.startswith("circuits are set once: by estimate transfers of an") for note in slow.notes)


@pytest.mark.parametrize("plan", [{"zero": 3, "pp": 1}, {"mp": 1, "pp": 4}], ids=["zero", "stages"])
@pytest.mark.parametrize("network", [OCS, RING], ids=["ocs", "ring"])
def test_everything_is_served(run, network, plan):
    """Parameters that are gathered count as gradients, and passes wait for them."""
    interval, phase = run(network, phased(network), **plan)
    assert phase.network_bytes == pytest.approx(interval.network_bytes)
    assert phase.decisions < interval.decisions


def test_details_have_the_decisions(run):
    """One at the start, one when the first gradients are ready, dark for 1 ms."""
    (details,) = run(phased(OCS), details=True).recorded
    first, second = details.record.decisions
    assert first.at_us == 0.0 < second.at_us
    assert set(second.dark_us) == {0.0, 1000.0}


def test_where_there_is_nothing_to_replan_the_row_says_so(run):
    keys = {"replan": "phase", "replan_above": 0.25, "rounds": 2}
    once, flat = run({**ONCE, **keys}, {"name": "elect-flat", **keys}, layout="megatron")
    for row, why in ((once, "circuits are set once; give interval_us"), (flat, "there are no circuits")):
        assert f"replan 'phase' is not used: {why}" in row.notes
        assert f"replan_above 0.25 is not used: {why}" in row.notes
    assert "rounds 2 is not used: layout 'megatron' is not chosen by prices" in once.notes
    assert "rounds 2 is not used: there are no circuits" in flat.notes


def test_an_estimator_is_not_asked(run):
    (case,) = run(phased({**OCS, "estimator": "backlog"}))
    why = "circuits are planned for the traffic of each phase"
    assert f"estimator 'backlog' is not used: {why}" in case.notes


@pytest.mark.parametrize("reach", [2, 6])
def test_groups_that_end_phases_together_stand_for_each_other(registry, reach):
    """Phases end for all at once: on a ring the first groups take as long as all, and as many plans."""
    ring = {"name": "sip-ring", "reach_hops": reach, "replan": "phase", "interval_us": 200}
    found = []
    for fold in ("require", "never"):
        read = read_experiment(tables([ring], {"fold": fold}, pp=1), registry)
        (case,) = run_experiment(read).cases
        assert any(note.startswith("simulated ") for note in case.notes) == (fold == "require")
        found.append(case)
    folded, whole = found
    assert folded.iteration_us == pytest.approx(whole.iteration_us, rel=1e-9)
    assert folded.decisions == whole.decisions


def test_stages_end_one_after_the_other(run):
    """Phases of stages are another run, of the same bytes, and faster here."""
    phase, stage = run(phased(OCS), {**OCS, "replan": "stage"})
    assert stage.network_bytes == pytest.approx(phase.network_bytes)
    assert stage.iteration_us < phase.iteration_us


def test_the_key_is_checked_and_kept(registry):
    usual, chosen = resolved_tables(read_experiment(tables([OCS, phased(OCS)]), registry))["topology"]
    assert "replan" not in usual
    assert chosen["replan"] == "phase"
    with pytest.raises(
        ConfigError, match=r"topology\.replan must be one of interval, phase, stage, kind, auto, got 'phases'"
    ):
        read_experiment(tables([{**OCS, "replan": "phases"}]), registry)


@pytest.fixture
def experts(registry, tmp_path):
    """Return rows of two layers of experts: pairs of GPUs share tensors, four of them experts."""
    model = {
        "model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
        "vocab_size": 1000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(model))

    def rows(*topologies, gpus=8, fold="auto"):
        tables = {
            "title": "experts",
            "cluster": {"gpus": gpus, "bandwidth_gbps": 200},
            "workload": {"name": "hf", "file": str(file), "sequence": 2048},
            "plan": {
                "mp": 2, "ep": 4, "global_batch": gpus, "micro_batch": 2, "exchange": "direct",
                "recompute": "none",
            },
            "topology": [{**table, "label": str(k)} for k, table in enumerate(topologies)],
            "engine": {"fold": fold},
        }  # fmt: skip
        cases = run_experiment(read_experiment(tables, registry)).cases
        assert all(case.ran for case in cases), [case.reason for case in cases]
        return cases

    return rows


#: Fast switches for `experts`.
FAST = {"name": "sip-ocs", "switches": 6, "interval_us": 50, "reconfiguration_us": 10}


def test_tensors_and_experts_have_circuits_in_turn(experts):
    """Half of a GPU's circuits stand idle where one plan serves both. `auto` is the fastest of all."""
    ways = [FAST, *({**FAST, "replan": way} for way in ("phase", "kind", "auto"))]
    once, interval, phase, kind, auto = experts({"name": "sip-ocs", "switches": 6}, *ways)
    assert kind.iteration_us < 0.75 * min(once.iteration_us, phase.iteration_us)
    assert any(note.startswith(f"{PHASE}: tensor, expert, ") for note in kind.notes)
    assert kind.network_bytes == pytest.approx(once.network_bytes)
    assert auto.iteration_us == min(each.iteration_us for each in (once, interval, phase, kind))


def test_kinds_share_circuits_of_slow_switches(experts):
    """A change of 1 ms is longer than most bursts: few change circuits, and none that would lose by it."""
    slow = {**FAST, "interval_us": 5000, "reconfiguration_us": 1000}
    phase, kind, fast = experts(
        *({**slow, "replan": way} for way in ("phase", "kind")), {**FAST, "replan": "kind"}
    )
    assert kind.iteration_us <= phase.iteration_us
    assert kind.decisions < fast.decisions / 2


def test_the_fastest_way_may_be_by_interval(run):
    """Fast switches that follow stages and directions: the row is that of plans by interval, and says so."""
    fast = {**OCS, "interval_us": 500, "reconfiguration_us": 100}
    interval, auto = run(fast, {**fast, "replan": "auto"})
    assert auto.iteration_us == interval.iteration_us
    why = "as simulated, that is faster than by phase"
    assert f"circuits are planned after every interval: {why}" in auto.notes


def test_kinds_of_alike_groups_are_folded_on_a_ring(experts):
    """What one block of four groups does stands for the other three, plan by plan."""
    ring = {"name": "sip-ring", "reach_hops": 8, "replan": "kind", "interval_us": 200}
    (folded,), (whole,) = (experts(ring, gpus=32, fold=fold) for fold in ("require", "never"))
    assert folded.iteration_us == pytest.approx(whole.iteration_us, rel=1e-9)
    assert folded.decisions == whole.decisions
    assert "simulated 4 of 16 groups" in folded.notes
