"""``python -m sipml_graph slimfly --q 5 > slimfly.csv``: writes an edge list for the topology `graph`."""

from __future__ import annotations

import click

from sipml_core.errors import ConfigError
from sipml_core.fields import parse_gbps, parse_us
from sipml_graph.generators import Edge, edge_list, slimfly, theia


@click.group()
def main() -> None:
    """Write the links of a network as CSV, to be read by the topology `graph`."""


def _write(edges: list[Edge], gpus: int, gbps: str | None, latency: str) -> None:
    for line in edge_list(
        edges, gpus=gpus, gbps=parse_gbps(gbps) if gbps else None, latency_us=parse_us(latency)
    ):
        click.echo(line)


_GPUS = click.option("--gpus", default=4, show_default=True, help="GPUs on each switch.")
_GBPS = click.option("--gbps", help="Link between switches, such as 400 or '1 Tbps'; default: as a GPU.")
_LATENCY = click.option("--latency", default="0", show_default=True, help="Of each link, such as '0.5 us'.")


@main.command(name="slimfly")
@click.option("--q", default=5, show_default=True, help="An odd prime: 2 q^2 switches.")
@_GPUS
@_GBPS
@_LATENCY
def slimfly_command(q: int, gpus: int, gbps: str | None, latency: str) -> None:
    """Slim Fly: any two switches are two hops apart."""
    _write(slimfly(q), gpus, gbps, latency)


@main.command(name="theia")
@click.option("--rows", default=4, show_default=True)
@click.option("--columns", default=4, show_default=True)
@_GPUS
@_GBPS
@_LATENCY
def theia_command(rows: int, columns: int, gpus: int, gbps: str | None, latency: str) -> None:
    """Theia: switches of SubRacks, each joined to those of its row and column by a patch panel."""
    _write(theia(rows, columns), gpus, gbps, latency)


def start() -> None:
    """Run the command; what is not allowed is one line and exit status 2."""
    try:
        main.main(prog_name="python -m sipml_graph", standalone_mode=False)
    except ConfigError as error:
        click.echo(f"sipml_graph: {error}", err=True)
        raise SystemExit(2) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    start()
