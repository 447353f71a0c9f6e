"""What allocators cost on a shared cluster: waiting, and slow-down by neighbours.

python benchmarks/allocations.py                 shared_cluster.toml with each allocator, as a table
python benchmarks/allocations.py --plot FILE.svg   and its figure
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from sipml_core.plugin import load
from sipml_core.sharing import open_shared, run_shared

FILE = Path(__file__).with_name("shared_cluster.toml")
SETTINGS = (
    ("compact", False),
    ("contiguous", True),
    ("contiguous", False),
    ("first-fit", False),
    ("random", False),
)


def main() -> None:
    registry, found = load(), {}
    print("| allocator | network | makespan | used | split | waited | slow-down | slowest | time |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for allocator, front in SETTINGS:
        began_s = time.process_time()
        change = {"sharing.allocator": allocator, "sharing.front_switch": front}
        result = run_shared(open_shared(FILE, registry, set=change))
        took_s = time.process_time() - began_s
        label = allocator + ", front switch" * front
        for row in result.summaries:
            found[label, row.topology] = row
            print(
                f"| {label} | {row.topology} | {row.makespan_us / 1e6:.0f} s | "
                f"{100 * row.utilisation:.0f} % | {100 * row.fragmentation:.0f} % | "
                f"{row.waited_us / 1e6:.1f} s | {row.slowdown:.3f}x | {row.slowest:.2f}x | {took_s:.0f} s |",
                flush=True,
            )
    if "--plot" in sys.argv:
        draw(found, Path(sys.argv[sys.argv.index("--plot") + 1]))


def draw(found: dict, path: Path) -> None:
    """Draw the mean waiting and slow-down of each setting, a bar for each network."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "sipml"
    from matplotlib import pyplot

    labels = list(dict.fromkeys(label for label, _ in found))
    networks = list(dict.fromkeys(network for _, network in found))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
    for k, network in enumerate(networks):
        at = [row + 0.25 * (k - 1) for row in range(len(labels))]
        rows = [found[label, network] for label in labels]
        left.barh(at, [row.waited_us / 1e6 for row in rows], 0.22, label=network)
        right.barh(at, [row.slowdown for row in rows], 0.22)
    left.set_yticks(range(len(labels)), labels)
    left.set_xlabel("mean time waited [s]")
    right.set_xlabel("mean time of an iteration over that on an empty cluster")
    left.legend()
    left.invert_yaxis()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
