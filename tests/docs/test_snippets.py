"""Every snippet of the documentation is run."""

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

_spec = importlib.util.spec_from_file_location(
    "snippets", os.path.join(os.path.dirname(__file__), "snippets.py")
)
snippets = importlib.util.module_from_spec(_spec)
sys.modules["snippets"] = snippets
_spec.loader.exec_module(snippets)

ROOT = snippets.ROOT
TUTORIAL = ROOT / "docs" / "plugins" / "tutorial.md"
RESEARCH = ROOT / "docs" / "tutorial-research.md"
#: Made of examples, which `examples/run_all.py` runs.
GALLERY = ROOT / "docs" / "gallery.md"
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {TUTORIAL, RESEARCH, GALLERY})


@pytest.mark.slow
def test_the_tutorial_leads_to_its_plot(registry, tmp_path, monkeypatch):
    reader = snippets.Reader(tmp_path, monkeypatch, registry)
    for block in snippets.blocks(TUTORIAL):
        reader.follow(block)
    assert (reader.cwd / "compare.png").stat().st_size > 5000


def test_the_researchers_tutorial_leads_to_a_figure_with_its_finding(registry, tmp_path, monkeypatch):
    """Gradients of 25 557 032 parameters, 2 bytes each, pass a fibre of 12.5 GB/s 2 x 15 / 16 times."""
    reader = snippets.Reader(tmp_path, monkeypatch, registry)
    for block in snippets.blocks(RESEARCH):
        reader.follow(block)
    assert (reader.cwd / "compare.png").stat().st_size > 5000
    times_ms = {name: dict(points) for name, points in reader.names["times_ms"].items()}
    fibre_ms = 2 * 15 / 16 * 25_557_032 * 2 / 12.5e6
    for gbps in (100, 400, 1600):
        assert fibre_ms < times_ms["my ring"][gbps] < fibre_ms + times_ms["elect-flat"][1600]
    assert times_ms["elect-flat"][400] < fibre_ms


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_and_toml_of_a_page_work(registry, page, tmp_path, monkeypatch):
    """Console blocks of other pages are theirs to test; ``>>>`` blocks are doctests."""
    reader = snippets.Reader(tmp_path, monkeypatch, registry)
    if page.name == "README.md":  # its reader stands in the repository
        shutil.copytree(ROOT / "examples", reader.cwd / "examples")
    for block in snippets.blocks(page):
        if block.language in ("python", "toml") or block.title:
            reader.follow(block)


def test_the_first_steps_of_the_command_line_work(tmp_path):
    """`new-plugin`, then `plugins`, from an empty folder."""
    for arguments, printed in (
        (["new-plugin", "hyper-cube"], "wrote sipml-hyper-cube"),
        (["plugins"], "elect-flat"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "sipml_core", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        )
        assert printed in done.stdout
