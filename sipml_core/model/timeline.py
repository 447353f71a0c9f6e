"""What the engine reports: when everything ran, and where the time and the bytes went."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import BYTES_PER_US_PER_GBPS, float64_matrix, float64_vector, frozen, int32_vector

#: Times that differ by less, relative to the whole, are equal.
ROUNDING = 1e-12


@frozen(kw_only=True, eq=False)
class TransferTimes:
    """The course of each transfer, between joining its queue and arriving. [transfers]"""

    #: When it had its queue to itself. [us]
    head_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: When its first byte moved: later than that where links were dark. [us]
    moved_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: When its last byte left; it arrives after the latency. [us]
    left_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Link of the `Network` that held it back then; -1: it had no bytes.
    held_by: NDArray[np.int32] = attrs.field(converter=int32_vector)


@frozen(kw_only=True, eq=False)
class LinkSamples:
    """What each link had carried at some moments, the first at 0 and the last at the end."""

    #: [samples] [us]
    at_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: [samples, links] [bytes]
    carried_bytes: NDArray[np.float64] = attrs.field(converter=float64_matrix)

    @property
    def gbps(self) -> NDArray[np.float64]:
        """Return the mean rate of each link between one sample and the next. [samples - 1, links] [Gbps]

        >>> LinkSamples(at_us=[0, 2], carried_bytes=[[0], [1000]]).gbps.tolist()
        [[4.0]]
        """
        span_us = np.diff(self.at_us)[:, None]
        rate: NDArray[np.float64] = np.diff(self.carried_bytes, axis=0) / span_us / BYTES_PER_US_PER_GBPS
        return rate


@frozen(kw_only=True, eq=False)
class Timeline:
    """A finished run.

    Accounts are snapshots: row k is the state when mark k fired, the last row the end of the run,
    so a difference of rows is one iteration. At every moment a GPU is in exactly one of four states,
    and their times add up to the time of the row:

    * compute: a task runs;
    * dark: none runs, and every transfer pending at the GPU waits for circuits that carry nothing;
    * exposed: none runs, and a transfer to or from the GPU is pending (dark time not included);
    * idle: the rest.
    """

    #: When each node started and ended; a transfer starts when it joins its queue. [nodes] [us]
    start_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    end_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Time of each snapshot. [marks + 1] [us]
    snapshot_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Accounts per snapshot and GPU. [marks + 1, gpus] [us]
    compute_us: NDArray[np.float64] = attrs.field(converter=float64_matrix)
    exposed_us: NDArray[np.float64] = attrs.field(converter=float64_matrix)
    dark_us: NDArray[np.float64] = attrs.field(converter=float64_matrix)
    #: Bytes carried and time in use, per link of the `Network`, whole run. [links]
    link_bytes: NDArray[np.float64] = attrs.field(converter=float64_vector)
    link_busy_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Events processed and circuit decisions taken.
    events: int
    decisions: int = 0
    #: Where the run was recorded: the course of each transfer, and what links carried when.
    transfers: TransferTimes | None = None
    samples: LinkSamples | None = None

    @property
    def total_us(self) -> float:
        return float(self.snapshot_us[-1])

    @property
    def idle_us(self) -> NDArray[np.float64]:
        """Return the time until each mark in which a GPU is idle. [marks + 1, gpus; us]"""
        busy = self.compute_us + self.exposed_us + self.dark_us
        idle_us = self.snapshot_us[:, None] - busy
        # What is left of sums that cancel is no time: 2.8e-14 us of idle.
        return np.where(idle_us > ROUNDING * self.snapshot_us[:, None], idle_us, 0.0)
