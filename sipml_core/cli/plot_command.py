"""``plot``: pictures of what happened."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import plugins_with_warnings, wrote
from sipml_core.cli.detail_options import selection_of, selection_options
from sipml_core.cli.keeping import computing, now_left


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("pictures", nargs=-1)
@click.option("--workload", help="Pictures of this workload only.")
@click.option("--topology", help="Pictures of this interconnect only.")
@selection_options
@click.option("--width", type=click.FloatRange(1.5, 40), help="In inches; a column has 3.3; default 7.")
@click.option("--title/--no-title", default=True, help="Say above the picture what it is of.")
@click.option("--format", "kind", type=click.Choice(["png", "svg", "pdf"]), default="png", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Folder; default pictures/ beside the result.")
def plot(
    source: Path,
    pictures: tuple[str, ...],
    workload: str | None,
    topology: str | None,
    replicas: str | None,
    gpus: str | None,
    window: str | None,
    width: float | None,
    title: bool,
    kind: str,
    out: Path | None,
) -> None:
    """Draw PICTURES of SOURCE: an experiment file, or the folder that `run` or `search` wrote.

    The experiment is simulated again, recorded this time. Without PICTURES all are drawn that have something
    to show.

    \b
    times        stacked bars of each case: compute, exposed, dark, idle
    timeline     what a few GPUs compute, send and receive over time
    pipeline     passes of each stage of a replica
    traffic      bytes from each GPU to each
    links        how full the busiest links are over time
    flows        how long transfers take and wait, by kind
    wavelengths  wavelengths by segment, or ports by switch, after some decisions
    circuits     capacity of circuits over time, dark, and how many change when
    network      nodes and links, coloured by use
    pareto       plans of a search: memory against time to the goal

    \b
    Example:
      python -m sipml_core plot results/quickstart timeline links --topology sip-ring --window 0..2ms
    """
    from sipml_core.report import (
        PictureLook,
        chosen_cases,
        folder_beside,
        holds_run,
        holds_search,
        new_figure,
        pictures_of,
        repeated,
        search_picture,
        search_rows,
        write_picture,
    )

    new_figure(1, 1)  # refused here where there is no matplotlib
    look = PictureLook(width_in=width, titled=title)
    selection = selection_of(replicas, gpus, window)
    folder = out or folder_beside(source) / "pictures"
    with computing(folder) as progress:
        drawn, of_run = [], pictures
        if holds_search(source) and (not pictures or "pareto" in pictures or not holds_run(source)):
            of_run = tuple(name for name in pictures if name != "pareto")
            of_search = ("pareto",) if holds_run(source) else pictures
            drawn = [search_picture(search_rows(source), of_search, look)]
        if not drawn or (holds_run(source) and (of_run or not pictures)):
            result = repeated(source, plugins_with_warnings(), progress)
            cases = [each.selected(selection) for each in chosen_cases(result, workload, topology)]
            drawn += pictures_of(result, cases, of_run, look)
        files = [write_picture(figure, folder / f"{name}.{kind}", kind) for name, figure in drawn]
        now_left(f"; pictures are in {folder}")
    wrote(files)
