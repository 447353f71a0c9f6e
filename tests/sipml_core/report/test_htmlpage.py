"""The page about results: whole in itself, small, readable by people and programs, and right in a browser."""

import json
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser

import attrs
import pytest

from sipml_core.cases import run_experiment
from sipml_core.errors import ConfigError
from sipml_core.experiment import open_experiment
from sipml_core.report import htmlpage
from sipml_core.report.htmlpage import MOST_BYTES, ReportedResult, answers, result_page
from sipml_core.report.repeating import chosen_cases, row_of
from sipml_core.report.whyreport import Why

pytestmark = pytest.mark.interconnects

EXPERIMENT = """
title = "page <of> a & b"
baseline = "elect-flat"
[cluster]
gpus = 8
bandwidth_gbps = "100 Gbps"
[[workload]]
name = "gpt"
layers = 2
hidden = 128
heads = 4
sequence = 32
vocabulary = 500
strategy = { mp = 2, pp = 2, dp = 2, global_batch = 8, micro_batch = 2 }
[[topology]]
name = "elect-flat"
[[topology]]
name = "sip-ring"
interval_us = 40
"""
VOID = {"meta", "hr", "br"}


@pytest.fixture(scope="module")
def reported(registry, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "x.toml"
    path.write_text(EXPERIMENT.replace("<of> a & b", "of results"))
    result = run_experiment(open_experiment(path, registry), details=True)
    result = attrs.evolve(result, title="page <of> a & b")
    return ReportedResult(result=result, cases=chosen_cases(result, None, None))


@pytest.fixture(scope="module")
def page(reported):
    return result_page([reported])


class Tags(HTMLParser):
    """Checks that tags nest, and collects them with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.open, self.found, self.words = [], [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_whole_in_itself(page):
    """Tags nest, nothing is loaded from elsewhere, text of users is no markup, and it is small."""
    tags = Tags(page)
    assert not [tag for tag, attributes in tags.found if {"src", "href"} & set(attributes)]
    assert "url(" not in page
    assert "@import" not in page
    assert "page <of> a & b" in "".join(tags.words)
    assert "page <of>" not in page
    assert len(page.encode()) < MOST_BYTES


def test_every_picture_has_a_name_and_parts_to_hover_over_or_focus(page):
    tags = Tags(page)
    pictures = [attributes for tag, attributes in tags.found if tag == "svg"]
    assert len(pictures) == 1 + 2 * 3  # times; timeline, links and traffic of each case
    assert all(attributes["aria-label"] and attributes["role"] == "img" for attributes in pictures)
    hints = [attributes for _, attributes in tags.found if "data-hint" in attributes]
    assert any("sip-ring: compute" in attributes["data-hint"] for attributes in hints)
    assert sum("tabindex" in attributes for attributes in hints) > 6


def test_tables_have_the_numbers_and_raw_values_to_sort_by(page, reported):
    row = reported.result.case("gpt", "sip-ring")
    assert f'data-value="{row.iteration_us}"' in page
    assert f'data-value="{row.exposed_us}"' in page
    heads = re.findall(r'<th scope="col"[^>]*><button type="button">([^<]+)', page)
    assert heads[:3] == ["interconnect", "plan", "iteration"]


def test_the_data_of_the_page_is_the_result(page, reported):
    (told,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    rows = json.loads(told)[0]
    assert [row["iteration_us"] for row in rows] == [case.iteration_us for case in reported.result.cases]


def test_the_answer_names_the_fastest_and_what_the_slowest_loses_its_time_on(reported):
    whys = [Why.of(details, row_of(reported.result, details)) for details in reported.cases]
    (line,) = answers(reported.result, whys)
    best = min(reported.result.cases, key=lambda case: case.iteration_us)
    slow = max(reported.result.cases, key=lambda case: case.iteration_us)
    assert line.startswith(f"gpt: {best.topology} is fastest")
    assert f"{slow.topology} takes {slow.iteration_us / best.iteration_us - 1:.0%} longer" in line
    why = next(why for why in whys if why.row == slow)
    worst = next(part for part in why.parts() if part.what != "compute")
    links = why.details.links()
    busy = links["busy_us"][links["link"].tolist().index(worst.where)] / why.total_us
    assert f"loses {worst.span_us / why.total_us:.0%} on {worst.where}, busy {busy:.0%} of the run" in line


def test_what_was_asked_and_where_it_comes_from_are_there(page, reported):
    for words in ("What was asked", "Where it comes from", 'name = "sip-ring"', reported.result.version):
        assert escape(words) in page


def test_pictures_give_way_before_the_page_is_too_large(reported, monkeypatch):
    monkeypatch.setattr(htmlpage, "_FULL_BYTES", 1)
    short = result_page([reported])
    assert short.count("<svg") == 1
    assert "larger than 2 MB: see <code>plot</code>" in short
    monkeypatch.setattr(htmlpage, "MOST_BYTES", 1000)
    with pytest.raises(ConfigError, match=r"the page would take .* more than 1 kB; report fewer"):
        result_page([reported])


def test_the_same_results_give_the_same_bytes(page, reported):
    assert result_page([reported]) == page


#: Runs inside the page, which is 360 px wide, and says what it saw.
CHECKS = """
const frame = document.querySelector("iframe"), inside = frame.contentWindow, page = frame.contentDocument;
const heads = page.querySelectorAll("th button"), table = page.querySelector("table");
const column = () => [...table.tBodies[0].rows].map(row => Number(row.cells[2].dataset.value));
heads[2].focus(); heads[2].click();
const up = column(); heads[2].click(); const down = column();
const bar = page.querySelector("rect[data-hint]"); bar.focus();
const hint = page.querySelector("#hint");
const colours = inside.getComputedStyle(page.body);
document.body.textContent = JSON.stringify({
  errors: inside.errors, width: inside.innerWidth, wide: page.documentElement.scrollWidth, up: up, down: down,
  focused: page.activeElement === bar, hint: hint.hidden ? "" : hint.textContent,
  back: colours.backgroundColor, text: colours.color,
  dark: inside.matchMedia("(prefers-color-scheme: dark)").matches,
});
"""


@pytest.fixture(scope="module")
def seen(page, tmp_path_factory):
    """seen(dark): what a browser shows of the page in a window of 360 px."""
    browser = next(
        (name for name in ("chromium", "chromium-browser", "google-chrome") if shutil.which(name)), ""
    )
    if not browser:
        pytest.skip("no chromium on the path")
    noting = "<script>window.errors = []; onerror = (m) => { errors.push(String(m)); };</script>"
    inside = page.replace("<head>", f"<head>{noting}", 1)
    frame = f'<iframe style="width:360px;height:800px;border:0" srcdoc="{escape(inside)}"></iframe>'
    harness = f"<!doctype html><body>{frame}<script>onload = () => {{{CHECKS}}}</script></body>"
    file = tmp_path_factory.mktemp("browser") / "harness.html"
    file.write_text(harness)

    def look(dark):
        settings = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        command = [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            settings,
            "--dump-dom",
            file.as_uri(),
        ]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
        (told,) = re.findall(r"<body>(\{.*\})</body>", shown, re.DOTALL)
        return json.loads(told.replace("&gt;", ">").replace("&amp;", "&"))

    return look


@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_light_and_dark_on_a_narrow_screen_without_an_error(seen, dark):
    """Nothing sticks out at 360 px, a click sorts, focus by keyboard shows the hint, text stands out."""
    found = seen(dark)
    assert found["errors"] == []
    assert found["width"] == 360
    assert found["wide"] <= 360
    assert found["up"] == sorted(found["up"])
    assert found["down"] == found["up"][::-1] != found["up"]
    assert found["focused"]
    assert "compute" in found["hint"]
    assert found["dark"] == dark
    light = {name: sum(map(int, re.findall(r"\d+", found[name])[:3])) for name in ("back", "text")}
    assert abs(light["back"] - light["text"]) > 400
    assert (light["back"] < light["text"]) == dark
