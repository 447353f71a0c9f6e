"""Results kept between runs, each under a hash of all that it depends on.

In: an experiment, a candidate, an interconnect. Out: a key, and the record that is kept under it.
Imports `cases` and what is below it; each file only when something of it is asked for.
"""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked

if TYPE_CHECKING:
    from sipml_core.store.contents import Contents, prune, store_contents, trim
    from sipml_core.store.earlier import EarlierRuns
    from sipml_core.store.keys import Keys, code_fingerprint, code_of, trial_keys
    from sipml_core.store.resultstore import Answer, Record, ResultStore, default_store_folder, usable_store

__getattr__ = files_when_asked(
    __name__,
    {
        "contents": ("Contents", "prune", "store_contents", "trim"),
        "earlier": ("EarlierRuns",),
        "keys": ("Keys", "code_fingerprint", "code_of", "trial_keys"),
        "resultstore": ("Answer", "Record", "ResultStore", "default_store_folder", "usable_store"),
    },
)

__all__ = [
    "Answer",
    "Contents",
    "EarlierRuns",
    "Keys",
    "Record",
    "ResultStore",
    "code_fingerprint",
    "code_of",
    "default_store_folder",
    "prune",
    "store_contents",
    "trial_keys",
    "trim",
    "usable_store",
]
