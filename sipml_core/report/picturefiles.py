"""Pictures by name: of a case, of a result, of a search; as figures, and as files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sipml_core.details import CaseDetails
from sipml_core.errors import ConfigError, unknown
from sipml_core.model import Result
from sipml_core.report.casepictures import CASE_PICTURES, PictureLook
from sipml_core.report.circuitpictures import NETWORK_PICTURES
from sipml_core.report.detailfiles import case_names
from sipml_core.report.plots import figure_bytes
from sipml_core.report.resultfiles import write_atomically
from sipml_core.report.resultpictures import pareto_picture, times_picture

#: Name -> what it shows, in the order of help texts.
PICTURES = {
    "times": "stacked bars of each case: compute, exposed, dark, idle",
    "timeline": "what a few GPUs compute, send and receive over time",
    "pipeline": "passes of each stage of a replica",
    "traffic": "bytes from each GPU to each",
    "links": "how full the busiest links are over time",
    "flows": "how long transfers take and wait, by kind",
    "wavelengths": "wavelengths by segment, or ports by switch, after some decisions",
    "circuits": "capacity of circuits over time, dark, and how many change when",
    "network": "nodes and links, coloured by use",
    "pareto": "plans of a search: memory against time to the goal",
}


def case_picture(details: CaseDetails, name: str, look: PictureLook | None = None) -> Any:
    """Return one picture of a case as a matplotlib figure.

    Raises
    ------
    ConfigError
        There is no such picture, the case has nothing that it would show, or matplotlib is missing.
    """
    drawers = CASE_PICTURES | NETWORK_PICTURES
    if name not in drawers:
        raise ConfigError(unknown("picture", name, PICTURES))
    return drawers[name](details, look or PictureLook())


def pictures_of(
    result: Result, cases: Sequence[CaseDetails], names: Sequence[str], look: PictureLook
) -> Iterator[tuple[str, Any]]:
    """Yield the pictures asked for, each with a name; no names: all that have something to show."""
    every = not names
    for name in names or [name for name in PICTURES if name != "pareto"]:
        if name not in PICTURES:
            raise ConfigError(unknown("picture", name, PICTURES))
        if name == "pareto":
            raise ConfigError("the picture pareto is of a search: name the folder that `search` wrote")
        if name == "times":
            yield "times", times_picture(result.cases, look)
            continue
        for details, case in zip(cases, case_names(cases), strict=True):
            try:
                figure = case_picture(details, name, look)
            except ConfigError:
                if every:
                    continue
                raise
            yield (f"{name}-{case}" if len(result.cases) > 1 else name), figure


def search_picture(
    rows: Sequence[dict[str, Any]], names: Sequence[str], look: PictureLook
) -> tuple[str, Any]:
    """Return the picture of a search with its name."""
    others = [name for name in names if name != "pareto"]
    if others:
        raise ConfigError(f"of a search there is the picture pareto, not {others[0]}: that is of a run")
    return "pareto", pareto_picture(rows, look)


def write_picture(figure: Any, file: Path, kind: str) -> Path:
    """Write a figure; the file appears whole or not at all."""
    write_atomically(file, figure_bytes(figure, kind))
    return file
