"""Laws of models to train."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

from sipml_core.errors import ConfigError, SipmlError
from sipml_core.model import PRECISIONS, OpGraph, Phase, Role, Split, op_work
from sipml_core.plugin import Workload
from sipml_core.testing.jobs import require_sound, train_on_a_switch
from sipml_core.testing.laws import ComponentConformance, law, require

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True

#: Relative error of sums.
_TOLERANCE = 1e-9


class WorkloadConformance(ComponentConformance):
    """Laws of a workload: set `workload`, and `options` that make it small enough to try."""

    workload: ClassVar[type[Workload]]
    #: Batches of one replica that are tried, the smallest first.
    samples: ClassVar[tuple[int, ...]] = (1, 2, 8)
    #: GPUs that train it on an ideal switch, once as replicas and once as groups of two. An even number.
    training_gpus: ClassVar[int] = 4

    @property
    def component(self) -> type[Any]:
        return self.workload

    def exercise(self, component: Any) -> None:
        component.graph(self.samples[0], "mixed")

    def graphs(self) -> Iterator[tuple[dict[str, Any], OpGraph]]:
        """The graph of each batch at each precision that is not refused."""
        tried = 0
        for samples in self.samples:
            for precision in PRECISIONS:
                case = {"samples": samples, "precision": precision}
                with law("graph returns an OpGraph, or refuses with one line", **case):
                    try:
                        graph = self.make().graph(samples, precision)
                    except SipmlError as refusal:
                        require("\n" not in str(refusal), f"several lines: {refusal}")
                        continue
                    require(isinstance(graph, OpGraph), f"{graph!r}")
                tried += 1
                yield case, graph
        with law("some batch can be trained at some precision", samples=self.samples):
            require(tried, "all are refused")

    def test_a_graph_is_for_the_batch_and_the_precision_asked_for(self) -> None:
        for case, graph in self.graphs():
            with law("a graph says which batch and precision it is for", **case):
                require(graph.samples == case["samples"], f"samples = {graph.samples}")
                require(graph.precision == case["precision"], f"precision = {graph.precision!r}")

    def test_the_same_batch_gives_the_same_graph(self) -> None:
        for case, graph in self.graphs():
            with law("a graph depends on its arguments only", **case):
                again = self.make().graph(case["samples"], case["precision"])
                require((again.ops, again.tensors) == (graph.ops, graph.tensors), "two calls, two graphs")

    def test_a_step_goes_forward_and_back_and_updates_what_it_learns(self) -> None:
        for case, graph in self.graphs():
            for phase in Phase:
                with law("a training step has ops of every phase", phase=phase.value, **case):
                    require(any(op.phase is phase for op in graph.ops), "it has none")
            with law("a step computes", **case):
                require(graph.flops(Phase.FORWARD) > 0, "0 flops in the forward pass")
            for tensor in graph.tensors:
                if tensor.role is Role.PARAMETER:
                    with law("a parameter has gradients of its shape, and an optimizer op that reads both",
                             parameter=tensor.name, **case):  # fmt: skip
                        self._check_parameter(graph, tensor.name)

    def _check_parameter(self, graph: OpGraph, parameter: str) -> None:
        gradients = [tensor for tensor in graph.tensors if tensor.parameter == parameter]
        require(gradients, "no gradient")
        shape = graph.tensor[parameter].shape
        require(
            all(g.shape == shape for g in gradients), f"gradients of shape {[g.shape for g in gradients]}"
        )
        updates = [
            {operand.tensor for operand in op.reads} for op in graph.ops if op.phase is Phase.OPTIMIZER
        ]
        wanted = {parameter, *(gradient.name for gradient in gradients)}
        require(any(wanted <= read for read in updates), "no optimizer op reads it and its gradients")

    def test_more_samples_are_more_work_and_no_more_parameters(self) -> None:
        before: dict[str, OpGraph] = {}
        for case, graph in self.graphs():
            smaller = before.get(graph.precision)
            if smaller is not None:
                ratio = graph.samples / smaller.samples
                with law("the forward pass takes as many times the flops as there are samples", **case):
                    found = graph.flops(Phase.FORWARD) / smaller.flops(Phase.FORWARD)
                    require(
                        math.isclose(found, ratio, rel_tol=1e-6), f"{found:g} times, samples {ratio:g} times"
                    )
                with law("a model is as large for any batch", **case):
                    require(
                        graph.parameter_elements == smaller.parameter_elements,
                        f"{smaller.parameter_elements} parameters, then {graph.parameter_elements}",
                    )
            before[graph.precision] = graph

    def test_an_op_touches_the_whole_of_what_it_writes(self) -> None:
        for case, graph in self.graphs():
            for op in graph.ops:
                for operand in op.writes:
                    shape = graph.tensor[operand.tensor].shape
                    with law("an op writes the whole tensor", op=op.name, tensor=operand.tensor, **case):
                        box = operand.region(shape, op.ranges)
                        require(box == tuple((0, size) for size in shape), f"{box} of {shape}")

    def test_slices_do_the_whole_work(self) -> None:
        for case, graph in self.graphs():
            for op in graph.ops:
                for dim in op.splits:
                    parts = min(2, op.dims.get(dim, 0))
                    with law("a split names a dimension of the op", op=op.name, dim=dim, **case):
                        require(parts, f"its dimensions are {', '.join(op.dims)}")
                    with law("the flops of the parts add up to those of the op", op=op.name, dim=dim, **case):
                        flops = sum(op_work(graph, op, dim, parts, part).flops for part in range(parts))
                        require(math.isclose(flops, op.flops, rel_tol=_TOLERANCE), f"{flops} of {op.flops}")

    def test_a_row_split_is_one_that_leaves_partial_sums(self) -> None:
        for case, graph in self.graphs():
            for op in (op for op in graph.ops if op.phase is Phase.FORWARD):
                for dim, split in op.splits.items():
                    follows = all(any(axis.dim == dim for axis in o.axes) for o in op.writes)
                    with law("a split is called ROW exactly if some written tensor does not follow it",
                             op=op.name, dim=dim, **case):  # fmt: skip
                        require((split is Split.ROW) != follows, f"it is called {split.name}")

    def test_convergence_is_stated_for_every_batch(self) -> None:
        workload = self.make()
        with law("default_global_batch is at least 1", workload=workload.name):
            require(workload.default_global_batch >= 1, f"{workload.default_global_batch}")
        for batch in (1, workload.default_global_batch, 64 * workload.default_global_batch):
            with law(
                "convergence has positive steps and a source, or is refused with ConfigError", batch=batch
            ):
                try:
                    convergence = workload.convergence(batch)
                except ConfigError as refusal:
                    require("\n" not in str(refusal), f"several lines: {refusal}")
                    continue
                if convergence is not None:
                    require(
                        math.isfinite(convergence.steps) and convergence.steps > 0,
                        f"{convergence.steps} steps",
                    )
                    require(convergence.source, "no source")

    def test_it_trains(self) -> None:
        for mp in (1, 2):
            with law(
                "training runs to its end, no sooner than its lower bound", gpus=self.training_gpus, mp=mp
            ):
                for result in train_on_a_switch(self.make(), self.training_gpus, mp):
                    require_sound(result)
