"""Steps of messages that are alike are found once: they are those that each message has by itself."""

import numpy as np
import pytest

from sipml_core.lowering.treesteps import Messages, Trees, _steps, tree_steps


def random_trees(rng, devices):
    """Trees in which each device is reached from one that is nearer to the root in some random order."""
    parents = np.empty((devices, devices), dtype=np.int32)
    for root in range(devices):
        reached = [root]
        parents[root, root] = root
        for device in rng.permutation(np.delete(np.arange(devices), root)).tolist():
            parents[root, device] = rng.choice(reached)
            reached.append(device)
    return Trees(parents=parents, relays=bool(rng.integers(2)))


def random_messages(rng, devices, stages):
    """Messages of few patterns, their transfers in any order, some with two transfers to one leaf."""
    patterns = []
    for _ in range(6):
        root = int(rng.integers(devices * stages))
        others = np.delete(np.arange(devices * stages), root)
        patterns.append((root, rng.choice(others, rng.integers(1, 6)).tolist(), bool(rng.integers(2))))
    rows = [
        (message, patterns[which][0], leaf, patterns[which][2])
        for message, which in enumerate(rng.integers(len(patterns), size=20).tolist())
        for leaf in patterns[which][1]
    ]
    message, root, leaf, upwards = np.array(rows)[rng.permutation(len(rows))].T
    return Messages(
        message=message.astype(np.int32), root=root.astype(np.int32), leaf=leaf.astype(np.int32),
        upwards=upwards.astype(bool),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_messages_that_are_alike_have_the_steps_of_each_by_itself(seed):
    rng = np.random.default_rng(seed)
    messages, trees = random_messages(rng, devices=5, stages=2), random_trees(rng, 5)
    found, alone = tree_steps(messages, trees, 10), _steps(messages, trees, 10)
    for name in ("of", "nearer", "at_leaf", "at_root", "start"):
        assert getattr(found, name).tolist() == getattr(alone, name).tolist()
    for name in ("upwards", "child", "parent", "depth", "height"):
        assert getattr(found, name)[found.kind].tolist() == getattr(alone, name).tolist()
    assert len(found.child) < len(alone.child)
