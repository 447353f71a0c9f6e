"""Loads plugins and collects what they offer: the only place that does.

Every plugin, the bundled ones included, is found through the entry-point group ``sipml``. One that
cannot be loaded, or that breaks the contract of `sipml_core.plugin.interfaces`, is left out and reported in
`Registry.problems`; the others go on. Two plugins that offer the same name stop the program, since
which of them would run an experiment must never depend on the order of installation.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any, get_type_hints

import attrs
import pluggy

from sipml_core.errors import ConfigError, PluginError, unknown
from sipml_core.fields import frozen
from sipml_core.plugin import hookspecs
from sipml_core.plugin.deferred import Deferred
from sipml_core.plugin.interfaces import (
    Allocator,
    AllReduce,
    Communication,
    Component,
    Estimator,
    Exchange,
    GpuModel,
    Placer,
    Scheduler,
    Topology,
    Workload,
)
from sipml_core.plugin.signals import interrupts_blocked

#: Version of the hooks and interfaces. A plugin may state the one it was written for in a
#: module constant `SIPML_API`; another number is refused.
API_VERSION = 2

#: What a plugin written for an earlier version must change, by that version.
_CHANGES = {
    1: "give hints and words of a Fabric as hints=FabricHints(...) and words=FabricWords(...), leave "
    "kept_gbps and dark_us out of a CircuitPlan, then set SIPML_API = 2 (CHANGELOG.md, plugin API 2)",
}

#: Comma-separated names of plugins (entry points) that are not loaded.
DISABLE_VARIABLE = "SIPML_DISABLE_PLUGINS"

#: What each hook collects: role -> (hook, base class).
ROLES: Mapping[str, tuple[str, type[Component]]] = {
    "workload": ("sipml_workloads", Workload),
    "gpu": ("sipml_gpu_models", GpuModel),
    "placer": ("sipml_placers", Placer),
    "topology": ("sipml_topologies", Topology),
    "scheduler": ("sipml_schedulers", Scheduler),
    "estimator": ("sipml_estimators", Estimator),
    "exchange": ("sipml_exchanges", Exchange),
    "all_reduce": ("sipml_all_reduces", AllReduce),
    "communication": ("sipml_communication", Communication),
    "allocator": ("sipml_allocators", Allocator),
}


@frozen(kw_only=True)
class Source:
    """Where a plugin comes from."""

    plugin: str
    distribution: str

    def __str__(self) -> str:
        return f"plugin {self.plugin!r} ({self.distribution})"


@frozen(kw_only=True)
class Entry:
    """One offered class."""

    role: str
    offered: type[Component] | Deferred
    source: Source

    @property
    def component(self) -> type[Component]:
        """Return the class, imported now where that was deferred.

        Raises
        ------
        PluginError
            It cannot be imported, or breaks the contract.
        """
        return self.offered if isinstance(self.offered, type) else _imported(self)

    @property
    def package(self) -> str:
        """Return the top-level package that brings the class."""
        if isinstance(self.offered, type):
            return self.offered.__module__.partition(".")[0]
        return self.offered.package


@attrs.define
class Registry:
    """Everything the loaded plugins offer."""

    manager: pluggy.PluginManager
    entries: dict[str, dict[str, Entry]] = attrs.Factory(lambda: {role: {} for role in ROLES})
    #: Plugins that loaded, in calling order.
    sources: list[Source] = attrs.Factory(list)
    #: One line for each plugin that was left out, or left out in part.
    problems: list[str] = attrs.Factory(list)
    #: What was loaded and which hooks were called, in order.
    trace: list[str] = attrs.Factory(list)

    def find(self, role: str, name: str) -> type[Any]:
        """The class of that role and name; `ConfigError` names the nearest one if there is none."""
        try:
            return self.entries[role][name].component
        except KeyError:
            raise ConfigError(unknown(role, name, self.entries[role])) from None

    def names(self, role: str) -> list[str]:
        return sorted(self.entries[role])

    def classes(self, role: str) -> list[type[Any]]:
        """The classes of a role, in the order in which they were offered."""
        return [entry.component for entry in self.entries[role].values()]

    def tell(self, hook: str, **about: Any) -> list[str]:
        """Call an observing hook of every plugin; return one line for each that raised.

        A plugin that raises changes nothing: the others are told all the same.
        """
        problems = []
        plugins = {name: self.manager.get_plugin(name) for name in self.observers(hook)}
        for name, plugin in plugins.items():
            others = [other for other in self.manager.get_plugins() if other is not plugin]
            try:
                self.manager.subset_hook_caller(hook, others)(**about)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a stranger's code
                problems.append(f"plugin {name!r} failed in {hook}: {_named(error)}")
        return problems

    def observers(self, hook: str) -> list[str]:
        """Plugins that a hook of a run calls, in order: the last one loaded is called first."""
        return [impl.plugin_name for impl in reversed(getattr(self.manager.hook, hook).get_hookimpls())]


def load(found: Iterable[EntryPoint] | None = None, disabled: Iterable[str] | None = None) -> Registry:
    """Load every installed plugin.

    Parameters
    ----------
    found
        Entry points to load; None: all that are installed in the group ``sipml``.
    disabled
        Names of entry points to leave out; None: those in ``SIPML_DISABLE_PLUGINS``.

    Raises
    ------
    PluginError
        Two plugins have the same name, or offer the same name.
    """
    if found is None:
        found = entry_points(group=hookspecs.PROJECT)
    if disabled is None:
        disabled = os.environ.get(DISABLE_VARIABLE, "").split(",")
    left_out = {name.strip() for name in disabled}
    modules: list[tuple[Source, Any]] = []
    problems: list[str] = []
    known: dict[Distribution, str] = {}
    for point in sorted(found, key=lambda point: point.name):
        if point.name in left_out:
            continue
        source = Source(plugin=point.name, distribution=_distribution(point, known))
        try:
            with interrupts_blocked():
                module = point.load()
            modules.append((source, module))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a stranger's module does, the others go on
            problems.append(f"{source} is left out: {type(error).__name__}: {_one_line(error)}")
    return collect(modules, problems)


def installed(role: str, name: str) -> type[Any]:
    """Return the class of that role and name that a plugin offers which is installed here.

    So a component builds on one of another plugin without importing it. `ConfigError` names the nearest one
    if there is none.

    >>> installed("gpu", "v100").name
    'v100'
    """
    return _installed().find(role, name)


@cache
def _installed() -> Registry:
    """Return what is installed here."""
    return load()


def collect(modules: Iterable[tuple[Source, Any]], problems: Iterable[str] = ()) -> Registry:
    """A registry of already imported plugin modules (or objects with hook implementations)."""
    registry = Registry(manager=pluggy.PluginManager(hookspecs.PROJECT), problems=list(problems))
    registry.manager.add_hookspecs(hookspecs)
    for source, module in modules:
        _refuse_namesake(registry, source)
        version = getattr(module, "SIPML_API", API_VERSION)
        if version != API_VERSION:
            remedy = _CHANGES.get(version) if isinstance(version, int) else None
            registry.problems.append(
                f"{source} is left out: it was written for plugin API {version}, this sipml has {API_VERSION}"
                + (f"; {remedy}" if remedy else "")
            )
            continue
        try:
            registry.manager.register(module, name=source.plugin)
            registry.manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            registry.manager.unregister(name=source.plugin)
            registry.problems.append(f"{source} is left out: {_one_line(error)}")
            continue
        registry.sources.append(source)
        registry.trace.append(f"load {source}")
    for role, (hook, base) in ROLES.items():
        _collect_offers(registry, role, hook, base)
    return registry


def _collect_offers(registry: Registry, role: str, hook: str, base: type[Component]) -> None:
    sources = {source.plugin: source for source in registry.sources}
    implementations = getattr(registry.manager.hook, hook).get_hookimpls()
    for implementation in sorted(implementations, key=lambda impl: impl.plugin_name):
        source = sources[implementation.plugin_name]
        try:
            components = list(implementation.function())
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a stranger's code
            registry.problems.append(f"{source}: {hook} failed: {type(error).__name__}: {_one_line(error)}")
            continue
        registry.trace.append(f"{hook}: {source} offers {_names(components)}")
        for offered in components:
            fault = None if isinstance(offered, Deferred) else _fault(offered, base)
            if fault:
                registry.problems.append(f"{source}: {hook} returned {offered!r}, left out: {fault}")
            else:
                _add(registry, Entry(role=role, offered=offered, source=source))


@cache
def _imported(entry: Entry) -> type[Component]:
    """Return the class of a deferred offer; `PluginError` says what is wrong with it."""
    assert isinstance(entry.offered, Deferred)
    try:
        with interrupts_blocked():
            component = resolve_name(entry.offered.where)
        fault = _fault(component, ROLES[entry.role][1])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a stranger's code
        fault = _named(error)
    if fault is None and component.name != entry.offered.name:
        fault = f"it is called {component.name!r}"
    if fault:
        raise PluginError(
            f"{entry.source}: the {entry.role} {entry.offered.name!r} ({entry.offered.where}) cannot be "
            f"used: {fault}"
        )
    checked: type[Component] = component
    return checked


def _refuse_namesake(registry: Registry, source: Source) -> None:
    for other in registry.sources:
        if other.plugin == source.plugin:
            raise PluginError(f"{other} and {source} have the same name; uninstall one of them")


def _names(components: Iterable[Any]) -> str:
    return (
        ", ".join(str(getattr(component, "name", repr(component))) for component in components) or "nothing"
    )


def _add(registry: Registry, entry: Entry) -> None:
    name = entry.offered.name
    other = registry.entries[entry.role].get(name)
    if other is not None:
        raise PluginError(
            f"two plugins offer the {entry.role} {name!r}: {other.source} and {entry.source}; "
            f"uninstall one, or name one of them in {DISABLE_VARIABLE}"
        )
    registry.entries[entry.role][name] = entry


def _fault(component: Any, base: type[Component]) -> str | None:
    """Why a class cannot be offered, or None."""
    if not isinstance(component, type) or not issubclass(component, base):
        return f"it is no subclass of {base.__name__}"
    missing = sorted(getattr(component, "__abstractmethods__", ()))
    if missing:
        return f"it does not define {', '.join(missing)}"
    for method, wanted in vars(base).items():
        misfit = _misfit(getattr(component, method), wanted) if inspect.isfunction(wanted) else None
        if misfit is not None:
            return f"its {method}{misfit} is called as {method}{_signature(wanted)}"
    for attribute, example in (("name", "fat-tree"), ("summary", "one line for lists")):
        if not isinstance(getattr(component, attribute, None), str):
            return f"its {attribute!r} must be a text: give the class {attribute} = {example!r}"
    if not attrs.has(component.Options):
        return "its Options must be an attrs class"
    try:
        get_type_hints(component.Options)
    except Exception as error:  # a name that nothing defines, or no type at all
        return f"a type in its Options cannot be resolved: {type(error).__name__}: {_one_line(error)}"
    for field in attrs.fields(component.Options):
        if not field.metadata.get("doc"):
            return (
                f"its option {field.name!r} has no doc: declare it with "
                "sipml_core.fields.option(..., doc='what it is')"
            )
    return None


def _misfit(method: Any, wanted: Callable[..., Any]) -> inspect.Signature | None:
    """Return the parameters of a method that cannot be called as the interface calls it; None: it can."""
    if not inspect.isfunction(method) or method is wanted:
        return None
    parameters = _signature(wanted).parameters.values()
    by_name = {each.name: None for each in parameters if each.kind is each.KEYWORD_ONLY}
    by_place = [None for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    theirs = inspect.signature(method)
    try:
        theirs.bind(*by_place, **by_name)
    except TypeError:
        return theirs
    return None


@cache
def _signature(wanted: Callable[..., Any]) -> inspect.Signature:
    """Return how the interface calls a method, which all classes of a role are asked for."""
    return inspect.signature(wanted)


def _distribution(point: EntryPoint, known: dict[Distribution, str]) -> str:
    """Return the name and version of what installed a plugin.

    Entry points of one distribution share it: `known` keeps what is read from its metadata, 1 ms each time.
    """
    if point.dist is None:
        return "not installed"
    if point.dist not in known:
        metadata = point.dist.metadata
        known[point.dist] = f"{metadata['Name']} {metadata['Version']}"
    return known[point.dist]


def _named(error: BaseException) -> str:
    """What was raised and what it says, in one line."""
    return f"{type(error).__name__}: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
