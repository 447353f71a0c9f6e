"""What a store holds, and how it is kept small."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from pathlib import Path

from sipml_core.fields import frozen
from sipml_core.store.resultstore import ResultStore, read_record

#: A store is trimmed to half of this when it has grown beyond it: some 200 000 results. [bytes]
MOST_BYTES = 500_000_000
#: Seconds in a day.
DAY_S = 86_400.0


@frozen(kw_only=True)
class Contents:
    """How many records a store holds, of which kinds, and how large they are."""

    size_bytes: int
    #: Records of each kind.
    kinds: dict[str, int]
    #: Of them, reasons why there is no result.
    failed: int
    #: Files that no longer count: of an older format, or damaged.
    unreadable: int

    @property
    def records(self) -> int:
        """All records that count."""
        return sum(self.kinds.values())


def store_contents(store: ResultStore) -> Contents:
    """Return what is in a store; every record is read."""
    kinds: Counter[str] = Counter()
    size_bytes = failed = unreadable = 0
    for path in sorted(store.files()):
        record = read_record(path)
        with contextlib.suppress(OSError):
            size_bytes += path.stat().st_size
        if record is None:
            unreadable += 1
        else:
            kinds[record.kind] += 1
            failed += record.failed
    return Contents(size_bytes=size_bytes, kinds=dict(kinds), failed=failed, unreadable=unreadable)


def prune(
    store: ResultStore, *, unused_days: float | None = None, down_to_bytes: float | None = None
) -> tuple[int, int]:
    """Remove records, those that were used least lately first; return how many, and their size. [bytes]

    Parameters
    ----------
    unused_days
        All that were not used for so long go. [days]
    down_to_bytes
        Then as many as make the store no larger than this; 0: all. [bytes]
    """
    now = time.time()
    files = sorted(_stats(store), key=lambda file: (_used(file[0]), file[1]))
    left = sum(status.st_size for status, _ in files)
    count = removed_bytes = 0
    for status, path in files:
        old = unused_days is not None and now - _used(status) > unused_days * DAY_S
        if old or (down_to_bytes is not None and left > down_to_bytes):
            path.unlink(missing_ok=True)
            left -= status.st_size
            removed_bytes += status.st_size
            count += 1
    return count, removed_bytes


def trim(store: ResultStore) -> None:
    """Prune a store that has grown too large."""
    with contextlib.suppress(OSError):
        if sum(status.st_size for status, _ in _stats(store)) > MOST_BYTES:
            prune(store, down_to_bytes=MOST_BYTES / 2)


def _used(status: os.stat_result) -> float:
    """When a file was last written or read. [s]"""
    return max(status.st_atime, status.st_mtime)


def _stats(store: ResultStore) -> list[tuple[os.stat_result, Path]]:
    found = []
    for path in store.files():
        with contextlib.suppress(FileNotFoundError):  # removed by another process
            found.append((path.stat(), path))
    return found
