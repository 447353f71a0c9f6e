"""Weighted permutations on parallel switches: matching against plain Python, schedules against optima."""

import heapq
import itertools
import math

import attrs
import numpy as np
import pytest
from sipml_ocs import decompose
from sipml_ocs.circuits import OcsCircuits
from sipml_ocs.cycle import CyclePlan, plan_cycle
from sipml_ocs.decomposition import transfer_times_us
from sipml_ocs.kernel import DARK, match, spread
from sipml_ocs.ocs_planning import plan

from sipml_core.errors import ConfigError, PluginError, SipmlError
from sipml_core.model.traffic import TrafficMatrix
from sipml_core.scheduling.programme import maximise

LINK_GBPS = 100.0
#: Bytes that a link carries in 1 us.
B = 12_500.0


def random_times(rng, gpus, density):
    """Demands in us of one link. [N, N]"""
    times_us = rng.lognormal(3, 1, (gpus, gpus)) * (rng.random((gpus, gpus)) < density)
    np.fill_diagonal(times_us, 0.0)
    return times_us


def decomposed(times_us, switches, delay_us):
    traffic = TrafficMatrix.from_dense(np.asarray(times_us) * B)
    return decompose(traffic, switches=switches, link_gbps=LINK_GBPS, reconfiguration_us=delay_us)


def matched(gpus, src, dst, colours):
    """`ocs_match` in plain Python: first fit, else the closest two configurations exchange along a path."""
    # Piece of each input, and of each output, in each configuration.
    held = [dict() for _ in range(2 * gpus)]
    colour = [None] * len(src)

    def ends(piece):
        return src[piece], gpus + dst[piece]

    for piece in range(len(src)):
        one, two = ends(piece)
        free_one = [c for c in range(colours) if c not in held[one]]
        free_two = [c for c in range(colours) if c not in held[two]]
        common = [c for c in free_one if c in free_two]
        if common:
            chosen = common[0]
        else:
            # The first two that are closest, in the order in which sorted lists are merged.
            best, a, b = (colours, None, None), 0, 0
            while a < len(free_one) and b < len(free_two):
                apart = abs(free_one[a] - free_two[b])
                if apart < best[0]:
                    best = apart, free_one[a], free_two[b]
                a, b = (a + 1, b) if free_one[a] < free_two[b] else (a, b + 1)
            _, chosen, there = best
            path, here, want, other = [], two, chosen, there
            while want in held[here]:
                path.append(held[here][want])
                here = next(end for end in ends(path[-1]) if end != here)
                want, other = other, want
            old = [colour[each] for each in path]
            for each, was in zip(path, old, strict=True):
                for end in ends(each):
                    del held[end][was]
            for each, was in zip(path, old, strict=True):
                colour[each] = there if was == chosen else chosen
                for end in ends(each):
                    held[end][colour[each]] = each
        colour[piece] = chosen
        held[one][chosen] = held[two][chosen] = piece
    return colour


def spread_plainly(spans_us, switches, delay_us):
    """`ocs_spread` in plain Python: slices (switch, configuration, start, end)."""
    free, whole = [(0.0, switch) for switch in range(switches)], []
    for number, span_us in enumerate(spans_us):
        start_us, switch = heapq.heappop(free)
        whole.append((switch, number, start_us, start_us + delay_us + span_us))
        heapq.heappush(free, (whole[-1][3], switch))

    def filled(end_us):
        slices, switch, now_us = [], 0, 0.0
        for number, span_us in enumerate(spans_us):
            left_us = span_us
            while left_us > 1e-12 * end_us:
                room_us = end_us - now_us - delay_us
                if room_us <= 1e-12 * end_us:
                    switch, now_us = switch + 1, 0.0
                    if switch == switches or end_us <= delay_us:
                        return None
                    continue
                taken_us = min(room_us, left_us)
                slices.append((switch, number, now_us, now_us + delay_us + taken_us))
                now_us, left_us = now_us + delay_us + taken_us, left_us - taken_us
        return slices

    total_us = math.fsum(spans_us) + len(spans_us) * delay_us
    low_us, high_us = total_us / switches, (total_us + (switches - 1) * delay_us) / switches
    high_us = max(high_us, delay_us + max(spans_us) / switches) * (1 + 1e-12)
    for _ in range(12 if high_us - low_us > 1e-9 * high_us else 0):
        middle_us = (low_us + high_us) / 2
        low_us, high_us = (middle_us, high_us) if filled(middle_us) is None else (low_us, middle_us)
    cut = filled(high_us)
    return whole if cut is None or end_of(whole) <= end_of(cut) else cut


def end_of(slices):
    return max(each[3] for each in slices)


def least_end_us(times_us, switches, delay_us):
    """The end of the best of all cuts, in plain Python on top of `match`: what `ocs_decompose` finds."""
    src, dst = np.nonzero(times_us)
    order = np.argsort(-times_us[src, dst], kind="stable")
    src, dst = src[order].astype(np.int32), dst[order].astype(np.int32)
    time_us, ends = times_us[src, dst], []
    for cut in (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 16):
        limit_us = time_us[0] / cut
        count = np.maximum(np.ceil(time_us / limit_us - 1e-9), 1).astype(int)
        pair, span_us = np.repeat(np.arange(len(src)), count), np.full(count.sum(), limit_us)
        span_us[np.cumsum(count) - 1] = time_us - (count - 1) * limit_us
        by_size = np.argsort(-span_us, kind="stable")
        pair, span_us = pair[by_size], span_us[by_size]
        degree = max(np.bincount(ends_of[pair]).max() for ends_of in (src, dst))
        colour, duration_us = match(len(times_us), src[pair], dst[pair], degree), np.zeros(degree)
        np.maximum.at(duration_us, colour, span_us)
        ends.append(end_of(spread_plainly(sorted(duration_us.tolist(), reverse=True), switches, delay_us)))
    return min(ends)


class TestMatching:
    @pytest.mark.parametrize(("gpus", "density"), [(2, 1.0), (5, 0.6), (9, 0.4), (12, 1.0)])
    def test_the_kernel_does_what_plain_python_does(self, gpus, density):
        """Pieces of several sizes, the largest first; dense matrices need exchanges along paths."""
        rng = np.random.default_rng(gpus)
        for _ in range(10):
            src, dst = np.nonzero(random_times(rng, gpus, density))
            src, dst = (np.repeat(ends, 2) for ends in (src, dst))
            order = rng.permutation(len(src))
            src, dst = src[order], dst[order]
            degree = int(max(np.bincount(ends, minlength=1).max() for ends in (src, dst)))
            expected = matched(gpus, src.tolist(), dst.tolist(), degree)
            assert match(gpus, src, dst, degree).tolist() == expected

    def test_pieces_of_one_configuration_share_no_port(self):
        rng = np.random.default_rng(3)
        src, dst = np.nonzero(random_times(rng, 100, 0.9))
        degree = int(max(np.bincount(src).max(), np.bincount(dst).max()))
        colour = match(100, src, dst, degree)
        for ends in (src, dst):
            assert len(np.unique(colour * 100 + ends)) == len(src)
        assert (colour.min(), colour.max()) == (0, degree - 1)

    def test_fewer_configurations_than_the_degree_are_refused(self):
        with pytest.raises(SipmlError, match="exceed"):
            match(3, np.array([0, 0], np.int32), np.array([1, 2], np.int32), 1)


class TestSchedules:
    @pytest.mark.parametrize("switches", [1, 2, 5])
    @pytest.mark.parametrize("density", [0.2, 1.0])
    def test_every_demand_is_served_and_no_schedule_beats_the_bound(self, switches, density):
        rng = np.random.default_rng(switches)
        for gpus, delay_us in itertools.product((1, 2, 6, 11), (0.0, 1.0, 30.0)):
            made = decomposed(random_times(rng, gpus, density), switches, delay_us)
            made.check()
            assert made.makespan_us >= made.bound_us * (1 - 1e-9)

    def test_the_kernel_finds_what_plain_python_finds(self):
        """Round numbers, so that pieces of different demands are equally long; and log-normal ones."""
        rng = np.random.default_rng(11)
        for gpus, switches, delay_us in ((3, 1, 0.0), (7, 2, 4.0), (12, 5, 30.0)):
            for times_us in (random_times(rng, gpus, 0.7), np.round(random_times(rng, gpus, 0.7), -1)):
                expected = least_end_us(times_us, switches, delay_us)
                assert decomposed(times_us, switches, delay_us).makespan_us == pytest.approx(expected)

    def test_without_delay_cuts_are_free_and_a_ring_is_perfect(self):
        """Each of four GPUs sends 12 us of one link to the next, over three links: 4 us."""
        ring = 12.0 * np.roll(np.eye(4), 1, axis=1)
        assert decomposed(ring, 3, 0.0).makespan_us == pytest.approx(4.0)

    def test_a_long_delay_leaves_as_few_configurations_as_there_are_peers(self):
        """A delay of ten times all demands: one configuration more would be the worst there is."""
        times_us = random_times(np.random.default_rng(5), 8, 1.0)
        made = decomposed(times_us, 1, 10 * times_us.sum())
        assert made.configurations == 7

    def test_it_is_near_the_optimum(self):
        """The optimum on one switch, over all 24 permutations of four GPUs, by HiGHS: least sum of durations,
        and a delay for each that is not 0. At most 15 % above it, 4 % in the mean; the bound is below."""
        rng = np.random.default_rng(7)
        gaps = []
        for _ in range(12):
            times_us, delay_us = random_times(rng, 4, 0.8), float(rng.choice([1.0, 10.0, 40.0]))
            made, best_us = decomposed(times_us, 1, delay_us), optimum_us(times_us, delay_us)
            assert made.bound_us <= best_us * (1 + 1e-6)
            assert made.makespan_us >= best_us * (1 - 1e-6)
            gaps.append(made.makespan_us / best_us)
        assert max(gaps) < 1.15
        assert np.mean(gaps) < 1.04

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda made: {"port_map": np.where(made.port_map == 2, 1, made.port_map)}, "no permutation"),
            (lambda made: {"switch": np.zeros_like(made.switch)}, "same time"),
            (lambda made: {"end_us": made.end_us - 1.0}, "not served in full"),
        ],
        ids=["two inputs to one output", "two configurations at once", "too short"],
    )
    def test_a_schedule_that_cannot_be_is_refused(self, change, message):
        made = decomposed([[0, 9, 4], [5, 0, 9], [9, 5, 0]], 2, 1.0)
        made.check()
        with pytest.raises(PluginError, match=message):
            attrs.evolve(made, **change(made)).check()

    @pytest.mark.parametrize("option", [{"switches": 0}, {"link_gbps": 0.0}, {"reconfiguration_us": -1.0}])
    def test_what_cannot_be_asked_is_refused(self, option):
        usual = {"switches": 2, "link_gbps": 1.0, "reconfiguration_us": 1.0}
        with pytest.raises(ConfigError, match=next(iter(option))):
            decompose(TrafficMatrix.from_dense(np.zeros((2, 2))), **(usual | option))

    def test_nothing_to_send_takes_no_time(self):
        made = decomposed(np.zeros((3, 3)), 2, 5.0)
        assert (made.configurations, made.makespan_us, made.bound_us) == (0, 0.0, 0.0)
        assert len(spread(np.zeros(0), 2, 5.0)) == 0


def optimum_us(times_us, delay_us):
    """The shortest schedule on one switch. Columns: duration of each permutation, and whether it is used."""
    maps = np.array(list(itertools.permutations(range(4))))
    src, dst = np.nonzero(times_us)
    pair, which = np.nonzero(np.equal(maps[:, src].T, dst[:, None]))
    longest_us, each = times_us.sum(), np.arange(24)
    entries = [
        (pair, which, np.ones(len(pair))),
        (len(src) + each, each, np.ones(24)),
        (len(src) + each, 24 + each, np.full(24, -longest_us)),
    ]
    found = maximise(
        objective=np.r_[np.full(24, -1.0), np.full(24, -delay_us)],
        entries=entries,
        row_lower=np.r_[times_us[src, dst], np.full(24, -np.inf)],
        row_upper=np.r_[np.full(len(src), np.inf), np.zeros(24)],
        upper=np.r_[np.full(24, longest_us), np.ones(24)],
        integer=np.arange(48) >= 24,
    )
    assert found.optimal
    return float(found.values[:24].sum() + delay_us * np.round(found.values[24:]).sum())


class TestTurns:
    """The scheduler: everybody to everybody over fewer links than peers."""

    control = OcsCircuits(
        gpus=9, circuit_gbps=LINK_GBPS, circuits_per_gpu=2, interval_us=100.0, reconfiguration_us=20.0
    )
    traffic = TrafficMatrix.from_dense(random_times(np.random.default_rng(9), 9, 1.0) * B)

    def plans(self, count, traffic=None, **options):
        previous = None
        for _ in range(count):
            previous = plan_cycle(self.control, traffic or self.traffic, previous, least_steps=4, **options)
            self.control.check(previous)
            yield previous

    def test_in_one_cycle_everybody_has_a_turn(self):
        first = next(self.plans(1))
        assert isinstance(first, CyclePlan)
        assert first.remarks[0].startswith(
            f"plan 1 of {len(first.steps)}, in which all pairs have their turn: "
        )
        steps = list(self.plans(len(first.steps)))
        lit = sum(made.capacity_gbps(self.traffic.src, self.traffic.dst) > 0 for made in steps)
        assert (lit > 0).all()

    def test_the_circuits_that_stay_are_those_on_the_same_switch(self):
        before, after = self.plans(2)
        same = (before.port_map == after.port_map) & (after.port_map != DARK)
        assert after.kept.sum() == same.sum() > 0
        assert ((after.dark_us > 0) == (after.kept < after.circuits)).all()

    def test_where_one_plan_serves_everybody_it_is_that_of_ocs_exact(self):
        few = TrafficMatrix.from_dense(np.roll(np.eye(9), 1, axis=1) * B)
        made = next(self.plans(1, few))
        exact = plan(few, switches=2, link_gbps=LINK_GBPS, reconfiguration_us=20.0)
        assert not isinstance(made, CyclePlan)
        assert np.array_equal(made.port_map, exact.port_map)

    def test_a_cycle_whose_pairs_ask_no_longer_is_given_up(self):
        """A pair without a circuit at the next step, alone: it would wait for its turn for nothing."""
        first, second = self.plans(2)
        waits = second.unserved_src[0], second.unserved_dst[0]
        alone = TrafficMatrix.from_pairs(9, [waits[0]], [waits[1]], [B])
        made = plan_cycle(self.control, alone, first, least_steps=4, always=True)
        assert made.capacity_gbps(alone.src, alone.dst)[0] > 0
        assert made.step == 0


def test_times_are_those_of_one_link():
    """125 000 bytes at 100 Gbps: 10 us."""
    traffic = TrafficMatrix.from_pairs(2, [0], [1], [125_000.0])
    assert transfer_times_us(traffic, 100.0).tolist() == [10.0]
