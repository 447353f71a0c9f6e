"""``report``: results as one page."""

from __future__ import annotations

from pathlib import Path

import click

from sipml_core.cli.asking import plugins_with_warnings, wrote
from sipml_core.cli.keeping import computing, now_left


@click.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="The page; default report.html beside the first."
)
def report(sources: tuple[Path, ...], out: Path | None) -> None:
    """Write one HTML page about SOURCES: folders that `run` wrote, or experiment files.

    The page needs no other file and no network: what was asked, the answer in a sentence, tables that sort,
    pictures, and where everything comes from. Experiments are simulated again, recorded this time.

    \b
    Example:
      python -m sipml_core report results/quickstart
    """
    from sipml_core.report import (
        ReportedResult,
        chosen_cases,
        folder_beside,
        repeated,
        result_page,
        write_page,
    )

    page = out or folder_beside(sources[0]) / "report.html"
    with computing(page.parent) as progress:
        registry, shown = plugins_with_warnings(), []
        for number, source in enumerate(sources):
            part = progress.part(number, of=len(sources)).named(str(source))
            result = repeated(source, registry, part)
            cases = chosen_cases(result, None, None) if any(result.recorded) else []
            shown.append(ReportedResult(result=result, cases=cases))
        write_page(page, result_page(shown))
        now_left(f"; the page is {page}")
    wrote([page])
