"""What people and programs read: tables, CSV, JSON, figures.

In: results. Out: text on a console, files in a folder.
Imports everything but `cli`; each file only when something of it is asked for, since a command needs few.
"""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked

if TYPE_CHECKING:
    from sipml_core.report.casepictures import PictureLook
    from sipml_core.report.circuitreport import plan_summary, plan_table, summary_lines, write_plan
    from sipml_core.report.collectivetables import ELEMENT_BYTES, collective_table, write_collectives
    from sipml_core.report.comparison import compared, result_pairs
    from sipml_core.report.comparisonreport import comparison_lines, comparison_tables
    from sipml_core.report.components import (
        component_page,
        components_table,
        default_batch,
        option_rows,
        trace_lines,
    )
    from sipml_core.report.countstable import counts_tables
    from sipml_core.report.detailfiles import details_size_line, recorded_cases, write_details
    from sipml_core.report.detailrequest import DetailRequest
    from sipml_core.report.drawing import SeriesLook, draw_series
    from sipml_core.report.explain import strategy_tables, winner_tables
    from sipml_core.report.fragmentationreport import fragmentation_tables, write_fragmentation
    from sipml_core.report.htmlpage import ReportedResult, result_page, write_page
    from sipml_core.report.picturefiles import (
        PICTURES,
        case_picture,
        pictures_of,
        search_picture,
        write_picture,
    )
    from sipml_core.report.plots import can_draw, new_figure
    from sipml_core.report.progressbar import progress_bar
    from sipml_core.report.repeating import (
        chosen_cases,
        experiment_of,
        folder_beside,
        holds_run,
        holds_search,
        repeated,
        row_of,
        search_rows,
    )
    from sipml_core.report.reproduction import finding_tables, reproduction_footnotes, write_finding
    from sipml_core.report.resultfiles import prepare_folder, write_atomically, write_result
    from sipml_core.report.resultpictures import times_picture
    from sipml_core.report.searchreport import (
        SHOWN,
        search_footnotes,
        search_tables,
        winners_tables,
        write_search,
    )
    from sipml_core.report.sharedreport import shared_table, write_shared
    from sipml_core.report.sweepreport import sweep_footnotes, sweep_tables, write_sweep
    from sipml_core.report.tables import footnotes, result_tables
    from sipml_core.report.validationreport import (
        memory_line,
        validation_lines,
        validation_table,
        write_predictions,
    )
    from sipml_core.report.whyreport import Why, why_tables

#: What each file of the room gives to others.
_GIVES = {
    "fragmentationreport": (
        "fragmentation_tables",
        "write_fragmentation",
    ),
    "htmlpage": (
        "ReportedResult",
        "result_page",
        "write_page",
    ),
    "whyreport": (
        "Why",
        "why_tables",
    ),
    "repeating": (
        "chosen_cases",
        "folder_beside",
        "holds_run",
        "holds_search",
        "experiment_of",
        "repeated",
        "row_of",
        "search_rows",
    ),
    "picturefiles": (
        "PICTURES",
        "case_picture",
        "pictures_of",
        "search_picture",
        "write_picture",
    ),
    "drawing": (
        "SeriesLook",
        "draw_series",
    ),
    "casepictures": ("PictureLook",),
    "circuitreport": (
        "plan_summary",
        "plan_table",
        "summary_lines",
        "write_plan",
    ),
    "comparison": (
        "compared",
        "result_pairs",
    ),
    "comparisonreport": (
        "comparison_lines",
        "comparison_tables",
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
    "detailrequest": ("DetailRequest",),
    "detailfiles": (
        "details_size_line",
        "recorded_cases",
        "write_details",
    ),
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
    "resultpictures": ("times_picture",),
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
    "sharedreport": (
        "shared_table",
        "write_shared",
    ),
    "sweepreport": (
        "sweep_footnotes",
        "sweep_tables",
        "write_sweep",
    ),
    "tables": (
        "footnotes",
        "result_tables",
    ),
    "validationreport": (
        "memory_line",
        "validation_lines",
        "validation_table",
        "write_predictions",
    ),
}
__getattr__ = files_when_asked(__name__, _GIVES)

__all__ = [
    "ELEMENT_BYTES",
    "PICTURES",
    "SHOWN",
    "DetailRequest",
    "PictureLook",
    "ReportedResult",
    "SeriesLook",
    "Why",
    "can_draw",
    "case_picture",
    "chosen_cases",
    "collective_table",
    "compared",
    "comparison_lines",
    "comparison_tables",
    "component_page",
    "components_table",
    "counts_tables",
    "default_batch",
    "details_size_line",
    "draw_series",
    "experiment_of",
    "finding_tables",
    "folder_beside",
    "footnotes",
    "fragmentation_tables",
    "holds_run",
    "holds_search",
    "memory_line",
    "new_figure",
    "option_rows",
    "pictures_of",
    "plan_summary",
    "plan_table",
    "prepare_folder",
    "progress_bar",
    "recorded_cases",
    "repeated",
    "reproduction_footnotes",
    "result_page",
    "result_pairs",
    "result_tables",
    "row_of",
    "search_footnotes",
    "search_picture",
    "search_rows",
    "search_tables",
    "shared_table",
    "strategy_tables",
    "summary_lines",
    "sweep_footnotes",
    "sweep_tables",
    "times_picture",
    "trace_lines",
    "validation_lines",
    "validation_table",
    "why_tables",
    "winner_tables",
    "winners_tables",
    "write_atomically",
    "write_collectives",
    "write_details",
    "write_finding",
    "write_fragmentation",
    "write_page",
    "write_picture",
    "write_plan",
    "write_predictions",
    "write_result",
    "write_search",
    "write_shared",
    "write_sweep",
]
