"""Whether a plan fits the memory of a GPU, and what would help if not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from sipml_core.errors import ConfigError, InfeasibleError
from sipml_core.fields import format_bytes
from sipml_core.lowering.grouptasks import GroupTasks
from sipml_core.lowering.memory import MemoryUse, ReplicaMemory, least_states_bytes
from sipml_core.model import RECOMPUTE, OpGraph, Placement, Plan


@attrs.frozen(kw_only=True)
class MemoryNeed:
    """What each GPU of a replica needs; with a `refusal`, that is more than the fullest has."""

    use: MemoryUse
    refusal: str = ""

    @property
    def checked(self) -> MemoryUse:
        """The need; `InfeasibleError` if the plan does not fit."""
        if self.refusal:
            raise InfeasibleError(self.refusal)
        return self.use

    @property
    def checked_bytes(self) -> float:
        """The need of the fullest GPU; `InfeasibleError` if the plan does not fit. [bytes]"""
        return float(self.checked.total_bytes.max())


def memory_need(
    placement: Placement, plan: Plan, memory_bytes: float, group: GroupTasks | None = None
) -> MemoryNeed:
    """Return what the fullest GPU needs under a plan, and why that does not fit if it does not.

    The refusal has the fullest stage, needs by kind, what there is, and what would help.

    Parameters
    ----------
    memory_bytes
        Of a GPU. [bytes]
    group
        What `replica_tasks` returns for placement and plan; None: made here.
    """
    memory = ReplicaMemory(placement=placement)
    use = memory.use(plan, group)
    needed = float(use.total_bytes[use.fullest])
    if needed <= memory_bytes:
        return MemoryNeed(use=use)
    return MemoryNeed(
        use=use,
        refusal=f"{placement.graph.graph.name} with {_degrees(plan)} does not fit: "
        f"{_device(placement, use.fullest)} needs {use.sentence(use.fullest)}, the GPU has "
        f"{format_bytes(memory_bytes)}; {_remedy(memory, plan, memory_bytes)}",
    )


def check_memory(
    placement: Placement, plan: Plan, memory_bytes: float, group: GroupTasks | None = None
) -> float:
    """Return what the fullest GPU needs, if that is at most `memory_bytes`; see `memory_need`. [bytes]

    Raises
    ------
    InfeasibleError
        It is more.
    """
    return memory_need(placement, plan, memory_bytes, group).checked_bytes


def _degrees(plan: Plan) -> str:
    if plan.pp == 1 and plan.micro_batches == 1 and plan.block == 1:
        return f"mp={plan.mp}, dp={plan.dp}, global_batch={plan.global_batch}"
    block = f"cp={plan.cp}, ep={plan.ep}, " if plan.block > 1 else ""
    return (
        f"mp={plan.mp}, {block}pp={plan.pp}, dp={plan.dp}, global_batch={plan.global_batch}, "
        f"micro_batch={plan.micro_samples}, schedule {plan.schedule}, zero={plan.zero}"
    )


def _device(placement: Placement, device: int) -> str:
    stage, own = divmod(device, placement.limits.devices)
    return f"device {own} of a group" if placement.stages == 1 else f"device {own} of stage {stage}"


def _remedy(memory: ReplicaMemory, plan: Plan, memory_bytes: float) -> str:
    """Return each change of one kind that makes the plan fit; else one of several; else the direction."""

    def fits(changes: dict[str, Any]) -> bool:
        return bool(_changed_use(memory, plan, changes).total_bytes.max() <= memory_bytes)

    larger = "raise mp or pp" if plan.pp > 1 else "raise mp or lower the batch"
    single = [next(filter(fits, tried), None) for tried in _single_changes(plan)]
    found = [_in_words(changes) for changes in single if changes]
    if not found:
        both = next(filter(fits, _joint_changes(plan)), None)
        found = [_in_words(both)] if both else []
    return f"{' or '.join(found)} would do, or {larger}" if found else larger


def _changed_use(memory: ReplicaMemory, plan: Plan, changes: dict[str, Any]) -> MemoryUse:
    """Return the memory under a changed plan; activations grow with the samples of a micro-batch."""
    changed = attrs.evolve(plan, **changes)
    use = memory.use(changed)
    part = changed.micro_samples / plan.micro_samples
    return attrs.evolve(use, activations_bytes=use.activations_bytes * part)


def _single_changes(plan: Plan) -> Iterator[list[dict[str, Any]]]:
    """Yield changes of one kind, the smallest first, for each kind."""
    yield [{"recompute": level} for level in RECOMPUTE[RECOMPUTE.index(plan.recompute) + 1 :]]
    yield [{"micro_batch": samples} for samples in _smaller_micro_batches(plan)]
    if levels := _higher_levels(plan):
        yield [{"zero": level} for level in levels]


def _higher_levels(plan: Plan) -> range:
    """Return the levels of `zero` above the plan's that it could have."""
    if plan.replicas == 1 or plan.counter_rotating:
        return range(0)
    return range(plan.zero + 1, 3 if plan.ep > 1 else 4)


def _joint_changes(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield changes of two kinds, and of all."""
    levels = _higher_levels(plan)
    smallest = _smaller_micro_batches(plan)[-1:]
    again = {} if plan.recompute == "full" else {"recompute": "full"}
    for samples in smallest:
        yield {**again, "micro_batch": samples}
    for level in levels:
        yield {**again, "zero": level}
    for level in levels:
        for samples in smallest:
            yield {**again, "micro_batch": samples, "zero": level}


def _smaller_micro_batches(plan: Plan) -> list[int]:
    """Return smaller micro-batches that the plan may have, the largest first."""
    found = []
    for samples in range(plan.micro_samples - 1, 0, -1):
        if plan.local_batch % samples == 0:
            try:
                attrs.evolve(plan, micro_batch=samples)
            except ConfigError:
                continue
            found.append(samples)
    return found


def _in_words(changes: dict[str, Any]) -> str:
    """Return changes as they are written in a file.

    >>> _in_words({"recompute": "full", "zero": 1})
    'recompute = "full" and zero = 1'
    """
    values = {name: f'"{value}"' if isinstance(value, str) else value for name, value in changes.items()}
    return " and ".join(f"{name} = {value}" for name, value in values.items())


def check_parameters(graph: OpGraph, plan: Plan, memory_bytes: float) -> float:
    """Return what the fullest GPU needs at least, for parameters, gradients, optimizer state. [bytes]

    What this refuses need not be cut and placed: see `least_states_bytes`.

    Raises
    ------
    InfeasibleError
        It is more than `memory_bytes`.
    """
    needed = sum(least_states_bytes(graph, plan).values())
    if needed > memory_bytes:
        degrees = f"mp={plan.mp}" if plan.pp == 1 else f"mp={plan.mp}, pp={plan.pp}"
        raise InfeasibleError(
            f"{graph.name} with {degrees} does not fit: parameters, gradients and optimizer state alone "
            f"are {format_bytes(needed)}, the GPU has {format_bytes(memory_bytes)}; "
            f"{_states_remedy(graph, plan, memory_bytes)}"
        )
    return needed


def _states_remedy(graph: OpGraph, plan: Plan, memory_bytes: float) -> str:
    """Return the level of `zero` from which on states alone would fit, and the direction for degrees."""
    larger = "raise mp or pp" if plan.pp > 1 else "raise mp"
    short_form = plan.pp == 1 and plan.micro_batch is None and not plan.zero
    if short_form:
        return larger
    for level in _higher_levels(plan):
        if sum(least_states_bytes(graph, attrs.evolve(plan, zero=level)).values()) <= memory_bytes:
            return f"with zero = {level} they would fit, or {larger}"
    return larger
