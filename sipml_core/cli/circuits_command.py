"""``circuits``: a plan for one traffic matrix."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import console, plugins_with_warnings, wrote
from sipml_core.cli.keeping import now_left


@click.command()
@click.option("--topology", required=True, help="A circuit topology, see `plugins`.")
@click.option(
    "--matrix",
    required=True,
    type=click.Path(path_type=Path),
    help="N x N demands, row = sender: .csv, .npy, or sparse .npz.",
)
@click.option("--bandwidth", default="2 Tbps", show_default=True, help="Of one GPU, each direction.")
@click.option("--scheduler", help="Default: the topology's own.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="An option of the topology.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("results/circuits"), show_default=True)
@click.option("--picture/--no-picture", default=None, help="Draw plan.png; default: if matplotlib is there.")
def circuits(
    topology: str,
    matrix: Path,
    bandwidth: str,
    scheduler: str | None,
    overrides: tuple[str, ...],
    out: Path,
    picture: bool | None,
) -> None:
    """Plan circuits for one traffic matrix and show what they achieve.

    \b
    Example, three GPUs in a circle:
      printf '0,5,0\\n0,0,5\\n5,0,0\\n' > tm.csv
      python -m sipml_core circuits --topology sip-ring --matrix tm.csv
    """
    from sipml_core.cases import plan_circuits
    from sipml_core.experiment import apply_overrides
    from sipml_core.report import (
        can_draw,
        plan_summary,
        plan_table,
        prepare_folder,
        summary_lines,
        write_plan,
    )
    from sipml_core.scheduling import read_matrix

    registry = plugins_with_warnings()
    traffic = read_matrix(matrix)
    table = apply_overrides({"name": topology}, overrides)
    if scheduler is not None:
        table["scheduler"] = scheduler
    plan, notes = plan_circuits(registry, table, traffic, bandwidth)
    prepare_folder(out)
    files = write_plan(plan, traffic, out, can_draw() if picture is None else picture)
    wrote(files)
    now_left(f"; the plan is in {out}")
    console().print(plan_table(plan, traffic, f"{topology}: circuits for {matrix.name}"))
    for line in (*notes, *plan.remarks, *summary_lines(plan_summary(plan, traffic))):
        click.echo(line)
    if picture is None and not can_draw():
        click.echo("no picture without matplotlib: python -m pip install matplotlib", err=True)
