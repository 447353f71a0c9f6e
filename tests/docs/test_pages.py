"""Pages lead where they say, tell what sipml prints, and name what there is."""

import doctest
import importlib.util
import re
from pathlib import Path

import attrs
import pytest

from sipml_core.errors import SipmlError
from sipml_core.experiment import open_experiment
from sipml_core.model import CaseResult

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "benchmarks" / "README.md"])
_LINK = re.compile(r"\[[^\]]*\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]*))?\)")


def text_of(page):
    return page.read_text(encoding="utf-8")


def prose_of(page):
    """What is no code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text_of(page), flags=re.DOTALL)


def anchors_of(page):
    """Headings as links name them: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_of_this_repository(page):
    """`index.md` of the site is the README."""
    for target, anchor in _LINK.findall(prose_of(page)):
        path = (page.parent / target).resolve() if target else page
        path = ROOT / "README.md" if path == DOCS / "index.md" else path
        assert path.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors_of(path), f"{target}#{anchor}: no such heading"


def test_every_page_stands_in_the_menu_of_the_site_once():
    named = re.findall(r": ([\w/-]+\.md)$", text_of(ROOT / "mkdocs.yml"), re.M)
    there = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert sorted(named) == sorted([*there, "index.md"])


def test_the_gallery_shows_the_examples_as_they_are():
    gallery = load_script("gallery")
    assert text_of(DOCS / "gallery.md") == gallery.page(), "run python docs/gallery.py"


def test_doctests_of_the_gallery():
    assert doctest.testmod(load_script("gallery")).attempted > 0
    assert doctest.testmod(load_script("gallery")).failed == 0


def test_the_readme_shows_what_the_quickstart_prints():
    """Cell by cell, as recorded from a run; which groups were simulated stands below the table."""
    recorded = text_of(ROOT / "examples" / "recorded" / "quickstart.toml.txt")
    (shown,) = re.findall(r"```text\n(.*?)```", text_of(ROOT / "README.md"), re.DOTALL)
    lines = [line for line in recorded.splitlines() if line[0] not in "┏┡└" and "simulated" not in line]
    assert [re.split(r"\s{2,}", line.strip()) for line in shown.splitlines()] == [
        re.split(r"\s*[┃│]\s*|\s{2,}", line.strip(" ┃│")) for line in lines
    ]


def test_the_readme_says_how_far_circuits_are_from_the_ideal_switch():
    """The Transformer, by the table above it: SiP-OCS first, then the ring."""
    readme = text_of(ROOT / "README.md")
    (shown,) = re.findall(r"```text\n(.*?)```", readme, re.DOTALL)
    table = shown.split("transformer: 64 GPUs")[1]
    switch, ocs, ring = (
        float(re.search(rf"{name} +2 x 32 +([\d.]+) ms", table)[1])
        for name in ("elect-flat", "sip-ocs", "sip-ring")
    )
    assert f"{ocs / switch - 1:.0%} longer".replace("%", " %") in readme
    assert f"or {ring / switch - 1:.0%} on a ring".replace("%", " %") in readme


def test_the_quickstart_shows_a_difference_for_each_workload():
    recorded = text_of(ROOT / "examples" / "recorded" / "quickstart.toml.txt")
    for table in recorded.split("global batch")[1:]:
        speedups = set(re.findall(r"(\d\.\d\d)x", table))
        assert speedups - {"1.00"}


def test_the_readme_has_every_room_in_its_table():
    rooms = {path.parent.name for path in (ROOT / "sipml_core").glob("*/__init__.py")}
    house = text_of(ROOT / "README.md").split("## The house")[1].split("| beside it |")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", house, re.M)) == rooms


def test_the_glossary_names_columns_that_a_result_has():
    """Every `..._us`, `..._s`, ... of the table of results is a column of summary.csv."""
    words = text_of(DOCS / "glossary.md").split("## Words of results")[1].split("## Units")[0]
    named = re.findall(r"^\| [^|]+ \| `(\w+)` \|", words, re.M)
    assert len(named) >= 10
    assert set(named) <= {field.name for field in attrs.fields(CaseResult)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cluster.gpuss": 3}, "cluster.gpuss is not a known key; did you mean 'gpus'? allowed: "),
        ({"cluster.gpus": 0}, "cluster.gpus must be from 1 to 65536, got 0"),
        (
            {"cluster.bandwidth_gbps": "100 gb/s"},
            "must say what 'gb/s' means (b is bit, B is byte, m is milli, M is mega): "
            'write "100 Gb/s" or "100 GB/s"',
        ),
        ({"strategy.mp": 4}, "strategy.mp: changes nothing for 'resnet50', "),
        (
            {"workload.transformer.strategy.global_batch": 33},
            "global_batch must be a multiple of dp=32, got 33; nearest: 32 or 64",
        ),
        ({"topology.sip-ring.name": "sip-rnig"}, "no topology 'sip-rnig'; did you mean 'sip-ring'? known: "),
    ],
)
def test_what_can_go_wrong_is_told_as_the_page_says(change, said, registry):
    with pytest.raises(SipmlError) as told:
        open_experiment(ROOT / "examples" / "quickstart.toml", registry, set=change)
    assert said in str(told.value)
    assert said in text_of(DOCS / "troubleshooting.md")


def test_versions_and_licence_agree_wherever_they_stand():
    import sipml_core

    for name in ("CITATION.cff", "README.md"):
        assert sipml_core.__version__ in text_of(ROOT / name)
    assert "license: Apache-2.0" in text_of(ROOT / "CITATION.cff")
