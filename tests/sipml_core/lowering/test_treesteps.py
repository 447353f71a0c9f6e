"""Steps of messages are the edges on their ways; of messages that are alike they are found once."""

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


def way(trees, root, leaf, straight):
    """Edges from the root to the leaf, as the device away from the root of each."""
    group = len(trees.parents)
    devices = [leaf]
    while not straight and trees.parents[root % group, devices[0] % group] != root % group:
        devices.insert(0, leaf - leaf % group + trees.parents[root % group, devices[0] % group])
    return devices


@pytest.mark.parametrize("seed", range(5))
def test_steps_are_the_edges_on_the_ways_of_each_message_once(seed):
    """Walked one transfer at a time; between stages, and without relays for one user, in one step."""
    rng = np.random.default_rng(seed)
    messages, trees = random_messages(rng, devices=5, stages=2), random_trees(rng, 5)
    found, edges = tree_steps(messages, trees, 10), set()
    for transfer, (message, root, leaf) in enumerate(
        zip(messages.message.tolist(), messages.root.tolist(), messages.leaf.tolist(), strict=True)
    ):
        alone = not trees.relays and messages.size[message] == 1
        devices = way(trees, root, leaf, straight=alone or root // 5 != leaf // 5)
        steps = [int(found.at_leaf[transfer])]
        while found.nearer[steps[0]] >= 0:
            steps.insert(0, int(found.nearer[steps[0]]))
        kind = found.kind[steps]
        assert steps[0] == found.at_root[transfer]
        assert found.child[kind].tolist() == devices
        assert found.parent[kind].tolist() == [root, *devices[:-1]]
        assert found.depth[kind].tolist() == list(range(len(devices)))
        assert (found.upwards[kind] == messages.upwards[transfer]).all()
        edges |= {(message, device) for device in devices}
    assert len(found.of) == len(edges)
