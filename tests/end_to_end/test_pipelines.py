"""Whole runs with pipeline stages: folded and full, every network, every rank order, and what is refused."""

from __future__ import annotations

import itertools

import attrs
import pytest

from sipml_core.cases import Case, Reuse, compile_case
from sipml_core.cases.running import run_experiment
from sipml_core.engine import simulate
from sipml_core.errors import ConfigError
from sipml_core.experiment.reading import read_experiment
from sipml_core.plugin import load

GPT = {"name": "gpt", "layers": 4, "hidden": 128, "heads": 4, "sequence": 32, "vocabulary": 500}
SMALLER = {**GPT, "hidden": 32, "sequence": 16, "vocabulary": 100}
FLAT, CLUSTER = {"name": "elect-flat"}, {"name": "elect-cluster", "server_gpus": 4, "uplink_gbps": 50}
OCS = {"name": "sip-ocs"}
SLOW = pytest.mark.slow


def tables(topology, *, workload=GPT, cluster=None, engine=None, **plan):
    plan = {"mp": 2, "pp": 2, "dp": 2, "micro_batch": 1, "tau_us": 0.1, "placer": "aligned", **plan}
    gpus = plan["mp"] * plan["pp"] * plan["dp"]
    plan.setdefault("global_batch", 4 * plan["dp"])
    return {
        "title": "pipelines",
        "cluster": {"gpus": gpus, "bandwidth_gbps": 200, **(cluster or {})},
        "gpu": {"name": "a100"},
        "engine": engine or {},
        "plan": {"layout": "megatron", **plan},
        "workload": [workload],
        "topology": [topology],
    }


def run(registry, tables, **engine):
    tables = {**tables, "engine": {**tables["engine"], **engine}}
    return run_experiment(read_experiment(tables, registry)).cases[0]


@pytest.mark.parametrize("topology", [FLAT, CLUSTER, OCS], ids=lambda t: t["name"])
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, id="-".join(order), marks=[] if number % 2 else [SLOW])
        for number, order in enumerate(itertools.permutations(("mp", "pp", "dp")))
    ],
)
@pytest.mark.parametrize(
    "plan", [{}, {"zero": 3}, {"schedule": "zb-h1", "zero": 1, "recompute": "full", "iterations": 2}]
)
def test_folded_equals_full(registry, topology, order, plan):
    """Every field of the row, in every order of ranks; the ideal switch needs one replica in all."""
    smaller = {**SMALLER, "layers": 2}
    job = tables(topology, workload=smaller, mp=2, pp=2, dp=4, rank_order=list(order), **plan)
    full, folded = run(registry, job, fold="never"), run(registry, job, fold="auto")
    for field in attrs.fields(type(full)):
        if field.name == "lower_bound_us":
            # Images of a transfer share its links, which only the bound of the part knows.
            assert full.lower_bound_us <= folded.lower_bound_us * (1 + 1e-9) <= full.iteration_us * (1 + 1e-8)
        elif field.name != "notes":
            expected = getattr(full, field.name)
            close = pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected
            assert getattr(folded, field.name) == close, field.name
    if topology is FLAT:
        assert "simulated 1 of 4 groups" in folded.notes


def on_other_networks():
    """All bundled networks but the four of the paper, and `graph`, which is what its file says."""
    options = {"sip-rails": {"server_gpus": 4}, "sip-khop": {"card_gbps": 100}, "sip-torus": {"cube": 2}}
    names = {*load().names("topology")} - {"elect-flat", "elect-cluster", "sip-ocs", "sip-ring", "graph"}
    return [pytest.param({"name": name, **options.get(name, {})}, marks=SLOW) for name in sorted(names)]


@pytest.mark.parametrize(
    "topology",
    [
        FLAT, CLUSTER, OCS, {"name": "sip-ring"},
        {"name": "sip-ocs", "interval_us": 200, "reconfiguration_us": 10},
        *on_other_networks(),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(
    ("schedule", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb-h1", 1)], ids=str
)
@pytest.mark.parametrize("n", [2, pytest.param(3, marks=SLOW), 7, pytest.param(24, marks=SLOW)])
def test_every_schedule_ends_on_every_network(registry, topology, schedule, chunks, n):
    """n replicas of 4 stages; a micro-batch goes once through each, whatever carries it."""
    if topology["name"] == "sip-torus" and n % 2:
        pytest.skip("4 n GPUs are no whole cubes of 8")
    row = run(
        registry,
        tables(
            topology, workload=SMALLER, mp=1, pp=4, dp=n, schedule=schedule, chunks=chunks, global_batch=4 * n
        ),
        fold="auto",
    )
    assert (row.pp, row.micro_batch, row.schedule) == (4, 1, schedule)
    assert row.iteration_us >= row.lower_bound_us * (1 - 1e-9) > 0
    assert row.compute_us + row.exposed_us + row.dark_us + row.idle_us == pytest.approx(row.iteration_us)


@pytest.mark.parametrize("topology", [FLAT, CLUSTER, OCS, {"name": "sip-ring"}], ids=lambda t: t["name"])
@pytest.mark.parametrize(
    "plan",
    [
        {"schedule": "gpipe"}, {"schedule": "1f1b", "zero": 3}, {"schedule": "zb-h1", "zero": 1},
        {"schedule": "interleaved", "chunks": 2, "recompute": "full"},
        {"layout": "tensor", "keep_gathered": False},
    ],
    ids=str,
)  # fmt: skip
def test_the_kernels_agree_on_pipelines(registry, topology, plan):
    """C ends every node when the plain reference does, on circuits too."""
    job = tables(topology, workload={**SMALLER, "layers": 2}, **{"mp": 2, "pp": 2, "dp": 3, **plan})
    experiment = read_experiment({**job, "engine": {"fold": "auto"}}, registry)
    (only,) = experiment.jobs
    case = Case.of(experiment, only, experiment.interconnects[0], only.plan(12))
    ends = [
        simulate(compiled.tasks, compiled.network, driver=compiled.circuits, kernel=kernel).end_us
        for kernel in ("c", "reference")
        for compiled in compile_case(case, Reuse())[:1]
    ]
    assert len(ends[0])
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)


def test_short_forms_and_the_plan_are_the_same_run(registry):
    """[strategy] with mp and dp is [plan] with one stage, one micro-batch and nothing shared, to the bit."""
    short = tables(FLAT, pp=1, mp=2, dp=4)
    del short["plan"]["micro_batch"], short["plan"]["pp"]
    short["strategy"] = short.pop("plan")
    long = tables(
        FLAT, pp=1, mp=2, dp=4, micro_batch=4, schedule="gpipe", zero=0, recompute="none", chunks=1,
        rank_order=["mp", "pp", "dp"],
    )  # fmt: skip
    assert run(registry, short) == run(registry, long)


def test_accumulation_divides_memory_not_work(registry):
    """Four micro-batches on one stage: gradients are sent once, a quarter of the activations is kept."""
    whole, parts = (run(registry, tables(FLAT, pp=1, micro_batch=b, global_batch=8)) for b in (4, 1))
    assert parts.gradient_bytes == whole.gradient_bytes
    assert parts.memory_bytes < whole.memory_bytes
    assert parts.network_bytes == pytest.approx(whole.network_bytes)


def test_zero_orders_memory_and_bytes(registry):
    """More shared, less kept; ZeRO-1 sends what an all-reduce sends, 2 and 3 more with many micro-batches."""
    plan = {"dp": 4, "bucket_bytes": 1e5}
    rows = [run(registry, tables(FLAT, zero=level, **plan)) for level in (0, 1, 2, 3)]
    assert rows[0].memory_bytes > rows[1].memory_bytes > rows[2].memory_bytes > rows[3].memory_bytes
    assert rows[0].gradient_bytes == rows[1].gradient_bytes < rows[2].gradient_bytes < rows[3].gradient_bytes
    assert [row.zero for row in rows] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"pp": 3, "mp": 1, "dp": 1}, None),
        ({"pp": 64, "mp": 1, "dp": 1}, "gpt has 57 forward ops, which makes 57 stages at most, got 64"),
        # 64 GPUs in as many stages: of their divisors 32 is the largest that is no more than 57.
        ({"pp": 64, "mp": 1, "dp": 1}, "nearest: pp=32, dp=2"),
    ],
)
def test_more_stages_than_ops(registry, plan, message):
    """One line with the number of cuts there are."""
    if message is None:
        assert run(registry, tables(FLAT, **plan)).pp == 3
        return
    with pytest.raises(ConfigError, match=message):
        run(registry, tables(FLAT, **plan))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            {"micro_batch": 3},
            r"plan.micro_batch must divide the 4 samples of a replica, got 3; nearest: 2 or 4",
        ),
        ({"schedule": "interleaved"}, r"plan.schedule \"interleaved\" needs pp and chunks of at least 2"),
        ({"rank_order": ["mp", "tp"]}, r"plan.rank_order must name mp, pp and dp once each"),
        ({"zero": 3, "counter_rotating": True}, r"plan.counter_rotating must be false where zero is above 0"),
    ],
)
def test_bad_plans_are_refused_when_read(registry, plan, message):
    """Before anything is built: the key, the rule, what would do."""
    with pytest.raises(ConfigError, match=message):
        read_experiment(tables(FLAT, **plan), registry)


def test_shared_states_go_round_one_ring(registry):
    """Another all-reduce has no meaning with shared states: refused with what would do."""
    with pytest.raises(ConfigError, match=r"all_reduce must be \"auto\", \"flat\" or \"torus-rings\" where"):
        run(registry, tables(CLUSTER, mp=1, pp=1, dp=8, zero=3, all_reduce="two-tier"))


def test_peers_of_all_dimensions_count(registry):
    """Degree 4: two stage neighbours and one counterpart leave one peer, a group of 8 needs two."""
    topology = {"name": "sip-ocs", "switches": 4}
    row = run(registry, tables(topology, mp=8, pp=4, dp=2, workload={**GPT, "heads": 8}, exchange="direct"))
    assert row.status == "infeasible"
    assert "1 of it for the ring of dp=2 replicas and 2 for neighbouring pipeline stages" in row.reason


def test_a_ring_names_the_reach_that_a_plan_takes(registry):
    """mp 4, pp 4: the next stage is 4 hops away, the next replica 16, out of reach 8."""
    topology = {"name": "sip-ring", "reach_hops": 8}
    row = run(registry, tables(topology, mp=4, pp=4, dp=3, workload={**GPT, "heads": 4}))
    assert (row.status, row.pp) == ("infeasible", 4)
    assert "next stage 4, of the next replica 16 hops away, but reach_hops is 8; it takes 16" in row.reason
    assert row.reason.endswith("or forwarding = true")


@pytest.mark.parametrize("zero", [0, 3])
def test_what_is_out_of_reach_is_passed_on(registry, zero):
    """mp 2, pp 4, dp 4, reach 4: gradients to the next replica, 8 away, are sent twice; folded as full."""
    own = {
        "workload": SMALLER, "mp": 2, "pp": 4, "dp": 4, "exchange": "chain", "zero": zero, "global_batch": 8
    }  # fmt: skip
    topology = {"name": "sip-ring", "reach_hops": 4, "interval_us": "1 ms"}
    near = run(registry, tables({**topology, "reach_hops": 8}, **own))
    full, folded = (
        run(registry, tables(topology, **own, forwarding=True), fold=f) for f in ("never", "auto")
    )
    assert run(registry, tables(topology, **own)).status == "infeasible"
    assert full.network_bytes == pytest.approx(near.network_bytes + near.gradient_bytes, rel=0.02)
    assert full.network_bytes == pytest.approx(folded.network_bytes)
    assert folded.iteration_us == pytest.approx(full.iteration_us, rel=1e-9)
    assert any(note.startswith("simulated 1 of 4") for note in folded.notes)
    assert near.iteration_us > 0


def test_one_slow_stage_bounds_the_pipeline(registry):
    """On a network that takes no time: the slowest stage does all micro-batches in a row; before the last one
    does, and after, one of them passes all others. Stages stated as the balanced ones are the same run."""
    job = {"workload": {**GPT, "layers": 8, "vocabulary": 8}, "cluster": {"bandwidth_gbps": 1e9}}
    at = {"mp": 1, "pp": 4, "dp": 1, "global_batch": 16, **job}
    balanced = run(registry, tables(FLAT, **at))
    stated = run(registry, tables(FLAT, **at, stages=["layer2", "layer4", "layer6"]))
    assert attrs.evolve(stated, notes=()) == attrs.evolve(balanced, notes=())
    for stages in ([1, 1, 1, 5], [5, 1, 1, 1], ["layer1", "layer2", "layer7"]):
        slow = run(registry, tables(FLAT, **at, stages=stages))
        passes_us = (4 * slow.compute_us - slow.compute_max_us) / 16
        assert slow.compute_max_us <= slow.iteration_us <= slow.compute_max_us + passes_us
        assert slow.iteration_us > 1.5 * balanced.iteration_us


def test_stated_parts_with_chunks_go_round_the_stages(registry):
    """Two chunks: the first stage has the first and the third part of four, and most of the work."""
    at = {"mp": 1, "pp": 2, "dp": 1, "schedule": "interleaved", "chunks": 2, "workload": {**GPT, "layers": 8}}
    uneven, even = (
        run(registry, tables(FLAT, **at, stages=stages)) for stages in ([3, 1, 3, 1], [2, 2, 2, 2])
    )
    assert uneven.compute_us == pytest.approx(even.compute_us)
    assert uneven.compute_max_us > 1.3 * even.compute_max_us
