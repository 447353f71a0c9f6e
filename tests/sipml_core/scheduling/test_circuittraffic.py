"""Demands on circuits as matrices: rounding, and pairs that are shared between decisions."""

import attrs
import numpy as np
import pytest

from sipml_core.engine import AskedDemand
from sipml_core.errors import PluginError
from sipml_core.model import TrafficMatrix
from sipml_core.scheduling.circuittraffic import CircuitTraffic, circuit_traffic


@attrs.frozen
class Circuits:
    """As much of a network as is read: circuits 0->1, 0->2, 2->1."""

    gpus = 3
    circuit_src = np.array([0, 0, 2], np.int32)
    circuit_dst = np.array([1, 2, 1], np.int32)


def test_demands_are_rounded_to_36_digits():
    """Of 1 + k / 2^36 the last digit goes: half way between two numbers it becomes the even one."""
    values, _ = AskedDemand(5)(1 + np.array([0.0, 2.0, 1.0, 3.0, 4.0]) * 2.0**-36)
    assert values.tolist() == [1.0, 1 + 2.0**-35, 1.0, 1 + 4 * 2.0**-36, 1 + 4 * 2.0**-36]


def test_rounding_is_that_of_numbers_by_frexp():
    """Against the definition, in plain Python: 36 digits of the fraction, ties to even."""
    rng = np.random.default_rng(0)
    demand = rng.uniform(0.5, 1, 500) * 10.0 ** rng.integers(-150, 150, 500)
    fraction, exponent = np.frexp(demand)
    expected = np.ldexp([float(round(each * 2.0**36)) for each in fraction.tolist()], exponent - 36)
    values, _ = AskedDemand(500)(demand)
    assert values.tolist() == expected.tolist()


def test_matrices_name_what_is_asked_for():
    made = circuit_traffic(Circuits(), np.array([3.0, 0.0, 5.0]))
    assert (made.src.tolist(), made.dst.tolist(), made.demand.tolist()) == ([0, 2], [1, 1], [3.0, 5.0])
    assert made.key.tolist() == [1, 7]
    assert circuit_traffic(Circuits(), np.zeros(3)).pairs == 0


def test_the_same_pairs_again_share_their_arrays():
    """Only while the same circuits are asked for: then matrices differ in demands alone."""
    traffic = CircuitTraffic(Circuits())
    first, same = traffic(np.array([3.0, 0.0, 5.0])), traffic(np.array([4.0, 0.0, 1.0]))
    other = traffic(np.array([4.0, 2.0, 1.0]))
    again = traffic(np.array([3.0, 0.0, 5.0]))
    assert same.src is first.src
    assert same.dst is first.dst
    assert (same.demand.tolist(), first.demand.tolist()) == ([4.0, 1.0], [3.0, 5.0])
    assert (other.src.tolist(), other.demand.tolist()) == ([0, 0, 2], [4.0, 2.0, 1.0])
    assert (again.src.tolist(), again.key.tolist()) == ([0, 2], [1, 7])
    for made in (first, same, other, again):
        checked = TrafficMatrix.from_pairs(3, made.src, made.dst, made.demand)
        assert made.dense().tolist() == checked.dense().tolist()
        with pytest.raises(ValueError, match="read-only"):
            made.demand[0] = 1.0


@pytest.mark.parametrize("demand", [np.ones(2), np.ones(4), np.ones((3, 1))])
def test_demands_of_other_circuits_are_refused(demand):
    """A forecast that returns too few would be read past its end."""
    with pytest.raises(PluginError, match="must be those of 3 circuits"):
        circuit_traffic(Circuits(), demand)


def test_whole_numbers_are_demands_as_well():
    assert circuit_traffic(Circuits(), np.array([3, 0, 5])).demand.tolist() == [3.0, 5.0]
