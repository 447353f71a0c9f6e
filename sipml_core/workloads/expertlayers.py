"""A layer of experts: router, rows of tokens that go to experts, the experts, the sum of what they make.

Dimensions as in `layers`; `x` experts, `k` rows of a token, one for each expert that it is sent to.
"""

from __future__ import annotations

from sipml_core.fields import frozen
from sipml_core.model import Exchanged, Split
from sipml_core.workloads.builder import GraphBuilder
from sipml_core.workloads.layers import INDEX_BYTES
from sipml_core.workloads.modelshape import ExpertShape

_TOKENS = {"n": Split.SAMPLE, "s": Split.SPATIAL}
#: FLOPs of each logit of a router: softmax or sigmoid, and the search for the largest.
ROUTER_FLOPS = 8.0


@frozen(kw_only=True)
class ExpertPlan:
    """How the experts of a layer are run."""

    #: Rows of each token: those of the experts that it goes to, or as many as the experts' room is for.
    rows: int
    #: Part of all rows that goes to the experts of each replica over which they are spread; none: not spread.
    shares: tuple[float, ...] = ()
    #: Experts are cut along their features over the GPUs of a group; false: each GPU has whole ones.
    cut: bool = True

    @property
    def spread(self) -> int:
        """Return the replicas over which experts are spread."""
        return max(len(self.shares), 1)


def expert_layer(b: GraphBuilder, name: str, x: str, shape: ExpertShape, plan: ExpertPlan) -> str:
    """Append the experts that each token is sent to; return their weighted sum. [n, s, h]

    Where experts are spread, rows go to the replicas that have theirs, where they are put in the order of
    experts, and come back.
    """
    weights, indices = _router(b, f"{name}.router", x, shape, plan.rows)
    if plan.spread == 1:
        rows = _permute(b, f"{name}.dispatch", x, indices)
        made = _experts(b, f"{name}.experts", rows, shape, plan)
        return _combine(b, f"{name}.combine", made, weights)
    b.expert_shares[name] = plan.shares
    rows = _permute(b, f"{name}.dispatch", x, indices, exchanged=Exchanged.TO_EXPERTS, routing=name)
    rows = _reordered(b, f"{name}.sort", rows, name)
    made = _experts(b, f"{name}.experts", rows, shape, plan, name)
    made = _reordered(b, f"{name}.unsort", made, name, exchanged=Exchanged.FROM_EXPERTS)
    return _combine(b, f"{name}.combine", made, weights)


def gated_layer(b: GraphBuilder, name: str, x: str, width: int, *, bias: bool) -> str:
    """Append SwiGLU: down(silu(gate x) * up x), gate and up as one product."""
    n, s, i = b.shape(x)
    weight = b.parameter(f"{name}.up.weight", (i, 2, width))
    added = {b.parameter(f"{name}.up.bias", (2, width)): "* o"} if bias else {}
    gate, up = f"{name}.up.gate", f"{name}.up.y"
    b.op(
        f"{name}.up",
        "matmul",
        {"n": n, "s": s, "i": i, "o": width},
        {**_TOKENS, "o": Split.COLUMN, "i": Split.ROW},
        flops=2.0 * n * s * i * 2 * width,
        reads={x: "n s i", weight: "i * o", **added},
        writes={gate: "n s o", up: "n s o"},
        factors=(x, weight),
    )
    inner = _swiglu(b, f"{name}.swiglu", gate, up, "n s o")
    n, s, i = b.shape(inner)
    h = b.shape(x)[2]
    down, y = b.parameter(f"{name}.down.weight", (i, h)), f"{name}.down.y"
    added = {b.parameter(f"{name}.down.bias", (h,)): "o"} if bias else {}
    b.op(
        f"{name}.down",
        "matmul",
        {"n": n, "s": s, "i": i, "o": h},
        {**_TOKENS, "o": Split.COLUMN, "i": Split.ROW},
        flops=2.0 * n * s * i * h,
        reads={inner: "n s i", down: "i o", **added},
        writes={y: "n s o"},
        factors=(inner, down),
    )
    return y


def _router(b: GraphBuilder, name: str, x: str, shape: ExpertShape, rows: int) -> tuple[str, str]:
    """Append logits of all experts and the choice of a few: weights and numbers of experts. [n, s, k]"""
    n, s, i = b.shape(x)
    weight, logits = b.parameter(f"{name}.weight", (i, shape.count)), f"{name}.logits"
    added = {b.parameter(f"{name}.bias", (shape.count,)): "x"} if shape.bias else {}
    b.op(
        name,
        "matmul",
        {"n": n, "s": s, "i": i, "x": shape.count},
        _TOKENS,
        flops=2.0 * n * s * i * shape.count,
        reads={x: "n s i", weight: "i x", **added},
        writes={logits: "n s x"},
        factors=(x, weight),
    )
    weights, indices = f"{name}.weights", f"{name}.indices"
    b.op(
        f"{name}.top",
        "elementwise",
        {"n": n, "s": s, "x": shape.count, "k": rows},
        _TOKENS,
        flops=ROUTER_FLOPS * n * s * shape.count,
        reads={logits: "n s x"},
        writes={weights: "n s k", indices: "n s k"},
        saved=(logits, indices),
        kept={indices: INDEX_BYTES},
    )
    return weights, indices


def _permute(
    b: GraphBuilder,
    name: str,
    x: str,
    indices: str,
    *,
    exchanged: Exchanged | None = None,
    routing: str | None = None,
) -> str:
    """Append the copy of each token to its rows, in the order of experts; its gradient adds them up."""
    n, s, h = b.shape(x)
    k, rows = b.shape(indices)[2], f"{name}.rows"
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "k": k, "h": h},
        _TOKENS,
        flops=1.0 * n * s * k * h,
        reads={x: "n s h", indices: "n s k"},
        writes={rows: "n s k h"},
        saved=(indices,),
        exchanged=exchanged,
        routing=routing,
    )
    return rows


def _reordered(
    b: GraphBuilder, name: str, rows: str, routing: str, *, exchanged: Exchanged | None = None
) -> str:
    """Append a copy of rows into the order of experts, or back into that of replicas; it keeps nothing."""
    n, s, k, h = b.shape(rows)
    y = f"{name}.y"
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "k": k, "h": h},
        _TOKENS,
        flops=0.0,
        reads={rows: "n s k h"},
        writes={y: "n s k h"},
        exchanged=exchanged,
        routing=routing,
    )
    return y


def _experts(
    b: GraphBuilder,
    name: str,
    rows: str,
    shape: ExpertShape,
    plan: ExpertPlan,
    routing: str | None = None,
) -> str:
    """Append the experts that are here, as SwiGLU on all rows: grouped products that read all weights."""
    n, s, k, h = b.shape(rows)
    count, f = shape.count // plan.spread, shape.width
    splits = {**_TOKENS, "o": Split.COLUMN, "i": Split.ROW} if plan.cut else _TOKENS
    weight = b.parameter(f"{name}.up.weight", (count, h, 2, f), routing)
    gate, up = f"{name}.up.gate", f"{name}.up.y"
    added = {b.parameter(f"{name}.up.bias", (count, 2, f), routing): "* * o"} if shape.bias else {}
    b.op(
        f"{name}.up",
        "matmul",
        {"n": n, "s": s, "k": k, "i": h, "o": f},
        splits,
        flops=2.0 * n * s * k * h * 2 * f,
        reads={rows: "n s k i", weight: "* i * o", **added},
        writes={gate: "n s k o", up: "n s k o"},
        factors=(rows, weight),
        routing=routing,
    )
    inner = _swiglu(b, f"{name}.swiglu", gate, up, "n s k o", routing)
    down, y = b.parameter(f"{name}.down.weight", (count, f, h), routing), f"{name}.down.y"
    added = {b.parameter(f"{name}.down.bias", (count, h), routing): "* o"} if shape.bias else {}
    b.op(
        f"{name}.down",
        "matmul",
        {"n": n, "s": s, "k": k, "i": f, "o": h},
        splits,
        flops=2.0 * n * s * k * f * h,
        reads={inner: "n s k i", down: "* i o", **added},
        writes={y: "n s k o"},
        factors=(inner, down),
        routing=routing,
    )
    return y


def _swiglu(b: GraphBuilder, name: str, gate: str, up: str, axes: str, routing: str | None = None) -> str:
    """Append silu(gate) * up; both are kept."""
    dims, y = dict(zip(axes.split(), b.shape(gate), strict=True)), f"{name}.y"
    elements = 1.0
    for size in dims.values():
        elements *= size
    b.op(
        name,
        "elementwise",
        dims,
        {**_TOKENS, "o": Split.COLUMN},
        flops=6.0 * elements,
        reads={gate: axes, up: axes},
        writes={y: axes},
        saved=(gate, up),
        routing=routing,
    )
    return y


def _combine(b: GraphBuilder, name: str, made: str, weights: str) -> str:
    """Append the sum over the rows of each token, weighted by the router."""
    n, s, k, h = b.shape(made)
    y = f"{name}.y"
    b.op(
        name,
        "elementwise",
        {"n": n, "s": s, "k": k, "h": h},
        _TOKENS,
        flops=2.0 * n * s * k * h,
        reads={made: "n s k h", weights: "n s k"},
        writes={y: "n s h"},
        factors=(made, weights),
    )
    return y
