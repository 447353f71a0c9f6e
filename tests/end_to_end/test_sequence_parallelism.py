"""Sequence parallelism, the default of [plan]: pieces and bytes kept, against Korthikanti et al. 2022."""

import json
import re

import pytest

from sipml_core.cases import run_experiment
from sipml_core.errors import ConfigError
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load

HIDDEN, KEYS, INNER, SEQUENCE, HEADS = 64, 32, 96, 48, 8


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(layers, **plan): the row of a Llama, one sample a micro-batch on one replica."""
    path = tmp_path_factory.mktemp("models") / "llama.json"

    def simulate(layers, mp, topology="elect-flat", fold="auto", gbps=100.0, groups=HEADS // 2, **plan):
        path.write_text(
            json.dumps(
                {
                    "model_type": "llama",
                    "hidden_size": HIDDEN,
                    "intermediate_size": INNER,
                    "num_hidden_layers": layers,
                    "num_attention_heads": HEADS,
                    "num_key_value_heads": groups,
                    "vocab_size": 128,
                    "max_position_embeddings": SEQUENCE,
                }
            )
        )
        own = {"global_batch": 2, "micro_batch": 1}
        tables = {
            "title": "t",
            "cluster": {"gpus": mp * plan.get("dp", 1) * plan.get("cp", 1), "bandwidth_gbps": gbps},
            "gpu": {"name": "a100"},
            "plan": {**own, "mp": mp, **plan},
            "workload": [{"name": "hf", "file": str(path)}],
            "topology": [{"name": topology}],
            "engine": {"fold": fold},
        }
        (case,) = run_experiment(read_experiment(tables, load())).cases
        return case

    return simulate


#: Named by hand, and what a plan means that names nothing: whatever tau is, and however parts are placed.
GATHERED = {"layout": "tensor", "keep_gathered": True, "placer": "aligned", "tau_us": 0.01}
SHARDS = GATHERED | {"keep_gathered": False}


@pytest.mark.parametrize("mp", [2, 4])
@pytest.mark.parametrize(
    ("plan", "pieces"), [(GATHERED, 8), (SHARDS, 10), ({}, 10)], ids=["gathered", "shards", "by default"]
)
@pytest.mark.parametrize("exchange", ["direct", "chain"])
def test_pieces_of_a_layer(run, mp, plan, pieces, exchange):
    """A layer more: 8 pieces of S (t - 1) / t a GPU and micro-batch, 10 where what is gathered is not kept.

    Along a chain a box passes the devices between: the same bytes, or more.
    """
    three, two = (run(layers, mp, exchange=exchange, **plan) for layers in (3, 2))
    sent = (three.tensor_bytes - two.tensor_bytes) / (2 * mp)
    expected = pieces * 2 * SEQUENCE * HIDDEN * (mp - 1) / mp
    assert sent == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mp", [2, 4])
def test_a_layer_keeps_a_shard_of_all(run, mp):
    """s b (12 h + 4 h_kv + 6 f) / t bytes, and the 4 bytes of each head and token.

    With what is gathered the inputs of two products, 2 h each, are kept whole; without sequence parallelism
    they and what two norms read, 2 h each.
    """
    tokens = SEQUENCE
    shard = tokens * (12 * HIDDEN + 4 * KEYS + 6 * INNER) / mp + 4 * HEADS * tokens / mp
    whole = 2 * HIDDEN * tokens * (mp - 1) / mp
    off = {"sequence_parallel": False, "tau_us": 0.01}
    for plan, layer in (
        ({}, shard),
        (SHARDS, shard),
        (GATHERED, shard + 2 * whole),
        (off, shard + 4 * whole),
    ):
        three, two = (run(layers, mp, **plan) for layers in (3, 2))
        assert three.memory_activations_bytes - two.memory_activations_bytes == layer


def test_without_a_group_there_is_nothing_to_gather(run):
    """The same run, to the last digit."""
    assert run(2, 1, dp=2) == run(2, 1, keep_gathered=True, dp=2) == run(2, 1, layout="auto", dp=2)


def test_gathering_again_takes_time_but_less_than_its_bytes(run):
    """It runs beside the op that makes the other gradient: hidden by launches alone on a fast network."""
    kept, again = (run(2, 4, **plan) for plan in (GATHERED, SHARDS))
    assert again.iteration_us == pytest.approx(kept.iteration_us, rel=1e-3)
    kept, again = (run(2, 4, gbps=1.0, **plan) for plan in (GATHERED, SHARDS))
    more_us = (again.tensor_bytes - kept.tensor_bytes) / 4 / 125.0
    assert kept.iteration_us < again.iteration_us < kept.iteration_us + more_us


@pytest.mark.parametrize("topology", ["sip-ocs", "sip-ring", "elect-cluster"])
def test_folding_stays_exact(run, topology):
    folded, whole = (
        run(2, 2, topology=topology, fold=fold, dp=2, global_batch=4) for fold in ("auto", "never")
    )
    assert folded.status == whole.status == "ok"
    assert folded.iteration_us == pytest.approx(whole.iteration_us, rel=1e-9)


@pytest.mark.parametrize(
    ("plan", "more"),
    [
        ({}, 2 * (1 - 1 / 2)),
        ({"layout": "megatron"}, 2 * (1 - 1 / 2)),
        ({"dp": 2, "zero": 1, "layout": "tensor"}, 2 * (1 - 1 / 4) - 2 * (1 - 1 / 2)),
        ({"cp": 2}, 2 * (1 - 1 / 4) - 2 * (1 - 1 / 2)),
    ],
    ids=str,
)
def test_copies_of_a_head_of_keys(run, plan, more):
    """Two heads of keys on four GPUs: each has one, as of four heads on four GPUs, and two have the same.

    Everything is what it is with four heads, but the two sum the gradient of M = 2 h e elements that they
    share, with the d c replicas' in one ring: 2 M (1 - 1 / n) in place of 2 M (1 - 1 / (d c)).
    """
    own, copied = (run(2, 4, groups=groups, tau_us=0.01, placer="aligned", **plan) for groups in (4, 2))
    gpus = 4 * plan.get("dp", 1) * plan.get("cp", 1)
    copied_bytes = 2 * (2 * HIDDEN * HIDDEN // HEADS) * 2  # of two layers, 2 bytes each
    assert copied.gradient_bytes - own.gradient_bytes == pytest.approx(gpus * more * copied_bytes, rel=1e-12)
    for column in ("tensor_bytes", "context_bytes", "memory_bytes", "memory_activations_bytes"):
        assert getattr(copied, column) == pytest.approx(getattr(own, column), rel=1e-12), column
    assert copied.compute_us == pytest.approx(own.compute_us, rel=1e-3)


@pytest.mark.parametrize(
    ("groups", "mp", "message"),
    [
        (
            2,
            3,
            "plan.mp must divide the 2 heads of keys and values, or be so many times them as divides the 8",
        ),
        (4, 16, "heads, with layout 'sequence', got 16; nearest: 8"),
        (
            8,
            16,
            "plan.mp must divide the 8 heads of keys and values with layout 'sequence', got 16; nearest: 8",
        ),
    ],
)
def test_heads_that_cannot_be_spread(run, groups, mp, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        run(1, mp, groups=groups)
