"""Tables as their columns."""

import csv

import pytest


@pytest.fixture(scope="session")
def columns():
    """columns(table): the cells below each heading, as text."""
    return lambda table: {
        str(column.header): [str(cell) for cell in column.cells] for column in table.columns
    }


@pytest.fixture(scope="session")
def records():
    """records(path): the rows of a CSV file, by column."""
    return lambda path: list(csv.DictReader(path.read_text().splitlines()))
