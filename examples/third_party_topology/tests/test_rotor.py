import numpy as np
import pytest
from sipml_torus_rotor import Rotor, RotorCycle

from sipml_core.errors import ConfigError
from sipml_core.model import Cluster, TrafficMatrix
from sipml_core.testing import SchedulerConformance, TopologyConformance


class TestRotorConformance(TopologyConformance):
    topology = Rotor
    scheduler = RotorCycle


class TestRotorCycleConformance(SchedulerConformance):
    scheduler = RotorCycle
    topology = Rotor
    follows_demand = False


def plans(count, gpus=5, rotors=2):
    """The first plans of a cycle."""
    fabric = Rotor(Rotor.Options(rotors=rotors)).build(Cluster(gpus=gpus, bandwidth_gbps=400))
    nothing = TrafficMatrix.from_pairs(gpus, [], [], [])
    made = [None]
    for _ in range(count):
        made.append(RotorCycle(RotorCycle.Options()).plan(fabric.circuits, nothing, made[-1]))
    return made[1:]


def test_two_rotors_join_every_gpu_to_the_next_two_then_to_the_two_after_them():
    """N = 5, R = 2: matchings 1, 2, then 3, 4; each circuit has B/2 = 200 Gbps."""
    first, second = plans(2)
    assert {(s, (d - s) % 5) for s, d in zip(first.src, first.dst, strict=True)} == {
        (s, k) for s in range(5) for k in (1, 2)
    }
    assert {int((d - s) % 5) for s, d in zip(second.src, second.dst, strict=True)} == {3, 4}
    assert set(first.gbps) == {200.0}


def test_over_a_cycle_all_pairs_get_the_same():
    """N - 1 = 4 matchings, 3 switches: after 4 slots each pair had 3 circuits for one slot."""
    total = np.zeros((5, 5))
    for plan in plans(4, rotors=3):
        total[plan.src, plan.dst] += plan.gbps
    assert np.allclose(total, 3 * 400 / 3 * (1 - np.eye(5)))


def test_more_rotors_than_peers_double_up():
    """N = 2: all 4 switches join the same two GPUs, and no circuit ever changes."""
    first, second = plans(2, gpus=2, rotors=4)
    control = Rotor(Rotor.Options(rotors=4)).build(Cluster(gpus=2, bandwidth_gbps=400)).circuits
    moved = control.transition(first, second)
    assert moved.gbps.tolist() == moved.kept_gbps.tolist() == [400.0, 400.0]
    assert moved.dark_us.tolist() == [0.0, 0.0]


def test_a_slot_no_longer_than_the_dark_time_is_refused():
    with pytest.raises(ConfigError, match="slot_us must exceed reconfiguration_us = 10, got 10"):
        Rotor.Options(slot_us=10)
