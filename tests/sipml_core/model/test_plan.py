"""Degrees, micro-batches and rank orders of a plan, and what is refused with what would do."""

from __future__ import annotations

import numpy as np
import pytest

from sipml_core.errors import ConfigError
from sipml_core.model import Plan


def test_short_form_means_what_it_meant():
    """mp and dp alone: one stage, all samples of a replica at once, nothing shared or made again."""
    plan = Plan(mp=2, dp=4, global_batch=64)
    assert (plan.gpus, plan.replica_gpus, plan.micro_samples, plan.micro_batches) == (8, 2, 16, 1)
    assert (plan.pp, plan.chunks, plan.zero, plan.recompute) == (1, 1, 0, "none")
    assert Plan(mp=1, dp=1, global_batch=1, recompute=True).recompute == "full"
    assert Plan(mp=1, dp=1, global_batch=1, recompute=False).recompute == "none"


def test_degrees_multiply():
    """N = mp cp pp dp, and m = global_batch / (dp micro_batch)."""
    plan = Plan(mp=8, pp=8, dp=16, global_batch=1024, micro_batch=2)
    assert (plan.gpus, plan.replica_gpus, plan.local_batch, plan.micro_batches) == (1024, 64, 64, 32)
    assert (plan.stride("mp"), plan.stride("pp"), plan.stride("dp")) == (1, 8, 64)


@pytest.mark.parametrize("order", [("mp", "pp", "dp"), ("dp", "mp", "pp"), ("pp", "cp", "mp", "ep", "dp")])
def test_rank_order(order):
    """Every GPU has one place, and neighbours along a degree are its stride apart."""
    plan = Plan(mp=2, pp=3, dp=4, global_batch=4, rank_order=order)
    place = plan.positions
    assert sorted(place.ravel().tolist()) == list(range(24))
    assert (np.diff(place, axis=0) == plan.stride("dp")).all()
    by_stage = place.reshape(4, 3, 2)
    assert (np.diff(by_stage, axis=1) == plan.stride("pp")).all()
    assert (np.diff(by_stage, axis=2) == plan.stride("mp")).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"micro_batch": 5}, "micro_batch must divide the 12 samples of a replica, got 5; nearest: 4 or 6"),
        ({"micro_batch": 24}, "micro_batch must divide the 12 samples of a replica, got 24; nearest: 12"),
        ({"chunks": 2}, 'chunks must be 1 with schedule "1f1b", got 2; only "interleaved" has more'),
        ({"schedule": "interleaved"}, "needs pp and chunks of at least 2, got pp=4, chunks=1"),
        (
            {"schedule": "interleaved", "chunks": 2, "micro_batch": 6},
            "needs micro-batches in multiples of pp=4, got 2; micro_batch = 1 or 3 would do",
        ),
        ({"schedule": "1b1f"}, "schedule must be one of gpipe, 1f1b, interleaved, zb-h1, got '1b1f'"),
        ({"rank_order": ("mp", "pp")}, "rank_order must name mp, pp and dp once each, from the fastest"),
        ({"rank_order": ("mp", "pp", "dp", "mp")}, "rank_order must name mp, pp and dp once each"),
        ({"cp": 0}, "cp must be at least 1, got 0"),
        ({"ep": 3}, "ep must divide the dp=2 replicas over which experts are spread, got 3; nearest: 2"),
        ({"zero": 1, "counter_rotating": True}, "counter_rotating must be false where zero is above 0"),
        ({"zero": 4}, "zero must be from 0 to 3, got 4"),
        ({"recompute": "some"}, "recompute must be one of none, selective, full, got 'some'"),
    ],
)
def test_refusals(changes, message):
    """One line: the key, what it must be, what would do."""
    with pytest.raises(ConfigError) as refused:
        Plan(**{"mp": 1, "pp": 4, "dp": 2, "global_batch": 24, **changes})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "order", [("mp", "cp", "ep", "pp", "dp"), ("mp", "cp", "ep", "dp", "pp"), ("mp", "dp", "pp")]
)
def test_rank_order_of_all_degrees(order):
    """Replica ((outer) ep + inner) cp + part is at the sum of its strides; every GPU has one place.

    Degrees that the order leaves out stand where they usually do: cp after mp, ep before dp.
    """
    plan = Plan(mp=2, cp=3, pp=2, dp=4, ep=2, global_batch=4, rank_order=order)
    assert (plan.gpus, plan.replicas, plan.replica_gpus, plan.block) == (48, 12, 4, 6)
    assert (plan.expert_replicas, plan.local_batch) == (6, 1)
    place = plan.positions
    assert sorted(place.ravel().tolist()) == list(range(48))
    by_degree = place.reshape(2, 2, 3, 2, 2)
    for axis, degree in enumerate(("dp", "ep", "cp", "pp", "mp")):
        assert (np.diff(by_degree, axis=axis) == plan.stride(degree)).all()
    assert plan.stride("cp") == 2


def test_strides_where_nothing_is_left_out():
    """mp 2, then cp 3, ep 2, pp 2: the outer part of dp is 24 places away."""
    plan = Plan(mp=2, cp=3, pp=2, dp=4, ep=2, global_batch=4)
    assert [plan.stride(degree) for degree in ("mp", "cp", "ep", "pp", "dp")] == [1, 2, 6, 12, 24]
