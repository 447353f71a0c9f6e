"""A faulty plugin is named, with its distribution, and the others go on."""

import ast
import re
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
from click.testing import CliRunner

import sipml_core
from sipml_core.cli.main import main
from sipml_core.errors import ConfigError, PluginError
from sipml_core.plugin.registry import DISABLE_VARIABLE, load

CORE = Path(sipml_core.__file__).parent
ROOT = Path(__file__).resolve().parents[3]

SOUND = """
from sipml_core.plugin.hookspecs import hookimpl
from sipml_core.plugin.interfaces import Topology

class {klass}(Topology):
    name = "{name}"
    summary = "a network"

    def build(self, cluster):
        raise NotImplementedError

@hookimpl
def sipml_topologies():
    return [{klass}]
"""

#: Options of which one is not explained.
SILENT = """
    import attrs

    @attrs.frozen(kw_only=True)
    class Options:
        speed: float = 1.0
"""

#: Options whose type nothing defines.
LOST = """
    import attrs

    @attrs.frozen(kw_only=True)
    class Options:
        speed: "Lost" = 1
"""

_modules = iter(range(1_000_000))


@pytest.fixture
def install(tmp_path, monkeypatch):
    """install(plugin, source) puts a distribution "strange-<plugin> 2.0" on the path, as pip would."""
    monkeypatch.syspath_prepend(tmp_path)

    def put(plugin, source, distribution=None):
        module = f"strange_module_{next(_modules)}"
        (tmp_path / f"{module}.py").write_text(source)
        distribution = distribution or f"strange-{plugin}"
        info = tmp_path / f"{distribution.replace('-', '_')}-2.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 2.0\n")
        (info / "entry_points.txt").write_text(f"[sipml]\n{plugin} = {module}\n")

    return put


@pytest.fixture
def found(tmp_path):
    """The entry points of what `install` put there, and of nothing else."""
    return lambda: [point for d in distributions(path=[str(tmp_path)]) for point in d.entry_points]


def sound(name="net"):
    return SOUND.format(name=name, klass=name.capitalize())


def test_a_sound_plugin_offers_its_topology(install, found):
    install("good", sound())
    registry = load(found(), disabled=())
    assert registry.problems == []
    assert registry.names("topology") == ["net"]
    assert str(registry.entries["topology"]["net"].source) == "plugin 'good' (strange-good 2.0)"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise RuntimeError('no\\nlicence')", "is left out: RuntimeError: no licence"),
        ("import module_that_is_not_there", "is left out: ModuleNotFoundError: No module named"),
        ("import sys; sys.exit(3)", "is left out: SystemExit: 3"),
        ("class Odd(BaseException): pass\nraise Odd('moon')", "is left out: Odd: moon"),
        (sound().replace("return [Net]", "raise GeneratorExit"), "sipml_topologies failed: GeneratorExit"),
        (
            sound().replace('name = "net"', f'name = "net"\n{LOST}'),
            "a type in its Options cannot be resolved: NameError: name 'Lost' is not defined",
        ),
        (
            sound().replace('name = "net"', f'name = "net"\n{SILENT}'),
            "left out: its option 'speed' has no doc: declare it with sipml_core.fields.option",
        ),
        ("def f(:", "is left out: SyntaxError"),
        (sound() + "\nSIPML_API = 99", "is left out: it was written for plugin API 99, this sipml has 2"),
        (
            sound() + "\nSIPML_API = 1",
            r"written for plugin API 1, this sipml has 2; give hints .*, then set SIPML_API = 2",
        ),
        (sound().replace("def sipml_topol", "def sipml_tpol"), "left out: unknown hook 'sipml_tpologies'"),
        (sound().replace("sipml_topologies()", "sipml_topologies(speed)"), "is left out: .*speed"),
        (sound().replace("[Net]", "None"), "sipml_topologies failed: TypeError"),
        (sound().replace("return [Net]", "raise KeyError('x')"), "sipml_topologies failed: KeyError: 'x'"),
        (sound().replace("[Net]", "[Net(None), 3]"), "left out: it is no subclass of Topology"),
        (sound().replace("def build", "def built"), "left out: it does not define build"),
        (
            sound().replace("def build(self, cluster)", "def build(self)"),
            r"left out: its build\(self\).* is called as build\(self, cluster",
        ),
        (sound().replace('name = "net"', "name = 3"), "its 'name' must be a text: give the class name = 'fa"),
        (sound().replace('summary = "a network"', "Options = dict"), "its 'summary' must be a text"),
        (sound().replace('name = "net"', 'name = "net"; Options = dict'), "Options must be an attrs class"),
    ],
)  # fmt: skip
def test_a_faulty_plugin_is_left_out_by_name_and_the_others_go_on(install, found, source, told):
    install("bad", source)
    install("good", sound("other"))
    registry = load(found(), disabled=())
    assert re.search(r"^plugin 'bad' \(strange-bad 2.0\).*" + told, registry.problems[0])
    assert all("\n" not in problem for problem in registry.problems)
    assert registry.names("topology") == ["other"]


def deferred(name, where):
    """A plugin that offers a class by its name alone."""
    return (
        "from sipml_core.plugin import Deferred, hookimpl\n"
        f"@hookimpl\ndef sipml_topologies():\n    return [Deferred({name!r}, {where!r})]\n"
    )


def test_a_deferred_offer_is_imported_when_it_is_asked_for(install, found, tmp_path):
    """Its name is known before: it is listed, and clashes are found."""
    (tmp_path / "strange_lazy.py").write_text(sound())
    install("lazy", deferred("net", "strange_lazy:Net"))
    registry = load(found(), disabled=())
    assert registry.names("topology") == ["net"]
    assert registry.entries["topology"]["net"].package == "strange_lazy"
    assert "strange_lazy" not in sys.modules
    assert registry.find("topology", "net").summary == "a network"
    assert "strange_lazy" in sys.modules
    install("other", sound())
    with pytest.raises(PluginError, match="offer the topology 'net'"):
        load(found(), disabled=())


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("strange_gone:Net", "ModuleNotFoundError: No module named 'strange_gone'"),
        ("strange_sound:Gone", "AttributeError: module 'strange_sound' has no attribute 'Gone'"),
        ("strange_sound:hookimpl", "it is no subclass of Topology"),
        ("strange_sound:Net", "it is called 'other'"),
    ],
)
def test_a_deferred_offer_that_cannot_be_used_is_named_when_it_is_asked_for(
    install, found, tmp_path, where, told
):
    (tmp_path / "strange_sound.py").write_text(sound("other").replace("class Other", "class Net"))
    install("lazy", deferred("net", where))
    registry = load(found(), disabled=())
    with pytest.raises(PluginError, match=re.escape(f"topology 'net' ({where}) cannot be used: {told}")):
        registry.find("topology", "net")


def test_an_interrupt_while_plugins_load_is_no_fault_of_a_plugin(install, found):
    install("slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load(found(), disabled=())


def test_a_plugin_that_is_left_out_does_not_spoil_the_next(install, found):
    """A misspelt hook of the first must not be held against the second."""
    install("a", sound("one").replace("def sipml_topologies", "def sipml_topologys"))
    install("b", sound("two"))
    registry = load(found(), disabled=())
    assert len(registry.problems) == 1
    assert registry.names("topology") == ["two"]


def test_two_plugins_that_offer_one_name_stop_the_program_and_both_are_named(install, found):
    install("a", sound())
    install("b", sound())
    expected = r"topology 'net': plugin 'a' \(strange-a 2.0\) and plugin 'b' \(strange-b 2.0\); uninstall one"
    with pytest.raises(PluginError, match=expected):
        load(found(), disabled=())
    assert load(found(), disabled=["b"]).names("topology") == ["net"]


def test_two_plugins_of_one_name_stop_the_program_and_both_are_named(install, found):
    install("a", sound("one"), "strange-x")
    install("a", sound("two"), "strange-y")
    with pytest.raises(PluginError, match=r"\(strange-. 2.0\) and .* \(strange-. 2.0\) have the same name"):
        load(found(), disabled=())


def test_disabled_plugins_are_not_even_imported(install, found, monkeypatch):
    install("bad", "raise RuntimeError")
    install("good", sound())
    monkeypatch.setenv(DISABLE_VARIABLE, "other, bad")
    registry = load(found())
    assert (registry.problems, registry.names("topology")) == ([], ["net"])


def test_an_unknown_name_is_answered_with_the_nearest(install, found):
    install("good", sound("torus"))
    with pytest.raises(ConfigError, match="no topology 'trous'; did you mean 'torus'"):
        load(found(), disabled=()).find("topology", "trous")


def test_the_trace_tells_what_was_loaded_and_called_in_order(install, found):
    install("b", sound("two"))
    install("a", sound("one"))
    assert load(found(), disabled=()).trace == [
        "load plugin 'a' (strange-a 2.0)",
        "load plugin 'b' (strange-b 2.0)",
        "sipml_topologies: plugin 'a' (strange-a 2.0) offers one",
        "sipml_topologies: plugin 'b' (strange-b 2.0) offers two",
    ]


def test_hooks_of_a_run_reach_every_plugin_the_last_loaded_first(install, found):
    """`sipml_run_started` and `sipml_run_finished` are plain notifications."""
    watcher = (
        "from sipml_core.plugin.hookspecs import hookimpl\nseen = []\n"
        "@hookimpl\ndef sipml_run_started(experiment):\n    seen.append(experiment)\n"
        "@hookimpl\ndef sipml_run_finished(result):\n    seen.append(result)\n"
    )
    install("a", watcher)
    install("b", watcher)
    registry = load(found(), disabled=())
    assert registry.observers("sipml_run_started") == ["b", "a"]
    registry.manager.hook.sipml_run_started(experiment="experiment")
    registry.manager.hook.sipml_run_finished(result="result")
    for name in "ab":
        assert registry.manager.get_plugin(name).seen == ["experiment", "result"]


def test_the_command_line_warns_and_goes_on(install):
    """The real entry points, and a faulty one beside them."""
    install("bad", "raise RuntimeError('out of order')")
    run = CliRunner().invoke(main, ["plugins", "--trace"])
    assert run.exit_code == 0
    assert "warning: plugin 'bad' (strange-bad 2.0) is left out: RuntimeError: out of order" in run.stderr
    assert re.search(r"^ +\d+\. sipml_workloads: plugin 'core' .* offers resnet50", run.stdout, re.MULTILINE)
    assert "sipml_run_started: a run calls no plugin" in run.stdout


def test_the_cores_own_tests_import_no_plugin():
    """Deleting plugins/ leaves a core whose own tests can be collected."""
    packages = [path.name for path in (ROOT / "plugins").glob("*") if path.is_dir()]
    for path in (ROOT / "tests" / "sipml_core").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {module.partition(".")[0] for module in modules} & set(packages), path
