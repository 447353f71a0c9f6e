"""What one kernel does: the FLOPs and bytes of an op, or of one slice of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import attrs

from sipml_core.fields import at_least, frozen
from sipml_core.model.opgraph import Op, Operand, OpGraph, Phase, Role, Split
from sipml_core.model.precisions import precision

#: Kinds of op that are matrix products.
_PRODUCT_KINDS = frozenset({"matmul", "attention"})


@frozen
class MatrixProduct:
    """`batch` products of an m x k matrix by a k x n one: 2 batch m n k FLOPs."""

    batch: float
    m: float
    n: float
    k: float

    @property
    def flops(self) -> float:
        """Return 2 batch m n k."""
        return 2.0 * self.batch * self.m * self.n * self.k


@frozen(kw_only=True)
class OpWork:
    """What one kernel does, for a GPU model to put a time on."""

    #: Name and kind of the op this is a whole, or a part, of.
    op: str
    kind: str
    phase: Phase
    precision: str
    flops: float = attrs.field(validator=at_least(0))
    #: Bytes read and written in device memory.
    memory_bytes: float = attrs.field(validator=at_least(0))
    #: Elements written: how much parallelism the kernel offers.
    output_elements: float = attrs.field(validator=at_least(0))
    #: Samples of the batch this kernel sees.
    samples: float = attrs.field(validator=at_least(0))
    #: Share of the op on those samples that this is: 1 unless it is cut along another dimension.
    fraction: float = 1.0
    #: Matrix products that the kernel is made of; none: it is no product, or one that is not known.
    products: tuple[MatrixProduct, ...] = ()


def op_work(graph: OpGraph, op: Op, split_dim: str | None = None, parts: int = 1, part: int = 0) -> OpWork:
    """The work of one of `parts` slices of `op` along `split_dim` (None: the whole op).

    FLOPs are proportional to the iterations of the slice; bytes are those of the regions it reads
    and writes, each once.

    An optimizer op also reads and writes its state and writes its parameter, although the graph
    gives it no operand for them. A lookup reads from its table no more than it writes.
    """
    ranges = op.part_ranges(split_dim, parts, part)
    share = 1.0 if split_dim is None else _extent(ranges[split_dim]) / op.dims[split_dim]
    sample_dim = next((dim for dim, split in op.splits.items() if split is Split.SAMPLE), None)
    by_sample = split_dim is not None and split_dim == sample_dim
    written = _elements(graph, op.writes, ranges)
    if op.phase is Phase.OPTIMIZER:
        written = _elements(graph, _with_role(graph, op.reads, Role.PARAMETER), ranges)
    return OpWork(
        op=op.name,
        kind=op.kind,
        phase=op.phase,
        precision=graph.precision,
        flops=op.flops * share,
        memory_bytes=_memory_bytes(graph, op, ranges),
        output_elements=written,
        samples=graph.samples * share if by_sample else graph.samples,
        fraction=1.0 if by_sample else share,
        products=matrix_products(op, ranges, op.flops * share) if op.kind in _PRODUCT_KINDS else (),
    )


def matrix_products(op: Op, ranges: Mapping[str, tuple[int, int]], flops: float) -> tuple[MatrixProduct, ...]:
    """Return the products that iterations `ranges` of an op are: one for each result that has its own axes.

    What a result does not follow is contracted; of the axes that it follows, those in all factors are batch,
    those of the first factor m, the others n. Several results with the same axes are one wider product, whose
    n follows from the FLOPs.

    Examples
    --------
    y[n, s, o] = x[n, s, i] w[i, o], and the product of queries and keys for each head a:

    >>> from sipml_core.model.opgraph import Axis
    >>> def operand(name, dims):
    ...     return Operand(name, tuple(Axis(dim) for dim in dims))
    >>> def op(flops, reads, writes):
    ...     return Op(
    ...         name="op", kind="matmul", phase=Phase.FORWARD, dims={}, splits={}, flops=flops,
    ...         reads=tuple(operand(*read) for read in reads), writes=tuple(operand(*w) for w in writes),
    ...     )
    >>> sizes = {"n": (0, 2), "s": (0, 8), "i": (0, 4), "o": (0, 16)}
    >>> matrix_products(op(2048.0, [("x", "nsi"), ("w", "io"), ("b", "o")], [("y", "nso")]), sizes, 2048.0)
    (MatrixProduct(batch=1, m=16, n=16.0, k=4),)
    >>> sizes = {"n": (0, 2), "s": (0, 8), "t": (0, 8), "a": (0, 3), "e": (0, 4)}
    >>> matrix_products(op(3072.0, [("q", "nsae"), ("k", "ntae")], [("y", "nast")]), sizes, 3072.0)
    (MatrixProduct(batch=6, m=8, n=8.0, k=4),)

    Fused attention is two products in one, which this does not take apart:

    >>> reads = [("q", "nsae"), ("k", "ntae"), ("v", "ntac")]
    >>> matrix_products(op(6144.0, reads, [("y", "nsac")]), {**sizes, "c": (0, 4)}, 6144.0)
    ()
    """
    extent = {dim: stop - start for dim, (start, stop) in ranges.items()}
    reads = [_dims(operand) for operand in op.reads]
    results = {_dims(operand) for operand in op.writes}
    # A bias gradient follows some of the axes of the weight's: it is no product of its own.
    results = {dims for dims in results if not any(dims < other for other in results)}
    found = []
    for result in sorted(results, key=sorted):
        contracted = frozenset(extent) - result
        factors = [dims for dims in reads if dims & contracted]
        # Where the first factor lacks a contracted axis there are several products, one after the other.
        if not contracted or len(factors) < 2 or not contracted <= factors[0]:
            return ()
        batch = result.intersection(*factors)
        m = _size(extent, (result & factors[0]) - batch)
        k = _size(extent, contracted)
        of_batch = _size(extent, batch)
        if not of_batch * m * k:
            return ()
        found.append(MatrixProduct(of_batch, m, flops / len(results) / (2.0 * of_batch * m * k), k))
    return tuple(found)


def _dims(operand: Operand) -> frozenset[str]:
    """Return the dimensions that an operand follows."""
    return frozenset(axis.dim for axis in operand.axes if axis.dim is not None)


def _size(extent: Mapping[str, int], dims: Iterable[str]) -> int:
    """Return the number of iterations over some dimensions."""
    return math.prod(extent[dim] for dim in dims)


def region_elements(graph: OpGraph, operand: Operand, ranges: Mapping[str, tuple[int, int]]) -> int:
    """Elements of the operand's tensor that iterations `ranges` touch."""
    box = operand.region(graph.tensor[operand.tensor].shape, ranges)
    return math.prod(max(hi - lo, 0) for lo, hi in box)


def _extent(interval: tuple[int, int]) -> int:
    return interval[1] - interval[0]


def _memory_bytes(graph: OpGraph, op: Op, ranges: Mapping[str, tuple[int, int]]) -> float:
    read, written = _bytes(graph, op.reads, ranges), _bytes(graph, op.writes, ranges)
    if op.phase is Phase.OPTIMIZER:
        parameters = _with_role(graph, op.reads, Role.PARAMETER)
        state = precision(graph.precision).optimizer_bytes * _elements(graph, parameters, ranges)
        return read + _bytes(graph, parameters, ranges) + 2.0 * state
    if op.kind == "embedding" and op.phase is Phase.FORWARD:
        table = _bytes(graph, _with_role(graph, op.reads, Role.PARAMETER), ranges)
        return read - table + min(table, written) + written
    return read + written


def _with_role(graph: OpGraph, operands: Iterable[Operand], role: Role) -> tuple[Operand, ...]:
    return tuple(operand for operand in operands if graph.tensor[operand.tensor].role is role)


def _elements(graph: OpGraph, operands: Iterable[Operand], ranges: Mapping[str, tuple[int, int]]) -> float:
    return float(sum(region_elements(graph, operand, ranges) for operand in operands))


def _bytes(graph: OpGraph, operands: Iterable[Operand], ranges: Mapping[str, tuple[int, int]]) -> float:
    return float(
        sum(region_elements(graph, o, ranges) * graph.tensor[o.tensor].element_bytes for o in operands)
    )
