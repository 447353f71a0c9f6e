"""Pipeline schedules: order, what is in flight, and the closed forms of their bubbles, run by the engine."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sipml_core.engine import simulate
from sipml_core.errors import SipmlError
from sipml_core.lowering.schedules import Pass, Passes, PassKind, in_flight, most_in_flight, schedule
from sipml_core.model import Network, TaskBuilder
from sipml_core.testing.worked import switch

FORWARD_US, BACKWARD_US, WEIGHTS_US = 100.0, 150.0, 70.0
#: Every shape tried: stages, micro-batches.
SHAPES = [(p, m) for p in (1, 2, 3, 4, 7, 8) for m in (1, 2, 3, 4, 8, 16, 24)]


def run(
    passes: tuple[Passes, ...], duration_us: dict[PassKind, float], slow: dict[int, float] | None = None
) -> float:
    """Return the time of one task for each pass, a GPU for each stage, and nearly nothing sent. [us]"""
    stages = len(passes)
    last = max(each.chunk for stage in passes for each in stage)
    builder = TaskBuilder(stages)
    node = {}
    for stage, own in enumerate(passes):
        previous = None
        for slot, each in enumerate(own):
            factor = (slow or {}).get(stage, 1.0)
            node[each] = builder.tasks(stage, duration_us[each.kind] * factor, slot, 0)
            if previous is not None:
                builder.depend(previous, node[each])
            previous = node[each]
    for stage, own in enumerate(passes):
        for slot, each in enumerate(own):
            at = each.micro_batch, each.chunk
            if each.kind is PassKind.WEIGHTS or (each.kind is PassKind.BACKWARD and each.chunk == last):
                builder.depend(node[Pass(PassKind(each.kind - 1), *at)], node[each])
                continue
            back = each.kind is PassKind.BACKWARD
            before = Pass(each.kind, each.micro_batch, each.chunk + (1 if back else -1))
            if before not in node:
                continue
            source = before.chunk % stages
            if source == stage:
                builder.depend(node[before], node[each])
                continue
            sent = builder.transfers(source, stage, 1e-9, slot)
            builder.depend(node[before], sent)
            builder.depend(sent, node[each])
    graph = builder.build()
    return simulate(graph, Network.of(switch(stages), graph)).total_us


def whole_backward(forward_us: float = FORWARD_US) -> dict[PassKind, float]:
    return {PassKind.FORWARD: forward_us, PassKind.BACKWARD: BACKWARD_US + WEIGHTS_US}


@pytest.mark.parametrize(("name", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 3), ("zb-h1", 1)])
def test_each_pass_is_made_once(name, chunks):
    """Each micro-batch goes once forward and once back through each chunk, which is on stage c mod p."""
    for p, m in SHAPES:
        if name == "interleaved" and m % p:
            continue
        kinds = list(PassKind) if name == "zb-h1" else [PassKind.FORWARD, PassKind.BACKWARD]
        wanted = Counter(Pass(k, b, c) for k in kinds for b in range(m) for c in range(p * chunks))
        found = schedule(name, p, m, chunks)
        assert Counter(each for own in found for each in own) == wanted
        assert all(each.chunk % p == stage for stage, own in enumerate(found) for each in own)


def test_unknown_schedule():
    """A schedule that is not known is refused with those that are."""
    with pytest.raises(SipmlError, match="no schedule 'zbv'; known: gpipe, 1f1b, interleaved, zb-h1"):
        schedule("zbv", 2, 2)


def test_in_flight_of_gpipe_and_1f1b():
    """GPipe holds all m micro-batches on each stage, 1F1B min(p - i, m) on stage i."""
    for p, m in SHAPES:
        assert [most_in_flight(own) for own in schedule("gpipe", p, m)] == [m] * p
        assert [most_in_flight(own) for own in schedule("1f1b", p, m)] == [min(p - i, m) for i in range(p)]


@pytest.mark.parametrize(("p", "m", "v", "held"), [(4, 8, 2, 5.5), (8, 16, 2, 11.5), (8, 16, 4, 9.75)])
def test_in_flight_of_interleaved(p, m, v, held):
    """The first stage holds p (1 + (p - 1) / (p v)) micro-batches, counted in chunks (Megatron SC'21)."""
    first = schedule("interleaved", p, m, v)[0]
    assert in_flight(first, range(0, p * v, p)).sum(axis=1).max() / v == held == p * (1 + (p - 1) / (p * v))


def test_in_flight_of_zero_bubble():
    """ZB-H1 holds no more than 1F1B does on its first stage: p micro-batches."""
    for p, m in SHAPES:
        assert max(most_in_flight(own) for own in schedule("zb-h1", p, m)) == min(p, m)


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubble_of_gpipe_and_1f1b(name):
    """The bubble is p - 1 passes each way: (m + p - 1) (tF + tB) in all, on equal stages."""
    for p, m in SHAPES:
        took = run(schedule(name, p, m), whole_backward())
        assert took == pytest.approx((m + p - 1) * (FORWARD_US + BACKWARD_US + WEIGHTS_US), rel=1e-9)


@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_bubble_of_interleaved(v):
    """v chunks make the bubble v times smaller: m (tF + tB) + (p - 1) (tF + tB) / v."""
    for p, m in [(2, 4), (4, 8), (4, 4), (8, 8), (8, 16)]:
        passes = schedule("interleaved", p, m, v)
        took = run(passes, {kind: time / v for kind, time in whole_backward().items()})
        step_us = FORWARD_US + BACKWARD_US + WEIGHTS_US
        assert took == pytest.approx(m * step_us + (p - 1) * step_us / v, rel=1e-9)


def test_interleaving_one_chunk_is_1f1b_on_few_stages():
    """With one chunk a stage, twice as many forward passes are ahead; the time is that of 1F1B."""
    assert run(schedule("interleaved", 4, 8, 1), whole_backward()) == pytest.approx(
        run(schedule("1f1b", 4, 8), whole_backward()), rel=1e-9
    )


def test_bubble_of_zero_bubble_h1():
    """ZB-H1 leaves (p - 1) (tF + tB - tW) idle on equal stages with m of p at least (Qi et al. 2023)."""
    times = {PassKind.FORWARD: 100.0, PassKind.BACKWARD: 100.0, PassKind.WEIGHTS: 100.0}
    for p, m in [(1, 4), (2, 2), (2, 8), (4, 4), (4, 12), (7, 8), (8, 24)]:
        took = run(schedule("zb-h1", p, m), times)
        assert took == pytest.approx(m * 300.0 + (p - 1) * 100.0, rel=1e-9)


@pytest.mark.parametrize("slow", [0, 1, 2, 3])
def test_one_slow_stage_bounds_the_pipeline(slow):
    """A stage half as slow again works m times; the others add their bubble at most, the last all of it."""
    p, m = 4, 16
    step_us = FORWARD_US + BACKWARD_US + WEIGHTS_US
    took = run(schedule("1f1b", p, m), whole_backward(), slow={slow: 1.5})
    assert 1.5 * m * step_us < took <= 1.5 * m * step_us + (p - 1) * step_us + 1e-6
    if slow == p - 1:
        assert took == pytest.approx(1.5 * m * step_us + (p - 1) * step_us, rel=1e-9)


def test_doubling_micro_batches_shrinks_the_bubble():
    """The share of the time that is bubble is (p - 1) / (m + p - 1)."""
    for m in (4, 8, 16):
        work_us = m * (FORWARD_US + BACKWARD_US + WEIGHTS_US)
        took = run(schedule("1f1b", 4, m), whole_backward())
        assert (took - work_us) / took == pytest.approx(3 / (m + 3), rel=1e-9)


def test_a_forward_pass_holds_its_micro_batch_until_its_backward_pass():
    """Counted in the list: two forward passes ahead, then one for one."""
    held = in_flight(schedule("1f1b", 3, 4)[0], [0])
    assert held.ravel().tolist() == [1, 2, 3, 2, 3, 2, 1, 0]
    assert held.dtype == np.int64
