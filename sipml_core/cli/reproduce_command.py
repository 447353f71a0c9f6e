"""``reproduce``: the paper's evaluation."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import (
    console,
    executor_on,
    plugins_with_warnings,
    say,
    search_options,
    store_in,
    wrote,
)
from sipml_core.cli.fragmentation_runs import fragmentation
from sipml_core.cli.keeping import computing, now_left
from sipml_core.cli.validation_runs import validation

#: Suites that are carried out alone: what others measured, and shared clusters.
ALONE = {"validation": validation, "fragmentation": fragmentation}


@click.command()
@click.argument("studies", nargs=-1)
@click.option("--quick", is_flag=True, help="64 GPUs and fewer points: a look, not the paper's scale.")
@search_options
@click.option(
    "--out", type=click.Path(path_type=Path), help="Default results/reproduce, or results/reproduce-quick."
)
@click.option("--picture/--no-picture", default=True, help="Draw the figures (needs matplotlib).")
def reproduce(
    studies: tuple[str, ...],
    quick: bool,
    jobs: int | None,
    on: str | None,
    store: Path | None,
    no_store: bool,
    out: Path | None,
    picture: bool,
) -> None:
    """Repeat the paper's evaluation: fig1 fig5 fig6 degree latency scale script memory claims, or all (the
    default, with ablations: what our assumptions change; reconfiguration: circuits set once or planned
    again; demand: what circuits are planned for).

    `validation`, alone, predicts instead what others measured on GPU clusters, with errors by source;
    `fragmentation`, alone, lets jobs share a cluster, in blocks and in fragments.

    Writes a figure (PNG and SVG) and the numbers (CSV) of each study, and holds the paper's claims
    against them.

    \b
    Example:
      python -m sipml_core reproduce claims fig5 --quick
    """
    from sipml_core.errors import ConfigError
    from sipml_core.report import finding_tables, new_figure, reproduction_footnotes, write_finding
    from sipml_core.reproduce import carry_out, study_names

    if len(studies) == 1 and studies[0] in ALONE:
        folder = out or Path("results") / studies[0]
        registry, kept = plugins_with_warnings(), store_in(store, no_store)
        executor = executor_on(on, jobs, registry, folder)
        ALONE[studies[0]](registry, executor, kept, folder, picture=picture, quick=quick)
        return
    if alone := sorted(set(studies) & set(ALONE)):
        raise ConfigError(f"{alone[0]} is carried out alone: python -m sipml_core reproduce {alone[0]}")
    names = study_names() if not studies or "all" in studies else list(dict.fromkeys(studies))
    folder = out or Path("results") / ("reproduce-quick" if quick else "reproduce")
    if picture:
        new_figure(1, 1)
    kept = store_in(store, no_store)
    registry = plugins_with_warnings()
    executor = executor_on(on, jobs, registry, folder)
    with computing(folder, kept.folder) as progress:
        with executor:
            findings = carry_out(
                names, registry, quick=quick, executor=executor, store=kept, progress=progress
            )
        files = [path for finding in findings for path in write_finding(finding, folder, picture)]
        now_left(f"; results are in {folder}")
    wrote(files)
    shown = console()
    for finding in findings:
        for table in finding_tables(finding):
            shown.print(table)
    for line in reproduction_footnotes(findings):
        say(line)
    if quick and any(finding.verdicts for finding in findings):
        say("a quick look at 64 GPUs and fewer points: claims are about the studies without --quick")
