"""What plugins offer, for the terminal and for the generated configuration reference."""

from __future__ import annotations

from typing import Any

import attrs
from rich.table import Table
from rich.text import Text

from sipml_core.errors import ConfigError, unknown
from sipml_core.plugin import Component, Entry, Registry, Workload


def components_table(registry: Registry) -> Table:
    """Everything that can be named in an experiment, and the distribution it comes from."""
    table = Table(title="what can be named in an experiment", title_justify="left")
    for column in ("role", "name", "what it is", "from"):
        table.add_column(column, overflow="fold")
    for role, entries in registry.entries.items():
        for name in sorted(entries):
            entry = entries[name]
            source = f"{entry.source.plugin} ({entry.source.distribution})"
            table.add_row(*map(Text, (role, name, entry.component.summary, source)))
    return table


def trace_lines(registry: Registry) -> list[str]:
    """What happened when plugins were loaded, in order, and whom a run would tell of itself."""
    lines = list(registry.trace)
    for hook in ("sipml_run_started", "sipml_run_finished"):
        lines.append(f"{hook}: a run calls {', '.join(registry.observers(hook)) or 'no plugin'}")
    return [f"{number:3}. {line}" for number, line in enumerate(lines, 1)]


def component_page(registry: Registry, name: str) -> Table:
    """Options of one offer.

    Raises `ConfigError` with the nearest name if nothing is called that.
    """
    entries = [by_name[name] for by_name in registry.entries.values() if name in by_name]
    if not entries:
        known = {known for by_name in registry.entries.values() for known in by_name}
        raise ConfigError(unknown("plugin offer", name, known))
    entry = entries[0]
    table = Table(title=Text(_title(entry)), title_justify="left", caption_justify="left")
    for column in ("option", "type", "unit", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for row in option_rows(entry.component.Options):
        table.add_row(*map(Text, (row["option"], row["type"], row["unit"], row["default"], row["meaning"])))
    return table


def _title(entry: Entry) -> str:
    lines = [f"{entry.role} {entry.component.name}: {entry.component.summary}", f"from {entry.source}"]
    return "\n".join(line for line in (*lines, default_batch(entry.component)) if line)


def default_batch(component: type[Component]) -> str:
    """Of a workload: the global batch where the experiment names none; of other offers nothing."""
    if not issubclass(component, Workload):
        return ""
    return f"global batch where [strategy] names none: {component.default_global_batch} samples"


def option_rows(options: type[Any]) -> list[dict[str, str]]:
    """One record for each option: name, type, unit, default, meaning."""
    return [
        {
            "option": field.name,
            "type": _type_name(field.type),
            "unit": field.metadata.get("unit", ""),
            "default": _default(field.default),
            "meaning": field.metadata.get("doc", ""),
        }
        for field in attrs.fields(options)
        if field.init
    ]


def _type_name(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _default(value: Any) -> str:
    if value is attrs.NOTHING:
        return "required"
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        return "depends" if value.takes_self else "{}"
    return (
        {None: "none", True: "true", False: "false"}.get(value, str(value)) if _plain(value) else str(value)
    )


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, bool)
