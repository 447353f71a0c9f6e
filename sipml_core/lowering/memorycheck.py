"""Whether a plan fits the memory of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sipml_core.errors import InfeasibleError
from sipml_core.fields import format_bytes, frozen
from sipml_core.lowering.grouptasks import GroupTasks
from sipml_core.lowering.memory import MemoryUse, ReplicaMemory, least_states_bytes
from sipml_core.model import OpGraph, Placement, Plan

if TYPE_CHECKING:
    from sipml_core.lowering.memoryremedies import ModelDegrees


@frozen(kw_only=True)
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
    placement: Placement,
    plan: Plan,
    memory_bytes: float,
    group: GroupTasks | None = None,
    degrees: ModelDegrees | None = None,
) -> MemoryNeed:
    """Return what the fullest GPU needs under a plan, and why that does not fit if it does not.

    The refusal has the fullest stage, needs by kind, what there is, and what would help.

    Parameters
    ----------
    memory_bytes
        Of a GPU. [bytes]
    group
        What `replica_tasks` returns for placement and plan; None: made here.
    degrees
        Of experts and context that the model can have; None: it has neither.
    """
    memory = ReplicaMemory(placement=placement)
    use = memory.use(plan, group)
    needed = float(use.total_bytes[use.fullest])
    if needed <= memory_bytes:
        return MemoryNeed(use=use)
    from sipml_core.lowering.memoryremedies import UseRemedy  # only here: most plans fit

    remedy = UseRemedy(plan=plan, memory_bytes=memory_bytes, degrees=degrees, memory=memory, use=use)
    return MemoryNeed(
        use=use,
        refusal=f"{placement.graph.graph.name} with {_degrees(plan)} does not fit: "
        f"{_device(placement, use.fullest)} needs {use.sentence(use.fullest)}, the GPU has "
        f"{format_bytes(memory_bytes)}; {remedy.words()}",
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


def check_parameters(
    graph: OpGraph, plan: Plan, memory_bytes: float, degrees: ModelDegrees | None = None
) -> float:
    """Return what the fullest GPU needs at least, for parameters, gradients, optimizer state. [bytes]

    What this refuses need not be cut and placed: see `least_states_bytes`. `degrees` as in `memory_need`.

    Raises
    ------
    InfeasibleError
        It is more than `memory_bytes`.
    """
    needed = sum(least_states_bytes(graph, plan).values())
    if needed > memory_bytes:
        from sipml_core.lowering.memoryremedies import StatesRemedy

        named = f"mp={plan.mp}" if plan.pp == 1 else f"mp={plan.mp}, pp={plan.pp}"
        named += f", ep={plan.ep}" if plan.ep > 1 else ""
        remedy = StatesRemedy(plan=plan, memory_bytes=memory_bytes, degrees=degrees, graph=graph)
        raise InfeasibleError(
            f"{graph.name} with {named} does not fit: parameters, gradients and optimizer state alone "
            f"are {format_bytes(needed)}, the GPU has {format_bytes(memory_bytes)}; "
            f"{remedy.words()}"
        )
    return needed
