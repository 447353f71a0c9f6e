"""Runs with a communication library and a host that take time."""

import attrs
import pytest

from sipml_core.cases import run_experiment
from sipml_core.experiment import read_experiment, resolved_tables
from sipml_core.report.limiting import bound_by

#: Far below the time of a launch: whatever the host takes is what an op takes.
QUICK = {
    "memory": "1 TB", "mixed_tflops": 1e6, "fp32_tflops": 1e6, "bandwidth_gbytes_per_s": 1e6, "ramp_us": 0,
}  # fmt: skip


@pytest.fixture
def run(registry):
    def ran(topology="elect-flat", gpu=None, plan=None, cluster=None, **tables):
        experiment = read_experiment(
            {
                "title": "software",
                "cluster": {"gpus": 4, "bandwidth_gbps": "100 GB/s", **(cluster or {})},
                "gpu": {"name": "a100", **(gpu or {})},
                "workload": {
                    "name": "gpt", "layers": 2, "hidden": 256, "heads": 4, "sequence": 128,
                    "vocabulary": 1000,
                },
                "plan": {"mp": 2, "dp": 2, "global_batch": 8, "layout": "megatron", **(plan or {})},
                "topology": {"name": topology},
                **tables,
            },
            registry,
        )  # fmt: skip
        return run_experiment(experiment).cases[0]

    return ran


def test_ideal_is_what_is_without_a_table_to_the_last_digit(run):
    assert run(communication={"library": "ideal"}, framework={}) == run()


@pytest.mark.parametrize("topology", ["elect-flat", "elect-cluster", "sip-ring", "sip-ocs"])
@pytest.mark.parametrize("plan", [{}, {"zero": 1}, {"micro_batch": 1, "mp": 1, "pp": 2}])
def test_a_library_makes_nothing_faster(run, topology, plan):
    """And a bound holds still: what is sent is on the wire."""
    free, paid = (run(topology, plan=plan, communication={"library": name}) for name in ("ideal", "nccl"))
    assert paid.measured_us > free.measured_us
    assert paid.measured_us >= paid.lower_bound_us * (1 - 1e-9)
    assert paid.network_bytes == free.network_bytes


@pytest.mark.parametrize("plan", [{"ep": 2}, {"cp": 2}])
def test_experts_and_context_pay_the_library_too(run, tmp_path, plan):
    """All-to-alls of experts, and the ring of keys and values, of messages that take next to no time."""
    file = tmp_path / "config.json"
    file.write_text(
        '{"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, '
        '"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100, "num_local_experts": 2, '
        '"num_experts_per_tok": 1, "max_position_embeddings": 64}'
    )
    at = {
        "plan": {"mp": 1, "dp": 2, "global_batch": 4, "layout": "tensor", **plan},
        "cluster": {"gpus": 2 * plan.get("cp", 1), "bandwidth_gbps": "1e9 GB/s"},
        "workload": {"name": "hf", "file": str(file)},
    }
    calls = 4 if "ep" in plan else 3
    free, slow, slower = (
        run(communication={"library": "nccl", "send_base_us": us, "ll_base_us": 0.0}, **at).measured_us
        for us in (0.0, 100.0, 200.0)
    )
    # Each of the calls is in the way of what follows it, but for some of the backward pass.
    assert slower - slow == pytest.approx(slow - free, rel=0.3)
    assert 50.0 * calls <= slow - free <= 130.0 * calls


def test_gpus_compute_slower_while_gradients_are_summed(run):
    """24 of 108 multiprocessors are taken while buckets move beside the backward pass, and no longer.

    Folding changes nothing: every replica sends when the first does.
    """
    at = {
        "gpu": {"name": "a100-80gb"}, "plan": {"mp": 1, "dp": 4, "bucket_bytes": "100 kB"},
        "cluster": {"bandwidth_gbps": "300 GB/s"},
    }  # fmt: skip
    none = run(**at, communication={"library": "nccl", "channels": 0})
    taken = run(**at, communication={"library": "nccl"})
    assert none.compute_us < taken.compute_us < none.compute_us / (1 - 24 / 108)
    unfolded = run(**at, communication={"library": "nccl"}, engine={"fold": "never"})
    assert attrs.evolve(unfolded, notes=taken.notes) == taken
    blocking = {**at, "plan": {"mp": 4, "dp": 1}}
    assert run(**blocking, communication={"library": "nccl"}).compute_us == pytest.approx(
        run(**blocking, communication={"library": "nccl", "channels": 0}).compute_us, rel=0.01
    )


def test_start_up_of_tensor_parallelism_by_hand(run):
    """Messages that take no time: what an all-reduce of 4 takes to start, for each of 4 in every layer.

    5.2 us and 6 hops of 0.79 us each. Those of the embedding, the loss and the logits make it 10.5; in the
    backward pass some begin while gradients of parameters are made.
    """
    free, paid = (
        run(
            plan={"mp": 4, "dp": 1, "tau_us": 0.001}, cluster={"bandwidth_gbps": "1e9 GB/s"},
            communication={"library": name},
        )
        for name in ("ideal", "nccl")
    )  # fmt: skip
    calls = (paid.measured_us - free.measured_us) / (5.2 + 6 * 0.79)
    assert 6 <= calls <= 10.5


def test_small_ops_take_what_the_host_takes(run):
    """One GPU, ops of 2 us, 100 us each to issue: the last is issued after all, and then runs.

    The optimizer has 6 ops a layer, and those of two embeddings, a norm and the logits; they are not charged.
    """
    ops = run(gpu=QUICK, cluster={"gpus": 1}, plan={"mp": 1, "dp": 1}).measured_us / 2.0
    assert ops == round(ops) > 50
    slow = run(
        gpu=QUICK, cluster={"gpus": 1}, plan={"mp": 1, "dp": 1}, framework={"host_us": 100.0}
    ).measured_us
    assert slow == pytest.approx(100.0 * (ops - 16) + 2.0 * (1 + 16))


def test_the_host_starts_every_iteration_anew(run):
    at = {"gpu": QUICK, "cluster": {"gpus": 1}, "framework": {"host_us": 100.0}}
    one, two = (run(plan={"mp": 1, "dp": 1, "iterations": n}, **at).iteration_us for n in (1, 2))
    assert two == pytest.approx(one)


def test_a_host_that_runs_ahead_costs_nothing(run):
    """Ops of at least 50 us each, 10 us to issue one: only the first is waited for."""
    at = {"cluster": {"gpus": 1, "minimum_op_us": 50.0}, "plan": {"mp": 1, "dp": 1}}
    free, paid = (run(framework={"host_us": us}, **at).measured_us for us in (0.0, 10.0))
    assert paid == pytest.approx(free + 10.0)


def test_graphs_of_the_device_take_no_time_of_the_host(run):
    replayed = run(framework={"host_us": 100.0, "cuda_graphs": True})
    assert (replayed.measured_us, replayed.host_wait_us) == (run().measured_us, None)


def test_between_stages_the_host_waits_for_what_arrives(run):
    """Two stages, each of at least 30 ops forward and backward: the second is issued after the first ran."""
    at = {"gpu": QUICK, "cluster": {"gpus": 2}, "framework": {"host_us": 100.0}}
    one = run(plan={"mp": 1, "dp": 1}, **{**at, "cluster": {"gpus": 1}})
    two = run(plan={"mp": 1, "dp": 1, "pp": 2}, **at)
    assert two.measured_us == pytest.approx(one.measured_us, rel=0.02)
    # So one waits for its host, and each of two half of the time for its host, then for the other stage.
    assert one.host_wait_us == pytest.approx(one.idle_us, rel=0.02)
    assert two.host_wait_us == pytest.approx(two.measured_us / 2, rel=0.05)
    assert bound_by(one).startswith("host 9")
    assert {words.split()[0] for words in bound_by(two).split(", ")} == {"host", "pipeline"}


def test_collectives_are_issued_too(run):
    at = {"gpu": QUICK, "framework": {"host_us": 10.0}}
    without = run(**at).measured_us
    at["framework"]["host_collective_us"] = 20.0
    assert run(**at).measured_us > without


def test_all_wait_for_the_slowest(run):
    """Of 4 GPUs with a deviation of 5 %: about 1.03 deviations, so 5.15 % more of what is computed."""
    even, uneven = (run(plan={"mp": 1, "dp": 4}, framework={"slowest_sigma": s}) for s in (0.0, 0.05))
    assert uneven.compute_us / even.compute_us == pytest.approx(1 + 0.05 * 1.0, abs=0.003)


def test_tables_come_back_resolved(registry, run):
    """And are left out where they say nothing."""
    tables = {
        "title": "t", "cluster": {"gpus": 2, "bandwidth_gbps": 1}, "workload": {"name": "gpt"},
        "topology": {"name": "elect-flat"},
    }  # fmt: skip
    assert not {"communication", "framework"} & set(resolved_tables(read_experiment(tables, registry)))
    tables |= {"communication": {"library": "nccl"}, "framework": {"host_us": "3 us"}}
    resolved = resolved_tables(read_experiment(tables, registry))
    assert resolved["communication"]["library"] == "nccl"
    assert resolved["framework"]["host_us"] == 3.0
    assert read_experiment(resolved, registry) == read_experiment(tables, registry)
