"""What people and programs read: tables, CSV, JSON, figures.

In: results. Out: text on a console, files in a folder.
Imports everything but `cli`; each file only when something of it is asked for, since a command needs few.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sipml_core.report.circuitreport import plan_summary, plan_table, summary_lines, write_plan
    from sipml_core.report.collectivetables import ELEMENT_BYTES, collective_table, write_collectives
    from sipml_core.report.components import (
        component_page,
        components_table,
        default_batch,
        option_rows,
        trace_lines,
    )
    from sipml_core.report.countstable import counts_tables
    from sipml_core.report.explain import strategy_tables, winner_tables
    from sipml_core.report.plots import can_draw, new_figure
    from sipml_core.report.progressbar import progress_bar
    from sipml_core.report.reproduction import finding_tables, reproduction_footnotes, write_finding
    from sipml_core.report.resultfiles import prepare_folder, write_atomically, write_result
    from sipml_core.report.searchreport import (
        SHOWN,
        search_footnotes,
        search_tables,
        winners_tables,
        write_search,
    )
    from sipml_core.report.tables import footnotes, result_tables
    from sipml_core.report.validationreport import validation_lines, validation_table, write_predictions

#: What each file of the room gives to others.
_GIVES = {
    "circuitreport": (
        "plan_summary",
        "plan_table",
        "summary_lines",
        "write_plan",
    ),
    "collectivetables": (
        "ELEMENT_BYTES",
        "collective_table",
        "write_collectives",
    ),
    "components": (
        "default_batch",
        "component_page",
        "components_table",
        "option_rows",
        "trace_lines",
    ),
    "countstable": ("counts_tables",),
    "explain": (
        "strategy_tables",
        "winner_tables",
    ),
    "plots": (
        "can_draw",
        "new_figure",
    ),
    "progressbar": ("progress_bar",),
    "reproduction": (
        "finding_tables",
        "reproduction_footnotes",
        "write_finding",
    ),
    "resultfiles": (
        "prepare_folder",
        "write_atomically",
        "write_result",
    ),
    "searchreport": (
        "SHOWN",
        "search_footnotes",
        "search_tables",
        "winners_tables",
        "write_search",
    ),
    "tables": (
        "footnotes",
        "result_tables",
    ),
    "validationreport": (
        "validation_lines",
        "validation_table",
        "write_predictions",
    ),
}

__all__ = [
    "ELEMENT_BYTES",
    "SHOWN",
    "can_draw",
    "collective_table",
    "component_page",
    "components_table",
    "counts_tables",
    "default_batch",
    "finding_tables",
    "footnotes",
    "new_figure",
    "option_rows",
    "plan_summary",
    "plan_table",
    "prepare_folder",
    "progress_bar",
    "reproduction_footnotes",
    "result_tables",
    "search_footnotes",
    "search_tables",
    "strategy_tables",
    "summary_lines",
    "trace_lines",
    "validation_lines",
    "validation_table",
    "winner_tables",
    "winners_tables",
    "write_atomically",
    "write_collectives",
    "write_finding",
    "write_plan",
    "write_predictions",
    "write_result",
    "write_search",
]


def __getattr__(name: str) -> Any:
    """Return what is asked for from its file."""
    for file, names in _GIVES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{file}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
