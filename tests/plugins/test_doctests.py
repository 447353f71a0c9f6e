"""The examples in docstrings of the bundled plugins run, and give what they say."""

import doctest
import importlib
import pkgutil

import pytest
import sipml_elect_cluster
import sipml_elect_flat
import sipml_electrical
import sipml_graph
import sipml_ocs
import sipml_photonic
import sipml_ring
import sipml_torus

PACKAGES = (
    sipml_elect_cluster, sipml_elect_flat, sipml_electrical, sipml_graph, sipml_ocs, sipml_photonic,
    sipml_ring, sipml_torus,
)  # fmt: skip
MODULES = [package.__name__ for package in PACKAGES] + [
    module.name
    for package in PACKAGES
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    if not module.name.endswith((".ffi_build", "._ring", "._ocs"))
]
#: Modules whose examples stand for a hard function: each must have some.
WITH_EXAMPLES = {
    "sipml_torus.lattice",
    "sipml_photonic.clos",
    "sipml_photonic.grid",
    *(f"sipml_ring.{name}" for name in ("circuits", "folding", "ilp", "mcf", "ring_planning")),
} | {"sipml_ocs.ocs_planning"}


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert failed == 0
    assert tried > 0 or name not in WITH_EXAMPLES
