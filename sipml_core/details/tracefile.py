"""A simulated case as a trace for Perfetto: what GPUs, circuits, collectives, stages and links do."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.details.casedetails import CaseDetails
from sipml_core.details.causes import NONE, last_cause, task_name
from sipml_core.details.perfetto import Trace
from sipml_core.fields import format_gbps
from sipml_core.model import TRAFFIC_KINDS, CaseRecord

#: Links whose rates are shown: those that carried most.
LINKS_SHOWN = 64
#: Bytes of a slice and its arrows, and of a value of a counter, about.
_SLICE_BYTES, _COUNT_BYTES = 100.0, 40.0


def trace_size(details: CaseDetails) -> tuple[int, float]:
    """Return about how many slices a trace of these details has, and how large it is. [slices, bytes]"""
    record = details.record
    flows = sum(len(transfers) for _, transfers, _ in details.flow_parts)
    part = float(details.wanted.mean())
    computes = part * float((record.tasks.gpu >= 0).sum()) * len(details.images)
    circuits = sum(len(decision.circuit) for decision in record.decisions)
    assert record.timeline.samples is not None
    counts = min(LINKS_SHOWN, len(record.network.link_gbps)) * len(record.timeline.samples.at_us)
    slices = int(computes + 2 * flows + circuits)
    return slices, _SLICE_BYTES * slices + _COUNT_BYTES * counts


def trace_bytes(details: CaseDetails) -> bytes:
    """Return a trace of the selected part of a case, in Perfetto's format; times are those of the run. [ns]

    Tracks: for each GPU what it computes, sends and receives; stages of the pipeline; collectives; circuits;
    and rates of the links that carried most. Arrows lead from what a transfer waited for to it, and on to
    the task that waited for it last.
    """
    return _Writer(details).written()


@attrs.define(eq=False)
class _Writer:
    details: CaseDetails
    trace: Trace = attrs.Factory(Trace)
    #: Track of each name below each GPU.
    named: dict[tuple[int, str], int] = attrs.Factory(dict)

    @property
    def record(self) -> CaseRecord:
        return self.details.record

    def written(self) -> bytes:
        self._gpus()
        self._stages()
        self._collectives()
        self._circuits()
        self._links()
        return self.trace.content()

    def _gpus(self) -> None:
        record, details, tasks = self.record, self.details, self.record.tasks
        timeline, first = record.timeline, record.tasks.compute_tasks
        cause = last_cause(tasks, timeline)
        real = np.flatnonzero(tasks.gpu >= 0)
        real = real[np.lexsort((timeline.start_us[real], tasks.gpu[real]))]
        real = real[details.selection.in_window(timeline.start_us[real], timeline.end_us[real])]
        names = self._task_names(real)
        roots = self._roots()
        for image, transfers, gpu_in in details.flow_parts:
            # Arrows are numbered by the transfer and its image.
            arrow = np.int64(image) * tasks.transfers + 1
            shown = real[details.wanted[gpu_in[tasks.gpu[real]]]]
            track = self._children(roots, gpu_in[tasks.gpu[shown]], "compute")
            self._computes(shown, track, names, transfers, cause, arrow)
            self._transfers(transfers, gpu_in, roots, arrow, first)

    def _roots(self) -> dict[int, int]:
        original = self.details.original
        return {
            gpu: self.trace.track(
                f"GPU {gpu} (replica {self.record.replica[gpu]}, stage {self.record.stage[gpu]})"
                + (f", as GPU {original[gpu]}" if original[gpu] != gpu else "")
            )
            for gpu in np.flatnonzero(self.details.wanted).tolist()
        }

    def _children(self, roots: dict[int, int], gpu: NDArray[np.int32], name: str) -> NDArray[np.int64]:
        """Return a track of this name below the GPU of each slice. [slices]"""
        numbers, where = np.unique(gpu, return_inverse=True)
        for number in numbers.tolist():
            # A GPU receives from several images, on one track.
            if (number, name) not in self.named:
                self.named[number, name] = self.trace.track(name, roots[number])
        tracks = np.array([self.named[number, name] for number in numbers.tolist()], np.int64)
        return tracks[where.reshape(-1)] if len(tracks) else np.empty(0, np.int64)

    def _task_names(self, nodes: NDArray[Any]) -> NDArray[np.int64]:
        """Return the name of each compute task that is shown. [tasks]"""
        record = self.record
        batches = int(record.micro_batch.max(initial=0)) + 2
        label = record.tasks.label if record.tasks.labels else np.zeros(record.tasks.compute_tasks, np.int32)
        key = (record.op[nodes].astype(np.int64) * batches + record.micro_batch[nodes]) * 1000 + label[nodes]
        _, some, where = np.unique(key, return_index=True, return_inverse=True)
        told = np.array([self.trace.name(task_name(record, int(nodes[k]))) for k in some], np.int64)
        names = np.zeros(record.tasks.compute_tasks, np.int64)
        names[nodes] = told[where.reshape(-1)]
        return names

    def _computes(
        self,
        shown: NDArray[Any],
        track: NDArray[np.int64],
        names: NDArray[np.int64],
        transfers: NDArray[Any],
        cause: NDArray[np.int32],
        arrow: np.int64,
    ) -> None:
        record, first = self.record, self.record.tasks.compute_tasks
        timeline = record.timeline
        # Slice of each task, NONE where it is not shown. [tasks]
        slice_of = np.full(first, NONE, np.int64)
        slice_of[shown] = np.arange(len(shown))
        seen = np.zeros(record.tasks.transfers, np.bool_)
        seen[transfers] = True

        # Arrows begin at what transfers waited for, and end at tasks that waited for a transfer.
        maker = cause[first:][transfers]
        leaves = (maker >= 0) & (maker < first)
        leaves[leaves] = slice_of[maker[leaves]] != NONE
        waited = cause[shown] - first
        lands = waited >= 0
        lands[lands] = seen[waited[lands]]
        at = np.concatenate([slice_of[maker[leaves]], np.flatnonzero(lands)])
        ids = arrow + np.concatenate([transfers[leaves], waited[lands]])
        ends = np.arange(len(at)) >= int(leaves.sum())
        self.trace.add_slices(
            track, names[shown], timeline.start_us[shown], timeline.end_us[shown], at, ids, ends
        )

    def _transfers(
        self,
        transfers: NDArray[Any],
        gpu_in: NDArray[np.int32],
        roots: dict[int, int],
        arrow: np.int64,
        first: int,
    ) -> None:
        record, times = self.record, self.record.timeline.transfers
        assert times is not None
        src, dst = gpu_in[record.tasks.src[transfers]], gpu_in[record.transfer_dst[transfers]]
        left_us, arrived_us = times.left_us[transfers], record.timeline.end_us[first:][transfers]
        moved_us = times.moved_us[transfers]
        latency_us = arrived_us - left_us
        for here, there, verb, since_us, until_us in (
            (src, dst, "to", times.head_us[transfers], left_us),
            (dst, src, "from", moved_us + latency_us, arrived_us),
        ):
            mine = np.flatnonzero(self.details.wanted[here])
            mine = mine[np.lexsort((since_us[mine], there[mine], here[mine]))]
            track = self._pair_tracks(roots, here[mine], there[mine], verb)
            # What comes later on a track begins no sooner than what is before it ends, whatever their
            # latencies.
            begins = since_us[mine].copy()
            same = track[1:] == track[:-1]
            begins[1:][same] = np.maximum(
                begins[1:][same], np.minimum(until_us[mine][:-1], until_us[mine][1:])[same]
            )
            names = np.array([self.trace.name(kind) for kind in TRAFFIC_KINDS], np.int64)
            self.trace.add_slices(
                track, names[record.kind[transfers[mine]]], begins, until_us[mine],
                np.arange(len(mine)), arrow + transfers[mine],
            )  # fmt: skip

    def _pair_tracks(
        self, roots: dict[int, int], here: NDArray[np.int32], there: NDArray[np.int32], verb: str
    ) -> NDArray[np.int64]:
        """Return a track for each pair, below "sends" or "receives" of the GPU. [slices]"""
        key = here.astype(np.int64) * self.record.gpus + there
        pairs, where = np.unique(key, return_inverse=True)
        owners = (pairs // self.record.gpus).astype(np.int32)
        parents = self._children(roots, owners, "sends" if verb == "to" else "receives")
        tracks = [
            self.trace.track(f"{verb} {pair % self.record.gpus}", int(parent))
            for pair, parent in zip(pairs.tolist(), parents, strict=True)
        ]
        return np.array(tracks, np.int64)[where.reshape(-1)] if tracks else np.empty(0, np.int64)

    def _stages(self) -> None:
        """Passes of each stage of the simulated replicas: from their first task to their last."""
        passes = self.details.passes()
        if not len(passes["stage"]):
            return
        top = self.trace.track("pipeline stages")
        key = passes["replica"] * 10**6 + passes["stage"]
        for number in np.unique(key).tolist():
            mine = np.flatnonzero(key == number)
            mine = mine[np.argsort(passes["since_us"][mine], kind="stable")]
            self._laned(
                f"replica {number // 10**6} stage {number % 10**6}", top, [passes["name"][k] for k in mine],
                passes["since_us"][mine], passes["until_us"][mine],
            )  # fmt: skip

    def _collectives(self) -> None:
        """Sums of gradients: the transfers of a bucket, from the first that joins to the last arrival."""
        found = self.details.collectives()
        if len(found["since_us"]):
            order = np.argsort(found["since_us"], kind="stable")
            names = [f"gradients, bucket {found['bucket'][k]}" for k in order]
            top = self.trace.track("collectives")
            self._laned("all-reduces", top, names, found["since_us"][order], found["until_us"][order])

    def _laned(
        self,
        name: str,
        top: int,
        names: Sequence[str],
        since_us: NDArray[np.float64],
        until_us: NDArray[np.float64],
    ) -> None:
        """Add slices in order of time, on as many tracks as overlap."""
        free: list[tuple[float, int]] = []
        track, count = np.empty(len(names), np.int64), 0
        for k, (begins, ends) in enumerate(zip(since_us.tolist(), until_us.tolist(), strict=True)):
            if free and free[0][0] <= begins:
                lane = heapq.heappop(free)[1]
            else:
                count += 1
                lane = self.trace.track(name if count == 1 else f"{name} ({count})", top)
            track[k] = lane
            heapq.heappush(free, (ends, lane))
        ids = np.array([self.trace.name(text) for text in names], np.int64)
        order = np.argsort(track, kind="stable")
        self.trace.add_slices(track[order], ids[order], since_us[order], until_us[order])

    def _circuits(self) -> None:
        """Each circuit at a selected GPU: its capacity, with its resources, and when it is dark."""
        spans = self.details.circuit_spans()
        if not spans:
            return
        top = self.trace.track("circuits")
        for (src, dst), mine in spans.items():
            track = self.trace.track(f"{src} -> {dst}", top)
            names = [
                f"dark, {format_gbps(s.gbps)}" if s.dark and s.gbps else "dark" if s.dark
                else format_gbps(s.gbps) + (f" ({s.resources})" if s.resources else "")
                for s in mine
            ]  # fmt: skip
            self.trace.add_slices(
                np.full(len(mine), track), np.array([self.trace.name(text) for text in names]),
                np.array([s.since_us for s in mine]), np.array([s.until_us for s in mine]),
            )  # fmt: skip

    def _links(self) -> None:
        record = self.record
        samples = record.timeline.samples
        assert samples is not None
        top = self.trace.track(f"links: the {LINKS_SHOWN} that carried most, mean rates")
        busiest = np.argsort(-record.timeline.link_bytes, kind="stable")[:LINKS_SHOWN]
        gbps = samples.gbps
        for link in busiest.tolist():
            track = self.trace.track(record.link_name(int(record.network.link_id[link])), top, unit="Gbps")
            values = np.append(gbps[:, link], 0.0)
            self.trace.add_counts(track, samples.at_us, values)
