"""A transfer that is passed on is its legs one after the other: on both kernels, and beside explicit legs."""

import attrs
import numpy as np
import pytest

from sipml_core.engine.bounds import bounds
from sipml_core.engine.session import Recording, State
from sipml_core.engine.simulation import open_session, simulate
from sipml_core.errors import SipmlError, StalledError
from sipml_core.model import NO_WAY, RelayedTasks, TaskBuilder, Ways

ACCOUNTS = ("snapshot_us", "compute_us", "exposed_us", "dark_us", "link_bytes", "link_busy_us")


def with_ways(rng, rows, gpus):
    """Half of the transfers of a job passed on over one to five legs, whose places are in any order."""
    legs = rng.integers(1, 6, size=8)
    stops = [rng.integers(gpus)]
    src, dst = [], []
    for count in legs.tolist():
        stops = [int(rng.integers(gpus))]
        for _ in range(count):
            stops.append(int(rng.choice(np.delete(np.arange(gpus), stops[-1]))))
        src, dst = src + stops[:-1], dst + stops[1:]
    start = np.concatenate([[0], np.cumsum(legs)])
    ways = Ways(start=start, src=src, dst=dst, place=np.concatenate([rng.permutation(k) for k in legs]))

    way = np.where(rng.random(rows.transfers) < 0.5, rng.integers(len(legs), size=rows.transfers), NO_WAY)
    size = np.where(way == NO_WAY, 1, legs[way])
    place = np.cumsum(size) - size
    first = np.where(way == NO_WAY, 0, start[way])
    priority = rng.integers(3, size=int(size.sum()))
    own = priority[place + np.where(way == NO_WAY, 0, ways.place[first])]
    rows = attrs.evolve(
        rows,
        src=np.where(way == NO_WAY, rows.src, ways.src[first]),
        dst=np.where(way == NO_WAY, rows.dst, ways.dst[first]),
        priority=np.concatenate([rows.priority[: rows.compute_tasks], own]),
    )
    return RelayedTasks(rows=rows, ways=ways, way=way, place=place, priority=priority)


def random_relays(kit, seed):
    """Relayed tasks, and their network over random routes of up to four links."""
    rng = np.random.default_rng(seed)
    rows, _ = kit.random_job(rng)
    tasks = with_ways(rng, rows, rows.gpus)
    table = {
        (src, dst): rng.choice(9, size=int(rng.integers(1, 5)), replace=False).tolist()
        for src in range(rows.gpus)
        for dst in range(rows.gpus)
    }
    gbps = rng.choice([25.0, 50.0, 100.0, 137.5], size=9).tolist()
    explicit = tasks.explicit
    of_legs = kit.network(explicit, gbps, lambda src, dst: table[src, dst], latency_us=[0.0, 0.7][seed % 2])
    pairs = list(zip(of_legs.pair_src.tolist(), of_legs.pair_dst.tolist(), strict=True))
    # Ways that no transfer takes have pairs as well, of a leg that somebody does take.
    ends = zip(*(each.tolist() for each in tasks.ends), strict=True)
    legs = np.array([pairs.index(each) if each in pairs else NO_WAY for each in ends])
    unused = np.flatnonzero(legs[: len(tasks.ways.src)] == NO_WAY)
    legs[unused] = 0
    src, dst = tasks.ways.src.copy(), tasks.ways.dst.copy()
    src[unused], dst[unused] = of_legs.pair_src[0], of_legs.pair_dst[0]
    tasks = attrs.evolve(tasks, ways=attrs.evolve(tasks.ways, src=src, dst=dst))
    return tasks, attrs.evolve(of_legs, transfer_pair=legs)


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(10))
def test_legs_are_events_like_those_of_transfers(kit, seed, queue):
    """Event by event the C engine is where the reference is, which runs each leg as a transfer."""
    tasks, network = random_relays(kit, seed)
    a = kit.watched(tasks, network, queue)
    b = open_session(tasks, network, queue=queue, kernel="reference")
    assert b.work.transfers == tasks.transfers > tasks.rows.transfers
    while True:
        ends = {session.run(max_events=1) for session in (a, b)}
        assert a.now_us == pytest.approx(b.now_us, rel=1e-12)
        assert (a.events, a.ended, a.moving) == (b.events, b.ended, b.moving)
        fast, slow = a.active(), b.active()
        assert fast.transfer.tolist() == slow.transfer.tolist()
        np.testing.assert_allclose(fast.gbps, slow.gbps, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(a.backlog_bytes(), b.backlog_bytes(), rtol=1e-9, atol=1e-4)
        if ends == {State.DONE}:
            break


@pytest.mark.parametrize("queue", ["pair", "source"])
@pytest.mark.parametrize("seed", range(10))
def test_accounts_are_to_the_bit_those_of_explicit_legs(kit, seed, queue):
    tasks, network = random_relays(kit, 50 + seed)
    relayed = simulate(tasks, network, queue=queue)
    explicit = simulate(tasks.explicit, tasks.explicit_network(network), queue=queue)
    for name in ACCOUNTS:
        assert getattr(relayed, name).tolist() == getattr(explicit, name).tolist(), name
    assert relayed.events == explicit.events
    # A relayed transfer ends with its last leg.
    first = tasks.compute_tasks
    last = tasks.place + np.where(
        tasks.way == NO_WAY, 0, tasks.ways.place[tasks.ways.start[tasks.way + 1] - 1]
    )
    assert relayed.end_us[first:].tolist() == explicit.end_us[first:][last].tolist()
    assert relayed.end_us[:first].tolist() == explicit.end_us[:first].tolist()


@pytest.mark.parametrize("seed", range(10))
def test_bounds_are_to_the_bit_those_of_explicit_legs(kit, seed):
    tasks, network = random_relays(kit, 80 + seed)
    assert tasks.total_bytes == pytest.approx(tasks.explicit.total_bytes, rel=1e-12)
    relayed, explicit = bounds(tasks, network), bounds(tasks.explicit, tasks.explicit_network(network))
    assert relayed.critical_path_us == explicit.critical_path_us
    assert relayed.busiest_gpu_us == explicit.busiest_gpu_us
    assert relayed.busiest_link_us == pytest.approx(explicit.busiest_link_us, rel=1e-12)


def chain(ways_taken):
    """12 500 bytes each along GPUs 0, 1, 2, 3, or 1, 2, 3; the last transfer is first in queues."""
    builder = TaskBuilder(4)
    ways = Ways(start=[0, 3, 5], src=[0, 1, 2, 1, 2], dst=[1, 2, 3, 2, 3], place=[0, 1, 2, 0, 1])
    legs = [3 - way for way in ways_taken]
    place = np.cumsum([0, *legs[:-1]])
    builder.passed_on(
        [way for way in ways_taken], [1 + way for way in ways_taken], 12_500.0, ways,
        way=ways_taken, place=place, priorities=np.repeat(-np.arange(len(legs)), legs),
    )  # fmt: skip
    return builder.build_relayed()


def chained(tasks, kit, **options):
    """The network of a chain of wires, of 100 Gbps: 1 us for each leg."""
    explicit = tasks.explicit
    network = kit.network(explicit, [100.0] * 3, lambda src, dst: [src], **options)
    return attrs.evolve(network, transfer_pair=np.searchsorted(network.pair_src, tasks.ends[0]))


def test_a_box_takes_one_leg_after_the_other(kit, kernel):
    """Three legs of 1 us and 0.5 us of latency each: 4.5 us."""
    tasks = chain([0])
    timeline = simulate(tasks, chained(tasks, kit, latency_us=0.5), kernel=kernel)
    assert timeline.total_us == pytest.approx(4.5)
    assert timeline.link_bytes == pytest.approx([12_500] * 3)


def test_priorities_are_those_of_legs(kit, kernel):
    """Of two boxes that leave GPU 0 at 0 the second goes first: it is at GPU 3 at 3 us, the other at 4."""
    tasks = chain([0, 0])
    session = open_session(tasks, chained(tasks, kit), kernel=kernel)
    session.run(0.5)
    assert session.active().transfer.tolist() == [3]
    session.run(1.5)
    assert session.active().transfer.tolist() == [0, 4]
    assert session.run() is State.DONE
    assert session.now_us == pytest.approx(4.0)


def test_who_waits_is_named_by_its_leg(kit, kernel):
    """Without its second wire the box waits for that, as transfer 1 of three."""
    tasks = chain([0])
    network = chained(tasks, kit)
    dead = attrs.evolve(network, link_gbps=[100.0, 0.0, 100.0])
    with pytest.raises(StalledError) as error:
        simulate(tasks, dead, kernel=kernel)
    assert str(error.value) == (
        "nothing can run at 1 us and 2 of 3 tasks remain: transfer 1 (1 -> 2, 12500 bytes) waits on link 1 "
        "at 0 Gbps, which no decision changes"
    )


def test_what_needs_the_times_of_all_legs_is_refused(kit):
    tasks = chain([0, 1])
    network = chained(tasks, kit)
    with pytest.raises(SipmlError, match="use `explicit`"):
        bounds(tasks, network, simulate(tasks, network), 1.0)
    with pytest.raises(SipmlError, match="negative or not a number"):
        simulate(tasks, network, recording=Recording())
    with pytest.raises(SipmlError, match="for 4 GPUs and 5 transfers, the tasks have 4 and 7"):
        simulate(tasks, tasks.explicit_network(network))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"way": [0]}, "way and place must have 2 entries"),
        ({"priority": [0]}, "priority must have 5 entries"),
    ],
)
def test_arrays_of_other_lengths_are_refused(change, message):
    with pytest.raises(SipmlError, match=message):
        attrs.evolve(chain([0, 1]), **change)
    with pytest.raises(SipmlError, match="src, dst and place must have 2 entries"):
        attrs.evolve(chain([0, 1]), ways=Ways(start=[0, 2], src=[0], dst=[1], place=[0]))
