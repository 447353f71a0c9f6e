"""Experts spread over replicas, and sequences shared by replicas: bytes, memory, ends, folding, refusals."""

import json

import numpy as np
import pytest

from sipml_core.cases import run_experiment
from sipml_core.errors import ConfigError
from sipml_core.experiment import read_experiment
from sipml_core.plugin import load
from sipml_core.workloads import Mixtral
from sipml_core.workloads.routing import expert_shares

#: Hidden 48, 6 heads on 6 of keys of 8 features, inner 64, 2 layers, 6 experts of which a token meets 2.
HIDDEN, KEYS, LAYERS, CHOSEN, EXPERTS, INNER, SEQUENCE = 48, 48, 2, 2, 6, 64, 48
LLAMA = {
    "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
    "num_attention_heads": 6, "num_key_value_heads": 6, "vocab_size": 100,
    "max_position_embeddings": SEQUENCE,
}  # fmt: skip
MIXTRAL = {
    **LLAMA,
    "model_type": "mixtral", "num_local_experts": EXPERTS, "num_experts_per_tok": CHOSEN,
}  # fmt: skip
NETWORKS = ("elect-flat", "elect-cluster", "sip-ocs", "sip-ring")
#: All but those, and `graph`, which needs a file: with options that give every pair of 24 GPUs a way.
OPTIONS = {
    "sip-torus": {"cube": 2}, "sip-rails": {"server_gpus": 2, "rail_links": 8},
    "sip-khop": {"card_gbps": 50.0},
    "sip-ring": {"channel_gbps": 12.5}, "sip-ring-2d": {"channel_gbps": 12.5},
}  # fmt: skip
OTHERS = {name: OPTIONS.get(name, {}) for name in {*load().names("topology")} - {"elect-flat", "graph"}}
#: Numbers of GPUs that make no such network.
NOT_OF = {
    "sip-torus": (2, 3), "torus": (2, 3), "sip-ring-2d": (2, 3), "sip-ocs-bcube": (2, 3), "sip-rails": (3,),
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(model, gpus, options of the model, network, engine.fold, memory of a GPU, **plan): its row."""
    folder = tmp_path_factory.mktemp("models")

    def simulate(
        model, gpus, *, topology="elect-flat", fold="auto", options=(), library="ideal", network=(),
        memory=80e9, **plan,
    ):  # fmt: skip
        path = folder / f"{model['model_type']}.json"
        path.write_text(json.dumps(model))
        table = {"name": topology} | ({"server_gpus": 2} if topology == "elect-cluster" else {})
        table |= dict(network)
        tables = {
            "title": "t",
            "cluster": {"gpus": gpus, "bandwidth_gbps": 100.0},
            "gpu": {"name": "a100", "memory": memory},
            "plan": {"mp": 1, "global_batch": 24, "layout": "tensor", "placer": "aligned", "tau_us": 0.01}
            | plan,
            "workload": [{"name": "hf", "file": str(path), **dict(options)}],
            "topology": [table],
            "engine": {"fold": fold},
            "communication": {"library": library},
        }
        (case,) = run_experiment(read_experiment(tables, load())).cases
        return case

    return simulate


def rows_bytes(gpus, mp, dp, ep):
    """Of all GPUs in an iteration of 24 samples: 4 all-to-alls a layer, each T K h 2 (e - 1) / e bytes.

    Each device of a group sends a part in mp of them.
    """
    tokens = 24 * SEQUENCE // dp
    return gpus * LAYERS * 4 * tokens * CHOSEN * HIDDEN * 2 * (ep - 1) / ep / mp


def keys_bytes(gpus, mp, dp, cp, gathers=2):
    """Keys and values 4 (s / c) b h_kv (c - 1) / t bytes a layer: gathered forward and back, scattered."""
    samples = 24 // dp
    return gpus * LAYERS * (gathers + 1) * 4 * (SEQUENCE / cp) * samples * KEYS * (cp - 1) / mp


@pytest.mark.parametrize(
    ("gpus", "mp", "dp", "ep"), [(2, 1, 2, 2), (3, 1, 3, 3), (8, 2, 4, 2), (8, 1, 8, 2), (24, 2, 12, 6)]
)
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_rows_of_experts(run, gpus, mp, dp, ep, zero):
    """Bytes of the formula; experts / e and their states; gradients summed by those that have the same."""
    plan = {"mp": mp, "dp": dp, "zero": zero}
    alone, spread = run(MIXTRAL, gpus, **plan), run(MIXTRAL, gpus, ep=ep, **plan)
    assert alone.expert_bytes == 0
    assert spread.expert_bytes == pytest.approx(rows_bytes(gpus, mp, dp, ep), rel=1e-12)
    assert spread.tensor_bytes == pytest.approx(alone.tensor_bytes, rel=1e-12)
    assert spread.network_bytes == pytest.approx(
        spread.gradient_bytes + spread.tensor_bytes + spread.expert_bytes, rel=1e-12
    )

    experts = LAYERS * EXPERTS * 3 * HIDDEN * INNER / mp
    shared = [experts * 2, experts * 2, experts * 12]
    for name, size, level in zip(("parameters", "gradients", "optimizer"), shared, (3, 2, 1), strict=True):
        if zero >= level == 3:
            continue  # and what is gathered: see the next test
        before, after = (getattr(row, f"memory_{name}_bytes") for row in (alone, spread))
        # Optimizer states are divided by the replicas that have the same experts: fewer than all.
        saved = size * (1 - 1 / ep) if zero < level else size / dp - size / ep / (dp / ep)
        assert before - after == pytest.approx(saved, abs=1)
    # Each replica sums its part of the experts over dp / ep in place of all of them over dp; parameters that
    # are shared are gathered twice and scattered once.
    ring = (3 if zero == 3 else 2) * experts * 2 * mp
    assert alone.gradient_bytes - spread.gradient_bytes == pytest.approx(
        ring * (dp - 1) - ring * (dp / ep - 1)
    )


@pytest.mark.parametrize(("dp", "ep"), [(6, 1), (6, 3), (6, 6)])
def test_parameters_of_experts_are_shared_by_those_who_have_the_same(run, dp, ep):
    """16 bytes a parameter / dp, of experts / ep / (dp / ep); gathered at once is at most all, and of experts
    that no other replica has nothing. A bucket for all: a pass gathers all that it uses."""
    plan = {"dp": dp, "ep": ep, "bucket_bytes": 1e9}
    whole, shared = (run(MIXTRAL, dp, zero=zero, **plan) for zero in (0, 3))
    experts = LAYERS * EXPERTS * 3 * HIDDEN * INNER / ep
    others = whole.memory_parameters_bytes / 2 - experts
    part = others / dp + experts / (dp // ep)
    gathered = others + (experts if dp > ep else 0)
    assert shared.memory_gradients_bytes == pytest.approx(2 * part)
    assert shared.memory_optimizer_bytes == pytest.approx(12 * part)
    assert shared.memory_parameters_bytes == pytest.approx(2 * part + 2 * gathered)
    sent = 3 * 2 * (others * (dp - 1) / dp + experts * (dp // ep - 1) / (dp // ep))
    assert shared.gradient_bytes == pytest.approx(dp * sent, rel=1e-12)


@pytest.mark.parametrize("library", ["ideal", "nccl"])
def test_gradients_that_switches_add_up_are_sent_once(run, library):
    """M bytes a GPU in place of 2 M (n - 1) / n.

    Of n = 4 that saves a third, of the n = 2 that have the same experts nothing. Cut along samples, two GPUs
    of a group add up first, M bytes each, and send half of the sum: 3 / 2 M in place of 2 M 7 / 8.
    """

    def sent(gpus, name, **plan):
        row = run(MIXTRAL, gpus, library=library, network={"switches_add": True}, all_reduce=name, **plan)
        assert row.network_bytes == pytest.approx(row.gradient_bytes + row.expert_bytes, rel=1e-12)
        return row.gradient_bytes

    ring, added = (sent(4, name, dp=4) for name in ("flat", "in-switch"))
    assert added == pytest.approx(ring * 2 / 3, rel=1e-12)
    spread, spread_added = (sent(4, name, dp=4, ep=2) for name in ("flat", "in-switch"))
    experts = 4 * LAYERS * EXPERTS * 3 * HIDDEN * INNER * 2
    assert (ring - added) - (spread - spread_added) == pytest.approx(experts / 2, rel=1e-12)
    twice, twice_added = (sent(8, name, mp=2, dp=4, layout="sample") for name in ("flat", "in-switch"))
    assert twice_added == pytest.approx(twice * 6 / 7, rel=1e-12)


@pytest.mark.parametrize("topology", ["hybrid", "sip-ocs-clos"])
def test_circuits_are_planned_for_what_a_library_sends(run, topology):
    """Bytes on the wire, whether all replicas are simulated or the first for all."""
    plan = {"topology": topology, "library": "nccl", "pp": 4, "dp": 4, "micro_batch": 2}
    folded, full = (run(LLAMA, 16, fold=fold, **plan) for fold in ("require", "never"))
    assert folded.iteration_us == pytest.approx(full.iteration_us, rel=1e-9)


@pytest.mark.parametrize(("zero", "others", "experts"), [(0, 14, 12), (1, 14, 12), (2, 21, 18), (3, 38, 28)])
def test_states_of_experts_that_several_devices_have(run, zero, others, experts):
    """Cut along samples, both GPUs of a group have all parameters and sum them with the replicas'.

    Of all 8 GPUs, 4 replicas and m = 2 micro-batches, 2 replicas with the same experts: 2 (n - 1) pieces for
    n = 8 and twice for n = 4; as many shared; (m + 1) / 2 times with gradients shared; with parameters shared
    3 m 8 (1 - 1 / 4) and 3 m 8 (1 - 1 / 2), and 8 / 4 and 8 / 2 to add up over the two GPUs of each group.
    """
    plan = {"mp": 2, "dp": 4, "ep": 2, "layout": "sample", "micro_batch": 3}
    whole, shared = (run(MIXTRAL, 8, zero=level, **plan) for level in (0, zero))
    of_experts = LAYERS * EXPERTS * 3 * HIDDEN * INNER * 2 / 2
    of_others = whole.memory_gradients_bytes - of_experts
    assert shared.gradient_bytes == pytest.approx(others * of_others + experts * of_experts, rel=1e-12)


@pytest.mark.parametrize(
    ("gpus", "mp", "cp", "dp"), [(2, 1, 2, 1), (3, 1, 3, 1), (8, 2, 2, 2), (8, 1, 4, 2), (24, 3, 8, 1)]
)
@pytest.mark.parametrize("context", ["ring", "all-gather"])
def test_keys_and_values(run, gpus, mp, cp, dp, context):
    """Bytes of the formula; activations / c; every GPU has as much to compute; rings are no slower."""
    found = run(LLAMA, gpus, mp=mp, cp=cp, dp=dp, context=context)
    assert found.context_bytes == pytest.approx(keys_bytes(gpus, mp, dp, cp), rel=1e-12)
    whole = run(LLAMA, gpus // cp, mp=mp, dp=dp)
    assert found.memory_activations_bytes == pytest.approx(whole.memory_activations_bytes / cp, rel=1e-3)
    assert found.memory_parameters_bytes == whole.memory_parameters_bytes
    assert found.compute_max_us == pytest.approx(found.compute_us, rel=1e-3)


def test_recomputation_gathers_keys_once_more(run):
    """Forward, forward again, and back."""
    found = run(LLAMA, 8, cp=4, dp=2, recompute="full")
    # The last segment is not made again: one layer of two.
    assert keys_bytes(8, 1, 2, 4) < found.context_bytes <= keys_bytes(8, 1, 2, 4, gathers=3)


def test_a_ring_hides_what_an_all_gather_does_not(run):
    """The same bytes; attention works on the keys that are there while others come in."""
    slow = {"mp": 1, "cp": 4, "dp": 2}
    ring, gather = (run(LLAMA, 8, context=context, **slow) for context in ("ring", "all-gather"))
    assert ring.context_bytes == gather.context_bytes
    assert ring.iteration_us < gather.iteration_us


@pytest.mark.parametrize("model", [MIXTRAL, LLAMA])
def test_degrees_of_one_change_nothing(run, model):
    """To the last digit, and whatever else says how: context, skew."""
    plain = run(model, 8, mp=2, dp=4, micro_batch=3)
    options = {"skew": 1.0} if model is MIXTRAL else {}
    assert (
        run(model, 8, mp=2, dp=4, micro_batch=3, ep=1, cp=1, context="all-gather", options=options) == plain
    )


@pytest.mark.parametrize("topology", NETWORKS)
@pytest.mark.parametrize(
    "plan",
    [
        {"dp": 8, "ep": 2},
        {"mp": 2, "dp": 4, "ep": 2, "pp": 1, "zero": 3, "micro_batch": 3},
        {"cp": 2, "dp": 4, "ep": 2, "micro_batch": 2},
        {"cp": 2, "dp": 2, "pp": 2, "ep": 2, "micro_batch": 6},
    ],
)
def test_folding_is_exact_on_every_network(run, topology, plan):
    """The first blocks stand for all; bytes are the same on every network, and nothing ends too early."""
    folded, whole = (run(MIXTRAL, 8, topology=topology, fold=fold, **plan) for fold in ("auto", "never"))
    assert folded.status == whole.status
    if whole.ran:
        assert folded.iteration_us == pytest.approx(whole.iteration_us, rel=1e-9)
        assert folded.expert_bytes == pytest.approx(whole.expert_bytes, rel=1e-12)
        assert folded.iteration_us >= folded.lower_bound_us * (1 - 1e-9)
        flat = run(MIXTRAL, 8, **plan)
        assert whole.expert_bytes == pytest.approx(flat.expert_bytes, rel=1e-12)
        assert whole.context_bytes == pytest.approx(flat.context_bytes, rel=1e-12)


@pytest.mark.parametrize(("blocks", "switches", "needed"), [(1, 3, 5), (2, 5, 7)])
def test_rows_are_passed_on_where_circuits_are_few(run, blocks, switches, needed):
    """Six replicas send each other rows: refused with few circuits, or passed on over a grid of 2 x 3.

    Three of five peers are beside a GPU, the others two hops away: 7 / 5 of the bytes. Of the ring through a
    block for gradients, four of six steps are one hop and two are two; all are straight that leave a block.
    """
    plan = {"dp": 6 * blocks, "ep": 6, "topology": "sip-ocs", "network": {"switches": switches}}
    refused = run(MIXTRAL, 6 * blocks, **plan)
    assert refused.reason.endswith(f"it takes {needed}, or forwarding = true")
    assert run(MIXTRAL, 6 * blocks, **{**plan, "network": {"switches": needed}}).status == "ok"
    folded, whole = (
        run(MIXTRAL, 6 * blocks, forwarding=True, fold=fold, **plan) for fold in ("auto", "never")
    )
    assert "rows of experts are passed on over a grid of 2 x 3 replicas, axis by axis" in whole.notes
    assert folded.iteration_us == pytest.approx(whole.iteration_us, rel=1e-9)
    straight = run(MIXTRAL, 6 * blocks, dp=6 * blocks, ep=6)
    assert whole.expert_bytes == straight.expert_bytes
    passed_on = whole.network_bytes - straight.expert_bytes * 7 / 5
    if blocks == 1:
        assert passed_on == pytest.approx(straight.gradient_bytes * 8 / 6, rel=1e-12)
    else:
        assert straight.gradient_bytes < passed_on < straight.gradient_bytes * 8 / 6


@pytest.mark.parametrize(
    ("gpus", "plan"),
    [
        pytest.param(2, {"dp": 2, "ep": 2}, marks=pytest.mark.slow),
        pytest.param(3, {"dp": 3, "ep": 3}, marks=pytest.mark.slow),
        (8, {"dp": 4, "cp": 2, "ep": 2}),
        pytest.param(24, {"dp": 12, "cp": 2, "ep": 3}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("topology", sorted(OTHERS))
def test_every_network_carries_the_same_rows(run, topology, gpus, plan):
    """Those of the ideal switch, wherever so many GPUs make such a network."""
    if gpus in NOT_OF.get(topology, ()):
        with pytest.raises(ConfigError, match=rf"{gpus}.*nearest"):
            run(MIXTRAL, gpus, topology=topology, network=OTHERS[topology], **plan)
        return
    found = run(MIXTRAL, gpus, topology=topology, network=OTHERS[topology], **plan)
    flat = run(MIXTRAL, gpus, **plan)
    assert found.status == "ok", found.reason
    assert found.expert_bytes == pytest.approx(flat.expert_bytes, rel=1e-12)
    assert found.context_bytes == pytest.approx(flat.context_bytes, rel=1e-12)
    assert found.iteration_us >= found.lower_bound_us * (1 - 1e-9)


@pytest.mark.parametrize(
    ("gpus", "plan"),
    [(2, {"dp": 2, "ep": 2}), (3, {"dp": 3, "ep": 3}), (3, {"dp": 1, "cp": 3})],
)
def test_a_peer_of_two_kinds_is_counted_once(run, gpus, plan):
    """One block is all replicas: gradients go where rows or keys go as well. On a ring of 2 or 3
    GPUs each has circuits to all others, and no more."""
    model = MIXTRAL if "ep" in plan else LLAMA
    found = run(model, gpus, topology="sip-ring", **plan)
    assert found.status == "ok", found.reason


@pytest.mark.parametrize("layout", ["auto", "sample", "tensor", "megatron", "sequence"])
@pytest.mark.parametrize("placer", ["algorithm1", "aligned"])
def test_every_layout_exchanges_all_rows(run, layout, placer):
    """No rows are lost: those of the formula, and where every GPU has all tokens mp times as many."""
    found = run(MIXTRAL, 8, mp=2, dp=4, ep=2, layout=layout, placer=placer)
    once = rows_bytes(8, 2, 4, 2)
    assert once * (1 - 1e-12) <= found.expert_bytes <= 2 * once * (1 + 1e-12)
    if layout in ("sequence", "megatron"):
        assert found.expert_bytes == pytest.approx({"sequence": 1, "megatron": 2}[layout] * once)


def test_a_skew_moves_tokens_and_makes_the_largest_wait(run):
    """Rows are conserved: each replica gets e times its part, all together as many as before."""
    plan = {"dp": 6, "ep": 6}
    balanced, skewed = (run(MIXTRAL, 6, options={"skew": skew}, **plan) for skew in (0.0, 1.0))
    assert balanced == run(MIXTRAL, 6, **plan)
    assert skewed.expert_bytes == pytest.approx(balanced.expert_bytes, rel=1e-12)
    assert skewed.compute_us == pytest.approx(balanced.compute_us, rel=0.02)
    assert skewed.compute_max_us > balanced.compute_max_us
    assert skewed.iteration_us > balanced.iteration_us
    assert skewed == run(MIXTRAL, 6, options={"skew": 1.0}, **plan)
    other = run(MIXTRAL, 6, options={"skew": 1.0, "skew_seed": 1}, **plan)
    assert other.iteration_us != skewed.iteration_us


def test_a_skew_fills_the_replica_with_most_rows(run):
    """Rows of experts take e times its part of the memory: what experts read, and three inner tensors.

    Of a layer 2 K T (h + 3 f) bytes; that of the replica with most rows in both layers together.
    """
    plan = {"dp": 6, "ep": 6}
    balanced, skewed = (run(MIXTRAL, 6, options={"skew": skew}, **plan) for skew in (0.0, 1.0))
    shares = np.array([expert_shares(EXPERTS, 1.0, 0, layer) for layer in range(LAYERS)])
    rows_bytes_of_layer = 2 * CHOSEN * (24 // 6 * SEQUENCE) * (HIDDEN + 3 * INNER)
    more = rows_bytes_of_layer * (shares.sum(axis=0).max() * 6 - LAYERS)
    found = skewed.memory_activations_bytes - balanced.memory_activations_bytes
    assert found == pytest.approx(more, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "plan"),
    [(MIXTRAL, {"dp": 8, "ep": 2}), (LLAMA, {"cp": 4, "dp": 2}), (LLAMA, {"cp": 8, "dp": 1})],
)
def test_a_library_takes_time_and_changes_no_bytes(run, model, plan):
    """Calls have a start-up and bytes on the wire; bytes of the training step are the same."""
    ideal, nccl = (run(model, 8, library=library, **plan) for library in ("ideal", "nccl"))
    assert nccl.iteration_us > ideal.iteration_us
    for column in ("expert_bytes", "context_bytes", "gradient_bytes", "network_bytes"):
        assert getattr(nccl, column) == pytest.approx(getattr(ideal, column), rel=1e-12)


@pytest.mark.parametrize("zero", [0, 1])
def test_experts_are_cut_by_a_group_or_whole_on_each_gpu(run, zero):
    """Experts / (e t), or / e: 2 bytes of each are parameters, 2 gradients, 12 states, which `zero` divides
    by the c d / e replicas that have the same; gradients of what is whole are summed by t times as many."""
    plan = {"mp": 2, "dp": 4, "ep": 2, "zero": zero}
    cut, whole = (run(MIXTRAL, 8, options={"cut_experts": each}, **plan) for each in (True, False))
    more = LAYERS * EXPERTS * 3 * HIDDEN * INNER / 2 * (1 - 1 / 2)
    for kind, bytes_each in (("parameters", 2), ("gradients", 2), ("optimizer", 12 / (2 if zero else 1))):
        found = getattr(whole, f"memory_{kind}_bytes") - getattr(cut, f"memory_{kind}_bytes")
        assert found == pytest.approx(bytes_each * more, rel=1e-9), kind
    assert whole.expert_bytes == pytest.approx(cut.expert_bytes, rel=1e-12)
    assert whole.gradient_bytes > cut.gradient_bytes


def test_a_capacity_keeps_the_balance_and_says_what_is_dropped(run):
    """Room for 1.5 times the mean: 3 rows for 2; with a skew what is beyond is dropped."""
    plan = {"dp": 6, "ep": 6}
    dropless = run(MIXTRAL, 6, **plan)
    roomy = run(MIXTRAL, 6, options={"capacity_factor": 1.5}, **plan)
    skewed = run(MIXTRAL, 6, options={"capacity_factor": 1.5, "skew": 1.0}, **plan)
    assert roomy.expert_bytes == pytest.approx(1.5 * dropless.expert_bytes, rel=1e-12)
    assert skewed.iteration_us == roomy.iteration_us
    assert any("rows of experts are dropped" in note for note in skewed.notes)


def test_shares_of_ranks_are_those_of_their_experts():
    """Six experts on three replicas: two each, in order; a skew of 0 is balance."""
    model = Mixtral(Mixtral.Options(skew=0.5, skew_seed=3))
    shares = expert_shares(8, 0.5, 3, 7)
    assert model.rank_shares(7, 4) == pytest.approx(shares.reshape(4, 2).sum(axis=1))
    assert sum(model.rank_shares(7, 4)) == pytest.approx(1.0)
    assert Mixtral(Mixtral.Options()).rank_shares(7, 4) == (0.25,) * 4
    assert not np.array_equal(expert_shares(8, 0.5, 3, 6), shares)


@pytest.mark.parametrize(
    ("model", "plan", "message"),
    [
        (
            MIXTRAL,
            {"dp": 8, "ep": 3},
            "ep must divide the dp=8 replicas over which experts are spread, got 3",
        ),
        (MIXTRAL, {"dp": 8, "ep": 4}, "plan.ep must divide the 6 experts of a layer, got 4; nearest: 3"),
        (LLAMA, {"dp": 8, "ep": 2}, "plan.ep must be 1, got 2: 'hf' has no experts"),
        (LLAMA, {"cp": 16, "dp": 1}, "cp must divide 8 GPUs, got 16; nearest: 8 or 4"),
        (
            LLAMA,
            {"mp": 4, "dp": 2},
            "plan.mp must divide the 6 heads of keys and values with layout 'tensor'",
        ),
    ],
)
def test_what_does_not_divide_is_refused(run, model, plan, message):
    """Key, rule, value, and the nearest that would do."""
    with pytest.raises(ConfigError, match=message) as refused:
        run(model, 8, **plan)
    assert "\n" not in str(refused.value)


def test_a_sequence_that_cannot_be_cut_in_chunks_is_refused(run):
    """46 tokens in 2 x 2 chunks: 23 is prime; plain attention has no parts."""
    with pytest.raises(
        ConfigError, match="cp must cut the sequence of 46 tokens into 2 cp equal chunks, got 2; nearest: 1"
    ):
        run(LLAMA, 8, cp=2, dp=4, options={"sequence": 46})
    with pytest.raises(ConfigError, match='cp must be 1 with attention = "plain", got 2'):
        run(LLAMA, 8, cp=2, dp=4, options={"attention": "plain"})


def test_other_models_have_neither():
    tables = {
        "title": "t",
        "cluster": {"gpus": 4, "bandwidth_gbps": 100.0},
        "plan": {"mp": 1, "cp": 2, "dp": 2, "global_batch": 4},
        "workload": [{"name": "resnet50", "image": 32}],
        "topology": [{"name": "elect-flat"}],
    }
    with pytest.raises(ConfigError, match=r"plan\.cp must be 1 for 'resnet50', got 2"):
        read_experiment(tables, load())


@pytest.mark.parametrize(
    ("model", "plan", "named", "wider"),
    [
        (MIXTRAL, {"dp": 6, "micro_batch": 1}, {"ep": 3}, "ep"),
        (LLAMA, {"dp": 4, "micro_batch": 6}, {"cp": 2, "dp": 2}, "cp"),
    ],
    ids=["experts", "context"],
)
def test_a_refusal_names_the_degree_that_divides_what_does_not_fit(run, model, plan, named, wider):
    """On GPUs that have just what the named plan needs: it runs there."""
    needed = run(model, plan["dp"], **{**plan, **named}).memory_bytes
    refused = run(model, plan["dp"], memory=needed, **plan)
    assert refused.status == "infeasible"
    assert " and ".join(f"{name} = {value}" for name, value in named.items()) in refused.reason
    assert f"raise mp or {wider}" in refused.reason
    assert run(model, plan["dp"], memory=needed, **{**plan, **named}).status == "ok"


def test_a_model_without_experts_is_not_told_to_spread_them(run):
    assert run(LLAMA, 4, memory=1e5, dp=4).reason.endswith("the GPU has 100 kB; raise mp")
