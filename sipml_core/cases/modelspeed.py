"""What a run means for a language model: tokens, utilisation, what is exposed and what memory holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from sipml_core.cases.exposure import exposed_by_kind
from sipml_core.cases.preparation import CompiledCase
from sipml_core.model import TRAFFIC_KINDS, OpGraph, Phase, Timeline
from sipml_core.plugin import Workload

#: Kinds of ops that model FLOPs count.
_PRODUCTS, _ATTENTION = "matmul", "attention"
_S_PER_DAY = 86_400.0


def language_columns(compiled: CompiledCase, iteration_us: float) -> dict[str, Any]:
    """Return the columns of a row that language models have; none of another workload."""
    workload, plan = compiled.case.job.workload, compiled.plan
    flops, tokens = workload.token_flops, workload.sample_tokens
    if flops is None or not tokens:
        return {}
    tokens_per_s = plan.global_batch * tokens / (iteration_us * 1e-6)
    each_per_s = tokens_per_s / plan.gpus
    columns: dict[str, Any] = {
        "tokens_per_s_gpu": each_per_s,
        "model_tflops_gpu": each_per_s * flops.total * 1e-12,
        **_duration(workload, tokens_per_s, plan.gpus),
        **_memory(compiled),
    }
    peak = compiled.case.gpu.peak_tflops(compiled.case.precision)
    if peak is not None:
        share = each_per_s * 1e-12 / peak
        again = 1.0 + rerun_share(
            compiled.variant.placement.graph.graph, workload, compiled.variant.runs_again
        )
        columns |= {
            "mfu": share * flops.total,
            "mfu_needed": share * flops.needed,
            "hfu": share * flops.total * again,
        }
    return columns


def traffic_columns(
    compiled: CompiledCase, timeline: Timeline, since_us: float, exposed_us: float
) -> dict[str, float]:
    """Return bytes and exposed time by kind of a simulated case; none of a model that has no such columns."""
    if compiled.case.job.workload.token_flops is None:
        return {}
    tasks = compiled.tasks
    if tasks.kind is None:
        return {}
    sent = compiled.lowering.kind_bytes
    waited_us = exposed_by_kind(tasks, timeline, compiled.simulated, since_us, exposed_us)
    columns = {f"{name}_exposed_us": float(us) for name, us in zip(TRAFFIC_KINDS, waited_us, strict=True)}
    return columns | {
        f"{name}_bytes": float(size)
        for name, size in zip(TRAFFIC_KINDS, sent, strict=True)
        if name != "gradient"  # which every row has
    }


def rerun_share(graph: OpGraph, workload: Workload, runs_again: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
    """Return the model FLOPs that recomputation adds, in those of a training step.

    Attention counts in full, as in the model's FLOPs: kernels that skip masked pairs are counted as if they
    did not. Recomputing everything adds a third (Narayanan et al. 2021, appendix: 96 in place of 72).
    """
    flops = workload.token_flops
    if flops is None:
        return 0.0
    forward = {_PRODUCTS: 0.0, _ATTENTION: 0.0}
    again = dict(forward)
    for op, twice in zip(graph.ops, runs_again.tolist(), strict=True):
        if op.phase is Phase.FORWARD and op.kind in forward:
            forward[op.kind] += op.flops
            again[op.kind] += op.flops * twice
    parts = {_PRODUCTS: flops.products, _ATTENTION: flops.attention}
    added = sum(parts[kind] / 3 * again[kind] / forward[kind] for kind in parts if forward[kind])
    return added / flops.total


def _duration(workload: Workload, tokens_per_s: float, gpus: int) -> dict[str, float]:
    """Return how long the named number of tokens takes."""
    if not workload.training_tokens:
        return {}
    days = workload.training_tokens / tokens_per_s / _S_PER_DAY
    return {"training_days": days, "training_gpu_hours": days * 24 * gpus}


def _memory(compiled: CompiledCase) -> dict[str, float]:
    """Return what the fullest GPU holds, by kind."""
    use, kinds = compiled.variant.memory, ("parameters", "gradients", "optimizer", "activations")
    held = {f"memory_{kind}_bytes": float(getattr(use, f"{kind}_bytes")[use.fullest]) for kind in kinds}
    held["memory_parameters_bytes"] += float(use.gathered_bytes[use.fullest])
    return held
