"""``calibrate``: tables that an experiment takes, residuals on stdout, bad lines in one line."""

import tomllib

from click.testing import CliRunner

from sipml_core.cli.main import main
from sipml_core.experiment import read_communication

RANKS = "".join(f"#  Rank  {k} Group  0 Pid 1 on host device  {k}\n" for k in range(4))


def line(size, time_us):
    algbw = size / time_us / 1e3
    return f"{size} {size // 4} float sum -1 {time_us:.2f} {algbw:.2f} {1.5 * algbw:.2f} 0\n"


def test_tables_and_residuals(registry, tmp_path):
    """10 us for small messages and 200 GB/s of 300 for large ones."""
    file, out = tmp_path / "all_reduce_perf.txt", tmp_path / "tables.toml"
    sizes = [2**power for power in range(10, 30, 3)]
    file.write_text(RANKS + "".join(line(size, 10 + 1.5 * size / 200e3) for size in sizes))
    result = CliRunner().invoke(main, ["calibrate", str(file), "--bandwidth", "300 GB/s", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert f"{len(sizes)} collectives: median" in result.stdout
    table = tomllib.loads(out.read_text())["communication"]
    assert table["library"] == "nccl"
    assert abs(table["ring_efficiency"] - 2 / 3) < 0.1
    assert read_communication(table, registry).name == "nccl"


def test_a_bad_line_is_named(tmp_path):
    file = tmp_path / "all_reduce_perf.txt"
    file.write_text(RANKS + "1024 256 float sum -1 0.0 0 0 0\n")
    result = CliRunner().invoke(main, ["calibrate", str(file)])
    assert result.exit_code == 2
    assert result.stderr.strip().splitlines() == [
        f"sipml: {file} line 5: size and time must be positive, got 1024 B in 0 us"
    ]
