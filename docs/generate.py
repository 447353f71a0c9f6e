"""Writes the pages that follow from the code: one for each hook, and the configuration reference.

python docs/generate.py            write them
python docs/generate.py --check    say which are stale; exit status 1 if any is
"""

from __future__ import annotations

import configparser
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import attrs

from sipml_core import testing
from sipml_core.experiment import (
    CommunicationTable,
    EngineTable,
    GpuTable,
    SearchTable,
    StrategyTable,
    TopologyTable,
    WorkloadTable,
)
from sipml_core.model import Cluster, Framework
from sipml_core.plugin import (
    Allocator,
    AllReduce,
    Communication,
    Component,
    Estimator,
    Exchange,
    GpuModel,
    Placer,
    Registry,
    Scheduler,
    Topology,
    Workload,
    hookspecs,
    load,
)
from sipml_core.report import default_batch, option_rows

sys.path.insert(0, str(Path(__file__).resolve().parent))
from authors import ADVANCED, FOR_AUTHORS

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

#: Hook -> what it returns, and a plugin that implements it.
HOOKS: dict[str, tuple[type[Component] | None, str]] = {
    "sipml_workloads": (Workload, "docs/plugins/examples/sipml_workloads.py"),
    "sipml_gpu_models": (GpuModel, "examples/third_party_gpu/sipml_spec_sheet.py"),
    "sipml_placers": (Placer, "docs/plugins/examples/sipml_placers.py"),
    "sipml_topologies": (Topology, "plugins/sipml_elect_flat/__init__.py"),
    "sipml_schedulers": (Scheduler, "examples/third_party_scheduler/sipml_hottest_first.py"),
    "sipml_estimators": (Estimator, "docs/plugins/examples/sipml_estimators.py"),
    "sipml_exchanges": (Exchange, "docs/plugins/examples/sipml_exchanges.py"),
    "sipml_all_reduces": (AllReduce, "docs/plugins/examples/sipml_all_reduces.py"),
    "sipml_communication": (Communication, "docs/plugins/examples/sipml_communication.py"),
    "sipml_allocators": (Allocator, "docs/plugins/examples/sipml_allocators.py"),
    "sipml_run_started": (None, "docs/plugins/examples/sipml_run_started.py"),
    "sipml_run_finished": (None, "docs/plugins/examples/sipml_run_finished.py"),
}

#: Suite of `sipml_core.testing` for what a hook returns.
SUITES = {
    Communication: "Communication",
    GpuModel: "GpuModel",
    Placer: "Placer",
    Topology: "Topology",
    Scheduler: "Scheduler",
    Estimator: "Estimator",
    Workload: "Workload",
}

#: Sections of an experiment file: heading, model, remark.
SECTIONS: tuple[tuple[str, type[Any], str], ...] = (
    ("[cluster]", Cluster, ""),
    ("[gpu]", GpuTable, "The other keys of the table are the options of the GPU model it names."),
    (
        "[plan]",
        StrategyTable,
        "How a job is divided and run: defaults for every workload; a `plan = { ... }` inside a "
        "`[[workload]]` changes them for that one. `[strategy]` and `strategy = { ... }` are other names of "
        "the same tables. N = mp x pp x dp; with mp and dp alone there is one stage and all samples of a "
        "replica pass at once. "
        "`placer` names the placement algorithm (default `algorithm1`), as text or as a table with its "
        "options.",
    ),
    (
        "[communication]",
        CommunicationTable,
        "What collectives cost beyond their bytes: see [communication](communication.md). The other keys of "
        "the table are the options of the library it names.",
    ),
    ("[framework]", Framework, "Time of the host, and the wait for the slowest GPU; left out: none."),
    ("[engine]", EngineTable, ""),
    (
        "[search]",
        SearchTable,
        "What the command `search` may vary; `run` ignores it. A `search = { ... }` inside a `[[workload]]` "
        "changes it for that one. `placers` is a list of placement algorithms (default: that of [strategy]).",
    ),
)

#: Keys of [[topology]] and [[workload]] beside the options of what they name.
OWN_KEYS = {"[[topology]]": TopologyTable, "[[workload]]": WorkloadTable}

GENERATED = "<!-- Written by docs/generate.py from the code; change that instead. -->\n"


def pages() -> dict[Path, str]:
    """Text of every generated page."""
    texts = {DOCS / "plugins" / f"{hook}.md": hook_page(hook) for hook in hook_names()}
    texts[DOCS / "plugins" / "api.md"] = api_page()
    texts[DOCS / "plugins" / "laws.md"] = laws_page()
    texts[DOCS / "configuration.md"] = configuration_page(bundled())
    return {path: GENERATED + text for path, text in texts.items()}


def hook_names() -> list[str]:
    """Hooks in the order of the file that declares them."""
    prefix = f"{hookspecs.PROJECT}_"
    return [name for name in vars(hookspecs) if name.startswith(prefix)]


def bundled() -> Registry:
    """The plugins of this repository, whatever else is installed."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["options.entry_points"][hookspecs.PROJECT].strip().splitlines()
    points = [[part.strip() for part in line.split("=")] for line in lines]
    return load([EntryPoint(name, value, hookspecs.PROJECT) for name, value in points], disabled=())


def hook_page(hook: str) -> str:
    function = getattr(hookspecs, hook)
    base, example = HOOKS[hook]
    parts = [
        f"# `{hook}`",
        inspect.cleandoc(function.__doc__ or ""),
        f"```\n{hook}{_signature(function)}\n```",
    ]
    if base is not None:
        parts += list(_class_parts(base))
    parts += [
        "## Example",
        f"From `{example}`:",
        f"```python\n{(ROOT / example).read_text(encoding='utf-8').strip()}\n```",
        "See [how plugins live](README.md) and the [tutorial](tutorial.md).",
    ]
    return "\n\n".join(parts) + "\n"


def _class_parts(base: type[Component]) -> Iterator[str]:
    yield f"## What it returns: subclasses of `{base.__name__}`"
    yield inspect.cleandoc(base.__doc__ or "")
    yield "| attribute | |\n|---|---|\n" + "\n".join(
        f"| `{name}` | {text} |" for name, text in _attributes(base).items()
    )
    for name, member in vars(base).items():
        if getattr(member, "__isabstractmethod__", False):
            function = member.fget if isinstance(member, property) else member
            kind = "property " if isinstance(member, property) else ""
            yield f"### {kind}`{name}{'' if kind else _signature(function)}`"
            yield inspect.cleandoc(function.__doc__ or "")
    if base in SUITES:
        suite = f"sipml_core.testing.{SUITES[base]}Conformance"
        yield f"Its laws: subclass `{suite}` in a test file, see [laws](laws.md)."


def _attributes(base: type[Component]) -> dict[str, str]:
    """Class attributes of an interface with the `#:` comment above each."""
    texts = {
        "name": "what experiments call it",
        "summary": "one line for lists",
        "Options": "a frozen, keyword-only attrs class; its fields are the keys of the TOML table",
    }
    return texts | _commented(base)


def _commented(cls: type[Any]) -> dict[str, str]:
    """Class attributes with the `#:` comment above each."""
    texts: dict[str, str] = {}
    comment: list[str] = []
    for line in inspect.getsource(cls).splitlines():
        line = line.strip()
        if line.startswith("#:"):
            comment.append(line.removeprefix("#:").strip())
        elif comment and ":" in line:
            texts[line.partition(":")[0]] = " ".join(comment)
            comment = []
    return texts


def api_page() -> str:
    """Everything an author may import, and what each room exports besides."""
    parts = [
        "# What a plugin may import",
        "Names below are the contract: they change only with `API_VERSION`. What a room of sipml exports "
        "besides, listed at the end, is for sipml itself and may change at any time; what it does not export "
        "is private. Import from the room, as in `from sipml_core.model import Fabric`.",
    ]
    for module, (purpose, names) in FOR_AUTHORS.items():
        parts += [f"## `sipml_core.{module}`", purpose, _names_table(module, names)]
    parts += ["## Advanced", "What few plugins need: see [advanced](advanced.md)."]
    parts += [_names_table(module, names) for module, names in ADVANCED.items()]
    parts += ["## Not for plugins", "| room | names |\n|---|---|\n" + "\n".join(_other_names())]
    return "\n\n".join(parts) + "\n"


def _names_table(module: str, names: tuple[str, ...]) -> str:
    room = importlib.import_module(f"sipml_core.{module}")
    lines = [f"| `{name}` | {_cell(_first_sentence(module, room, name))} |" for name in names]
    return "| name | |\n|---|---|\n" + "\n".join(lines)


def _first_sentence(module: str, room: Any, name: str) -> str:
    """Of the docstring of a class or function, or of the comment above a constant."""
    value = getattr(room, name)
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        return " ".join(inspect.cleandoc(value.__doc__ or "").split("\n\n")[0].split())
    for path in sorted((ROOT / "sipml_core" / module.replace(".", "/")).parent.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        for k, line in enumerate(lines):
            if re.match(rf"{name}(:| =)", line) and lines[k - 1].startswith("#:"):
                first = k
                while lines[first - 1].startswith("#:"):
                    first -= 1
                return " ".join(text.removeprefix("#:").strip() for text in lines[first:k])
    return ""


def _other_names() -> Iterator[str]:
    """Rows of what rooms export that is not for authors."""
    for room in sorted(path.parent.name for path in (ROOT / "sipml_core").glob("*/__init__.py")):
        exported = getattr(importlib.import_module(f"sipml_core.{room}"), "__all__", ())
        mine = {*FOR_AUTHORS.get(room, ("", ()))[1], *ADVANCED.get(room, ())}
        others = sorted(set(exported) - mine)
        if others:
            yield f"| `sipml_core.{room}` | {', '.join(f'`{name}`' for name in others)} |"


def laws_page() -> str:
    """Every suite of `sipml_core.testing`: what can be set, and its laws."""
    parts = [
        "# Laws of every role",
        "How do I know that my plugin keeps what sipml relies on? Subclass a suite in a test file, set the "
        "class under test, and pytest does the rest:",
        "```python\nfrom sipml_core.testing import TopologyConformance\n\nfrom sipml_elect_flat import "
        "ElectFlat\n\n\nclass TestElectFlat(TopologyConformance):\n    topology = ElectFlat\n"
        "    sizes = (2, 8)\n```",
        "A failure is the law that broke, the smallest case that breaks it, and what was found instead. "
        "Attributes of the class change what is tried; `options` are those of an experiment file.",
    ]
    for name in testing.__all__:
        suite = getattr(testing, name)
        if name.endswith("Conformance"):
            parts += [f"## `{name}`", inspect.cleandoc(suite.__doc__ or ""), _suite_table(suite)]
            laws = [law for cls in reversed(suite.__mro__) for law in vars(cls) if law.startswith("test_")]
            parts.append("\n".join(f"* {law.removeprefix('test_').replace('_', ' ')}" for law in laws))
    return "\n\n".join(parts) + "\n"


def _suite_table(suite: type[Any]) -> str:
    lines = []
    for cls in suite.__mro__[:-1]:
        comments = _commented(cls)
        for name in inspect.get_annotations(cls):
            default = f"`{vars(cls)[name]!r}`" if name in vars(cls) else "required"
            lines.append(f"| `{name}` | {default} | {_cell(comments.get(name, 'the class under test'))} |")
    return "| attribute | default | |\n|---|---|---|\n" + "\n".join(lines)


def _signature(function: Any) -> str:
    return str(inspect.signature(function)).replace("'", "")


def configuration_page(registry: Registry) -> str:
    parts = [
        "# Configuration reference",
        "An experiment is a TOML file. Unknown keys are errors. Times, bandwidths and sizes are numbers in "
        'the unit of the table, or text with a unit: `"10 ms"`, `"2 Tbps"`, `"25 MB"`. b is bit and B is '
        'byte: `"100 Gb/s"` is 100 Gbps and `"100 GB/s"` 800; what has two readings, such as `"100 gb/s"`, '
        '`"1 Ms"` or a memory of `"80 Gb"`, is refused with both. '
        "`--set section.key=value` changes one value from the command line; `--set strategy.mp=4` is refused "
        "where a workload has an `mp` of its own, which `--set workload.strategy.mp=4` changes. "
        "Relative names of files count from the folder of the experiment file, in `--set` from the working "
        "directory. "
        "`python -m sipml_core plugins NAME` prints the options of one name.",
        "| top level | |\n|---|---|\n"
        "| `title` | required; names the results folder |\n"
        "| `seed` | seed of everything random; default 0 |\n"
        "| `baseline` | topology that speed-ups are relative to; default the first |",
    ]
    for heading, model, remark in SECTIONS:
        parts += [f"## `{heading}`", *([remark] if remark else []), _options_table(model)]
    for heading, own in OWN_KEYS.items():
        role = heading.strip("[]")
        parts += [
            f"## `{heading}`",
            "| key | meaning |\n|---|---|\n"
            + "\n".join(f"| `{field.name}` | {field.metadata['doc']} |" for field in attrs.fields(own)),
        ]
        parts += list(_offers(registry, role))
    for role, heading in (
        ("gpu", "GPU models"), ("scheduler", "Schedulers"), ("estimator", "Estimators"),
        ("placer", "Placers"), ("communication", "Communication libraries"),
    ):  # fmt: skip
        parts += [f"## {heading}", *_offers(registry, role)]
    return "\n\n".join(parts) + "\n"


def _offers(registry: Registry, role: str) -> Iterator[str]:
    for name in registry.names(role):
        component = registry.find(role, name)
        batch = default_batch(component)
        yield f"### {role} `{name}`\n\n{component.summary}" + (
            f"\n\n{batch[0].upper()}{batch[1:]}." if batch else ""
        )
        yield _options_table(component.Options)


def _options_table(model: type[Any]) -> str:
    rows = option_rows(attrs.resolve_types(model))
    if not rows:
        return "No options."
    lines = [
        f"| `{row['option']}` | {_cell(row['type'])} | {row['unit']} | `{row['default']}` "
        f"| {_cell(row['meaning'])} |"
        for row in rows
    ]
    return "| key | type | unit | default | meaning |\n|---|---|---|---|---|\n" + "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> int:
    texts = pages()
    stale = [
        path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    for path in stale:
        if arguments == ["--check"]:
            print(f"{path.relative_to(ROOT)} is stale: run python docs/generate.py")
        else:
            path.write_text(texts[path], encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
