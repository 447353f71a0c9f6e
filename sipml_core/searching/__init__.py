"""The plan with the least time to accuracy, by estimate and simulation, in several processes.

In: experiments. Out: a `SearchResult` each.
Imports `cases` and what is below it.
"""

from sipml_core.searching.cache import AnswerCache, default_cache_folder
from sipml_core.searching.searching import search
from sipml_core.searching.searchresult import SearchResult, SearchRow

__all__ = ["AnswerCache", "SearchResult", "SearchRow", "default_cache_folder", "search"]
