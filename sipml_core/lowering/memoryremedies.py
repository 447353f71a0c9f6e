"""What would make a plan fit the memory of a GPU: every change that is named was tried."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Protocol

import attrs

from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.lowering.memory import MemoryUse, ReplicaMemory, least_states_bytes
from sipml_core.model import RECOMPUTE, OpGraph, Plan

#: What needs so much of the memory is what does not fit.
MOST = 0.5

#: Keys of a plan and other values for them.
Changes = dict[str, Any]


class ModelDegrees(Protocol):
    """Degrees of experts and context that a model can have."""

    def allows(self, plan: Plan) -> bool:
        """Return whether the model runs under the degrees of a plan."""

    def graph(self, plan: Plan) -> OpGraph:
        """Return the ops of one replica under a plan."""


@frozen(kw_only=True, eq=False)
class _Remedy:
    """A plan that does not fit, and the model's degrees of experts and context; None: it has neither."""

    plan: Plan
    memory_bytes: float
    degrees: ModelDegrees | None

    @cached_property
    def more_experts(self) -> list[Changes]:
        """Return larger degrees over which experts can be spread, the smallest first."""
        dp = self.plan.dp
        found = [{"ep": ep} for ep in range(self.plan.ep + 1, dp + 1) if dp % ep == 0]
        return [changes for changes in found if self._allowed(changes)]

    @cached_property
    def more_context(self) -> list[Changes]:
        """Return larger degrees of context on as many GPUs, the smallest first."""
        cp, dp = self.plan.cp, self.plan.dp
        found = [{"cp": cp * by, "dp": dp // by} for by in range(2, dp + 1) if dp % by == 0]
        return [changes for changes in found if self._allowed(changes)]

    def _allowed(self, changes: Changes) -> bool:
        changed = _changed(self.plan, changes)
        return changed is not None and self.degrees is not None and self.degrees.allows(changed)

    @cached_property
    def _spread(self) -> tuple[OpGraph, int] | None:
        """Return the ops with experts that are spread, and over how many replicas; None: there are none."""
        if self.degrees is None or (self.plan.ep == 1 and not self.more_experts):
            return None
        plan = self.plan if self.plan.ep > 1 else attrs.evolve(self.plan, **self.more_experts[0])
        return self.degrees.graph(plan), plan.ep

    def states_bytes(self, plan: Plan, *, experts_only: bool = False) -> dict[str, float]:
        """Return `least_states_bytes` of the model under any degree of experts; it must have some."""
        assert self._spread is not None
        graph, spread = self._spread
        return least_states_bytes(graph, plan, spread, experts_only=experts_only)

    def larger(self, needed_bytes: float, activations_bytes: float = 0.0) -> str:
        """Return which degrees to raise: that of what needs most is named with them."""
        names = ["mp", "pp"] if self.plan.pp > 1 else ["mp"]
        if self.more_experts:
            experts = sum(self.states_bytes(self.plan, experts_only=True).values())
            names += ["ep"] if experts > MOST * needed_bytes else []
        if activations_bytes > MOST * needed_bytes and self.more_context:
            names.append("cp")
        *first, last = names
        return f"raise {', '.join(first)} or {last}" if first else f"raise {last}"


@frozen(kw_only=True, eq=False)
class StatesRemedy(_Remedy):
    """What would make parameters, gradients and optimizer state alone fit."""

    graph: OpGraph

    def words(self) -> str:
        """Return changes from which on states would fit, and which degrees to raise."""
        larger = self.larger(sum(least_states_bytes(self.graph, self.plan).values()))
        plan = self.plan
        short_form = plan.pp == 1 and plan.micro_batch is None and not plan.zero and not self.more_experts
        if short_form:
            return larger
        levels = [{"zero": level} for level in _higher_levels(plan)]
        both = [{**experts, **level} for experts in self.more_experts for level in levels]
        single = [next(filter(self._fits, tried), None) for tried in (self.more_experts, levels)]
        found = [changes for changes in single if changes] or list(filter(self._fits, both))[:1]
        if not found:
            return larger
        return f"with {' or '.join(map(_in_words, found))} they would fit, or {larger}"

    def _fits(self, changes: Changes) -> bool:
        changed = _changed(self.plan, changes)
        if changed is None:
            return False
        states = self.states_bytes(changed) if "ep" in changes else least_states_bytes(self.graph, changed)
        return sum(states.values()) <= self.memory_bytes


@frozen(kw_only=True, eq=False)
class UseRemedy(_Remedy):
    """What would make all that a plan needs fit."""

    memory: ReplicaMemory
    #: What it needs.
    use: MemoryUse

    def words(self) -> str:
        """Return each change of one kind that makes the plan fit; else one of several; else the direction."""
        fullest = self.use.fullest
        needed, activations = self.use.total_bytes[fullest], self.use.activations_bytes[fullest]
        larger = self.larger(float(needed), float(activations))
        larger += "" if self.plan.pp > 1 else " or lower the batch"
        single = [next(filter(self._fits, tried), None) for tried in self._single_changes()]
        found = [_in_words(changes) for changes in single if changes]
        if not found:
            both = next(filter(self._fits, self._joint_changes()), None)
            found = [_in_words(both)] if both else []
        return f"{' or '.join(found)} would do, or {larger}" if found else larger

    def _fits(self, changes: Changes) -> bool:
        changed = _changed(self.plan, changes)
        return changed is not None and bool(self._use(changed).total_bytes.max() <= self.memory_bytes)

    def _use(self, changed: Plan) -> MemoryUse:
        """Return the memory under a changed plan.

        Activations grow with the samples of a micro-batch and the part of their tokens that a replica has.
        Experts are taken to be as even over stages as all else.
        """
        plan = self.plan
        use = self.memory.use(attrs.evolve(changed, ep=plan.ep, cp=plan.cp, dp=plan.dp))
        part = changed.micro_samples / plan.micro_samples * plan.cp / changed.cp
        use = attrs.evolve(use, activations_bytes=use.activations_bytes * part)
        if changed.ep == plan.ep:
            return use
        before = self.states_bytes(attrs.evolve(changed, ep=plan.ep))
        kinds = {
            f"{kind}_bytes": getattr(use, f"{kind}_bytes") * (after / before[kind])
            for kind, after in self.states_bytes(changed).items()
        }
        return attrs.evolve(use, **kinds)

    def _single_changes(self) -> Iterator[list[Changes]]:
        """Yield changes of one kind, the smallest first, for each kind."""
        plan = self.plan
        yield [{"recompute": level} for level in RECOMPUTE[RECOMPUTE.index(plan.recompute) + 1 :]]
        yield [{"micro_batch": samples} for samples in _smaller_micro_batches(plan)]
        # What shares or spreads states leaves activations as they are.
        if self.use.activations_bytes.max() <= self.memory_bytes:
            yield [{"zero": level} for level in _higher_levels(plan)]
            yield self.more_experts
        if plan.micro_batch is not None:
            yield self.more_context

    def _joint_changes(self) -> Iterator[Changes]:
        """Yield changes of two kinds, and of all."""
        levels = [{"zero": level} for level in _higher_levels(self.plan)]
        smallest = [{"micro_batch": samples} for samples in _smaller_micro_batches(self.plan)[-1:]]
        again = {} if self.plan.recompute == "full" else {"recompute": "full"}
        for experts in ({}, *self.more_experts):
            for samples in smallest:
                yield {**experts, **again, **samples}
            if experts and again:
                yield {**experts, **again}
            for level in levels:
                yield {**experts, **again, **level}
            for level in levels:
                for samples in smallest:
                    yield {**experts, **again, **samples, **level}


def _changed(plan: Plan, changes: Changes) -> Plan | None:
    """Return a changed plan; None: there is no such plan."""
    try:
        return attrs.evolve(plan, **changes)
    except ConfigError:
        return None


def _higher_levels(plan: Plan) -> range:
    """Return the levels of `zero` above the plan's that it could have."""
    if plan.replicas == 1 or plan.counter_rotating:
        return range(0)
    return range(plan.zero + 1, 4)


def _smaller_micro_batches(plan: Plan) -> list[int]:
    """Return smaller micro-batches that the plan may have, the largest first."""
    smaller = range(plan.micro_samples - 1, 0, -1)
    return [
        samples
        for samples in smaller
        if plan.local_batch % samples == 0 and _changed(plan, {"micro_batch": samples}) is not None
    ]


def _in_words(changes: Changes) -> str:
    """Return changes as they are written in a file.

    >>> _in_words({"recompute": "full", "zero": 1})
    'recompute = "full" and zero = 1'
    """
    values = {name: f'"{value}"' if isinstance(value, str) else value for name, value in changes.items()}
    return " and ".join(f"{name} = {value}" for name, value in values.items())
