"""DGX servers: who is joined to whom, and what leaves a server. 1200 Gbps of six NVLinks are 200 each."""

import csv
from pathlib import Path

import numpy as np
import pytest
from sipml_electrical.dgx import CUBE_MESH

from sipml_core.errors import ConfigError

MESH = Path(__file__).parents[3] / "examples" / "v100_cube_mesh.csv"


def test_every_v100_has_six_nvlinks():
    lanes = np.zeros(8, int)
    for pair, count in CUBE_MESH.items():
        lanes[list(pair)] += count
    assert lanes.tolist() == [6] * 8


def test_the_cube_mesh_is_the_one_that_was_measured():
    """The edges of the example, at 200 Gbps for each NVLink."""
    with MESH.open() as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    drawn = {(int(row["from"][3:]), int(row["to"][3:])): float(row["gbps"]) / 200 for row in rows}
    assert drawn == CUBE_MESH


def test_neighbours_have_one_nvlink_or_two(build, time_us):
    """1 MB over 200 Gbps takes 40 us, over 400 Gbps 20."""
    fabric = build("dgx", 8, 1200.0, generation="v100")
    assert time_us(fabric, {(0, 1): 1e6}) == pytest.approx(40.0)
    assert time_us(fabric, {(0, 3): 1e6}) == pytest.approx(20.0)


def test_others_are_reached_through_every_neighbour_of_both(build, crossed, time_us):
    """1 to 6: through 2 (2 and 1 NVLinks) and 5 (2 and 2), a third and two thirds; 1 MB at 600 Gbps."""
    fabric = build("dgx", 8, 1200.0, generation="v100")
    assert crossed(fabric, 1, 6) == {
        "egress 1": 1.0, "ingress 6": 1.0,
        "NVLink 1->2": 0.333333, "NVLink 2->6": 0.333333, "NVLink 1->5": 0.666667, "NVLink 5->6": 0.666667,
    }  # fmt: skip
    assert time_us(fabric, {(1, 6): 1e6}) == pytest.approx(1e6 / 75_000)


def test_two_v100s_share_a_card_of_100_gbps(build, time_us):
    """1 MB each from GPUs 0 and 1 through one card: 160 us; from 0 and 2 through two: 80."""
    fabric = build("dgx", 16, 1200.0, generation="v100")
    assert time_us(fabric, {(0, 8): 1e6, (1, 10): 1e6}) == pytest.approx(160.0)
    assert time_us(fabric, {(0, 8): 1e6, (2, 10): 1e6}) == pytest.approx(80.0)


@pytest.mark.parametrize(
    ("generation", "size", "nvlink", "card"),
    [("a100", 8, 2400.0, 200.0), ("h100", 8, 3600.0, 400.0), ("nvl72", 72, 7200.0, 400.0)],
)
def test_switched_servers_are_flat_inside_and_end_at_their_cards(
    build, time_us, generation, size, nvlink, card
):
    """Everybody sends 1 MB to its neighbour in the server at full NVLink speed; across, at that of a card."""
    fabric = build("dgx", 2 * size, nvlink, generation=generation)
    inside = {(i, (i + 1) % size): 1e6 for i in range(size)}
    assert time_us(fabric, inside) == pytest.approx(1e6 / (nvlink * 125))
    assert time_us(fabric, {(0, size): 1e6}) == pytest.approx(1e6 / (card * 125))
    assert fabric.hints.tiers == (("server", size),)
    assert fabric.hints.switches_add is (generation != "a100")
    assert fabric.words.notes == ()


def test_another_bandwidth_than_the_generations_is_noted(build):
    assert build("dgx", 8, 3600.0).words.notes == ()
    assert build("dgx", 8, 800.0).words.notes[0].startswith("a H100 has 3.6 Tbps of NVLink")


def test_a_generation_that_does_not_exist_is_refused(build):
    with pytest.raises(ConfigError, match="generation must be one of v100, a100, h100, nvl72, got 'h10'"):
        build("dgx", 8, generation="h10")
