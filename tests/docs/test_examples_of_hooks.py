"""The examples in the pages of hooks are plugins that work and keep the laws."""

import importlib.util
from pathlib import Path

import pytest

from sipml_core.plugin.registry import Source, collect
from sipml_core.testing import PlacerConformance

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "plugins" / "examples"


def example(hook):
    return load_module(EXAMPLES / f"{hook}.py")


def load_module(path):
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def registry(hook):
    return collect([(Source(plugin="example", distribution="docs"), example(hook))])


def test_sipml_workloads_offers_a_model_that_can_be_trained():
    """10 000 x 512 embedding, 512 x 2048 and 2048 x 512 matrices, biases of 2048 and 512."""
    workload = registry("sipml_workloads").find("workload", "two-layers")
    graph = workload(workload.Options()).graph(4, "mixed")
    assert graph.parameter_elements == 10_000 * 512 + 2 * 512 * 2048 + 2048 + 512


class TestPlacer(PlacerConformance):
    placer = example("sipml_placers").PartByPart


def test_sipml_placers_offers_it():
    assert registry("sipml_placers").names("placer") == ["part-by-part"]


@pytest.mark.parametrize("hook", ["sipml_run_started", "sipml_run_finished"])
def test_observers_load(hook):
    assert registry(hook).observers(hook) == ["example"]


@pytest.mark.parametrize(
    ("path", "hook", "role", "name"),
    [
        ("third_party_gpu/sipml_spec_sheet.py", "sipml_gpu_models", "gpu", "spec-sheet"),
        ("third_party_scheduler/sipml_hottest_first.py", "sipml_schedulers", "scheduler", "hottest-first"),
    ],
)
def test_the_small_third_party_modules_offer_what_they_say(path, hook, role, name):
    module = load_module(ROOT / "examples" / path)
    found = collect([(Source(plugin="example", distribution="docs"), module)])
    assert (found.names(role), found.problems) == ([name], [])
    assert any(line.startswith(hook) for line in found.trace)
