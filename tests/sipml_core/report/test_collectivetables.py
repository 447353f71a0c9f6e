"""The table of collectives in terminals of two widths."""

from sipml_core.cases import CollectiveTime
from sipml_core.report.collectivetables import collective_table

ROW = CollectiveTime(
    collective="reduce_scatter",
    ranks=16,
    size_bytes=2.0**30,
    algorithm="two-tier",
    how="ring Simple",
    time_us=1e4,
)
CELLS = {
    "collective": "reduce_scatter", "ranks": "16", "size\n(B)": "1073741824", "count": "16777216",
    "type": "float", "time\n(us)": "10000.00", "algbw\n(GB/s)": "107.37", "busbw\n(GB/s)": "100.66",
    "algorithm": "two-tier", "how": "ring Simple",
}  # fmt: skip


def test_a_wide_table_has_every_column(columns):
    """2^30 bytes in 10 ms; a reduce-scatter of 16 carries 15/16 of them over each link, and counts 1/16."""
    table = collective_table([ROW], "float", "net", 160)
    assert columns(table) == {heading: [cell] for heading, cell in CELLS.items()}
    assert table.caption is None


def test_eighty_characters_hold_names_sizes_and_times_in_full(columns):
    """What is left out is the same in all rows, or follows from the size."""
    table = collective_table([ROW], "float", "net", 80)
    left = {"ranks", "type", "count", "how"}
    assert columns(table) == {heading: [cell] for heading, cell in CELLS.items() if heading not in left}
    assert table.caption.plain.startswith("left out: ranks, count, type, how; ")
