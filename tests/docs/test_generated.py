"""Generated pages follow the code, and no hook goes without a page or a test."""

import importlib.util
import re
from pathlib import Path

import pytest

from sipml_core.plugin.registry import Source, collect
from sipml_core.report.components import offer_page

ROOT = Path(__file__).resolve().parents[2]

_spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


@pytest.mark.parametrize("path", generate.pages(), ids=lambda path: path.name)
def test_no_page_is_stale(path):
    assert path.read_text(encoding="utf-8") == generate.pages()[path], "run python docs/generate.py"


@pytest.mark.parametrize("hook", generate.hook_names())
def test_every_hook_is_documented(hook):
    """In its docstring, in a page of its own with an example, and in the overview."""
    assert len(getattr(generate.hookspecs, hook).__doc__.strip()) > 40
    assert hook in generate.HOOKS
    assert f"[`{hook}`]({hook}.md)" in (ROOT / "docs" / "plugins" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("hook", generate.hook_names())
def test_the_example_of_a_hook_is_a_plugin_that_implements_it(hook):
    """Loaded alone, on a registry of its own."""
    _, path = generate.HOOKS[hook]
    spec = importlib.util.spec_from_file_location(f"example_of_{hook}", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    registry = collect([(Source(plugin="example", distribution="docs"), module)])
    assert registry.problems == []
    (implementation,) = getattr(registry.manager.hook, hook).get_hookimpls()
    assert implementation.plugin_name == "example"


@pytest.mark.parametrize("name", ["resnet50", "transformer", "gpt", "megatron"])
def test_default_batches_stand_where_users_look(name):
    """In the table of the workloads, in the reference, and in what `plugins NAME` prints."""
    registry = generate.bundled()
    batch = registry.find("workload", name).default_global_batch
    (row,) = re.findall(
        rf"^\| `{name}` \| .* \| (\d+) \|$", (ROOT / "docs" / "workloads.md").read_text(), re.M
    )
    assert int(row) == batch
    line = f"lobal batch where [strategy] names none: {batch} samples"
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert f"G{line}." in page.split(f"### workload `{name}`")[1].split("###")[0]
    assert f"g{line}" in str(offer_page(registry, name).title)
