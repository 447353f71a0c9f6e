"""What degree and reach leave to a group of GPUs."""

import numpy as np
import pytest

from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.model.balanced import PlacementLimits
from sipml_core.placement.limits import placement_limits, reach_table


@pytest.mark.parametrize(
    ("devices", "dp", "degree", "reach", "range_hops"),
    [
        (8, 4, None, None, None),  # electrical
        (4, 2, 3, None, 1),  # the paper's example: one circuit for DP, two peers
        (8, 128, 16, None, None),  # 15 peers cover the group
        (16, 2, 16, None, None),  # 15 peers cover exactly
        (17, 2, 16, None, 7),  # 15 peers: 7 on each side
        (17, 1, 16, None, None),  # no replica: 16 peers
        (18, 1, 16, None, 8),
        (16, 4, None, 16, None),  # the counterpart 16 hops away, within reach
        (64, 1, None, 16, 16),  # one group: the circle is the ring
        (33, 1, None, 16, None),  # no two of 33 on a circle are more than 16 apart
        (34, 1, None, 16, 16),
        (64, 1, 20, 16, 10),
        (64, 1, 40, 16, 16),
        (1, 8, 1, 16, None),
        (2, 8, 2, None, None),
    ],
)
def test_range(devices, dp, degree, reach, range_hops):
    """floor(peers / 2) unless the peers cover the group; on a single-group ring, reach too."""
    assert placement_limits(devices, dp, degree, reach) == PlacementLimits(
        devices=devices, range_hops=range_hops
    )


@pytest.mark.parametrize("peers", range(2, 12))
def test_the_range_gives_no_more_peers_than_there_are_circuits(peers):
    """Each device may talk to at most `peers` others, whatever the group's size."""
    for devices in range(2, 30):
        table = reach_table(placement_limits(devices, dp=2, degree=peers + 1))
        assert (table.sum(axis=1) - 1 <= peers).all()


def test_reach_table_agrees_with_the_limits():
    """The same rule as PlacementLimits.allows."""
    for hops in (None, 0, 1, 2, 5):
        limits = PlacementLimits(devices=7, range_hops=hops)
        expected = [[limits.allows(a, b) for b in range(7)] for a in range(7)]
        assert np.array_equal(reach_table(limits), expected)


@pytest.mark.parametrize(
    ("devices", "dp", "degree", "reach", "message"),
    [
        (32, 4, None, 16, "mp=32 with dp=4 .* 32 hops away.* reach_hops is 16; the largest mp is 16"),
        (2, 4, 1, None, "degree 1, 1 of it for the ring of dp=4 replicas, leaves 0; the largest mp is 1"),
        (3, 4, 2, None, "leaves 1; the largest mp is 2"),
        (3, 1, 1, None, "degree 1 leaves 1; the largest mp is 2"),
    ],
)
def test_impossible_groups_are_refused(devices, dp, degree, reach, message):
    """The message names what was asked, the limit, and the largest mp that works."""
    with pytest.raises(InfeasibleError, match=message):
        placement_limits(devices, dp, degree, reach)


@pytest.mark.parametrize(
    ("devices", "degree", "message"),
    [
        (1, 5, "^degree 5, 1 of it for the ring of dp=4 replicas and 2 for .* stages and 3 for replicas that"
         " share experts or sequences, leaves -1; it takes 6$"),
        (2, 5, "^mp=2 needs .* leaves -1; it takes 7$"),
        (4, 5, "^mp=4 needs two peers for each GPU at least, but degree 5.* leaves -1; it takes 8$"),
        (4, 7, "leaves 1; the largest mp is 2"),
    ],
)  # fmt: skip
def test_a_refusal_says_who_the_peers_are(devices, degree, message):
    """1 + 2 + 3 peers outside the group, and in it none for one GPU, one for two, else two."""
    with pytest.raises(InfeasibleError, match=message):
        placement_limits(devices, 4, degree, ring_peers=1, stage_peers=2, block_peers=3)
    assert placement_limits(1, 4, 6, ring_peers=1, stage_peers=2, block_peers=3).range_hops is None
    assert placement_limits(2, 4, 7, ring_peers=1, stage_peers=2, block_peers=3).range_hops is None
    assert placement_limits(4, 4, 8, ring_peers=1, stage_peers=2, block_peers=3).range_hops == 1


def test_numbers_below_one_are_refused():
    """A degree of 0 is no network."""
    with pytest.raises(ConfigError, match="degree must be at least 1, got 0"):
        placement_limits(4, 1, degree=0)


def test_counter_rotating_rings_leave_one_peer_less():
    """D = 6: five peers are left for MP with one ring, hence two apart; four with two rings, two apart;
    with D = 5 four and three, hence two and one apart."""
    assert placement_limits(8, 4, 6).range_hops == 2
    assert placement_limits(8, 4, 6, ring_peers=2).range_hops == 2
    assert placement_limits(8, 4, 5).range_hops == 2
    assert placement_limits(8, 4, 5, ring_peers=2).range_hops == 1


def test_a_chain_needs_two_peers_and_neighbours_in_reach_only():
    """Degree 3, one for the replicas: two peers, direct exchanges one hop apart at most. A single group of
    16 on a ring of reach 2: sub-ops may sit anywhere, for those in between pass things on."""
    assert placement_limits(8, 4, 3, 8).range_hops == 1
    assert placement_limits(8, 4, 3, 8, chain=True).range_hops is None
    assert placement_limits(16, 1, None, 2).range_hops == 2
    assert placement_limits(16, 1, None, 2, chain=True).range_hops is None
    with pytest.raises(InfeasibleError, match="leaves 1; the largest mp is 2"):
        placement_limits(8, 4, 2, 8, chain=True)
    with pytest.raises(InfeasibleError, match="reach_hops is 4"):
        placement_limits(8, 4, 16, 4, chain=True)
