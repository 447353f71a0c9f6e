"""The tables of one simulated case: GPUs, links, traffic, transfers and circuits, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.details.causes import NONE, last_cause, queued_behind, task_name
from sipml_core.details.selection import Selection
from sipml_core.details.waits import waits_by_kind
from sipml_core.errors import ConfigError
from sipml_core.fields import frozen
from sipml_core.model import TRAFFIC_KINDS, CaseRecord, CircuitDecision

#: Columns of equal length, by their names.
Table = dict[str, NDArray[Any]]

#: Bytes of one row of each table as CSV, about.
_ROW_BYTES = {"gpus": 170, "links": 110, "traffic": 34, "flows": 190, "circuits": 70}


@frozen(kw_only=True)
class CircuitSpan:
    """A time in which a circuit has one capacity; or part of it, or nothing, while it is being set."""

    since_us: float
    until_us: float
    gbps: float
    dark: bool = False
    #: Wavelengths or switches, in words, where the plan was kept.
    resources: str = ""


def _resources(decision: CircuitDecision) -> dict[tuple[int, int], str]:
    """Return the wavelengths or switches of each pair of a plan, in words."""
    if decision.plan is None:
        return {}
    found = {}
    for row in decision.plan.rows():
        told = []
        for name in ("clockwise", "counterclockwise", "switches"):
            value = row.get(name)
            if value:
                told.append(f"{name} {value if isinstance(value, str) else ' '.join(map(str, value))}")
        found[row["src"], row["dst"]] = ", ".join(told)
    return found


@frozen(kw_only=True, eq=False)
class CaseDetails:
    """What happened in one case, or in the part of it that is selected.

    Replicas and GPUs select rows of all tables (of links: none), the time window those of transfers and of
    circuit decisions. Where the job was folded all GPUs have rows; `simulated` says which were.
    """

    record: CaseRecord = attrs.field(repr=lambda record: f"<{record.workload} on {record.topology}>")
    selection: Selection = attrs.Factory(Selection)

    def selected(self, selection: Selection) -> CaseDetails:
        """Return the details of a part; `ConfigError` if that is not in the run."""
        selection.check(self.record)
        return attrs.evolve(self, selection=selection)

    @property
    def name(self) -> str:
        """What messages call the case."""
        return f"{self.record.workload} on {self.record.topology}"

    def tables(self) -> dict[str, Table]:
        """Return all tables by their names."""
        found = {"gpus": self.gpus(), "links": self.links(), "traffic": self.traffic(), "flows": self.flows()}
        if self.record.decisions:
            found["circuits"] = self.circuits()
        return found

    def size_bytes(self) -> dict[str, float]:
        """Return about how large each table is as CSV, without making it. [bytes]"""
        rows = {
            "gpus": float(self.wanted.sum()),
            "links": float(len(self.record.whole_links)),
            "traffic": float(len(self.record.network.pair_src) * len(self.images)),
            "flows": float(sum(len(transfers) for _, transfers, _ in self.flow_parts)),
            "circuits": float(
                sum(len(decision.circuit) + 1 for decision in self.record.decisions) * len(self.images)
            ),
        }
        return {name: count * _ROW_BYTES[name] for name, count in rows.items() if count}

    @cached_property
    def wanted(self) -> NDArray[np.bool_]:
        """Return which GPUs are selected. [gpus]"""
        return self.selection.gpu_mask(self.record)

    @property
    def images(self) -> range:
        """Return the images of the simulated groups, which are the first; one where nothing was folded."""
        return range(self.record.images.count if self.record.images else 1)

    def gpus_in(self, image: int) -> NDArray[np.int32]:
        """Return the GPU that does in an image what each simulated one does. [gpus]"""
        images = self.record.images
        return images.gpus(image) if images else np.arange(self.record.gpus, dtype=np.int32)

    @cached_property
    def original(self) -> NDArray[np.int32]:
        """Return the simulated GPU that each GPU does as. [gpus]"""
        images = self.record.images
        return images.original if images else np.arange(self.record.gpus, dtype=np.int32)

    def gpus(self) -> Table:
        """Return where the time of each GPU went in the whole run, and what it sent and received.

        `waits_KIND_us` add up to `exposed_us` and `dark_us`: what the next task of the GPU waited for.
        """
        record, timeline, original = self.record, self.record.timeline, self.original
        sent, received = (np.zeros(record.gpus) for _ in range(2))
        np.add.at(sent, record.tasks.src, record.tasks.size_bytes)
        np.add.at(received, original[record.transfer_dst], record.tasks.size_bytes)
        waits_us = waits_by_kind(record)
        numbers = np.flatnonzero(self.wanted)
        of = original[numbers]
        return {
            "gpu": numbers,
            "replica": record.replica[numbers],
            "stage": record.stage[numbers],
            "device": record.device[numbers],
            "compute_us": timeline.compute_us[-1][of],
            "exposed_us": timeline.exposed_us[-1][of],
            "dark_us": timeline.dark_us[-1][of],
            "idle_us": timeline.idle_us[-1][of],
            **{f"waits_{name}_us": waits_us[of, k] for k, name in enumerate(TRAFFIC_KINDS)},
            "sent_bytes": sent[of],
            "received_bytes": received[of],
            "simulated": of == numbers,
        }

    def links(self) -> Table:
        """Return what each link carried in the whole run, and its highest mean rate between two samples."""
        record, network, timeline = self.record, self.record.network, self.record.timeline
        assert timeline.samples is not None
        images = record.images
        count = len(network.link_gbps)
        standing = images.link_orbit if images else np.arange(count)
        share = images.link_share if images else np.ones(count)
        gbps = network.link_gbps.copy()
        gbps[network.first_circuit :] = self._most_gbps
        by_kind = {
            name: network.link_bytes(np.where(record.kind == k, record.tasks.size_bytes, 0.0))
            for k, name in enumerate(TRAFFIC_KINDS)
        }
        ids = record.whole_links
        first = self._first_images
        rates = timeline.samples.gbps
        return {
            "link": np.array([record.link_name(int(link)) for link in ids], dtype=object),
            "id": ids,
            "circuit": standing >= network.first_circuit,
            "gbps": gbps[standing] / share,
            "bytes": timeline.link_bytes[standing] / share,
            **{f"{name}_bytes": values[standing] / share for name, values in by_kind.items()},
            "busy_us": timeline.link_busy_us[standing],
            "peak_gbps": rates.max(axis=0, initial=0.0)[standing] / share,
            "simulated": first,
        }

    @property
    def _first_images(self) -> NDArray[np.bool_]:
        """Return which links of the whole network are the first of their images."""
        images = self.record.images
        if images is None:
            return np.ones(len(self.record.network.link_gbps), dtype=np.bool_)
        first = np.zeros(len(images.link_id), dtype=np.bool_)
        first[np.unique(images.link_orbit, return_index=True)[1]] = True
        return first

    @property
    def _most_gbps(self) -> NDArray[np.float64]:
        """Return the largest capacity that each circuit had. [circuits] [Gbps]"""
        network = self.record.network
        most = np.zeros(len(network.link_gbps) - network.first_circuit)
        for decision in self.record.decisions:
            most[decision.circuit] = np.maximum(most[decision.circuit], decision.after_gbps)
        return most

    def traffic(self) -> Table:
        """Return the bytes that each pair of GPUs sent, by kind, in the whole run."""
        record = self.record
        pair, kind = record.network.transfer_pair, record.kind
        key, where = np.unique(pair.astype(np.int64) * len(TRAFFIC_KINDS) + kind, return_inverse=True)
        size_bytes = np.bincount(where.reshape(-1), record.tasks.size_bytes, len(key))
        count = np.bincount(where.reshape(-1), minlength=len(key))
        row = key // len(TRAFFIC_KINDS)
        dst = record.images.pair_dst if record.images else record.network.pair_dst
        src_parts, dst_parts, kept = [], [], []
        for image in self.images:
            gpu_in = self.gpus_in(image)
            src_in, dst_in = gpu_in[record.network.pair_src[row]], gpu_in[dst[row]]
            wanted = np.flatnonzero(self.wanted[src_in] | self.wanted[dst_in])
            src_parts.append(src_in[wanted])
            dst_parts.append(dst_in[wanted])
            kept.append(wanted)
        src_all, dst_all, of = (np.concatenate(parts) for parts in (src_parts, dst_parts, kept))
        order = np.lexsort((key[of], dst_all, src_all))
        of = of[order]
        return {
            "src": src_all[order],
            "dst": dst_all[order],
            "kind": np.array(TRAFFIC_KINDS, dtype=object)[key[of] % len(TRAFFIC_KINDS)],
            "bytes": size_bytes[of],
            "transfers": count[of],
        }

    @cached_property
    def flow_parts(self) -> list[tuple[int, NDArray[np.intp], NDArray[np.int32]]]:
        """Return the selected transfers of each image: image, transfers, and GPU of each GPU there."""
        record, tasks, timeline = self.record, self.record.tasks, self.record.timeline
        spans = timeline.start_us[tasks.compute_tasks :], timeline.end_us[tasks.compute_tasks :]
        seen = self.selection.in_window(*spans)
        parts = []
        for image in self.images:
            gpu_in = self.gpus_in(image)
            wanted = self.wanted[gpu_in[tasks.src]] | self.wanted[gpu_in[record.transfer_dst]]
            parts.append((image, np.flatnonzero(seen & wanted), gpu_in))
        return parts

    def flows(self) -> Table:
        """Return the course of each transfer: it joins its queue, is at its head, moves, leaves, arrives.

        `waited_for` is what had to end before it could join, the last of all; `behind` the transfer that it
        waited for in its queue; `held_by` the link that held it back at its end. Times of an image are those
        of the transfer that was simulated, `transfer` is its number.
        """
        record, tasks, timeline = self.record, self.record.tasks, self.record.timeline
        times, first = timeline.transfers, self.record.tasks.compute_tasks
        assert times is not None
        t = np.concatenate([transfers for _, transfers, _ in self.flow_parts])
        src = np.concatenate([gpu_in[tasks.src[part]] for _, part, gpu_in in self.flow_parts])
        dst = np.concatenate([gpu_in[record.transfer_dst[part]] for _, part, gpu_in in self.flow_parts])
        image = np.repeat(
            [image for image, _, _ in self.flow_parts], [len(part) for _, part, _ in self.flow_parts]
        )
        behind = queued_behind(record)
        return {
            "transfer": t,
            "src": src,
            "dst": dst,
            "kind": np.array(TRAFFIC_KINDS, dtype=object)[record.kind[t]],
            "bytes": tasks.size_bytes[t],
            "joined_us": timeline.start_us[first:][t],
            "head_us": times.head_us[t],
            "moved_us": times.moved_us[t],
            "left_us": times.left_us[t],
            "arrived_us": timeline.end_us[first:][t],
            "waited_for": self._cause_names[t],
            "behind": np.where(behind[t] == NONE, "", behind[t].astype(str)).astype(object),
            "held_by": self._holders(t, image),
            "simulated": image == 0,
        }

    @cached_property
    def _cause_names(self) -> NDArray[np.object_]:
        """Return what each transfer waited for, in words. [transfers]"""
        record, first = self.record, self.record.tasks.compute_tasks
        cause = last_cause(record.tasks, record.timeline)[first:]
        names = np.full(len(cause), "", dtype=object)
        by_task = (cause >= 0) & (cause < first)
        # Tasks of one op and micro-batch are called the same.
        node = cause[by_task]
        key = (
            record.op[node].astype(np.int64) * (record.micro_batch.max(initial=0) + 2)
            + record.micro_batch[node]
        )
        _, some, where = np.unique(key, return_index=True, return_inverse=True)
        told = np.array([task_name(record, int(node[k])) for k in some], dtype=object)
        names[by_task] = told[where.reshape(-1)] if len(told) else ""
        relayed = np.flatnonzero(cause >= first)
        names[relayed] = [f"transfer {number}" for number in (cause[relayed] - first).tolist()]
        return names

    def _holders(self, t: NDArray[np.intp], image: NDArray[np.intp]) -> NDArray[np.object_]:
        """Return the name of the link that held each transfer back, in its image. [transfers]"""
        record, images = self.record, self.record.images
        times = record.timeline.transfers
        assert times is not None
        held = times.held_by[t]
        ids = record.network.link_id if images is None else images.link_id
        link = held.astype(np.int64)
        if images is not None:
            # The first of the links that each stands for, moved on image by image.
            link = np.unique(images.link_orbit, return_index=True)[1][np.maximum(held, 0)]
            for number in range(1, images.count):
                moving = image >= number
                link[moving] = images.link_image[link[moving]]
        found, where = np.unique(link, return_inverse=True)
        names = np.array([record.link_name(int(ids[k])) for k in found] or [""], dtype=object)
        return np.where(held >= 0, names[where.reshape(-1)], "").astype(object)

    def circuits(self) -> Table:
        """Return what each decision on circuits changed; a decision that changed none has a row without ends.

        A circuit is at `kept_gbps` for `dark_us`, then at `after_gbps`.
        """
        rows = list(self._circuit_rows())
        names = ("decision", "at_us", "src", "dst", "before_gbps", "kept_gbps", "after_gbps", "dark_us")
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return {name: np.array(column, dtype=object) for name, column in zip(names, columns, strict=True)}

    def _circuit_rows(self) -> Iterator[tuple[Any, ...]]:
        network, images = self.record.network, self.record.images
        for number, decision in enumerate(self.record.decisions):
            at_us = np.array([decision.at_us])
            if not self.selection.in_window(at_us, at_us)[0]:
                continue
            src, dst = network.circuit_src[decision.circuit], network.circuit_dst[decision.circuit]
            if not len(src):
                yield (number, decision.at_us, "", "", "", "", "", "")
            for image in self.images:
                gpu_in = self.gpus_in(image) if images else None
                src_in, dst_in = (src, dst) if gpu_in is None else (gpu_in[src], gpu_in[dst])
                wanted = np.flatnonzero(self.wanted[src_in] | self.wanted[dst_in])
                for k in wanted.tolist():
                    values = (decision.before_gbps, decision.kept_gbps, decision.after_gbps, decision.dark_us)
                    ends = int(src_in[k]), int(dst_in[k])
                    yield (number, decision.at_us, *ends, *(float(each[k]) for each in values))

    def passes(self) -> Table:
        """Return the passes of each stage of the simulated replicas, in order: from first to last task.

        Names are those of charts of schedules: F3 forward of micro-batch 3, B backward, W gradients of
        parameters, U the optimizer.
        """
        record, timeline, tasks = self.record, self.record.timeline, self.record.tasks
        nodes = np.flatnonzero(record.pass_kind >= 0)
        gpu, iteration = tasks.gpu[nodes], nodes // (tasks.compute_tasks // record.iterations)
        columns = (
            iteration, record.replica[gpu], record.stage[gpu], record.part[nodes], record.micro_batch[nodes],
            record.pass_kind[nodes],
        )  # fmt: skip
        keys, where = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        since_us, until_us = np.full(len(keys), np.inf), np.zeros(len(keys))
        np.minimum.at(since_us, where.reshape(-1), timeline.start_us[nodes])
        np.maximum.at(until_us, where.reshape(-1), timeline.end_us[nodes])
        seen = self.selection.in_window(since_us, until_us)
        if self.selection.replicas is not None:
            seen &= np.isin(keys[:, 1], self.selection.replicas)
        order = np.flatnonzero(seen)[np.argsort(since_us[seen], kind="stable")]
        keys = keys[order]
        names = [f"{'FBWU'[kind]}{batch}" if kind < 3 else "U" for _, _, _, _, batch, kind in keys.tolist()]
        return {
            "iteration": keys[:, 0], "replica": keys[:, 1], "stage": keys[:, 2], "part": keys[:, 3],
            "micro_batch": keys[:, 4], "kind": keys[:, 5], "name": np.array(names, dtype=object),
            "since_us": since_us[order], "until_us": until_us[order],
        }  # fmt: skip

    def collectives(self) -> Table:
        """Return the sums of gradients, one row for each bucket and iteration."""
        record, tasks, timeline = self.record, self.record.tasks, self.record.timeline
        first = tasks.compute_tasks
        mine = np.flatnonzero(record.kind == TRAFFIC_KINDS.index("gradient"))
        priority, where = np.unique(tasks.priority[first:][mine], return_inverse=True)
        since_us, until_us = np.full(len(priority), np.inf), np.zeros(len(priority))
        size_bytes = np.bincount(where.reshape(-1), tasks.size_bytes[mine], len(priority))
        np.minimum.at(since_us, where.reshape(-1), timeline.start_us[first:][mine])
        np.maximum.at(until_us, where.reshape(-1), timeline.end_us[first:][mine])
        seen = self.selection.in_window(since_us, until_us)
        bucket = np.zeros(len(priority), np.int64)
        bucket[where.reshape(-1)] = record.bucket[mine]
        return {
            "bucket": bucket[seen], "bytes": size_bytes[seen] * len(self.images),
            "since_us": since_us[seen], "until_us": until_us[seen],
        }  # fmt: skip

    def circuit_spans(self) -> dict[tuple[int, int], list[CircuitSpan]]:
        """Return how each circuit between selected GPUs goes: spans of one capacity, in order."""
        end_us, network = self.record.timeline.total_us, self.record.network
        spans: dict[int, list[CircuitSpan]] = {}
        for decision in self.record.decisions:
            resources = _resources(decision)
            changed = decision.circuit.tolist()
            for k, circuit in enumerate(changed):
                mine = spans.setdefault(circuit, [])
                if mine:
                    mine[-1] = attrs.evolve(mine[-1], until_us=decision.at_us)
                    if mine[-1].since_us >= decision.at_us:
                        mine.pop()
                    if len(mine) > 1 and mine[-2].until_us > decision.at_us:
                        mine[-2] = attrs.evolve(mine[-2], until_us=decision.at_us)
                lit_us = decision.at_us + float(decision.dark_us[k])
                if lit_us > decision.at_us:
                    mine.append(
                        CircuitSpan(
                            since_us=decision.at_us, until_us=min(lit_us, end_us),
                            gbps=float(decision.kept_gbps[k]), dark=True,
                        )
                    )  # fmt: skip
                ends = int(network.circuit_src[circuit]), int(network.circuit_dst[circuit])
                mine.append(
                    CircuitSpan(
                        since_us=lit_us, until_us=end_us, gbps=float(decision.after_gbps[k]),
                        resources=resources.get(ends, ""),
                    )
                )  # fmt: skip
        found: dict[tuple[int, int], list[CircuitSpan]] = {}
        for image in self.images:
            gpu_in = self.gpus_in(image)
            for circuit, mine in sorted(spans.items()):
                src, dst = (
                    int(gpu_in[network.circuit_src[circuit]]),
                    int(gpu_in[network.circuit_dst[circuit]]),
                )
                kept = [s for s in mine if s.until_us > s.since_us and (s.gbps > 0 or s.dark)]
                if kept and (self.wanted[src] or self.wanted[dst]):
                    found[src, dst] = kept
        return found

    def to_frame(self, table: str) -> Any:
        """Return one table as a pandas DataFrame; `ConfigError` if pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise ConfigError("to_frame needs pandas: python -m pip install pandas") from None
        return pandas.DataFrame(self.tables()[table])
