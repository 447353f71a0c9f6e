"""Cuts that a plan states: how many layers each part of the model holds, or where each part begins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
import numpy as np
from numpy.typing import NDArray

from sipml_core.errors import ConfigError, nearest, shown
from sipml_core.fields import frozen
from sipml_core.model import OpGraph, Phase


@frozen(kw_only=True)
class Layer:
    """Consecutive forward ops of one numbered part of a model: number `first` to `stop` - 1 of all."""

    name: str
    first: int
    stop: int


def stated_cuts(graph: OpGraph, stages: Sequence[int | str]) -> NDArray[np.int64]:
    """Return the first forward op of each part of the model but the first. [parts - 1]

    Parameters
    ----------
    stages
        Layers of each part; or the forward op, or layer, at which each part but the first begins. What is
        between layers is with the layer behind it; what is after the last one, on the last part.

    Raises
    ------
    ConfigError
        The model has another number of layers, no such op, or a part would be empty.

    Examples
    --------
    >>> from sipml_core.workloads import Gpt
    >>> graph = Gpt(Gpt.Options(layers=4, hidden=8, heads=2, sequence=4)).graph(1, "mixed")
    >>> names = [op.name for op in graph.ops if op.phase is Phase.FORWARD]
    >>> [names[first] for first in stated_cuts(graph, [1, 3, 0])]
    ['layer1.norm1', 'final_norm']
    >>> stated_cuts(graph, ["layer1", "final_norm"]).tolist() == stated_cuts(graph, [1, 3, 0]).tolist()
    True
    """
    names = [op.name for op in graph.ops if op.phase is Phase.FORWARD]
    layers = layers_of(names)
    if isinstance(stages[0], str):
        found = [_begin(graph.name, str(name), names, layers) for name in stages]
    else:
        found = _begins(graph.name, [int(count) for count in stages], layers)
    ends = [*names, "its end"]
    for part, (first, stop) in enumerate(pairwise([0, *found, len(names)])):
        if stop <= first:
            raise ConfigError(
                f"plan.stages must give each part of {graph.name} an op or more, in the order of the model: "
                f"part {part} would begin with {ends[first]!r} and end before {ends[stop]!r}"
            )
    return np.array(found, dtype=np.int64)


def layers_of(names: Sequence[str]) -> list[Layer]:
    """Return the layers among forward ops in their order: runs of names that begin with one numbered part.

    >>> found = layers_of(["stem", "s1.0.a", "s1.0.b", "s1.1.a", "fc"])
    >>> [(layer.name, layer.first, layer.stop) for layer in found]
    [('s1.0', 1, 3), ('s1.1', 3, 4)]
    """
    found: list[Layer] = []
    for index, name in enumerate(names):
        prefix = _numbered(name)
        if prefix is None:
            continue
        if found and found[-1].name == prefix and found[-1].stop == index:
            found[-1] = attrs.evolve(found[-1], stop=index + 1)
        else:
            found.append(Layer(name=prefix, first=index, stop=index + 1))
    return found


def _numbered(name: str) -> str | None:
    """Return a name up to its first part that ends in a digit, and the numbers behind that; None: none does.

    >>> _numbered("layer3.mlp.fc1"), _numbered("stage1.0.conv1"), _numbered("loss.logits")
    ('layer3', 'stage1.0', None)
    """
    parts = name.split(".")
    end = next((place for place, part in enumerate(parts, 1) if part[-1:].isdigit()), None)
    if end is None:
        return None
    while end < len(parts) and parts[end].isdigit():
        end += 1
    return ".".join(parts[:end])


def _begin(model: str, name: str, names: Sequence[str], layers: Sequence[Layer]) -> int:
    """Return the forward op of that name, or the first one of the layer of that name."""
    if name in names:
        return names.index(name)
    for layer in layers:
        if layer.name == name:
            return layer.first
    close = nearest(name, [*(layer.name for layer in layers), *names])
    hint = f"; did you mean {close!r}?" if close else ";"
    known = f"layers: {layers[0].name} to {layers[-1].name}" if layers else f"ops: {names[0]} to {names[-1]}"
    raise ConfigError(f"plan.stages: no op or layer {shown(name)} in {model}{hint} {known}")


def _begins(model: str, counts: Sequence[int], layers: Sequence[Layer]) -> list[int]:
    """Return where each part but the first begins that has so many layers."""
    if not layers:
        raise ConfigError(
            f"plan.stages must name the ops at which parts begin: {model} has no numbered layers"
        )
    if 0 in counts[1:-1]:
        raise ConfigError(
            f"plan.stages must give each part a layer or more, but for the first and the last, "
            f"got {shown(counts)}"
        )
    if sum(counts) != len(layers):
        raise ConfigError(
            f"plan.stages must add up to the {len(layers)} layers of {model}, got {sum(counts)}; "
            f"nearest: {_nearest(counts, len(layers))}"
        )
    sums = np.cumsum(counts)[:-1].tolist()
    return [layers[total - 1].stop if total else layers[0].first for total in sums]


def _nearest(counts: Sequence[int], total: int) -> list[int]:
    """Return numbers that add up to `total` and differ from `counts` in the last ones.

    >>> _nearest([3, 3, 3], 8), _nearest([3, 3, 3], 10), _nearest([9, 1], 4)
    ([3, 3, 2], [3, 3, 4], [4, 0])
    """
    found = list(counts)
    found[-1] += max(0, total - sum(found))
    for place in range(len(found) - 1, -1, -1):
        found[place] -= min(found[place], max(0, sum(found) - total))
    return found
