"""``calibrate``: a user's own measurements as tables of an experiment file."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import bandwidth_of, plugins_with_warnings, wrote


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--bandwidth", default="450 GB/s", show_default=True,
              help="What a GPU can send at on the network that nccl-tests ran on.")  # fmt: skip
@click.option("--servers", type=click.IntRange(min=1), default=1, show_default=True,
              help="Servers that nccl-tests ran over.")  # fmt: skip
@click.option("--switches-add", is_flag=True, help="Their switches add up all-reduces (NVLink SHARP).")
@click.option("--out", type=click.Path(path_type=Path), default=Path("calibration.toml"), show_default=True)
def calibrate(files: tuple[Path, ...], bandwidth: str, servers: int, switches_add: bool, out: Path) -> None:
    """Fit [communication] and [gpu] to measurements, show the residuals and write the tables.

    FILES are the output of nccl-tests as it is, and CSV files of training steps with the columns experiment
    (an experiment file), iteration_ms, and where needed workload, topology (labels) and any SECTION.KEY.

    \b
    Example:
      python -m sipml_core calibrate all_reduce_perf.txt steps.csv --bandwidth "450 GB/s"
    """
    import tomli_w

    from sipml_core.calibrating import fit_library, fit_steps, read_measurements
    from sipml_core.report import prepare_folder, write_atomically

    calls, steps = [], []
    for file in files:
        found_calls, found_steps = read_measurements(file)
        calls += found_calls
        steps += found_steps
    tables: dict[str, dict[str, object]] = {}
    if calls:
        library = fit_library(calls, gbps=bandwidth_of(bandwidth), servers=servers, switches_add=switches_add)
        tables["communication"] = {"library": "nccl", **library.options}
        for call, residual in zip(calls, library.residuals, strict=True):
            click.echo(
                f"{100 * residual:+7.1f} %  {call.kind} of {call.size_bytes:.0f} B on {call.ranks} ranks, "
                f"{call.time_us:g} us ({call.where})"
            )
        click.echo(_spread("collectives", library.residuals))
    if steps:
        gpu = fit_steps(steps, plugins_with_warnings(), tables.get("communication"))
        tables |= gpu.tables
        for step, residual in zip(steps, gpu.residuals, strict=True):
            click.echo(f"{100 * residual:+7.1f} %  step of {step.time_us / 1e3:g} ms ({step.where})")
        click.echo(_spread("steps", gpu.residuals))
    prepare_folder(out.parent)
    write_atomically(out, tomli_w.dumps(tables).encode())
    wrote([out])


def _spread(what: str, residuals: tuple[float, ...]) -> str:
    """Return the median and the largest of absolute residuals, in words.

    >>> _spread("steps", (-0.1, 0.02, 0.03))
    '3 steps: median 3.0 %, largest 10.0 % off'
    """
    sizes = sorted(abs(residual) for residual in residuals)
    return (
        f"{len(sizes)} {what}: median {100 * sizes[len(sizes) // 2]:.1f} %, "
        f"largest {100 * sizes[-1]:.1f} % off"
    )
