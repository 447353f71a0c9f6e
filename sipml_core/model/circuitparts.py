"""Circuits in parts, each of some GPUs and planned for itself: rings of a grid, rails, small switches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, PluginError
from sipml_core.fields import frozen, int32_vector
from sipml_core.model.circuits import CircuitControl, CircuitPlan
from sipml_core.model.circuitview import job_circuits
from sipml_core.model.pairs import PairIndex, ranges
from sipml_core.model.traffic import TrafficMatrix


@frozen(kw_only=True, eq=False)
class CircuitPart:
    """Some GPUs, and the circuits among them."""

    #: GPU of the cluster at each place of the part, each once. [control.gpus]
    members: NDArray[np.int32] = attrs.field(converter=int32_vector)
    #: Its GPUs are the places.
    control: CircuitControl

    def __attrs_post_init__(self) -> None:
        if len(self.members) != self.control.gpus:
            raise ConfigError(f"a part of {len(self.members)} GPUs has circuits of {self.control.gpus}")


@frozen(kw_only=True, eq=False)
class CircuitParts(CircuitControl):
    """Circuits in parts. A pair of GPUs is in one part at most; a scheduler plans each part for itself."""

    parts: tuple[CircuitPart, ...]

    @classmethod
    def of(cls, gpus: int, parts: tuple[CircuitPart, ...], **fields: Any) -> CircuitParts:
        """Return the circuits of some parts, whose circuits all have the same capacity and times.

        Examples
        --------
        GPUs 0 and 1 on one switch, 2 and 3 on another:

        >>> pair = CircuitControl(gpus=2, circuit_gbps=10.0, circuits_per_gpu=1)
        >>> both = CircuitParts.of(4, tuple(CircuitPart(members=m, control=pair) for m in ([0, 1], [2, 3])))
        >>> both.may_connect(np.array([0, 0, 3]), np.array([1, 2, 2])).tolist()
        [True, False, True]
        """
        first = parts[0].control
        held = np.zeros(gpus, np.int64)
        for part in parts:
            held[part.members] += part.control.circuits_per_gpu
        alike = ("circuit_gbps", "interval_us", "reconfiguration_us", "all_dark")
        for part in parts:
            for name in alike:
                if getattr(part.control, name) != getattr(first, name):
                    raise ConfigError(f"all parts of a circuit network must have the same {name}")
        return cls(
            gpus=gpus,
            circuits_per_gpu=int(held.max()),
            parts=parts,
            **{name: getattr(first, name) for name in alike},
            **fields,
        )

    @cached_property
    def _places(self) -> NDArray[np.int32]:
        """Return the place of each GPU in each part; -1: it is not in it. [parts, gpus]"""
        places = np.full((len(self.parts), self.gpus), -1, np.int32)
        for k, part in enumerate(self.parts):
            places[k, part.members] = np.arange(len(part.members))
        return places

    def folded(self, image: NDArray[np.int32]) -> CircuitParts | None:
        """Return parts that stand for all where GPU g wants what GPU ``image[g]`` wants: `FoldableControl`.

        Images are to take each part to another of the same circuits, place by place, or to itself, where its
        own circuits can be folded. [gpus]
        """
        parts, known = [], dict[tuple[int, bytes], CircuitControl | None]()
        for k, part in enumerate(self.parts):
            moved = image[part.members]
            own = self._places[k, moved]
            if (own < 0).any():
                taken_to = [j for j in self._parts_of[moved[0]].tolist() if j >= 0 and self._is(j, moved)]
                if not taken_to or self.parts[taken_to[0]].control is not part.control:
                    return None
                parts.append(part)
                continue
            key = (id(part.control), own.tobytes())
            if key not in known:
                fold = getattr(part.control, "folded", None)
                known[key] = fold(own) if fold else None
            control = known[key]
            if control is None:
                return None
            parts.append(attrs.evolve(part, control=control))
        return attrs.evolve(self, parts=tuple(parts))

    def _is(self, part: int, members: NDArray[np.int32]) -> bool:
        """Return whether these are the members of a part, in order."""
        return np.array_equal(self.parts[part].members, members)

    def inside(
        self, part: int, src: NDArray[np.int32], dst: NDArray[np.int32]
    ) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int32]]:
        """Return which pairs lie in a part, and the places of their ends there. [pairs inside]"""
        a, b = self._places[part][src], self._places[part][dst]
        rows = np.flatnonzero((a >= 0) & (b >= 0))
        return rows, a[rows], b[rows]

    def may_connect(self, src: NDArray[np.int32], dst: NDArray[np.int32]) -> NDArray[np.bool_]:
        found = np.zeros(len(src), np.bool_)
        for k, part in enumerate(self.parts):
            rows, a, b = self.inside(k, np.asarray(src), np.asarray(dst))
            found[rows] |= part.control.may_connect(a, b)
        return found

    def seen_by(self, gpus: NDArray[np.int32]) -> CircuitControl | None:
        """Return the parts that join two GPUs of a job or more, each as these see it."""
        parts = []
        for k, part in enumerate(self.parts):
            ranks = np.flatnonzero(self._places[k][gpus] >= 0)
            if len(ranks) > 1:
                places = self._places[k][gpus[ranks]]
                parts.append(CircuitPart(members=ranks, control=job_circuits(part.control, places)))
        if not parts:
            return None
        return CircuitParts.of(len(gpus), tuple(parts), relay=self.relay)

    def contested(
        self, gpus: NDArray[np.int32], src: NDArray[np.int32], dst: NDArray[np.int32]
    ) -> NDArray[np.int64] | None:
        """Return what a job can occupy in each part, with the number of the part in the high digits."""
        found = [np.empty(0, np.int64)]
        for k, part in enumerate(self.parts):
            places = self._places[k][gpus]
            _, a, b = self.inside(k, np.asarray(src), np.asarray(dst))
            if not len(a):
                continue
            of_part = part.control.contested(places[places >= 0], a, b)
            if of_part is None:
                return None
            found.append((k << 32) + of_part)
        return np.concatenate(found)

    def divided(self, parts: int) -> CircuitControl | None:
        """Return the same with every part divided."""
        divided = [
            CircuitPart(members=part.members, control=control)
            for part in self.parts
            if (control := part.control.divided(parts)) is not None
        ]
        if len(divided) < len(self.parts):
            return None
        names = ("relay", "packets", "packets_below_bytes")
        return CircuitParts.of(self.gpus, tuple(divided), **{name: getattr(self, name) for name in names})

    def check(self, plan: CircuitPlan) -> None:
        """Refuse a plan with a part that cannot exist."""
        if not isinstance(plan, PartsPlan) or len(plan.plans) != len(self.parts):
            raise PluginError(f"a {type(plan).__name__} does not say what each part of the network connects")
        for part, of_part in zip(self.parts, plan.plans, strict=True):
            part.control.check(of_part)

    @cached_property
    def _parts_of(self) -> NDArray[np.int32]:
        """Return the parts that each GPU is in, in order; -1: no more. [gpus, most parts of a GPU]"""
        part = np.concatenate([np.full(len(each.members), k) for k, each in enumerate(self.parts)])
        gpu = np.concatenate([each.members for each in self.parts])
        order = np.argsort(gpu, kind="stable")
        count = np.bincount(gpu, minlength=self.gpus)
        found = np.full((self.gpus, int(count.max())), -1, np.int32)
        column = ranges(np.zeros_like(count), count)
        found[gpu[order], column] = part[order]
        return found

    def traffic_inside(
        self, traffic: TrafficMatrix
    ) -> list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]]:
        """Return sources and destinations of the pairs in each part, as its places, and their demands.

        Examples
        --------
        GPUs 0 and 1 on one switch, 1 and 2 on another; 0 sends to 1, and 1 to 2:

        >>> pair = CircuitControl(gpus=2, circuit_gbps=10.0, circuits_per_gpu=1)
        >>> both = CircuitParts.of(3, tuple(CircuitPart(members=m, control=pair) for m in ([0, 1], [1, 2])))
        >>> traffic = TrafficMatrix.from_pairs(3, [0, 1], [1, 2], [5.0, 7.0])
        >>> [(a.tolist(), b.tolist(), c.tolist()) for a, b, c in both.traffic_inside(traffic)]
        [([0], [1], [5.0]), ([0], [1], [7.0])]
        """
        # The part that both ends of each pair are in; -1: there is none. [pairs]
        of_src, of_dst = self._parts_of[traffic.src], self._parts_of[traffic.dst]
        both = np.where((of_src[:, :, None] == of_dst[:, None, :]).any(axis=2), of_src, -1)
        part = both.max(axis=1, initial=-1)
        order = np.argsort(part, kind="stable")
        start = np.searchsorted(part[order], np.arange(len(self.parts) + 1))

        place = self._places
        src, dst = (place[part, ends][order] for ends in (traffic.src, traffic.dst))
        demand = traffic.demand[order]
        cuts = [slice(start[k], start[k + 1]) for k in range(len(self.parts))]
        return [(src[cut], dst[cut], demand[cut]) for cut in cuts]

    def together(self, plans: tuple[CircuitPlan, ...]) -> PartsPlan:
        """Return the plans of all parts, with what they leave alone and what goes dark, as one."""
        members = [part.members for part in self.parts]
        src = np.concatenate([who[plan.src] for who, plan in zip(members, plans, strict=True)])
        dst = np.concatenate([who[plan.dst] for who, plan in zip(members, plans, strict=True)])
        order = np.argsort(PairIndex(self.gpus).key(src, dst), kind="stable")

        def joined(name: str) -> NDArray[np.float64] | None:
            values = [getattr(plan, name) for plan in plans]
            return None if any(each is None for each in values) else np.concatenate(values)[order]

        return PartsPlan(
            gpus=self.gpus,
            src=src[order],
            dst=dst[order],
            gbps=np.concatenate([plan.gbps for plan in plans])[order],
            kept_gbps=joined("kept_gbps"),
            dark_us=joined("dark_us"),
            plans=plans,
            members=tuple(members),
        )


@frozen(kw_only=True, eq=False)
class PartsPlan(CircuitPlan):
    """The plans of all parts of a network."""

    plans: tuple[CircuitPlan, ...]
    #: GPU at each place of each part.
    members: tuple[NDArray[np.int32], ...]

    @property
    def bound_ratio(self) -> float | None:
        """Return the least of what no plan of a part that has circuits can exceed; None: unknown."""
        known = [plan.bound_ratio for plan in self.plans if len(plan.src)]
        return min((ratio for ratio in known if ratio is not None), default=None)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one record per pair, with what the part says of it."""
        for k, (who, plan) in enumerate(zip(self.members, self.plans, strict=True)):
            for row in plan.rows():
                yield row | {"src": int(who[row["src"]]), "dst": int(who[row["dst"]]), "part": k}
