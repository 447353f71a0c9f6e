"""Examples in docstrings run, and the functions that are hardest to follow have one."""

import doctest
import importlib
import pkgutil

import pytest

import sipml_core
from sipml_core.lowering.exchanges import routed
from sipml_core.lowering.folding import _folded, _images, _Orbits
from sipml_core.lowering.gathers import Gathers
from sipml_core.lowering.gradients import plan_buckets
from sipml_core.lowering.grouptasks import _gates, _positions, group_tasks
from sipml_core.lowering.iterationtasks import IterationTasks
from sipml_core.lowering.synchronisation import Synchronisation
from sipml_core.lowering.transfers import merged_boxes, plan_transfers
from sipml_core.lowering.treesteps import tree_steps

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(sipml_core.__path__, "sipml_core.")
    if not module.name.endswith(("ffi_build", "__main__", "_engine"))
)

#: Functions that juggle index arrays.
HARD = [
    _Orbits.of, _images, _folded, merged_boxes, plan_transfers, routed, tree_steps, group_tasks, _gates,
    _positions, plan_buckets, IterationTasks.add, Synchronisation._add, Gathers.of,
]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_give_what_they_say(name):
    failed, _ = doctest.testmod(importlib.import_module(name), report=True)
    assert not failed


@pytest.mark.parametrize("function", HARD, ids=lambda function: function.__qualname__)
def test_hard_functions_show_an_example(function):
    """With something that comes out, not only set up."""
    examples = doctest.DocTestParser().get_examples(function.__doc__)
    assert any(example.want for example in examples)
