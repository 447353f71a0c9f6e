"""What one simulated case leaves for details: its tasks, when everything ran, and what it is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import float64_vector, frozen, int32_vector
from sipml_core.model.circuits import CircuitPlan
from sipml_core.model.network import Network
from sipml_core.model.taskgraph import TaskGraph
from sipml_core.model.timeline import Timeline

#: What a compute task is part of.
PASS_KINDS = ("forward", "backward", "weights", "optimizer")


@frozen(kw_only=True, eq=False)
class CircuitDecision:
    """One decision on circuits, and what it changed. Circuits are numbered as in the `Network`."""

    at_us: float
    #: Those whose settled capacity changed, or that went dark. [changed]
    circuit: NDArray[np.int32] = attrs.field(converter=int32_vector)
    before_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    after_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: Until they have settled. [changed] [Gbps]
    kept_gbps: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: How long that takes. [changed] [us]
    dark_us: NDArray[np.float64] = attrs.field(converter=float64_vector)
    #: The plan, with its resources; None where there were too many to keep.
    plan: CircuitPlan | None = None


@frozen(kw_only=True, eq=False)
class Images:
    """What the simulated groups of a folded job stand for: `count` images, themselves the first.

    The GPU at position p does in image k what the one at position ``p - k shift`` does in the run.
    """

    count: int
    shift: int
    #: GPU at each position. [gpus]
    gpu_at: NDArray[np.int32]
    #: Receiver of each pair of the `Network`. [pairs]
    pair_dst: NDArray[np.int32]
    #: Links of the whole network: fabric id, where one shift takes each, the link of the `Network` that
    #: stands for it, and which part of it that is. [whole links]
    link_id: NDArray[np.int64]
    link_image: NDArray[np.int64]
    link_orbit: NDArray[np.int64]
    link_share: NDArray[np.float64]

    def gpus(self, image: int) -> NDArray[np.int32]:
        """Return the GPU that does in an image what each GPU does in the run. [gpus]

        >>> images = Images(
        ...     count=2, shift=2, gpu_at=np.array([0, 2, 1, 3]), pair_dst=np.array([]), link_id=np.array([]),
        ...     link_image=np.array([]), link_orbit=np.array([]), link_share=np.array([]),
        ... )
        >>> images.gpus(1).tolist()
        [1, 0, 3, 2]
        """
        moved = np.empty_like(self.gpu_at)
        moved[self.gpu_at] = np.roll(self.gpu_at, -image * self.shift)
        return moved

    @property
    def original(self) -> NDArray[np.int32]:
        """Return the simulated GPU that each GPU does as. [gpus]"""
        found = np.empty_like(self.gpu_at)
        found[self.gpu_at] = self.gpu_at[np.arange(len(self.gpu_at)) % self.shift]
        return found


@frozen(kw_only=True, eq=False)
class CaseRecord:
    """A case that was simulated with `details`."""

    workload: str
    topology: str
    #: How transfers queue: "pair" or "source".
    queue: str
    iterations: int
    tasks: TaskGraph
    network: Network
    timeline: Timeline
    #: Of each GPU: its replica, its stage in that, and its place in the stage. [gpus]
    replica: NDArray[np.int32]
    stage: NDArray[np.int32]
    device: NDArray[np.int32]
    #: Op of each compute task, or -1; its micro-batch; index into `PASS_KINDS`. [tasks]
    op: NDArray[np.int32]
    op_names: tuple[str, ...]
    micro_batch: NDArray[np.int32]
    pass_kind: NDArray[np.int32]
    #: Part of the model that it belongs to. [tasks]
    part: NDArray[np.int32]
    #: Bucket of gradients whose sum each transfer is part of; -1: it carries activations. [transfers]
    bucket: NDArray[np.int32]
    #: Name of a link by its fabric id.
    link_name: Callable[[int], str]
    #: Nodes that each fixed link of the fabric leaves and enters, as in `Fabric`; None: not known. [fabric
    #: links]
    link_tail: NDArray[np.int64] | None
    link_head: NDArray[np.int64] | None
    decisions: tuple[CircuitDecision, ...]
    #: None: every GPU was simulated.
    images: Images | None

    @property
    def gpus(self) -> int:
        return len(self.replica)

    @cached_property
    def transfer_dst(self) -> NDArray[np.int32]:
        """Return the receiver of each transfer, not who stands for it. [transfers]"""
        return self.tasks.dst if self.images is None else self.images.pair_dst[self.network.transfer_pair]

    @property
    def kind(self) -> NDArray[np.int8]:
        """Return why each transfer is sent, an index into `TRAFFIC_KINDS`. [transfers]"""
        assert self.tasks.kind is not None
        return self.tasks.kind

    @property
    def whole_links(self) -> NDArray[np.int64]:
        """Return the fabric ids of the links of the whole job. [whole links]"""
        return self.network.link_id if self.images is None else self.images.link_id
