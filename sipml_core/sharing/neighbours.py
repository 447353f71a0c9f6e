"""Which jobs share links or circuits that they may fill together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.sharing.views import View


@frozen(kw_only=True, eq=False)
class Footprint:
    """What of a network a job can load."""

    #: Links of the cluster, and what the job can load each with, at most. [links], [links] [Gbps]
    links: NDArray[np.int64]
    most_gbps: NDArray[np.float64]
    #: What its circuits can occupy, see `CircuitControl.contested`. [resources]
    circuits: NDArray[np.int64]

    @classmethod
    def of(cls, view: View, gpu_gbps: float, circuits: NDArray[np.int64] | None = None) -> Footprint:
        """Return what a job with this view can load.

        It loads a link at most with what the GPUs that send over it, or those that receive, can move in all.
        """
        none = np.empty(0, np.int64)
        return cls(
            links=view.links,
            most_gbps=_most_gbps(view, gpu_gbps),
            circuits=none if circuits is None else circuits,
        )


def links_shared(found: Sequence[Footprint | None], link_gbps: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which jobs share a link that all jobs on it can fill together. [jobs, jobs]"""
    jobs = len(found)
    shared = np.zeros((jobs, jobs), np.bool_)
    there = [k for k, each in enumerate(found) if each is not None]
    if len(there) < 2:
        return shared
    prints = [each for each in found if each is not None]

    # Entries (link, job), by link; those of links that are too wide for all their jobs are left out.
    link = np.concatenate([each.links for each in prints])
    gbps = np.concatenate([each.most_gbps for each in prints])
    job = np.repeat(there, [len(each.links) for each in prints])
    load = np.bincount(link, weights=gbps, minlength=len(link_gbps))
    full = load[link] > link_gbps[link] * (1 + 1e-9)
    _join(shared, link[full], job[full])
    return shared


def circuits_shared(found: Sequence[Footprint | None]) -> NDArray[np.bool_]:
    """Return which jobs contest circuits. [jobs, jobs]"""
    shared = np.zeros((len(found), len(found)), np.bool_)
    sizes = [0 if each is None else len(each.circuits) for each in found]
    if np.count_nonzero(sizes) > 1:
        _join(
            shared,
            np.concatenate([each.circuits for each in found if each]),
            np.repeat(range(len(found)), sizes),
        )
    return shared


def parts_of_circuits(shared: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return into how many equal parts circuits are divided that each job has one of. [jobs]

    One after the other, jobs take the first part that none has that they share circuits with; all that are
    joined by what they share, over others as well, divide into as many parts as any of them needs.

    Job 1 shares with 0 and with 2, which share nothing, so two parts do; job 3 has all to itself.

    >>> shared = np.zeros((4, 4), bool)
    >>> shared[1, [0, 2]] = shared[[0, 2], 1] = True
    >>> parts_of_circuits(shared).tolist()
    [2, 2, 2, 1]
    """
    parts = np.ones(len(shared), np.int64)
    for group in groups_that_share(shared):
        taken = np.full(len(shared), -1)
        for job in group:
            others = set(taken[shared[job]].tolist())
            taken[job] = next(part for part in range(len(group)) if part not in others)
        parts[group] = taken.max() + 1
    return parts


def _join(shared: NDArray[np.bool_], resource: NDArray[np.int64], job: NDArray[np.int64]) -> None:
    """Note which jobs have a resource in common; entries are (resource, job)."""
    order = np.argsort(resource, kind="stable")
    edges = np.flatnonzero(np.diff(resource[order])) + 1
    for members in {tuple(each) for each in map(np.unique, np.split(job[order], edges)) if len(each) > 1}:
        shared[np.ix_(members, members)] = True
    np.fill_diagonal(shared, False)


def groups_that_share(shared: NDArray[np.bool_]) -> list[list[int]]:
    """Return the jobs that are joined by what they share, over others as well; those alone are left out.

    >>> shared = np.zeros((4, 4), bool)
    >>> shared[0, 2] = shared[2, 0] = shared[2, 3] = shared[3, 2] = True
    >>> groups_that_share(shared)
    [[0, 2, 3]]
    """
    left = set(range(len(shared)))
    groups = []
    while left:
        group, new = set(), {min(left)}
        while new:
            group |= new
            new = set(np.flatnonzero(shared[sorted(new)].any(axis=0)).tolist()) - group
        left -= group
        if len(group) > 1:
            groups.append(sorted(group))
    return groups


def _most_gbps(view: View, gpu_gbps: float) -> NDArray[np.float64]:
    """Return what a job can load each link of its view with, at most. [links] [Gbps]"""
    ranks, links = len(view.gpus), len(view.links)
    src, dst = np.divmod(np.arange(ranks**2, dtype=np.int32), np.int32(ranks))
    other = src != dst
    flat = view.fabric.route(src[other], dst[other]).flat()
    assert flat.start is not None
    assert flat.weight is not None
    pair = np.repeat(np.arange(len(flat.start) - 1), np.diff(flat.start))
    fixed = flat.links < links
    loads = []
    for end in (src[other], dst[other]):
        # The heaviest use that each GPU makes of each link. [(link, gpu)]
        key, where = np.unique(flat.links[fixed] * ranks + end[pair[fixed]], return_inverse=True)
        heaviest = np.zeros(len(key))
        np.maximum.at(heaviest, where.reshape(-1), flat.weight[fixed])
        loads.append(np.bincount(key // ranks, weights=heaviest * gpu_gbps, minlength=links))
    return np.asarray(np.minimum(*loads), np.float64)
