"""What docs/parallelization.md says of the examples is what they printed when they were recorded."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "parallelization.md").read_text(encoding="utf-8")
SECONDS = re.compile(r"(\d+(?:\.\d+)?) s\b")
TIME = re.compile(r"(\d+(?:\.\d+)?) (ms|s|min)")
UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0}


def recorded(*examples):
    """Network -> [(iteration, compute)] of each table of results, in order. [s]"""
    found = {}
    for example in examples:
        text = (ROOT / "examples" / "recorded" / f"{example}.toml.txt").read_text(encoding="utf-8")
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            if len(cells) > 5 and TIME.fullmatch(cells[2]):
                iteration, compute = (
                    float(value) * UNITS[unit] for value, unit in (cells[k].split() for k in (2, 4))
                )
                found.setdefault(cells[0], []).append((iteration, compute))
    return found


def quoted(heading):
    """Network and cells of each row of the first table after a text."""
    lines = PAGE[PAGE.index(heading) :].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| network"))
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            return
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        yield name.split(",")[0].lower(), name, cells


def same(text, value):
    """Whether a number in the text is the value, to the digits that are shown."""
    digits = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5 * 10**-digits + 1e-3


@pytest.mark.parametrize(
    ("heading", "examples", "columns"),
    [
        ("**Mixtral 8x7B on 1024 H100**", ["mixtral_1024"], 1),
        ("**DeepSeek-V3 on 512 H100**", ["deepseek_v3", "deepseek_v3_ring"], 1),
        ("**Llama 3 405B on 16 384 H100**", ["llama3_405b"], 1),
        ("### GPT-3 on 1024 GPUs", ["gpt3_175b", "gpt3_ring"], 1),
        ("### Megatron in two stages", ["megatron_stages"], 2),
    ],
)
def test_iterations_in_tables_are_those_recorded(heading, examples, columns):
    """The first columns are iterations, of one recorded table each. A ring with reach 64 is no example."""
    known, rows = recorded(*examples), [row for row in quoted(heading) if "reach 64" not in row[1]]
    assert len(rows) >= 2
    for network, _, cells in rows:
        for cell, (iteration_s, _) in zip(cells[:columns], known[network], strict=True):
            assert same(SECONDS.search(cell)[1], iteration_s), f"{network}: {cell}, recorded {iteration_s} s"


@pytest.mark.parametrize(
    ("heading", "examples", "columns"),
    [
        ("**Mixtral 8x7B on 1024 H100**", ["mixtral_1024"], {0: "0.0", 2: "0.5", 3: "1.0"}),
        ("**DeepSeek-V3 on 512 H100**", ["deepseek_v3", "deepseek_v3_ring"], {0: "0.0", 2: "0.5", 3: "1.0"}),
    ],
)
def test_what_skews_do_is_what_was_measured(heading, examples, columns):
    """Iterations, and MFU where it stands beside; benchmarks/expert_skew.py writes the rows."""
    with (ROOT / "benchmarks" / "expert_skew.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["example"] in examples]
    known = {(row["network"], row["skew"]): row for row in rows}
    tables = list(quoted(heading))
    assert len(tables) * len(columns) == len(known)
    for network, _, cells in tables:
        for column, skew in columns.items():
            row = known[network, skew]
            assert same(SECONDS.search(cells[column])[1], float(row["iteration_us"]) / 1e6), (network, skew)
            mfu = re.search(r"([\d.]+) %", cells[column])
            assert mfu is None or same(mfu[1], 100 * float(row["mfu"])), (network, skew)


def test_compute_of_gpt3_is_that_recorded():
    known = recorded("gpt3_175b", "gpt3_ring")
    for network, name, cells in quoted("### GPT-3 on 1024 GPUs"):
        if "reach 64" not in name:
            assert same(SECONDS.search(cells[1])[1], known[network][0][1])


def test_seconds_of_deepseek_are_those_recorded():
    """On the ideal switch and where 8 GPUs share 1.6 Tbps."""
    text = PAGE[PAGE.index("**DeepSeek-V3 on 512 H100**") :]
    known = recorded("deepseek_v3")
    assert same(re.search(r"an iteration of ([\d.]+) s on Elect-Flat", text)[1], known["elect-flat"][0][0])
    assert same(re.search(r"a GPU computes ([\d.]+) s", text)[1], known["elect-flat"][0][1])
    assert same(re.search(r"1\.6 Tbps it takes ([\d.]+) s", text)[1], known["elect-cluster"][0][0])
