"""Writes what the pages say of results, from the results in docs/results.

python docs/results.py            write it
python docs/results.py --check    say which pages are stale; exit status 1 if any is

A page holds the text of a block between `<!-- results: NAME -->` and `<!-- end of results -->`; the
functions that write the blocks, and draw figures, are in docs/result_tables. The CSV files come from
`python -m sipml_core reproduce ... --out docs/results` and from scripts in benchmarks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from result_tables import (
    choices,
    circuit_figures,
    circuit_jobs,
    circuits,
    common,
    jobs,
    measured,
    networks,
    paper,
    servers,
)

PAGES = (
    "which-network.md", "photonic.md", "validation.md", "communication.md", "reproduction.md",
    "electrical.md", "circuit-planning.md", "sip-ocs.md", "sip-ring.md", "sharing.md",
    "model.md", "parallelization.md", "search.md",
)  # fmt: skip
BLOCK = re.compile(r"(<!-- results: ([a-z0-9-]+) -->\n).*?(<!-- end of results -->)", re.S)
BLOCKS: dict[str, Callable[[], str]] = {
    **servers.BLOCKS,
    **paper.BLOCKS,
    **measured.BLOCKS,
    **networks.BLOCKS,
    **circuits.BLOCKS,
    **circuit_jobs.BLOCKS,
    **jobs.BLOCKS,
    **choices.BLOCKS,
}


def filled(text: str) -> str:
    """Return a page with its blocks written anew."""
    return BLOCK.sub(lambda found: found[1] + BLOCKS[found[2]]() + found[3], text)


def stale() -> Iterator[Path]:
    """Yield the pages whose blocks are not what the results say."""
    for name in PAGES:
        text = (common.DOCS / name).read_text(encoding="utf-8")
        if filled(text) != text:
            yield common.DOCS / name
    for name in circuit_figures.FIGURES:
        path = figure_path(name)
        drawn = path.read_text(encoding="utf-8") if path.exists() else ""
        if common.rows(name) and circuit_figures.digest(name) not in drawn:
            yield path


def figure_path(name: str) -> Path:
    """Return where the figure of a result is."""
    return common.DOCS / f"{name}.svg"


def main() -> None:
    """Write the pages, or say which are stale."""
    found = list(stale())
    for path in found:
        if "--check" not in sys.argv:
            drawn = circuit_figures.FIGURES[path.stem]() if path.suffix == ".svg" else None
            path.write_text(drawn or filled(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{'stale' if '--check' in sys.argv else 'wrote'}: {path.relative_to(common.DOCS.parent)}")
    if found and "--check" in sys.argv:
        sys.exit("run python docs/results.py")


if __name__ == "__main__":
    main()
