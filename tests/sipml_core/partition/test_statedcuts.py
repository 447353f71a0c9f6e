"""Cuts that a plan states: the same as those that are found where they say the same; refusals."""

from __future__ import annotations

import numpy as np
import pytest

from sipml_core.errors import ConfigError
from sipml_core.model import Phase, Plan
from sipml_core.partition import cut_stages, layers_of
from sipml_core.workloads import Gpt, ResNet50, Transformer


def gpt(layers=12):
    return Gpt(Gpt.Options(layers=layers, hidden=64, heads=4, sequence=32)).graph(2, "mixed")


def forward_names(graph):
    return [op.name for op in graph.ops if op.phase is Phase.FORWARD]


@pytest.mark.parametrize(
    "stated", [(3, 3, 3, 3), ("layer3", "layer6.norm1", "layer9")], ids=["layers", "names"]
)
def test_what_states_the_cut_that_is_found_is_that_cut(stated):
    """Equal layers, nothing for embedding and loss, and any tolerance: three layers a stage, sums and all."""
    graph = gpt()
    time_us = np.array([float(op.name.startswith("layer")) for op in graph.ops])
    found = cut_stages(graph, time_us, 4, 0.1)
    assert cut_stages(graph, time_us, 4, 0.1, stated).tolist() == found.tolist()


def test_stated_cuts_are_taken_however_long_stages_take():
    """The embedding alone, and what is behind the last layer alone."""
    graph = gpt()
    part = cut_stages(graph, np.ones(len(graph.ops)), 4, 0.0, (0, 1, 11, 0))
    names = [[] for _ in range(4)]
    for op, at in zip(graph.ops, part, strict=True):
        if op.phase is Phase.FORWARD:
            names[at].append(op.name)
    assert names[0] == ["embedding", "positions"]
    assert {name.split(".")[0] for name in names[1]} == {"layer0"}
    assert names[3] == ["final_norm", "loss.logits", "loss"]


@pytest.mark.parametrize(
    ("graph", "layers"),
    [
        (lambda: Transformer(Transformer.Options()).graph(1, "mixed"), 22),
        (lambda: ResNet50(ResNet50.Options()).graph(1, "mixed"), 16),
        (gpt, 12),
    ],
    ids=["transformer", "resnet50", "gpt"],
)
def test_layers_are_what_models_number(graph, layers):
    """11 encoders and 11 decoders; 3 + 4 + 6 + 3 blocks."""
    assert len(layers_of(forward_names(graph()))) == layers


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ((3, 3, 3, 2), r"add up to the 12 layers of gpt, got 11; nearest: \[3, 3, 3, 3\]"),
        ((3, 3, 3, 5), r"add up to the 12 layers of gpt, got 14; nearest: \[3, 3, 3, 3\]"),
        ((3, 0, 3, 6), r"a layer or more, but for the first and the last, got \[3, 0, 3, 6\]"),
        (("layer3", "lyer6", "layer9"), r"no op or layer 'lyer6' in gpt; did you mean 'layer6'\?"),
        (
            ("layer6", "layer3", "layer9"),
            r"part 1 would begin with 'layer6.norm1' and end before 'layer3.norm1'",
        ),
        (
            ("embedding", "layer3", "layer9"),
            r"part 0 would begin with 'embedding' and end before 'embedding'",
        ),
    ],
)
def test_cuts_that_are_none_are_refused(stated, message):
    graph = gpt()
    with pytest.raises(ConfigError, match=message):
        cut_stages(graph, np.ones(len(graph.ops)), 4, 0.0, stated)


@pytest.mark.parametrize(
    ("stages", "changes", "message"),
    [
        ((3, 3, 3), {}, "4 numbers of layers, where pp is 4, got 3; pp = 3 would do"),
        (("a", "b"), {}, "3 names, one for each part but the first, where pp is 4, got 2; pp = 3 would do"),
        (
            (6, 6),
            {"schedule": "interleaved", "chunks": 2},
            "8 numbers of layers, where pp is 4 with 2 chunks each",
        ),
        ((3, "a"), {}, r"must be numbers of layers \(\[11, 13\]\), or names"),
        ((3, -1), {}, "must be numbers of layers"),
        ((), {}, "must be numbers of layers"),
    ],
)
def test_as_many_are_stated_as_the_plan_has_parts(stages, changes, message):
    with pytest.raises(ConfigError, match=f"^stages .*{message}"):
        Plan(mp=1, pp=4, dp=1, global_batch=8, micro_batch=1, stages=stages, **changes)
