"""Plans, networks and models drawn at random, in combination: each is a row that adds up, or one line.

The same seeds every time. `python -m pytest -m slow tests/end_to_end/test_random_plans.py` draws many more.
"""

import copy
import json
import random

import attrs
import pytest

from sipml_core.cases import run_experiment
from sipml_core.errors import ConfigError
from sipml_core.experiment import read_experiment
from sipml_core.model import INFEASIBLE, OK
from sipml_core.plugin import load

SEEDS = range(16)
MORE_SEEDS = range(1000, 1600)

LLAMA = {
    "model_type": "llama", "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 12, "num_key_value_heads": 12, "vocab_size": 100, "max_position_embeddings": 48,
}  # fmt: skip
MODELS = {
    "llama": {**LLAMA, "tie_word_embeddings": True},
    "mixtral": {**LLAMA, "model_type": "mixtral", "num_local_experts": 12, "num_experts_per_tok": 2},
    "deepseek": {
        **LLAMA, "model_type": "deepseek_v3", "moe_intermediate_size": 32, "n_routed_experts": 12,
        "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "q_lora_rank": 16,
        "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    },
}  # fmt: skip
#: Options of networks that do not suit any number of GPUs as they are.
OPTIONS = {
    "elect-cluster": {"server_gpus": 2}, "sip-rails": {"server_gpus": 2, "relay": True},
    "sip-torus": {"cube": 2}, "sip-ring": {"reach_hops": 8},
}  # fmt: skip
NETWORKS = sorted({*load().names("topology")} - {"graph"})
DEGREES = {"mp": [1, 2, 3], "cp": [1, 1, 2], "ep": [1, 1, 2, 4], "pp": [1, 2, 3], "dp": [1, 2, 3]}
CHOICES = {
    "zero": [0, 1, 2, 3], "recompute": ["none", "selective", "full"],
    "layout": ["auto", "sample", "tensor", "megatron", "sequence"],
    "context": ["ring", "all-gather"],
    "forwarding": [False, True], "fp32_gradients": [False, True], "optimizer_step": ["bucket", "last"],
    "keep_gathered": [False, True], "iterations": [1, 1, 2], "tau_us": [0.05, 10.0],
    "placer": ["algorithm1", "aligned"], "bucket_bytes": [5e3, 25e6],
    "exchange": ["auto", "auto", "direct", "chain", "ring"], "ring_steps": ["fluid", "fluid", "explicit"],
}  # fmt: skip


def plan_and_gpus(rng):
    """A plan on at most 48 GPUs; most of what does not go together is left out."""
    plan = {name: rng.choice(degrees) for name, degrees in DEGREES.items()}
    plan["dp"] *= plan["ep"]
    if plan["mp"] * plan["cp"] * plan["pp"] * plan["dp"] > 48:
        plan["cp"] = plan["mp"] = 1
    plan |= {key: rng.choice(values) for key, values in CHOICES.items()}
    plan["schedule"] = rng.choice(["gpipe", "1f1b", "zb-h1"] + ["interleaved"] * (plan["pp"] > 1))
    in_turn = plan["schedule"] == "interleaved"
    plan["chunks"] = 2 if in_turn else 1
    plan["micro_batch"] = rng.choice([1, 2])
    micro_batches = rng.choice([1, 2, 3]) * (plan["pp"] if in_turn else 1)
    plan["global_batch"] = plan["dp"] * plan["micro_batch"] * micro_batches
    if rng.random() < 0.3:
        plan["rank_order"] = rng.sample(["mp", "cp", "ep", "pp", "dp"], 5)
    return plan, plan["mp"] * plan["cp"] * plan["pp"] * plan["dp"]


def network(rng, gpus, registry):
    """A bundled network that may have so many GPUs, as it is or with circuits planned otherwise."""
    whole = {"elect-cluster": 2, "sip-rails": 2, "sip-torus": 8}
    name = rng.choice([each for each in NETWORKS if gpus % whole.get(each, 1) == 0])
    topology = registry.find("topology", name)
    table = {"name": name, **OPTIONS.get(name, {})}
    known = attrs.fields_dict(topology.Options)
    if "reconfiguration_us" in known and rng.random() < 0.4:
        table |= {"interval_us": 100.0, "reconfiguration_us": 20.0, "replan_above": rng.choice([0.0, 0.3])}
        table.pop("relay", None)
    if topology.scheduler and rng.random() < 0.3:
        table["demand"] = rng.choice(["auto", "gating"])
    if "switches_add" in known:
        table["switches_add"] = rng.random() < 0.5
    return table | ({"rounds": 2} if rng.random() < 0.2 else {})


def experiment(seed, registry, folder):
    """The tables of one experiment."""
    rng = random.Random(seed)
    plan, gpus = plan_and_gpus(rng)
    model = rng.choice([*MODELS] if plan["ep"] == 1 else ["mixtral", "deepseek"])
    workload = {"name": "hf", "file": str(folder / f"{model}.json")}
    if model != "llama":
        workload |= {"skew": rng.choice([0.0, 0.5]), "cut_experts": rng.random() < 0.7}
    topology = network(rng, gpus, registry)
    return {
        "title": "t",
        "cluster": {"gpus": gpus, "bandwidth_gbps": 100.0},
        "gpu": {"name": rng.choice(["a100", "h100-80gb"])},
        "plan": plan,
        "workload": [workload],
        "topology": [topology],
        "engine": {"queue": rng.choice(["pair", "pair", "source"])},
        "communication": {"library": rng.choice(["ideal", "ideal", "nccl"])},
        "framework": rng.choice([{}, {"host_us": 20.0, "host_collective_us": 5.0, "slowest_sigma": 0.02}]),
    }


def row_of(tables, registry, fold):
    """Its row, or the line that refuses it."""
    tables = copy.deepcopy(tables)
    tables["engine"]["fold"] = fold
    try:
        (row,) = run_experiment(read_experiment(tables, registry)).cases
    except ConfigError as error:
        return str(error)
    return row


def close(one, other, floor=0.0):
    return one == other or abs(one - other) <= 1e-9 * max(abs(one), abs(other), floor)


def check(tables, registry):
    """Return the status of one experiment, whose row adds up and is that of all replicas simulated."""
    row = row_of(tables, registry, "auto")
    if isinstance(row, str):
        assert len(row.splitlines()) == 1
        return "refused"
    assert row.status in (OK, INFEASIBLE), row.reason
    if row.status == INFEASIBLE:
        assert len(row.reason.splitlines()) == 1
        return row.status

    accounts = [row.compute_us, row.exposed_us, row.dark_us, row.idle_us]
    assert min(accounts) >= -1e-9 * row.iteration_us
    assert sum(accounts) == pytest.approx(row.iteration_us, rel=1e-9)
    assert row.iteration_us >= row.lower_bound_us * (1 - 1e-6)
    assert row.memory_bytes > 0
    kinds = [
        getattr(row, f"{kind}_bytes") for kind in ("tensor", "pipeline", "expert", "context", "gradient")
    ]
    passed_on = tables["plan"]["forwarding"] or any("relay" in note for note in row.notes)
    assert sum(kinds) <= row.network_bytes * (1 + 1e-9)
    assert passed_on or close(sum(kinds), row.network_bytes)

    # Every number is that of a run in which all replicas are simulated.
    whole = row_of(tables, registry, "never")
    for name, one in attrs.asdict(row).items():
        if isinstance(one, float):
            floor = row.iteration_us if name.endswith("_us") else 0.0
            assert close(one, getattr(whole, name), floor), (name, one, getattr(whole, name))
    return row.status


def check_all(seeds, registry, folder):
    """Check each seed; return how often each status came."""
    for name, model in MODELS.items():
        (folder / f"{name}.json").write_text(json.dumps(model))
    found = []
    for seed in seeds:
        tables = experiment(seed, registry, folder)
        try:
            found.append(check(tables, registry))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}\n{json.dumps(tables)}") from error
    return {status: found.count(status) for status in set(found)}


def test_what_is_drawn_at_random_adds_up(registry, tmp_path):
    """Most draws run."""
    assert check_all(SEEDS, registry, tmp_path)[OK] >= len(SEEDS) / 2


@pytest.mark.slow
def test_what_is_drawn_many_times_adds_up(registry, tmp_path):
    assert check_all(MORE_SEEDS, registry, tmp_path)[OK] >= len(MORE_SEEDS) / 2
