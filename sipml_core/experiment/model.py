"""An experiment as values: the tables of its file, jobs, interconnects, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from sipml_core.collectives import ALL_REDUCES, EXCHANGES
from sipml_core.communication import Ideal
from sipml_core.errors import ConfigError
from sipml_core.fields import between, each, frozen, one_of, option, parse_us, positive
from sipml_core.model import (
    MAX_GPUS,
    MAX_SAMPLES,
    PRECISIONS,
    RECOMPUTE,
    SCHEDULES,
    Cluster,
    Execution,
    Framework,
    Plan,
)
from sipml_core.plugin import (
    AllReduce,
    Communication,
    Estimator,
    Exchange,
    GpuModel,
    Placer,
    Scheduler,
    Topology,
    Workload,
)

#: The largest integer of a TOML file, and of the engine.
MAX_SEED = 2**63 - 1
#: Letters of a title, which names a folder, and of a label, which is a cell of a table.
MAX_LABEL = 100
#: Candidates that a search may be asked to simulate.
MAX_TOP = 10_000

DEMANDS = ("bytes", "gating", "auto")

LAYOUTS = ("auto", "sample", "tensor", "megatron", "sequence")
#: Those that spread the heads of attention over a group.
HEAD_LAYOUTS = ("tensor", "megatron", "sequence")
#: By `sequence_parallel`: Megatron-LM's tensor parallelism with and without it.
_LAYOUT_OF = {None: "auto", True: "sequence", False: "megatron"}


@frozen(kw_only=True)
class StrategyTable(Execution):
    """[plan], and `plan` inside a [[workload]]; [strategy] is another name of it."""

    mp: int | None = option(
        None, validator=attrs.validators.optional(between(1, MAX_GPUS)),
        doc="model-parallel degree; left out: N / dp, or every divisor of N is tried",
    )  # fmt: skip
    dp: int | None = option(
        None,
        validator=attrs.validators.optional(between(1, MAX_GPUS)),
        doc="data-parallel degree; left out: N / mp",
    )
    global_batch: int | None = option(
        None, validator=attrs.validators.optional(between(1, MAX_SAMPLES)),
        doc="samples in one iteration, all replicas together; left out: the workload's default",
    )  # fmt: skip
    sequence_parallel: bool | None = option(
        None,
        doc='chooses the layout where none is named: true "sequence", false "megatron"; left out: true where '
        "[plan], and not [strategy], divides a language model (gpt, hf and its presets), else neither",
    )
    layout: str = option(
        attrs.Factory(lambda self: _LAYOUT_OF[self.sequence_parallel], takes_self=True),
        validator=one_of(*LAYOUTS),
        doc='how ops are cut: by cost ("auto"), along samples, or as tensor parallelism does, which '
        'divides what is between two products over all GPUs of a group along tokens ("sequence"), repeats '
        'it on each ("megatron"), or divides it into parts of about tau ("tensor"); left out: "auto", but '
        "see sequence_parallel",
    )
    keep_gathered: bool = option(
        attrs.Factory(lambda self: self.layout != "sequence", takes_self=True),
        doc="keep what a group has gathered for a product until the product's gradient is made; false: keep "
        'the shard and gather it again going backward; left out: false with layout "sequence", else true',
    )

    def __attrs_post_init__(self) -> None:
        wanted = self.sequence_parallel
        if wanted is not None and self.layout != _LAYOUT_OF[wanted]:
            raise ConfigError(
                f"sequence_parallel = {str(wanted).lower()} is layout {_LAYOUT_OF[wanted]!r}, got layout "
                f"{self.layout!r}; leave one out"
            )

    def with_layout(self, layout: str) -> StrategyTable:
        """Return the same table with another layout; what followed from the one before follows from it."""
        by_default = self.keep_gathered == (self.layout != "sequence")
        keep = layout != "sequence" if by_default else self.keep_gathered
        return attrs.evolve(self, layout=layout, sequence_parallel=None, keep_gathered=keep)


@frozen(kw_only=True)
class ComponentTable:
    """A table that names a component of a plugin, beside the options of that component."""

    name: str = option(doc="see `plugins`")


def _demand() -> Any:
    return option(
        "bytes", validator=one_of(*DEMANDS),
        doc='what circuits are planned for: bytes as they are; pairs that a computation waits for never '
        'below the largest demand, where one plan can give every pair two circuits ("gating"); or the '
        'fastest of these and two more such rules, one iteration each of which is simulated ("auto")',
    )  # fmt: skip


def _replan_above() -> Any:
    return option(
        0.0, validator=between(0, 1),
        doc="re-planned circuits: the scheduler is asked only where more than this part of the demand "
        "has moved to other pairs since its last plan, or a pair waits without a circuit; 0: every interval",
    )  # fmt: skip


def _replan() -> Any:
    return option(
        "interval", validator=one_of("interval", "phase", "stage", "kind", "auto"),
        doc='when circuits that change (`interval_us`) are planned again: "interval": after every interval; '
        '"phase": when the gradients of an iteration begin, when its activations end and when its gradients '
        "do, for what the next phase sends; then after an interval only where a pair waits without one; "
        '"stage": the same, and when the gradients of each pipeline stage begin; "kind": where the kind of '
        "activations changes (tensor, pipeline, expert, context), as far as that is faster by estimate; "
        '"auto": the fastest of all these, as simulated',
    )  # fmt: skip


#: With what ports give, and with what the circuits give that are planned then: links that are shared have
#: their prices, too.
USUAL_ROUNDS = 2


def _rounds() -> Any:
    return option(
        None, validator=attrs.validators.optional(between(1, 10)),
        doc='times that layout ("auto") and circuits are chosen in turn, each layout with what the circuits '
        "before give, until it is one that was there; all are simulated, the fastest is kept; 1: with what "
        f"ports give; left out: {USUAL_ROUNDS}, in a `search` those of [search]",
    )  # fmt: skip


@frozen(kw_only=True)
class TopologyTable:
    """[[topology]], beside the options of the topology it names."""

    name: str = option(doc="topology, below")
    label: str | None = option(None, doc="what the results call it; needed if one topology appears twice")
    bandwidth_gbps: float | str | None = option(
        None, doc="replaces `cluster.bandwidth_gbps` for this one", unit="Gbps"
    )
    scheduler: str | Mapping[str, Any] | None = option(
        None, doc="circuit scheduler, as text or as a table with its options; left out: the topology's own"
    )
    estimator: str | Mapping[str, Any] | None = option(
        None,
        doc="what a scheduler is shown of the next interval, as text or as a table with its options; left "
        "out: the scheduler's own; not used, and noted in the result, where circuits are set once",
    )
    demand: str = _demand()
    replan: str = _replan()
    replan_above: float = _replan_above()
    rounds: int | None = _rounds()


@frozen(kw_only=True)
class CircuitKeys:
    """Those keys of [[topology]] that say when and for what circuits are planned."""

    demand: str = _demand()
    replan: str = _replan()
    replan_above: float = _replan_above()
    rounds: int | None = _rounds()

    @property
    def most_rounds(self) -> int:
        """Return how often layout and circuits are chosen in turn, at most."""
        return self.rounds or USUAL_ROUNDS


@frozen(kw_only=True)
class WorkloadTable:
    """[[workload]], beside the options of the workload it names."""

    name: str = option(doc="workload, below")
    label: str | None = option(None, doc="what the results call it; needed if one workload appears twice")
    plan: Mapping[str, Any] = option({}, doc="changes [plan] for this one")
    strategy: Mapping[str, Any] = option({}, doc="another name of `plan`")
    search: Mapping[str, Any] = option({}, doc="changes [search] for this one")


@frozen(kw_only=True)
class GpuTable:
    """[gpu], beside the options of the model it names."""

    name: str = option("v100", doc="GPU model, see `plugins`")
    precision: str = option("mixed", validator=one_of(*PRECISIONS), doc="number format of the training step")


@frozen(kw_only=True)
class CommunicationTable:
    """[communication], beside the options of the library it names."""

    library: str = option("ideal", doc="communication library, see `plugins`")


@frozen(kw_only=True)
class EngineTable:
    """[engine]"""

    queue: str = option(
        "pair", validator=one_of("pair", "source"),
        doc="one transfer at a time per pair of GPUs, or per sending GPU as in a NIC's FIFO",
    )  # fmt: skip
    max_time_us: float | None = option(
        None, converter=attrs.converters.optional(parse_us), validator=attrs.validators.optional(positive),
        unit="us", doc="simulated time after which a run stops with an error and a search drops a candidate",
    )  # fmt: skip
    fold: str = option(
        "auto", validator=one_of("auto", "never", "require"),
        doc='simulate the first groups for all where that is exact ("auto"), or always all ("never"); '
        '"require": stop where the first groups do not stand for all',
    )  # fmt: skip


@frozen(kw_only=True)
class SearchTable:
    """[search], and `search` inside a [[workload]]: what `search` may vary. `run` ignores it."""

    global_batches: tuple[int, ...] | None = option(
        None, validator=attrs.validators.optional(each(between(1, MAX_SAMPLES))),
        doc="global batches to try; left out: powers of two inside the measured convergence data",
    )  # fmt: skip
    mp: tuple[int, ...] | None = option(
        None, validator=attrs.validators.optional(each(between(1, MAX_GPUS))),
        doc="model-parallel degrees to try, of which those that divide N count; left out: all divisors of N",
    )  # fmt: skip
    pp: tuple[int, ...] | None = option(
        None, validator=attrs.validators.optional(each(between(1, MAX_GPUS))),
        doc="numbers of pipeline stages to try; left out: that of [plan]",
    )  # fmt: skip
    micro_batches: tuple[int, ...] | None = option(
        None, validator=attrs.validators.optional(each(between(1, MAX_SAMPLES))),
        doc="micro-batches to try; left out: that of [plan]",
    )  # fmt: skip
    schedules: tuple[str, ...] | None = option(
        None, validator=attrs.validators.optional(each(one_of(*SCHEDULES))),
        doc='schedules to try, "interleaved" with the chunks of [plan] or 2; left out: that of [plan]',
    )  # fmt: skip
    zero: tuple[int, ...] | None = option(
        None, validator=attrs.validators.optional(each(between(0, 3))),
        doc="what replicas share, to try; left out: that of [plan]",
    )  # fmt: skip
    recompute: tuple[str, ...] | None = option(
        None, validator=attrs.validators.optional(each(one_of(*RECOMPUTE))),
        doc="levels of recomputation to try; left out: that of [plan]",
    )  # fmt: skip
    whole_plan: bool = option(
        False,
        doc="of pp, micro_batches, schedules, zero and recompute try what is left out, too: all that can be, "
        "but for more recomputation or sharing where less of it fits",
    )
    max_bubble: float = option(
        0.5, validator=between(0, 1),
        doc="where stages or micro-batches are searched: plans whose GPUs wait for their pipeline for more "
        "of an iteration than this, (p - 1) / (m + p - 1), are refused",
    )  # fmt: skip
    layouts: tuple[str, ...] | None = option(
        None, validator=attrs.validators.optional(each(one_of(*LAYOUTS))),
        doc="layouts to try, see [strategy]; left out: that of [strategy]",
    )  # fmt: skip
    top: int = option(
        4, validator=between(1, MAX_TOP),
        doc="strategies simulated in full for each workload and interconnect, the best by the estimate",
    )  # fmt: skip
    further: int = option(
        64, validator=between(0, MAX_TOP),
        doc="strategies, at most, simulated beyond `top`, `top` at a time: those whose estimate beats the "
        "best that was simulated; 0: none",
    )  # fmt: skip
    rounds: int = option(
        6, validator=between(1, 10),
        doc="on circuits, where the topology names no `rounds`: times, at most, that layout (\"auto\") and "
        "circuits of what is simulated are chosen in turn, until nothing changes",
    )  # fmt: skip

    @property
    def searches_stages(self) -> bool:
        """Whether stages or micro-batches are among what is searched."""
        return self.whole_plan or self.pp is not None or self.micro_batches is not None


@frozen(kw_only=True)
class Job:
    """A workload and how it is divided."""

    label: str
    workload: Workload
    table: StrategyTable = attrs.Factory(StrategyTable)
    placer: Placer
    search: SearchTable = attrs.Factory(SearchTable)
    #: Placers that `search` tries; none: `placer` alone.
    placers: tuple[Placer, ...] = ()
    #: Exchanges inside groups, and all-reduces over replicas, to choose from.
    exchanges: tuple[Exchange, ...] = attrs.Factory(lambda: tuple(cls(cls.Options()) for cls in EXCHANGES))
    all_reduces: tuple[AllReduce, ...] = attrs.Factory(
        lambda: tuple(cls(cls.Options()) for cls in ALL_REDUCES)
    )

    def plan(self, gpus: int, mp: int | None = None, global_batch: int | None = None) -> Plan:
        """The strategy on `gpus` GPUs; `mp` and `global_batch` override the table's.

        Raises `ConfigError` if the degrees do not multiply to N, or the batch does not divide.
        """
        table = self.table
        mp, dp = degrees(gpus, mp or table.mp, None if mp else table.dp, table.pp, table.cp)
        batch = global_batch or self.table.global_batch or self.workload.default_global_batch
        shared = {field.name: getattr(self.table, field.name) for field in attrs.fields(Execution)}
        plan = Plan(mp=mp, dp=dp, global_batch=batch, keep_gathered=table.keep_gathered, **shared)
        self.workload.check_plan(plan, table.layout)
        return plan

    def key_copies(self, plan: Plan) -> int:
        """Return on how many GPUs of a group each head of keys is: several where there are fewer heads."""
        return self.workload.key_copies(plan.mp) if self.table.layout in HEAD_LAYOUTS else 1

    @property
    def searched(self) -> bool:
        return self.table.mp is None and self.table.dp is None

    def with_layout(self, layout: str) -> Job:
        """The same job, its ops cut in another way."""
        return attrs.evolve(self, table=self.table.with_layout(layout))


@frozen(kw_only=True)
class Interconnect:
    """A topology, the bandwidth it is given, and who schedules its circuits."""

    label: str
    topology: Topology
    cluster: Cluster
    scheduler: Scheduler | None = None
    #: What the scheduler is shown of the next interval; None where there is no scheduler.
    estimator: Estimator | None = None
    #: When and for what circuits are planned.
    circuit_keys: CircuitKeys = attrs.Factory(CircuitKeys)


@frozen(kw_only=True)
class Experiment:
    """Everything a run depends on."""

    title: str
    gpu: GpuModel
    jobs: tuple[Job, ...]
    interconnects: tuple[Interconnect, ...]
    #: Label of the interconnect that speed-ups are relative to; left out: the first one.
    baseline: str = attrs.field()
    #: Number format of the training step, a name in `PRECISIONS`.
    precision: str = "mixed"
    seed: int = 0
    engine: EngineTable = attrs.Factory(EngineTable)
    #: What collectives cost beyond their bytes, and what the host takes.
    communication: Communication = attrs.Factory(lambda: Ideal(Ideal.Options()))
    framework: Framework = attrs.Factory(Framework)

    @baseline.default
    def _first(self) -> str:
        return self.interconnects[0].label


def degrees(gpus: int, mp: int | None, dp: int | None, pp: int = 1, cp: int = 1) -> tuple[int, int]:
    """(mp, dp) with mp x cp x pp x dp = N, from either or both."""
    for name, degree, of, others in (("pp", pp, gpus, cp), ("cp", cp, gpus // pp, 1)):
        if of % degree:
            near = _near_divisors(of, degree, others * (mp or 1) * (dp or 1))
            raise ConfigError(f"{name} must divide {of} GPUs, got {degree}; nearest: {near}")
    left = gpus // pp // cp
    if mp is None:
        mp = left // dp if dp and left % dp == 0 else None
    if dp is None:
        dp = left // mp if mp and left % mp == 0 else None
    if mp is None or dp is None or mp * dp != left:
        shown = (("mp", mp), ("cp", cp if cp > 1 else None), ("pp", pp if pp > 1 else None), ("dp", dp))
        given = ", ".join(f"{name}={value}" for name, value in shown if value)
        product = " x ".join(["mp", *(["cp"] if cp > 1 else []), *(["pp"] if pp > 1 else []), "dp"])
        raise ConfigError(
            f"{product} must be {gpus} GPUs, got {given}; nearest valid: {_near_degrees(left, mp, dp)}"
        )
    return mp, dp


def _near_divisors(number: int, wanted: int, others: int) -> str:
    """Return the two divisors nearest to what was wanted that leave a multiple of the other degrees.

    Where none does, the nearest of all.

    >>> _near_divisors(8, 100, 1), _near_divisors(8, 100, 2), _near_divisors(8, 3, 8), _near_divisors(8, 3, 5)
    ('8 or 4', '4 or 2', '1', '2 or 4')
    """
    every = divisors(number)
    fits = [k for k in every if number // k % others == 0] or every
    return " or ".join(str(k) for k in sorted(fits, key=lambda k: abs(k - wanted))[:2])


def _near_degrees(left: int, mp: int | None, dp: int | None) -> str:
    pairs = [(k, left // k) for k in divisors(left)]
    distance = (lambda pair: abs(pair[0] - mp)) if mp else (lambda pair: abs(pair[1] - (dp or 1)))
    return " or ".join(f"mp={k}, dp={l}" for k, l in sorted(sorted(pairs, key=distance)[:2]))


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})
