"""Runs the fenced blocks of a documentation page, in order, in one folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import attrs

from sipml_core.experiment.reading import read_experiment
from sipml_core.plugin.registry import Registry
from sipml_core.sweeping import read_sweep

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)

#: What a TOML snippet is completed with, to be a whole experiment.
FRAME = {
    "title": "snippet",
    "cluster": {"gpus": 16, "bandwidth_gbps": 800},
    "workload": [{"name": "resnet50", "strategy": {"mp": 1, "dp": 16, "global_batch": 1024}}],
    "topology": [{"name": "elect-flat"}],
}


@attrs.frozen
class Block:
    """One fenced block."""

    language: str
    #: File that the reader is told to write it to, or None.
    title: str | None
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1], match[2], match[3], text.count("\n", 0, match.start()) + 1)
        for match in _BLOCK.finditer(text)
    ]


class Reader:
    """Does what a page says, in an empty folder; packages it installs go to a folder of their own."""

    def __init__(self, folder: Path, monkeypatch, registry: Registry) -> None:
        self.cwd = folder / "work"
        self.site = folder / "site"
        self.names: dict[str, object] = {"__name__": "snippet"}
        self.monkeypatch = monkeypatch
        self.registry = registry
        self.cwd.mkdir()
        self.site.mkdir()

    def follow(self, block: Block) -> None:
        if block.title:
            path = self.cwd / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            self.monkeypatch.chdir(self.cwd)
            exec(compile(block.text, f"line {block.line}", "exec"), self.names)
        elif block.language == "console":
            self.type_in(block.text)
        elif block.language == "toml":
            self.monkeypatch.chdir(self.cwd)
            check_toml(block.text, self.registry)

    def type_in(self, text: str) -> None:
        """Every command must succeed and print the lines shown below it, in that order."""
        shown: list[str] = []
        printed = ""
        for line in [*text.splitlines(), "$ "]:
            if not line.startswith("$ "):
                shown.append(line.strip())
                continue
            for wanted in shown:
                assert wanted in printed, f"{wanted!r} is not in\n{printed}"
                printed = printed.partition(wanted)[2]
            shown = []
            printed = self.command(line.removeprefix("$ "))

    def command(self, line: str) -> str:
        words = shlex.split(line)
        if not words:
            return ""
        if words[0] == "cd":
            self.cwd = self.cwd / words[1]
            return ""
        assert words[0] == "python", f"{line}: only python and cd are known here"
        if words[1:4] == ["-m", "pip", "install"]:
            words[4:4] = ["-q", "--no-deps", "--no-build-isolation", "--target", str(self.site)]
        # As `python -m` does, the current folder comes first; then what was installed.
        path = [str(self.cwd), str(self.site), *filter(None, sys.path)]
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=self.cwd,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout


def check_toml(text: str, registry: Registry) -> None:
    """It is TOML, and what it says of an experiment, or of a sweep of one, is accepted."""
    tables = tomllib.loads(text)
    if "experiment" in tables:
        assert list(read_sweep(tables).experiments(registry))
    elif set(tables) & {*FRAME, "gpu", "strategy", "engine"}:
        read_experiment({**FRAME, **tables}, registry)
