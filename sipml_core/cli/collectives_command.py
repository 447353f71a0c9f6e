"""``collectives``: the table of nccl-tests for any network."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import bandwidth_of, console, opened, plugins_with_warnings, size_of, wrote


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--topology", help="Instead of FILE: an interconnect, see `plugins`.")
@click.option("--gpus", type=click.IntRange(min=2), default=8, show_default=True, help="With --topology.")
@click.option("--bandwidth", default="450 GB/s", show_default=True, help="Of one GPU; with --topology.")
@click.option("--library", help="Communication library; default: that of FILE, or nccl with --topology.")
@click.option(
    "--collective", "kinds", multiple=True, help="May be given again; default: all but send. See --list."
)
@click.option(
    "--algorithm", default="auto", show_default=True,
    help="One of --list; auto: the fastest; all: a row for each that the network can do.",
)  # fmt: skip
@click.option("--sizes", default="1KiB:1GiB", show_default=True, help="Smallest and largest message.")
@click.option("--factor", type=click.FloatRange(min=1, min_open=True), default=4.0, show_default=True,
              help="From one size to the next.")  # fmt: skip
@click.option(
    "--type", "element", default="float", show_default=True, help="int8, half, bfloat16, float, double."
)
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write the rows to this file too.")
@click.option("--list", "listing", is_flag=True, help="List collectives and their algorithms.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE",
              help="An option of the topology; of FILE: SECTION.KEY=VALUE.")  # fmt: skip
def collectives(
    file: Path | None,
    topology: str | None,
    gpus: int,
    bandwidth: str,
    library: str | None,
    kinds: tuple[str, ...],
    algorithm: str,
    sizes: str,
    factor: float,
    element: str,
    csv_file: Path | None,
    listing: bool,
    overrides: tuple[str, ...],
) -> None:
    """Time collectives of all GPUs on the networks of FILE, circuits included, as nccl-tests would.

    size is that of the whole array for gathers and scatters, count what one rank gets of it; algbw is size
    over time, busbw what each link would carry in a ring.

    \b
    Example, a server of 8 GPUs whose switch adds up:
      python -m sipml_core collectives --topology elect-flat --set switches_add=true --collective all_reduce
    """
    from sipml_core.cases import CollectiveBench
    from sipml_core.errors import ConfigError, InfeasibleError, unknown
    from sipml_core.experiment import apply_overrides, read_communication, read_interconnect
    from sipml_core.model import COLLECTIVE_KINDS, Cluster
    from sipml_core.report import ELEMENT_BYTES, collective_table, write_collectives

    if (file is None) == (topology is None):
        raise ConfigError("collectives needs FILE or --topology NAME, and one of them only")
    if element not in ELEMENT_BYTES:
        raise ConfigError(unknown("--type", element, ELEMENT_BYTES))
    if file is not None:
        registry, experiment = opened(file, overrides, None)
        interconnects, communication = experiment.interconnects, experiment.communication
    else:
        registry = plugins_with_warnings()
        cluster = Cluster(gpus=gpus, bandwidth_gbps=bandwidth_of(bandwidth))
        table = apply_overrides({"name": topology}, overrides)
        interconnects = (read_interconnect(table, "topology", cluster, registry),)
        communication = read_communication({"library": "nccl"}, registry)
    if library is not None:
        communication = read_communication({"library": library}, registry)
    wanted = kinds or tuple(kind for kind in COLLECTIVE_KINDS if kind != "send")
    rows = []
    for interconnect in interconnects:
        bench = CollectiveBench(
            interconnect=interconnect,
            communication=communication,
            exchanges=[cls(cls.Options()) for cls in registry.classes("exchange")],
            all_reduces=[cls(cls.Options()) for cls in registry.classes("all_reduce")],
        )
        if listing:
            for kind in COLLECTIVE_KINDS:
                click.echo(f"{kind}: {', '.join(bench.algorithms(kind))}")
            return
        found = []
        for kind in wanted:
            names = bench.algorithms(kind) if algorithm == "all" else [algorithm]
            for name in names:
                try:
                    found += [bench.time(kind, size, name) for size in _sizes(sizes, factor)]
                except InfeasibleError as refusal:
                    if algorithm != "all":
                        raise
                    click.echo(f"{kind} by {name}: {refusal}", err=True)
        title = f"{interconnect.label}: {interconnect.cluster.gpus} GPUs, library {communication.name}"
        screen = console()
        screen.print(collective_table(found, element, title, screen.width))
        rows += found
    if csv_file is not None:
        wrote([write_collectives(rows, element, csv_file)])


def _sizes(text: str, factor: float) -> list[float]:
    """Return the sizes from the smallest to the largest. [bytes]"""
    from sipml_core.errors import ConfigError

    first, _, last = text.partition(":")
    smallest, largest = size_of(first, "--sizes"), size_of(last or first, "--sizes")
    if not 1 <= smallest <= largest:
        raise ConfigError(f"--sizes must be SMALLEST:LARGEST, from 1 B, such as 1KiB:1GiB, got {text!r}")
    found = [smallest]
    while found[-1] * factor <= largest * (1 + 1e-9):
        found.append(found[-1] * factor)
    return found
