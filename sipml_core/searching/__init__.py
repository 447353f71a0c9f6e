"""The plan with the least time to accuracy, by estimate and simulation, wherever an executor does the work.

In: experiments. Out: a `SearchResult` each.
Imports `cases`, `store`, `executing` and what is below them.
"""

from sipml_core.searching.answering import simulation_key
from sipml_core.searching.caseruns import CaseRuns, Unfinished
from sipml_core.searching.searching import search
from sipml_core.searching.searchresult import TIGHT_MEMORY, SearchResult, SearchRow
from sipml_core.searching.workers import probe_of

__all__ = [
    "TIGHT_MEMORY",
    "CaseRuns",
    "SearchResult",
    "SearchRow",
    "Unfinished",
    "probe_of",
    "search",
    "simulation_key",
]
