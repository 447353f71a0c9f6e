"""Tables as their columns."""

import csv

import pytest
from rich.text import Text


@pytest.fixture(scope="session")
def printed():
    """printed(cell): what a reader sees of a cell, a heading or a title."""
    return lambda cell: cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


@pytest.fixture(scope="session")
def columns(printed):
    """columns(table): the cells below each heading."""
    return lambda table: {printed(column.header): [*map(printed, column.cells)] for column in table.columns}


@pytest.fixture(scope="session")
def records():
    """records(path): the rows of a CSV file, by column."""
    return lambda path: list(csv.DictReader(path.read_text().splitlines()))
