"""Tensor with sequence parallelism: pieces sent and bytes kept, against Korthikanti et al. 2022."""

import json

import pytest

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

HIDDEN, KEYS, INNER, SEQUENCE, HEADS = 64, 32, 96, 48, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(layers, **plan): the row of a Llama, one sample a micro-batch on one replica."""
    path = tmp_path_factory.mktemp("models") / "llama.json"

    def simulate(layers, mp, topology="elect-flat", fold="auto", gbps=100.0, **plan):
        path.write_text(
            json.dumps(
                {
                    "model_type": "llama",
                    "hidden_size": HIDDEN,
                    "intermediate_size": INNER,
                    "num_hidden_layers": layers,
                    "num_attention_heads": HEADS,
                    "num_key_value_heads": HEADS // 2,
                    "vocab_size": 128,
                    "max_position_embeddings": SEQUENCE,
                }
            )
        )
        own = {"global_batch": 2, "micro_batch": 1, "layout": "tensor", "placer": "aligned", "tau_us": 0.01}
        tables = {
            "title": "t",
            "cluster": {"gpus": mp * plan.get("dp", 1), "bandwidth_gbps": gbps},
            "gpu": {"name": "a100"},
            "plan": {**own, "mp": mp, **plan},
            "workload": [{"name": "hf", "file": str(path)}],
            "topology": [{"name": topology}],
            "engine": {"fold": fold},
        }
        (case,) = run_experiment(read_experiment(tables, load())).cases
        return case

    return simulate


@pytest.mark.parametrize("mp", [2, 4])
@pytest.mark.parametrize(("regather", "pieces"), [(False, 8), (True, 10)])
@pytest.mark.parametrize("exchange", ["direct", "chain"])
def test_pieces_of_a_layer(run, mp, regather, pieces, exchange):
    """A layer more: 8 pieces of S (t - 1) / t a GPU and micro-batch, 10 where what is gathered is not kept.

    Along a chain a box passes the devices between: the same bytes, or more.
    """
    three, two = (run(layers, mp, keep_gathered=not regather, exchange=exchange) for layers in (3, 2))
    sent = (three.tensor_bytes - two.tensor_bytes) / (2 * mp)
    expected = pieces * 2 * SEQUENCE * HIDDEN * (mp - 1) / mp
    assert sent == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mp", [2, 4])
def test_a_layer_keeps_a_shard_of_all(run, mp):
    """s b (12 h + 4 h_kv + 6 f) / t bytes, and the 4 bytes of each head and token.

    Without it the inputs of two products, 2 h each, are kept whole.
    """
    tokens = SEQUENCE
    shard = tokens * (12 * HIDDEN + 4 * KEYS + 6 * INNER) / mp + 4 * HEADS * tokens / mp
    for regather, layer in ((True, shard), (False, shard + tokens * 4 * HIDDEN * (mp - 1) / mp)):
        three, two = (run(layers, mp, keep_gathered=not regather) for layers in (3, 2))
        assert three.memory_activations_bytes - two.memory_activations_bytes == layer


def test_without_a_group_there_is_nothing_to_gather(run):
    """The same run, to the last digit."""
    assert run(2, 1, keep_gathered=False, dp=2) == run(2, 1, keep_gathered=True, dp=2)


def test_gathering_again_takes_time_but_less_than_its_bytes(run):
    """It runs beside the op that makes the other gradient: hidden by launches alone on a fast network."""
    kept, again = (run(2, 4, keep_gathered=not regather) for regather in (False, True))
    assert again.iteration_us == pytest.approx(kept.iteration_us, rel=1e-3)
    kept, again = (run(2, 4, keep_gathered=not regather, gbps=1.0) for regather in (False, True))
    more_us = (again.tensor_bytes - kept.tensor_bytes) / 4 / 125.0
    assert kept.iteration_us < again.iteration_us < kept.iteration_us + more_us


@pytest.mark.parametrize("topology", ["sip-ocs", "sip-ring", "elect-cluster"])
def test_folding_stays_exact(run, topology):
    folded, whole = (
        run(2, 2, topology=topology, fold=fold, keep_gathered=False, dp=2, global_batch=4)
        for fold in ("auto", "never")
    )
    assert folded.status == whole.status == "ok"
    assert folded.iteration_us == pytest.approx(whole.iteration_us, rel=1e-9)
