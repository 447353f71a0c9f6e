"""How long an iteration of a job takes: alone on its GPUs, and among neighbours that share its links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from contextlib import suppress

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.cases import (
    Case,
    Clock,
    CompiledCase,
    PreparedCase,
    Reuse,
    fastest_prepared,
    prepared_variant,
    prepared_variants,
)
from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.experiment import Experiment, Interconnect
from sipml_core.fields import frozen
from sipml_core.model import CircuitControl, CircuitParts, Fabric
from sipml_core.sharing.joint import Iteration, Neighbour, joint_iterations_us
from sipml_core.sharing.neighbours import Footprint
from sipml_core.sharing.situations import situation
from sipml_core.sharing.views import View, Viewed

#: Means that differ by less have settled.
SETTLED = 0.01
#: Of more jobs together, each runs fewer iterations: as many as so many jobs would in all, but two at least.
FULL_STRETCH = 8


@frozen(kw_only=True, eq=False)
class Placed:
    """A job on its GPUs."""

    kind: int
    view: View | None
    #: In the order of its ranks. [ranks]
    gpus: NDArray[np.int32]
    alone_us: float
    #: What of the network it can load; None: nothing that others can.
    footprint: Footprint | None


@attrs.define(eq=False)
class _Alone:
    """One kind of job on GPUs that are to each other as some others are: the fastest of its variants."""

    fastest: PreparedCase
    us: float
    #: With the tasks of all GPUs, and one iteration of these to be repeated, once they are asked for.
    unfolded: CompiledCase | None = None
    iteration: Iteration | None = None


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
    #: Situations that were simulated.
    simulated: int = 0
    #: What cases of one kind have in common, for each: it keeps only the last few results.
    _reuse: dict[int, Reuse] = attrs.Factory(lambda: defaultdict(Reuse))
    _alone: dict[tuple[int, str], _Alone | InfeasibleError] = attrs.Factory(dict)
    _known: dict[Hashable, NDArray[np.float64]] = attrs.Factory(dict)

    @property
    def placed_circuits(self) -> bool:
        """Return whether it matters for circuits where in the network the GPUs of a job are."""
        control = self.fabric.circuits
        return control is not None and not belongs_to_gpus(control)

    def placed(self, kind: int, gpus: NDArray[np.int32]) -> Placed:
        """Return a job on these GPUs, simulated alone.

        Where circuits do not join its last replica to its first in their order, replicas are folded:
        see `folded_order`.

        Raises
        ------
        InfeasibleError
            It cannot run there.
        """
        if self.fabric.circuits is not None and not self.placed_circuits:
            # Circuits begin and end at the GPUs of the job, as on a cluster of its own.
            alone = self._alone_on(kind, None)
            return Placed(kind=kind, view=None, gpus=gpus, alone_us=alone.us, footprint=None)
        try:
            return self._placed_as(kind, gpus)
        except InfeasibleError:
            replicas = self.kinds[kind].jobs[0].plan(len(gpus)).replicas
            if self.placed_circuits and replicas > 2:
                with suppress(InfeasibleError):
                    return self._placed_as(kind, folded_order(gpus, replicas))
            raise

    def _placed_as(self, kind: int, gpus: NDArray[np.int32]) -> Placed:
        view = View.of(self.fabric, gpus)
        if not view.joined:
            raise InfeasibleError("circuits do not lead from any of its GPUs to any other, over its own")
        alone = self._alone_on(kind, view)
        control, circuits = self.fabric.circuits, None
        if control is not None:
            network = self._unfolded(kind, alone).network
            circuits = control.contested(gpus, gpus[network.circuit_src], gpus[network.circuit_dst])
            if circuits is None:
                raise ConfigError(
                    f"topology {self.interconnect.label!r}: what circuits of different jobs would share is "
                    f"not known (`contested` of {type(control).__name__} is None); take packets or sip-ocs"
                )
        footprint = Footprint.of(view, self.interconnect.cluster.bandwidth_gbps, circuits)
        return Placed(kind=kind, view=view, gpus=gpus, alone_us=alone.us, footprint=footprint)

    def divided_us(self, job: Placed, parts: int) -> float:
        """Return the time of an iteration with one of so many parts of the circuits that jobs share. [us]

        Raises
        ------
        InfeasibleError
            It cannot run with so few.
        """
        return self._alone_on(job.kind, View.of(self.fabric, job.gpus, parts)).us

    def _alone_on(self, kind: int, view: View | None) -> _Alone:
        key = (kind, view.key if view else "")
        if key not in self._alone:
            try:
                variants = prepared_variants(self._case(kind, view), self._reuse[kind])
                fastest, us = fastest_prepared(variants, Clock(None))
                self._alone[key] = _Alone(fastest=fastest, us=us)
            except InfeasibleError as error:
                self._alone[key] = error
            except ConfigError as error:
                if view is not None:
                    raise
                self._alone[key] = InfeasibleError(str(error))  # no such network joins so few GPUs
        found = self._alone[key]
        if isinstance(found, InfeasibleError):
            raise found
        return found

    def _case(self, kind: int, view: View | None) -> Case:
        experiment = self.kinds[kind]
        interconnect, (job,) = experiment.interconnects[self.which], experiment.jobs
        if view is not None:
            interconnect = attrs.evolve(interconnect, topology=Viewed.of(view))
            if self.fabric.circuits is None:
                interconnect = attrs.evolve(interconnect, scheduler=None, estimator=None)
        case = Case.of(experiment, job, interconnect, job.plan(interconnect.cluster.gpus))
        return attrs.evolve(case, engine=attrs.evolve(experiment.engine, fold="auto"))

    def _unfolded(self, kind: int, alone: _Alone) -> CompiledCase:
        """Return the fastest variant with the tasks of all GPUs."""
        if alone.unfolded is None:
            alone.unfolded = alone.fastest.compiled()
            if alone.unfolded.repeats > 1:
                variant, lowering = alone.fastest.variant, alone.unfolded.lowering
                engine = attrs.evolve(variant.case.engine, fold="never")
                whole = attrs.evolve(variant, case=attrs.evolve(variant.case, engine=engine))
                alone.unfolded = prepared_variant(whole, lowering, self._reuse[kind]).compiled()
        return alone.unfolded

    def together_us(self, jobs: list[Placed], offsets_us: list[float]) -> NDArray[np.float64]:
        """Return the mean time of an iteration of each of some jobs that share links. [jobs] [us]

        Longer and longer stretches are simulated until the later half of one has means that differ, in the
        mean over jobs, by less than 1 % from those of the whole, or the limit is reached. Jobs that met in
        the same way before are not simulated again.
        """
        order, key = situation([(job.kind, job.view) for job in jobs])
        if key not in self._known:
            self.simulated += 1
            self._known[key] = self._simulated_us([jobs[k] for k in order], [offsets_us[k] for k in order])
        found = np.empty(len(jobs))
        found[order] = self._known[key]
        return np.maximum(found, [job.alone_us for job in jobs])

    def _simulated_us(self, jobs: list[Placed], offsets_us: list[float]) -> NDArray[np.float64]:
        neighbours = [self._neighbour(job, offset) for job, offset in zip(jobs, offsets_us, strict=True)]
        queue = self.kinds[0].engine.queue
        times_fewer = max(len(jobs) / FULL_STRETCH, 1.0)
        iterations, most = (max(n / times_fewer, 2.0) for n in (self.least_iterations, self.most_iterations))
        while True:
            found, later = joint_iterations_us(neighbours, self.fabric.gpus, iterations, queue)
            iterations *= 2
            if np.abs(found / later - 1).mean() <= SETTLED or iterations > most:
                return found

    def _neighbour(self, job: Placed, offset_us: float) -> Neighbour:
        assert job.view is not None  # others share nothing
        alone = self._alone_on(job.kind, job.view)
        compiled = self._unfolded(job.kind, alone)
        alone.iteration = alone.iteration or Iteration.of(compiled.tasks)
        return Neighbour(
            view=job.view,
            iteration=alone.iteration,
            network=compiled.network,
            alone_us=job.alone_us,
            offset_us=offset_us,
        )


def belongs_to_gpus(control: CircuitControl) -> bool:
    """Return whether only the ports of GPUs limit circuits, so that those of disjoint jobs never meet."""
    if isinstance(control, CircuitParts):
        return False
    return type(control).check is CircuitControl.check


def folded_order(gpus: NDArray[np.int32], replicas: int) -> NDArray[np.int32]:
    """Return the GPUs of a job with its replicas up one way and down the other, which closes their ring.

    Then neighbours on the ring of replicas, the last and the first among them, are two places apart at most:

    >>> folded_order(np.arange(5), 5).tolist()
    [0, 2, 4, 3, 1]
    >>> folded_order(np.arange(8), 4).tolist()
    [0, 1, 4, 5, 6, 7, 2, 3]
    """
    place = np.arange(replicas)
    order = np.concatenate([place[::2], place[1::2][::-1]])
    return np.asarray(gpus.reshape(replicas, -1)[order].reshape(-1), np.int32)
