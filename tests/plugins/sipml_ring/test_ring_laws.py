"""Laws that every plan of a ring keeps, tried on random rings."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from sipml_ring import RingCircuits, plan

from sipml_core.errors import PluginError
from sipml_core.model.traffic import TrafficMatrix


@st.composite
def rings(draw, most_gpus=12, most_wavelengths=12):
    """(traffic within reach, keyword arguments of `plan`)."""
    gpus = draw(st.integers(2, most_gpus))
    ring = {
        "wavelengths": draw(st.integers(1, most_wavelengths)),
        "reach_hops": draw(st.sampled_from([1, 2, 5, 16])),
        "wavelength": draw(st.sampled_from(["continuous", "converted"])),
    }
    return draw(matrices(gpus, ring)), ring


@st.composite
def matrices(draw, gpus, ring):
    """Traffic of few or many pairs, alike or far apart, within reach."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    weight = rng.random((gpus, gpus)) < draw(st.sampled_from([0.1, 0.4, 1.0]))
    demand = weight * 10 ** rng.uniform(0, draw(st.sampled_from([0, 1, 4])), (gpus, gpus))
    src, dst = np.nonzero(demand)
    rule = {"circuit_gbps": 25.0, "reach_hops": ring["reach_hops"]}
    keep = RingCircuits.of(gpus, ring["wavelengths"], **rule).may_connect(src, dst)
    src, dst = src[keep], dst[keep]
    return TrafficMatrix.from_pairs(gpus, src, dst, demand[src, dst])


def arcs(plan_):
    """Segments of each circuit, worked out one by one."""
    for pair, direction in zip(plan_.circuit_pair, plan_.circuit_direction, strict=True):
        at, end, segments = int(plan_.src[pair]), int(plan_.dst[pair]), []
        while at != end:
            segments.append(at if direction == 0 else (at - 1) % plan_.gpus)
            at = (at + 1 if direction == 0 else at - 1) % plan_.gpus
        yield segments


def idle(plan_):
    """Unused (direction, segment, wavelength): raises if one is used twice. [2, gpus, widest]"""
    limits = (plan_.control.clockwise, plan_.control.counterclockwise)
    free = np.zeros((2, plan_.gpus, max(limits)), int)
    for direction, limit in enumerate(limits):
        free[direction, :, :limit] = 1
    for segments, direction, index in zip(
        arcs(plan_), plan_.circuit_direction, plan_.circuit_index, strict=True
    ):
        assert 1 <= len(segments) <= plan_.control.reach_hops
        if plan_.control.wavelength == "converted":
            index = [int(np.flatnonzero(free[direction, s])[0]) for s in segments]
        free[direction, segments, index] -= 1
    assert free.min(initial=0) >= 0, "a wavelength is used twice on a segment"
    return free


def could_have_more(plan_):
    """Demanded pairs for which an idle wavelength lies all the way."""
    free, control, traffic = idle(plan_), plan_.control, plan_.traffic
    for src, dst in zip(traffic.src.tolist(), traffic.dst.tolist(), strict=True):
        for direction, allowed in enumerate(control.allowed(np.array([src]), np.array([dst]))[0]):
            start, end = (src, dst) if direction == 0 else (dst, src)
            arc = (start + np.arange((end - start) % plan_.gpus)) % plan_.gpus
            room = free[direction, arc]
            any_way = room.any(axis=1).all() if control.wavelength == "converted" else room.all(axis=0).any()
            if allowed and any_way:
                yield src, dst


@settings(max_examples=150, deadline=None)
@given(rings(), st.data())
def test_every_plan_is_possible_and_leaves_nothing_useful_idle(case, data):
    """No index twice on a segment of one direction, everything in reach, no idle wavelength that a
    demanded pair could use; also after a plan for other traffic, whose circuits count as kept exactly if
    pair, direction and index are the same."""
    traffic, ring = case
    first = plan(traffic, **ring)
    second = plan(data.draw(matrices(traffic.gpus, ring)), previous=first, **ring)
    for made in (first, second):
        assert list(could_have_more(made)) == []
        made.control.check(made)
    before, after = circuit_set(first), circuit_set(second)
    kept = np.zeros((traffic.gpus, traffic.gpus))
    for src, dst, _, _ in before & after:
        kept[src, dst] += 25.0
    np.testing.assert_array_equal(second.kept_gbps, kept[second.src, second.dst])
    np.testing.assert_array_equal(second.dark_us > 0, second.kept_gbps < second.gbps)


def circuit_set(plan_):
    return set(
        zip(
            plan_.src[plan_.circuit_pair].tolist(),
            plan_.dst[plan_.circuit_pair].tolist(),
            plan_.circuit_direction.tolist(),
            plan_.circuit_index.tolist(),
            strict=True,
        )
    )


@st.composite
def repeating(draw, most_plans=3):
    """(traffic matrices of one ring, each of which repeats after some GPUs; keyword arguments of `plan`)."""
    reach, images = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    gpus = max(2, images * (reach + draw(st.integers(0, 3))))
    ring = {
        "wavelengths": draw(st.integers(2, 12)),
        "reach_hops": reach,
        "wavelength": draw(st.sampled_from(["continuous", "converted"])),
    }
    matrices = []
    for _ in range(draw(st.integers(1, most_plans))):
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        period = draw(st.sampled_from([n for n in range(1, gpus + 1) if gpus % n == 0]))
        shape = (period, 2 * reach + 1)
        first = (rng.random(shape) < draw(st.sampled_from([0.1, 0.5, 1.0]))) * 10 ** rng.uniform(0, 2, shape)
        src, ahead = np.divmod(np.arange(gpus * shape[1]), shape[1])
        dst = (src + ahead - reach) % gpus
        dense = np.zeros((gpus, gpus))
        dense[src, dst] = first[src % period, ahead]
        np.fill_diagonal(dense, 0)
        matrices.append(TrafficMatrix.from_dense(dense))
    return matrices, ring


@settings(max_examples=200, deadline=None)
@given(repeating())
def test_one_period_turned_round_is_a_plan_of_the_whole_ring(case):
    """Possible, nothing useful idle, everyone served or named, waits counted, and what has the same
    circuit as in the plan before is kept; a turn by the period takes the plan to itself."""
    matrices, ring = case
    before = None
    for traffic in matrices:
        made = plan(traffic, previous=before, **ring)
        made.control.check(made)
        assert list(could_have_more(made)) == []
        asked = set(zip(traffic.src.tolist(), traffic.dst.tolist(), strict=True))
        assert set(made.unserved_pairs) == asked - set(zip(made.src.tolist(), made.dst.tolist(), strict=True))
        circuits = circuit_set(made)
        assert len(circuits) == made.count.sum()
        turned = {
            ((src + made.period) % made.gpus, (dst + made.period) % made.gpus, *rest)
            for src, dst, *rest in circuits
        }
        assert turned == circuits
        if before is not None and made is not before:
            kept = np.zeros((made.gpus, made.gpus))
            for src, dst, *_ in circuits & circuit_set(before):
                kept[src, dst] += 25.0
            if ring["wavelength"] == "continuous":
                np.testing.assert_array_equal(made.kept_gbps, kept[made.src, made.dst])
            waited = dict(zip(before.unserved_pairs, before.waited.tolist(), strict=True))
            for pair, plans in zip(made.unserved_pairs, made.waited.tolist(), strict=True):
                assert plans == waited.get(pair, 0) + 1
        before = made


@settings(max_examples=60, deadline=None)
@given(rings())
def test_the_same_input_gives_the_same_wavelengths_and_again_changes_nothing(case):
    traffic, ring = case
    first, second = plan(traffic, **ring), plan(traffic, **ring)
    assert first.circuit_index.tobytes() == second.circuit_index.tobytes()
    again = plan(traffic, previous=first, **ring)
    if not len(first.unserved):
        assert circuit_set(again) == circuit_set(first)
        assert not again.dark_us.any()


@settings(max_examples=60, deadline=None)
@given(rings())
def test_no_plan_exceeds_the_linear_bound_nor_a_looser_rule_gives_less(case):
    """Continuous <= converted <= LP, for what is served by both."""
    traffic, ring = case
    strict = plan(traffic, **(ring | {"wavelength": "continuous"}))
    loose = plan(traffic, **(ring | {"wavelength": "converted"}))
    for made in (strict, loose):
        assert made.minimum_ratio <= made.bound_ratio * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(rings(most_gpus=8, most_wavelengths=4), st.sampled_from(["ring-fast", "ring-ilp", "ring-mcf"]))
def test_whoever_waits_is_served_in_the_end(case, algorithm):
    """The longest waiting pair is always served next: nobody waits for more plans than there are pairs."""
    traffic, ring = case
    made, served = None, np.zeros(traffic.pairs, bool)
    for _ in range(traffic.pairs + 1):
        made = plan(traffic, algorithm=algorithm, previous=made, **ring)
        served |= made.capacity_gbps(traffic.src, traffic.dst) > 0
        if served.all():
            break
    assert served.all()


def test_a_wavelength_used_twice_is_found():
    """`check` is not blind: the last circuit of a full ring moved onto its neighbour's index."""
    import attrs

    traffic = TrafficMatrix.from_pairs(4, [0, 0], [2, 1], [1, 1])
    made = plan(traffic, wavelengths=4)
    same = attrs.evolve(made.period_circuits, index=np.zeros_like(made.circuit_index))
    with pytest.raises(PluginError, match="same segment"):
        made.control.check(attrs.evolve(made, period_circuits=same))


def _altered(values, at, value):
    changed = values.copy()
    changed[at] = value
    return changed


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gbps", 25.0, "not its capacities"),
        ("gbps", 75.0, "not its capacities"),
        ("gbps", 60.0, "no whole number of circuits"),
        ("gbps", np.inf, "gbps is negative or not finite"),
        ("kept_gbps", 75.0, "more is kept than planned"),
        ("kept_gbps", -25.0, "kept_gbps is negative"),
        ("dark_us", np.nan, "dark_us is negative or not finite"),
    ],
)
def test_capacities_that_are_not_those_of_the_circuits_are_found(name, value, message):
    """0->1 and 2->3 have two wavelengths each way open, and take both clockwise: 50 Gbps each."""
    import attrs

    traffic = TrafficMatrix.from_pairs(8, [0, 2], [1, 3], [1.0, 1.0])
    made = plan(traffic, wavelengths=4, reach_hops=1)
    assert made.gbps.tolist() == [50.0, 50.0]
    made.control.check(made)
    wrong = attrs.evolve(made, **{name: _altered(getattr(made, name), 1, value)})
    with pytest.raises(PluginError, match=message):
        made.control.check(wrong)


def test_one_look_is_enough_for_plans_and_for_nothing_else():
    """What the look in C lets pass keeps all rules; what it does not is looked at rule by rule."""
    import attrs
    from sipml_ring import kernel

    rng = np.random.default_rng(3)
    made = None
    for _ in range(20):
        here = rng.random(8) < 0.7
        src = np.repeat(np.flatnonzero(here), 2)
        dst = (src + np.tile([1, 3], here.sum())) % 8
        traffic = TrafficMatrix.from_pairs(8, src, dst, rng.uniform(1, 2, len(src)))
        made = plan(traffic, wavelengths=10, reach_hops=3, previous=made)
        control, circuits = made.control, made.period_circuits
        given = kernel.Capacities(made.gbps, made.kept_gbps, made.dark_us)
        assert kernel.is_sound(control, circuits, control.circuit_gbps, given)
        total = made.count.sum(axis=1)
        assert made.gbps.tolist() == (25.0 * total).tolist()
        assert made.dark_us.tolist() == np.where(made.kept_gbps < made.gbps, 25.0, 0.0).tolist()
        order = np.arange(len(circuits.src))[::-1]
        for wrong in (
            attrs.evolve(circuits, index=np.zeros_like(circuits.index)),
            attrs.evolve(circuits, index=circuits.index + 5),
            attrs.evolve(circuits, pair=circuits.pair + 1),
            attrs.evolve(circuits, src=circuits.src[order], dst=circuits.dst[order]),
            attrs.evolve(circuits, dst=circuits.src),
        ):
            assert not kernel.is_sound(control, wrong, control.circuit_gbps, given)
        assert not kernel.is_sound(control, circuits, 2 * control.circuit_gbps, given)
        assert not kernel.is_sound(
            control, circuits, control.circuit_gbps, given._replace(gbps=given.gbps[1:])
        )


@pytest.mark.parametrize(("gpus", "wavelengths"), [(1024, 8), (1024, 1), (9, 6), (8, 6)])
def test_pairs_share_the_segments_of_their_shorter_way(gpus, wavelengths):
    """Weights of a pair add up to the segments of its shorter way, all of it in directions that there are."""
    control = RingCircuits.of(gpus, wavelengths, circuit_gbps=25.0, reach_hops=4)
    hops = np.array([1, 2, 3, 4] if wavelengths == 1 else [1, -2, 3, -4, 4])
    src = np.arange(len(hops), dtype=np.int32)
    dst = ((src + hops) % gpus).astype(np.int32)
    media = control.media(src, dst)
    shares = np.add.reduceat(media.weight, media.start[:-1])
    assert shares.tolist() == np.abs(hops).tolist()
    assert (media.gbps[media.medium] > 0).all()
    clockwise = media.medium[media.weight == 1.0] < gpus
    assert clockwise.tolist() == np.repeat(hops > 0, np.abs(hops) * (2 * np.abs(hops) != gpus)).tolist()


def test_a_plan_that_only_says_it_repeats_is_found():
    """Circuits of a period stand for all only where capacities repeat, and the ring may be planned so."""
    import attrs

    gpus, reach = 12, 3
    here = np.arange(gpus)
    traffic = TrafficMatrix.from_pairs(gpus, here, (here + 1) % gpus, np.ones(gpus))
    made = plan(traffic, wavelengths=4, reach_hops=reach)
    assert made.period == reach
    gbps = made.gbps.copy()
    gbps[-1] *= 2
    for wrong in ({"gbps": gbps}, {"period": 2}):
        with pytest.raises(PluginError, match="does not repeat"):
            made.control.check(attrs.evolve(made, **wrong))
