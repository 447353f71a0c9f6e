"""How many live GPUs no tensor-parallel group can use: racks of 72 against a ring that passes dead nodes.

    python benchmarks/khop_waste.py      # draw, write docs/results/khop_waste.csv
    python docs/results.py               # the table in docs/photonic.md

Nodes of 8 GPUs fail independently: in InfiniteHBD's trace one is down 133 h every 238 days. A rack of 9
nodes is a unit of its own (NVL72); the ring of all nodes is cut only where as many neighbours in a row are
dead as a transceiver reaches.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "khop_waste.csv"
NODES, NODE_GPUS, RACK_NODES, DRAWS = 720, 8, 9, 400
DOWN = 133.0 / (238 * 24 + 133.0)


def unused(lengths: NDArray[np.int64], group: int) -> int:
    """Return the nodes left over where groups of nodes are cut from stretches of these lengths.

    >>> unused(np.array([9, 5]), 4)
    2
    """
    return int((lengths % group).sum())


def stretches(alive: NDArray[np.bool_], reach: int) -> NDArray[np.int64]:
    """Return the live nodes of each stretch of a ring that gaps of `reach` dead ones or more cut.

    >>> stretches(np.array([1, 0, 1, 0, 0, 1], bool), 2)
    array([3])
    >>> stretches(np.array([1, 0, 1, 0, 0, 1, 0, 0, 1], bool), 2)
    array([1, 3])
    """
    at = np.flatnonzero(alive)
    gap = (np.roll(at, -1) - at - 1) % len(alive) if len(at) > 1 else np.zeros(1, int)
    cuts = np.flatnonzero(gap >= reach)
    if len(cuts) < 2:
        return np.array([len(at)])
    return np.sort(np.diff(cuts, append=cuts[0] + len(at)))


def main() -> None:
    """Draw who is dead, and write which part of the live GPUs is left over. [%]"""
    rng = np.random.default_rng(0)
    alive = rng.random((DRAWS, NODES)) >= DOWN
    rows = []
    for group in (2, 4, 8):
        racks = [unused(each.reshape(-1, RACK_NODES).sum(axis=1), group) for each in alive]
        rings = [[unused(stretches(each, reach), group) for each in alive] for reach in (2, 3)]
        shares = [100 * np.sum(found) / alive.sum() for found in (racks, *rings)]
        rows.append([group * NODE_GPUS, *(f"{share:.2f}" for share in shares)])
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["group", "racks of 72", "ring, k = 2", "ring, k = 3"])
        writer.writerows(rows)


if __name__ == "__main__":
    main()
