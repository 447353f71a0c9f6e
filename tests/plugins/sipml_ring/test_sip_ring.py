"""The topology sip-ring and its dark times."""

import numpy as np
import pytest
from sipml_ring import plan
from sipml_ring.lightpaths import Lightpaths
from sipml_ring.retuning import Retuning
from sipml_ring.ringschedulers import RingFast
from sipml_ring.topology import SipRing

from sipml_core.errors import ConfigError, PluginError
from sipml_core.model.circuits import CircuitControl, CircuitPlan
from sipml_core.model.cluster import Cluster
from sipml_core.model.traffic import TrafficMatrix
from sipml_core.scheduling import planned


def build(gpus=40, bandwidth_gbps=800.0, **options):
    return SipRing(SipRing.Options(**options)).build(Cluster(gpus=gpus, bandwidth_gbps=bandwidth_gbps))


def test_bandwidth_is_rounded_down_to_wavelengths_and_says_so():
    """790 Gbps are 31 wavelengths, 16 and 15 each way: 775 Gbps."""
    fabric = build(bandwidth_gbps=790.0)
    assert (fabric.link_gbps == 775.0).all()
    assert (fabric.circuits.clockwise, fabric.circuits.counterclockwise) == (16, 15)
    assert any("rounded down to 775" in note for note in fabric.words.notes)
    assert any("16 run clockwise, 15 counter-clockwise" in note for note in fabric.words.notes)
    assert build(bandwidth_gbps=800.0).words.notes == ()


def test_less_than_a_wavelength_is_refused():
    with pytest.raises(ConfigError, match="bandwidth_gbps must be from one wavelength of 25 Gbps"):
        build(bandwidth_gbps=24.9)


def test_only_pairs_in_reach_have_a_route():
    fabric = build(reach_hops=3)
    routes = fabric.route(np.array([0, 0, 0]), np.array([3, 4, 37]))
    assert routes.links[0].tolist() == [0, 80 + 3, 43]
    assert routes.links[1].tolist() == [-1, -1, -1]
    assert routes.links[2].tolist() == [0, 80 + 37, 77]


def test_degree_is_what_wavelengths_and_reach_allow():
    """Reach 3: 6 peers. 4 wavelengths: 4 at once. 3 GPUs: 2 others."""
    assert build(reach_hops=3).hints.degree == 6
    assert build(reach_hops=3, bandwidth_gbps=100.0).hints.degree == 4
    assert build(gpus=3).hints.degree == 2
    assert build(gpus=1).hints.degree is None


def test_only_rings_are_scheduled():
    control = CircuitControl(gpus=4, circuit_gbps=25.0, circuits_per_gpu=4)
    traffic = TrafficMatrix.from_pairs(4, [0], [1], [1])
    with pytest.raises(ConfigError, match="'ring-fast' plans RingCircuits, not CircuitControl"):
        planned(RingFast(RingFast.Options()), control, traffic, None)


def test_a_plan_without_wavelengths_is_refused():
    control = build().circuits
    plan = CircuitPlan(gpus=control.gpus, src=[0], dst=[1], gbps=[25.0])
    with pytest.raises(PluginError, match="does not say which wavelengths it uses on the ring"):
        control.check(plan)


def test_hwsim_needs_wavelengths_that_stay():
    with pytest.raises(ConfigError, match="it needs wavelength = 'continuous'"):
        SipRing.Options(reconfiguration="hwsim", wavelength="converted")


def circuits(gpus, *lit):
    """Circuits (src, dst, index), all clockwise."""
    src, dst, index = (np.array(column, np.int32) for column in zip(*lit, strict=True))
    row = np.arange(len(lit), dtype=np.int32)
    return Lightpaths(src=src, dst=dst, pair=row, direction=np.zeros(len(lit), np.int32), index=index)


RING = {"gpus": 8, "segments": 8}


def test_dark_time_is_that_of_the_rings_that_move():
    """Before: 0->1 on line 2. After: 0->1 on line 5, so both ends hop 3 channels (less heat: a hop down), and
    4->5 is lit from rings parked half a channel away. What stays is not dark. Words wait 0.5 us more, until
    they are aligned."""
    import hwsim

    rings = Retuning(tau_us=4.0, spacing_ghz=200.0)
    before = circuits(8, (0, 1, 2), (2, 3, 7))
    after = circuits(8, (0, 1, 5), (2, 3, 7), (4, 5, 0))
    up = [hwsim.retune_time_us(hop, tau_us=4.0) for hop in (-600.0, 100.0)]
    expected = [up[0] + 0.5, 0.0, up[1] + 0.5]
    np.testing.assert_allclose(rings.circuit_times_us(before, after, **RING), expected)


def test_a_receiver_that_changes_sender_locks_again():
    """Both rings stay: 0 sent line 1 to 1, and 5 sent line 1 to 6; now 0 sends it to 6. Neither ring
    retunes, but control (1 us), clock recovery (1 us) and word alignment (0.5 us) are paid."""
    before, after = circuits(8, (0, 1, 1), (5, 6, 1)), circuits(8, (0, 6, 1))
    found = Retuning().circuit_times_us(before, after, **RING)
    np.testing.assert_allclose(found, 2.5)


def test_plans_take_their_dark_time_from_the_rings():
    """A slower ring is dark for longer; a plan that repeats itself is not dark at all."""
    traffic = TrafficMatrix.from_pairs(40, [0, 5], [1, 9], [1, 2])
    dark_us = []
    for tau_us in (1.0, 4.0):
        control = build(reconfiguration="hwsim", tau_us=tau_us).circuits
        scheduler = RingFast(RingFast.Options())
        made = scheduler.plan(control, traffic, None)
        dark_us.append(made.dark_us.max())
        assert not scheduler.plan(control, traffic, made).dark_us.any()
    assert 0 < dark_us[0] < dark_us[1] < 40


def test_impossible_rings_are_refused_before_the_run():
    with pytest.raises(ConfigError, match="'hwsim' is impossible"):
        build(reconfiguration="hwsim", spacing_ghz=5000.0)


@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({"tau_us": 1}, "hwsim"),
        ({"tolerance_ghz": 1}, "hwsim"),
        ({"spacing_ghz": 100}, "hwsim"),
        ({"macro_lines": 4}, "hwsim"),
        ({"reconfiguration": "hwsim", "reconfiguration_us": 10}, "fixed"),
    ],
)
def test_options_of_the_other_kind_of_reconfiguration_are_refused(options, other):
    """They would be ignored; with their own kind they are taken."""
    *_, key = options
    with pytest.raises(ConfigError, match=f"{key} has no effect .* or set reconfiguration = '{other}'"):
        build(**options)
    build(**{**options, "reconfiguration": other})


def test_fixed_dark_time_applies_to_changed_pairs_only():
    first = plan(TrafficMatrix.from_pairs(40, [0], [1], [1]), wavelengths=4)
    second = plan(TrafficMatrix.from_pairs(40, [0, 5], [1, 9], [1, 2]), wavelengths=4, previous=first)
    assert dict(zip(second.src.tolist(), second.dark_us.tolist(), strict=True)) == {0: 0.0, 5: 25.0}
