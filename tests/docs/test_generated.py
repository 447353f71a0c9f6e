"""Generated pages follow the code, and no hook goes without a page or a test."""

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from sipml_core.plugin.registry import Source, collect
from sipml_core.report.components import component_page

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
    assert f"g{line}" in str(component_page(registry, name).title)


def listed():
    """(module, name) of everything that a plugin may import."""
    rooms = [(room, names) for room, (_, names) in generate.FOR_AUTHORS.items()]
    return {
        (f"sipml_core.{room}", name) for room, names in (*rooms, *generate.ADVANCED.items()) for name in names
    }


def test_what_authors_may_import_is_exported_and_explained():
    """By the room it is listed under; with a sentence in the page."""
    page = generate.api_page()
    for module, name in sorted(listed()):
        room = importlib.import_module(module)
        assert name in getattr(room, "__all__", dir(room)), f"{module} does not export {name}"
        assert re.search(rf"^\| `{name}` \| \S.* \|$", page, re.M), f"{name} has no sentence"


def imports_of(text):
    """(module, name) of what is imported from sipml."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sipml_core":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith("sipml_core"))


def official():
    """Files that authors copy from: examples, the tutorial, what `new-plugin` writes, bundled plugins."""
    for folder in ("examples", "docs/plugins/examples", "plugins"):
        for path in sorted((ROOT / folder).glob("**/*.py")):
            if "build" not in path.parts and path.parent != ROOT / "examples":
                yield pytest.param(path.read_text(encoding="utf-8"), id=str(path.relative_to(ROOT)))
    for path in sorted((ROOT / "sipml_core" / "templates").glob("*/*.py.in")):
        text = path.read_text(encoding="utf-8")
        yield pytest.param(re.sub(r"\$\{?\w+\}?", "word", text), id=str(path.relative_to(ROOT)))
    tutorial = (ROOT / "docs" / "plugins" / "tutorial.md").read_text(encoding="utf-8")
    for k, block in enumerate(re.findall(r"```python[^\n]*\n(.*?)```", tutorial, re.S)):
        yield pytest.param(block, id=f"tutorial-{k}")


@pytest.mark.parametrize("text", list(official()))
def test_official_plugins_import_only_what_is_listed(text):
    assert set(imports_of(text)) <= listed()


@pytest.mark.parametrize("name", [name for name in generate.testing.__all__ if name != "LawBroken"])
def test_every_attribute_of_a_suite_is_documented(name):
    """With a sentence of its own, but for the class under test, which is required."""
    table = generate._suite_table(getattr(generate.testing, name))
    for row in table.splitlines()[2:]:
        attribute, default, text = (cell.strip() for cell in row.strip("|").split("|"))
        assert (text == "the class under test") == (default == "required"), attribute
