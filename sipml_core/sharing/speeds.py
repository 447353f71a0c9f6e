"""How long an iteration of a job takes: alone on its GPUs, and among neighbours that share its links."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases import Case, Clock, Reuse, compile_case, simulate_case, simulate_variants
from sipml_core.errors import ConfigError
from sipml_core.experiment import Experiment, Interconnect
from sipml_core.model import CircuitControl, CircuitParts, Fabric, Network, TaskGraph
from sipml_core.sharing.joint import Neighbour, joint_iterations_us
from sipml_core.sharing.views import View, Viewed

#: Means that differ by less have settled.
SETTLED = 0.01


@attrs.frozen(kw_only=True, eq=False)
class Placed:
    """A job on its GPUs."""

    kind: int
    view: View | None
    gpus: NDArray[np.int32]
    alone_us: float


@attrs.define(eq=False)
class Speeds:
    """Simulates kinds of jobs where they are, each kind on each alike view once."""

    fabric: Fabric
    interconnect: Interconnect
    #: Of one kind of job each; and which of their interconnects is meant.
    kinds: tuple[Experiment, ...]
    which: int
    least_iterations: int
    most_iterations: int
    _reuse: Reuse = attrs.Factory(Reuse)
    _alone_us: dict[tuple[int, str], float] = attrs.Factory(dict)
    _unfolded: dict[tuple[int, str], tuple[TaskGraph, Network]] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        control = self.fabric.circuits
        if control is not None and not belongs_to_gpus(control):
            raise ConfigError(
                f"topology {self.interconnect.label!r}: circuits of different jobs would share fibres or "
                "switches between their GPUs, which is not modelled; take packets, sip-ocs or hybrid"
            )

    def placed(self, kind: int, gpus: NDArray[np.int32]) -> Placed:
        """Return a job on these GPUs, simulated alone.

        Raises
        ------
        InfeasibleError
            It cannot run there.
        """
        # Where circuits begin and end at the GPUs of the job, those are its own, as on a cluster of its own.
        view = None if self.fabric.circuits else View.of(self.fabric, gpus)
        key = (kind, view.key if view else "")
        if key not in self._alone_us:
            simulated = simulate_variants(self._case(kind, view, fold="auto"), self._reuse, Clock(None))
            self._alone_us[key] = simulated.row.measured_us
        return Placed(kind=kind, view=view, gpus=gpus, alone_us=self._alone_us[key])

    def _case(self, kind: int, view: View | None, fold: str) -> Case:
        experiment = self.kinds[kind]
        interconnect, (job,) = experiment.interconnects[self.which], experiment.jobs
        if view is not None:
            interconnect = attrs.evolve(
                interconnect, topology=Viewed.of(view), scheduler=None, estimator=None
            )
        engine = attrs.evolve(experiment.engine, fold=fold)
        case = Case.of(experiment, job, interconnect, job.plan(interconnect.cluster.gpus))
        return attrs.evolve(case, engine=engine)

    def together_us(self, jobs: list[Placed], offsets_us: list[float]) -> NDArray[np.float64]:
        """Return the mean time of an iteration of each of some jobs that share links. [jobs] [us]

        Longer and longer stretches are simulated until the later half of one has means that differ by less
        than 1 % from those of the whole, or the limit is reached.
        """
        neighbours = [self._neighbour(job, offset) for job, offset in zip(jobs, offsets_us, strict=True)]
        iterations = self.least_iterations
        while True:
            found, later = joint_iterations_us(neighbours, self.fabric.gpus, iterations)
            iterations *= 2
            if (np.abs(found - later) <= SETTLED * found).all() or iterations > self.most_iterations:
                return np.maximum(found, [job.alone_us for job in jobs])

    def _neighbour(self, job: Placed, offset_us: float) -> Neighbour:
        assert job.view is not None  # jobs on circuits share nothing
        key = (job.kind, job.view.key)
        if key not in self._unfolded:
            compiled = compile_case(self._case(job.kind, job.view, fold="never"), self._reuse)
            fastest = min(compiled, key=lambda each: simulate_case(each, Clock(None)).row.measured_us)
            self._unfolded[key] = (fastest.tasks, fastest.network)
        tasks, network = self._unfolded[key]
        return Neighbour(
            view=job.view, tasks=tasks, network=network, alone_us=job.alone_us, offset_us=offset_us
        )


def belongs_to_gpus(control: CircuitControl) -> bool:
    """Return whether only the ports of GPUs limit circuits, so that those of disjoint jobs never meet."""
    if isinstance(control, CircuitParts):
        return False
    return type(control).check is CircuitControl.check


def groups_that_share(jobs: list[Placed], fabric: Fabric, gpu_gbps: float) -> list[list[int]]:
    """Return which jobs share links that they may fill together: indices into `jobs`, those alone left out.

    A job loads a link at most with what the GPUs that send over it, or those that receive, can move in all.
    """
    most: dict[int, list[tuple[int, float]]] = {}
    for k, job in enumerate(jobs):
        if job.view is None:
            continue
        for link, load in zip(job.view.links.tolist(), _most_gbps(job.view, gpu_gbps).tolist(), strict=True):
            most.setdefault(link, []).append((k, load))
    group = list(range(len(jobs)))

    def find(k: int) -> int:
        while group[k] != k:
            group[k] = group[group[k]]
            k = group[k]
        return k

    for link, loads in most.items():
        if len(loads) > 1 and sum(load for _, load in loads) > fabric.link_gbps[link] * (1 + 1e-9):
            for k, _ in loads[1:]:
                group[find(k)] = find(loads[0][0])
    members: dict[int, list[int]] = {}
    for k in range(len(jobs)):
        members.setdefault(find(k), []).append(k)
    return [each for each in members.values() if len(each) > 1]


def _most_gbps(view: View, gpu_gbps: float) -> NDArray[np.float64]:
    """Return what a job can load each link of its view with, at most. [links] [Gbps]"""
    ranks, links = len(view.gpus), len(view.links)
    src, dst = np.divmod(np.arange(ranks**2, dtype=np.int32), np.int32(ranks))
    other = src != dst
    flat = view.fabric.route(src[other], dst[other]).flat()
    assert flat.start is not None
    assert flat.weight is not None
    pair = np.repeat(np.arange(len(flat.start) - 1), np.diff(flat.start))
    loads = []
    for end in (src[other], dst[other]):
        # The heaviest use that each GPU makes of each link. [(link, gpu)]
        key, where = np.unique(flat.links * ranks + end[pair], return_inverse=True)
        heaviest = np.zeros(len(key))
        np.maximum.at(heaviest, where.reshape(-1), flat.weight)
        loads.append(np.bincount(key // ranks, weights=heaviest * gpu_gbps, minlength=links))
    return np.asarray(np.minimum(*loads), np.float64)
