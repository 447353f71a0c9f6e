"""How a job is divided over GPUs: replicas, pipeline stages, parts of ops, micro-batches."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError
from sipml_core.fields import at_least, frozen
from sipml_core.model.execution import Execution
from sipml_core.model.precisions import Precision


@frozen(kw_only=True)
class Plan(Execution):
    """N = mp cp pp dp GPUs: cp dp replicas of mp pp GPUs each; cp of them share each sample.

    In the paper's words, k = `mp` GPUs hold one replica of the model and there are l = `dp` of them.
    Replicas are numbered ((outer dp) ep + (inner dp)) cp + (part of the sequence): the first ep cp exchange
    rows of experts and keys, so do the next, and so on.
    """

    #: Model-parallel degree: GPUs over which ops are split.
    mp: int = attrs.field(validator=at_least(1))
    #: Data-parallel degree: replicas.
    dp: int = attrs.field(validator=at_least(1))
    #: Samples in one iteration, all replicas together.
    global_batch: int = attrs.field(validator=at_least(1))
    #: What a group has gathered for a product is kept until the product's gradient is made; False: its shard
    #: is kept, and gathered again going backward, as sequence parallelism does.
    keep_gathered: bool = True

    def __attrs_post_init__(self) -> None:
        if self.global_batch % self.dp:
            lower = self.global_batch // self.dp * self.dp
            near = f"{lower} or {lower + self.dp}" if lower else f"{self.dp}"
            raise ConfigError(
                f"global_batch must be a multiple of dp={self.dp}, got {self.global_batch}; nearest: {near}"
            )
        if self.local_batch % self.micro_samples:
            raise ConfigError(
                f"micro_batch must divide the {self.local_batch} samples of a replica, got "
                f"{self.micro_batch}; nearest: {_near_divisors(self.local_batch, self.micro_samples)}"
            )
        if self.dp % self.ep:
            raise ConfigError(
                f"ep must divide the dp={self.dp} replicas over which experts are spread, got {self.ep}; "
                f"nearest: {_near_divisors(self.dp, self.ep)}"
            )
        if self.zero and self.counter_rotating:
            raise ConfigError(
                f"counter_rotating must be false where zero is above 0, got true with zero={self.zero}: "
                "states are scattered and gathered one way round the ring of replicas"
            )
        self._check_schedule()
        self._check_stages()

    def _check_stages(self) -> None:
        if self.stages is None:
            return
        parts = self.model_parts
        named = isinstance(self.stages[0], str)
        wanted = parts - 1 if named else parts
        if len(self.stages) != wanted:
            what = (
                f"{wanted} names, one for each part but the first"
                if named
                else f"{wanted} number{'s' * (wanted > 1)} of layers"
            )
            of_chunks = f" with {self.chunks} chunks each" if self.chunks > 1 else ""
            near = [n for n in range(1, len(self.stages) + 2) if n * self.chunks == len(self.stages) + named]
            would = f"; pp = {near[0]} would do" if near and near[0] > 1 else ""
            raise ConfigError(
                f"stages must be {what}, where pp is {self.pp}{of_chunks}, got {len(self.stages)}{would}"
            )

    def _check_schedule(self) -> None:
        if self.schedule != "interleaved":
            if self.chunks > 1:
                raise ConfigError(
                    f'chunks must be 1 with schedule "{self.schedule}", got {self.chunks}; '
                    'only "interleaved" has more'
                )
            return
        if self.chunks < 2 or self.pp < 2:
            raise ConfigError(
                f'schedule "interleaved" needs pp and chunks of at least 2, got pp={self.pp}, '
                f'chunks={self.chunks}; with one of either use "1f1b"'
            )
        if self.micro_batches % self.pp:
            fits = [b for b in _divisors(self.local_batch) if self.local_batch // b % self.pp == 0]
            named = " or ".join(map(str, fits[-2:]))
            would = f"micro_batch = {named}" if fits else f"{self.pp} samples a replica"
            raise ConfigError(
                f'schedule "interleaved" needs micro-batches in multiples of pp={self.pp}, got '
                f"{self.micro_batches}; {would} would do"
            )

    @property
    def gpus(self) -> int:
        """All GPUs of the job, N."""
        return self.replica_gpus * self.replicas

    @property
    def replica_gpus(self) -> int:
        """GPUs that hold one replica of the model."""
        return self.mp * self.pp

    @property
    def replicas(self) -> int:
        """Replicas of the model, whose gradients are summed: cp for each part of a batch."""
        return self.cp * self.dp

    @property
    def expert_replicas(self) -> int:
        """Replicas that have the same experts: c d / e."""
        return self.replicas // self.ep

    @property
    def block(self) -> int:
        """Consecutive replicas that exchange rows of experts, keys and values with each other."""
        return self.cp * self.ep

    @property
    def block_peers(self) -> int:
        """Counterparts in other replicas that a GPU exchanges rows of experts, keys and values with."""
        ring = min(2, self.cp - 1)
        sums = 1 if self.ep > 1 and self.expert_replicas > 1 else 0
        return self.ep - 1 + ring + sums

    @property
    def ring_peers(self) -> int:
        """Counterparts in other replicas that a GPU sends gradients to."""
        return min(2 if self.counter_rotating else 1, self.replicas - 1)

    @property
    def shares_states(self) -> bool:
        """Whether each replica updates a part of the parameters only."""
        return self.zero > 0 and self.replicas > 1

    @property
    def shares_parameters(self) -> bool:
        """Whether each replica keeps a part of the parameters only."""
        return self.zero == 3 and self.replicas > 1

    def gradient_bytes(self, held: Precision) -> int:
        """Return what a gradient of one parameter takes, kept and sent. [bytes]"""
        return max(held.gradient_bytes, 4) if self.fp32_gradients else held.gradient_bytes

    @property
    def bubble(self) -> float:
        """Part of an iteration in which a GPU waits for its pipeline, with equal stages and a free network.

        It is (p - 1) / (m + p - 1) for m micro-batches, with v chunks a stage (p - 1) / (v m + p - 1), and
        where gradients of parameters are made late, in a third of each pass's time, (p - 1) / (3 m + p - 1).

        >>> Plan(mp=1, pp=4, dp=1, global_batch=9, micro_batch=1).bubble
        0.25
        """
        late = 3 if self.schedule == "zb-h1" else 1
        ahead = self.pp - 1
        return ahead / (self.chunks * late * self.micro_batches + ahead)

    @property
    def stage_peers(self) -> int:
        """GPUs of other stages that a GPU passes activations and their gradients to and from, at most.

        They are on the stage before and on the one behind; with several chunks the first stage is behind the
        last.
        """
        return min(2, self.pp - 1)

    @property
    def local_batch(self) -> int:
        """Samples each replica trains on in an iteration: b / l."""
        return self.global_batch // self.dp

    @property
    def micro_samples(self) -> int:
        """Samples that a replica passes through at once."""
        return self.micro_batch or self.local_batch

    @property
    def micro_batches(self) -> int:
        """Micro-batches of an iteration, m."""
        return self.local_batch // self.micro_samples

    @property
    def model_parts(self) -> int:
        """Contiguous parts into which the model is cut: part c is on stage c mod pp."""
        return self.pp * self.chunks

    @property
    def positions(self) -> NDArray[np.int32]:
        """Place of each GPU of each replica among all, from the fastest network outwards. [replicas, replica]

        GPU stage x mp + d of a replica is device d of a stage.

        >>> Plan(mp=2, pp=2, dp=2, global_batch=2).positions.tolist()
        [[0, 1, 2, 3], [4, 5, 6, 7]]
        >>> Plan(mp=2, pp=2, dp=2, global_batch=2, rank_order=("mp", "dp", "pp")).positions.tolist()
        [[0, 1, 4, 5], [2, 3, 6, 7]]
        """
        sizes = (self.dp // self.ep, self.ep, self.cp, self.pp, self.mp)
        outer, expert, part, stage, device = np.ogrid[tuple(map(slice, sizes))]
        place = (
            outer * self.stride("dp")
            + expert * self.stride("ep")
            + part * self.stride("cp")
            + stage * self.stride("pp")
            + device * self.stride("mp")
        )
        return np.asarray(place, dtype=np.int32).reshape(self.replicas, self.replica_gpus)

    @property
    def replica_stride(self) -> int | None:
        """Places between a replica and the next; None: they differ.

        >>> Plan(mp=2, dp=4, ep=2, global_batch=4).replica_stride
        2
        >>> Plan(mp=2, pp=2, dp=4, ep=2, global_batch=4).replica_stride is None
        True
        """
        steps = np.diff(self.positions[:, 0])
        return int(steps[0]) if len(steps) and (steps == steps[0]).all() else None

    def stride(self, degree: str) -> int:
        """Places between two GPUs that differ by one in the index of a degree; "dp" is its outer part.

        >>> Plan(mp=2, pp=3, dp=2, global_batch=2).stride("dp")
        6
        """
        order = list(self.rank_order)
        for name, beside, after in (("cp", "mp", 1), ("ep", "dp", 0)):
            if name not in order:
                order.insert(order.index(beside) + after, name)
        sizes = {"dp": self.dp // self.ep}
        inner = order[: order.index(degree)]
        return int(np.prod([sizes.get(name) or getattr(self, name) for name in inner], dtype=np.int64))


def _divisors(number: int) -> list[int]:
    small = [k for k in range(1, int(number**0.5) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})


def _near_divisors(number: int, wanted: int) -> str:
    """Return the largest divisor below and the smallest above, in words.

    >>> _near_divisors(12, 5), _near_divisors(12, 13)
    ('4 or 6', '12')
    """
    divisors = _divisors(number)
    below, above = [d for d in divisors if d < wanted][-1:], [d for d in divisors if d > wanted][:1]
    return " or ".join(str(divisor) for divisor in below + above)
