"""TOML files and values that a user brings: whatever is in them, tables or one line that says why not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from sipml_core.errors import ConfigError

#: Tables and lists in each other, as deep as any file here means something.
MOST_NESTED = 20


def read_toml(path: Path, key: str = "") -> dict[str, Any]:
    """Return the tables of a TOML file; `ConfigError` if it cannot be read, or is none.

    Parameters
    ----------
    key
        Configuration key that named the file, for messages.
    """
    before = f"{key}: " if key else ""
    try:
        return parse_toml(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{before}cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # no TOML, no UTF-8, or a null character in the name
        raise ConfigError(f"{before}{path} is not TOML: {' '.join(str(error).split())}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text; `ValueError` with the reason if it is none."""
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        tables = None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # from int(): Python stops at 4300 digits
        raise ValueError("an integer has more than 4300 digits") from None
    if tables is None or _deeper(tables, MOST_NESTED):
        raise ValueError(f"it is nested more than {MOST_NESTED} deep")
    return tables


def _deeper(value: Any, levels: int) -> bool:
    """Whether there are more than so many tables and lists in each other."""
    if not isinstance(value, (dict, list)):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(item, levels - 1) for item in items)
