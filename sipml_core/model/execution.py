"""What a plan says of how a job runs, beside its degrees and its batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from sipml_core.errors import ConfigError, shown
from sipml_core.fields import at_least, between, frozen, one_of, option, parse_bytes, parse_us, positive

#: Orders in which stages make their passes, see `sipml_core.lowering`.
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1")
#: When a GPU's optimizer starts: each step after the sum of its bucket, or all after the last sum.
OPTIMIZER_STEPS = ("bucket", "last")
#: How keys and values go round where several replicas share a sequence.
CONTEXTS = ("ring", "all-gather")
#: What is made again while going backward.
RECOMPUTE = ("none", "selective", "full")
#: Degrees from the fastest network outwards (Llama 3, 3.3.2); "dp" is what of it `ep` leaves.
RANK_ORDER = ("mp", "cp", "ep", "pp", "dp")


def recompute_level(value: bool | str) -> str:
    """Return what is made again: true means "full", false "none".

    >>> recompute_level(True), recompute_level("selective")
    ('full', 'selective')
    """
    if isinstance(value, bool):
        return "full" if value else "none"
    return value


def _list_of_names(value: Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _list_of_cuts(value: Any) -> tuple[int | str, ...] | None:
    """Return numbers of layers, or names; `ConfigError` without the key if it is neither."""
    if value is None:
        return None
    cuts = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    numbers = all(isinstance(cut, int) and not isinstance(cut, bool) and cut >= 0 for cut in cuts)
    if not cuts or not (numbers or all(isinstance(cut, str) for cut in cuts)):
        raise ConfigError(
            'must be numbers of layers ([11, 13]), or names of ops or layers (["layer11"]), '
            f"got {shown(value)}"
        )
    return cuts


def _rank_order(_: object, attribute: attrs.Attribute[tuple[str, ...]], value: tuple[str, ...]) -> None:
    """Refuse what does not name every degree once; degrees that are 1 may be left out."""
    if len(set(value)) != len(value) or not {"mp", "pp", "dp"} <= set(value) <= set(RANK_ORDER):
        raise ConfigError(
            f"{attribute.name} must name mp, pp and dp once each, from the fastest network outwards, "
            f"got {shown(list(value))}; usual: {list(RANK_ORDER)} or {['mp', 'dp', 'pp']}"
        )


@frozen(kw_only=True)
class Execution:
    """How a job runs, but for mp, dp, its batch, and what follows from its layout."""

    pp: int = option(
        1, validator=at_least(1),
        doc="pipeline stages: contiguous parts of the model, each on mp GPUs of its own",
    )  # fmt: skip
    cp: int = option(
        1, validator=at_least(1),
        doc="context-parallel degree: replicas that share each sample's sequence, of which each has 2 chunks "
        "of 2 cp, so that causal attention is balanced",
    )  # fmt: skip
    context: str = option(
        "ring", validator=one_of(*CONTEXTS),
        doc='how keys and values go round where cp is above 1: while attention works on those that are there '
        '("ring"), or before it ("all-gather")',
    )  # fmt: skip
    ep: int = option(
        1,
        validator=at_least(1),
        doc="expert-parallel degree: replicas over which the experts of a layer are spread; divides dp",
    )
    micro_batch: int | None = option(
        None, validator=attrs.validators.optional(at_least(1)),
        doc="samples that a replica passes through at once; gradients are accumulated over all that it "
        "trains on, global_batch / dp; left out: all of them at once",
    )  # fmt: skip
    schedule: str = option(
        "1f1b", validator=one_of(*SCHEDULES),
        doc='order of the passes of a stage: all forward first ("gpipe"), alternating ("1f1b"), alternating '
        'over several `chunks` of the model ("interleaved"), or with gradients of parameters late ("zb-h1")',
    )  # fmt: skip
    chunks: int = option(
        1, validator=at_least(1), doc='parts of the model on each stage; 2 or more with "interleaved"'
    )
    rank_order: tuple[str, ...] = option(
        RANK_ORDER, converter=_list_of_names, validator=_rank_order,
        doc="which GPUs are neighbours: degrees from the fastest network outwards",
    )  # fmt: skip
    stage_tolerance: float = option(
        0.1, validator=between(0, 1),
        doc="the slowest stage may take this much longer than with the best balance, where fewer bytes then "
        "cross between stages",
    )  # fmt: skip
    stages: tuple[int | str, ...] | None = option(
        None, converter=_list_of_cuts,
        doc="how the model is cut into its pp x chunks parts, in its order: the layers that each holds "
        "([11, 12, 12, 13]), or the op or layer at which each but the first begins "
        '(["layer11", "layer23", "layer35"]); left out: balanced in time',
    )  # fmt: skip
    zero: int = option(
        0, validator=between(0, 3),
        doc="what replicas share instead of each keeping it: optimizer state (1), gradients too (2), "
        "parameters too (3: gathered before each pass, one bucket ahead)",
    )  # fmt: skip
    fp32_gradients: bool = option(
        False,
        doc="add gradients up and synchronise them in fp32, as Megatron-LM's main gradients: 4 bytes each "
        "where mixed precision has 2",
    )
    optimizer_step: str = option(
        "bucket", validator=one_of(*OPTIMIZER_STEPS),
        doc='when the optimizer starts: with each bucket of gradients that is summed ("bucket"), or with '
        'the last one of its GPU ("last"), as PyTorch does',
    )  # fmt: skip
    tau_us: float = option(
        10.0,
        converter=parse_us,
        validator=positive,
        unit="us",
        doc="sub-ops aim at this compute time (paper, section 4.1)",
    )
    bucket_bytes: float = option(
        25e6, converter=parse_bytes, validator=positive, unit="bytes",
        doc="gradients are synchronised in buckets of about this size (PyTorch DDP's default)",
    )  # fmt: skip
    ring_steps: str = option(
        "fluid", validator=one_of("explicit", "fluid"),
        doc='how a ring all-reduce is simulated: each step ("explicit"), or one transfer per member and phase'
        ' ("fluid")',
    )  # fmt: skip
    counter_rotating: bool = option(
        False,
        doc="all-reduce half of the gradients each way round the ring of replicas: two peers, not one",
    )
    exchange: str = option(
        "auto",
        doc='how a group exchanges: "auto", the fastest of those that suit the network, or the name of an '
        "exchange (see `plugins`): direct, chain, ring, tiers, ...",
    )
    all_reduce: str = option(
        "auto",
        doc='how replicas sum their gradients: "auto", the fastest of those that suit the network, or the '
        "name of an all-reduce (see `plugins`): flat, two-tier, tiered, ...",
    )
    recompute: str = option(
        "none", converter=recompute_level, validator=one_of(*RECOMPUTE),
        doc='what runs again while going backward instead of being kept: nothing, what attention makes of '
        'all pairs of tokens ("selective"), or all but the inputs of layers ("full", or true)',
    )  # fmt: skip
    forwarding: bool = option(
        False,
        doc="pass on from GPU to GPU what is beyond the reach of a circuit on a ring, and rows of experts "
        "where a GPU has fewer circuits than replicas to send them to; false: refuse such plans",
    )
    iterations: int = option(
        1,
        validator=between(1, 1000),
        doc="training iterations simulated back to back; the last one is reported",
    )
