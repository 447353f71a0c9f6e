"""How jobs meet: where they meet in the same way again, nothing is simulated again."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from sipml_core.sharing.views import View

__all__ = ["situation"]


def situation(jobs: Sequence[tuple[int, View | None]]) -> tuple[NDArray[np.intp], Hashable]:
    """Return jobs in an order that does not depend on who they are, and what tells how they meet.

    That is their kinds, what each sees of the network, and which of the links that one sees are those of
    another. Jobs are given by kind and view.
    """
    told = [(kind, view.key if view else "") for kind, view in jobs]
    first_link = [int(view.links.min(initial=0)) if view else 0 for _, view in jobs]
    order = np.array(sorted(range(len(jobs)), key=lambda k: (told[k], first_link[k])), np.intp)
    views = [jobs[k][1] for k in order]
    links = np.concatenate([view.links for view in views if view] or [np.empty(0, np.int64)])

    # Links by number of their first appearance, so that only which of them coincide counts. [entries]
    _, first, which = np.unique(links, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    return order, (tuple(told[k] for k in order), number[which.reshape(-1)].tobytes())
