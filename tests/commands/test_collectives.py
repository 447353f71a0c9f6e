"""``collectives``: nccl-tests' table, its CSV, and what it refuses."""

import csv

import pytest
from click.testing import CliRunner

from sipml_core.cli.main import main


def call(*arguments):
    return CliRunner().invoke(main, ["collectives", *map(str, arguments)])


def test_the_table_is_that_of_nccl_tests(tmp_path):
    """4 GPUs of 100 GB/s, 4 MB without a library: 30 us for a gather, whose rank has 250 000 floats."""
    file = tmp_path / "times.csv"
    result = call(
        "--topology", "elect-flat", "--gpus", 4, "--bandwidth", "100 GB/s", "--library", "ideal",
        "--collective", "all_gather", "--sizes", "4MB", "--csv", file,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (row,) = csv.DictReader(file.read_text().splitlines())
    assert row == {
        "collective": "all_gather", "ranks": "4", "size_bytes": "4000000", "count": "250000",
        "type": "float", "time_us": "30.00", "algbw_gbytes_per_s": "133.33", "busbw_gbytes_per_s": "100.00",
        "algorithm": "flat", "how": "",
    }  # fmt: skip
    assert "busbw (GB/s)" in result.stdout


def test_networks_of_a_file_with_its_library(tmp_path):
    file = tmp_path / "two.toml"
    file.write_text(
        'title = "t"\n[cluster]\ngpus = 4\nbandwidth_gbps = "100 GB/s"\n[communication]\nlibrary = "nccl"\n'
        '[[workload]]\nname = "gpt"\n[[topology]]\nname = "elect-flat"\n[[topology]]\nname = "sip-ocs"\n'
    )
    result = call(file, "--collective", "all_reduce", "--sizes", "1KiB:32KiB", "--factor", 32)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("library nccl") == 2
    assert result.stdout.count("ring LL") == 4


def test_every_algorithm_that_a_network_can_do():
    at = ("--topology", "elect-flat", "--collective", "all_gather", "--sizes", "1MiB")
    result = call(*at, "--algorithm", "all")
    names = ("flat", "chain", "ring", "tiers", "direct")
    assert [name for name in names if f" {name} " in result.stdout] == ["flat", "chain", "ring", "direct"]
    assert "all_gather by tiers: " in result.stderr


def test_gathers_use_all_links_of_a_torus(tmp_path):
    """16 GPUs of 4 x 100 GB/s: 15/16 of 64 MB in 150 us over all links, in 600 over one ring."""
    file = tmp_path / "times.csv"
    experiment = tmp_path / "torus.toml"
    experiment.write_text(
        'title = "t"\n[cluster]\ngpus = 16\nbandwidth_gbps = "400 GB/s"\n[[workload]]\nname = "gpt"\n'
        '[[topology]]\nname = "torus"\nshape = [4, 4]\n'
    )
    for collective in ("all_gather", "reduce_scatter"):
        result = call(
            experiment,
            "--library",
            "ideal",
            "--sizes",
            "64MB",
            "--collective",
            collective,
            "--algorithm",
            "all",
            "--csv",
            file,
        )
        assert result.exit_code == 0, result.output
        rows = csv.DictReader(file.read_text().splitlines())
        times = {row["algorithm"]: row["time_us"] for row in rows}
        assert (times["torus-rings"], times["flat"]) == ("150.00", "600.00")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "needs FILE or --topology NAME"),
        (["--topology", "elect-flt"], "did you mean 'elect-flat'"),
        (["--topology", "elect-flat", "--sizes", "2MB:1MB"], "--sizes must be SMALLEST:LARGEST"),
        (["--topology", "elect-flat", "--type", "flaot"], "did you mean 'float'"),
        (["--topology", "elect-flat", "--collective", "all-reduce"], "did you mean 'all_reduce'"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments, line):
    result = call(*arguments)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert line in result.stderr
