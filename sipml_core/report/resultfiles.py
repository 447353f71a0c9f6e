"""Results on disk: result.json, summary.csv and the configuration that repeats them."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import attrs
import tomli_w

from sipml_core.errors import ConfigError
from sipml_core.model import CaseResult, Result


def prepare_folder(folder: Path) -> None:
    """Make the folder and check that it can be written, before anything is computed.

    Raises `ConfigError` naming the folder if not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".sipml-"):
            pass
    except OSError as error:
        raise ConfigError(
            f"cannot write to the output folder {folder}: {error.strerror}; choose another with --out"
        ) from None


def write_result(result: Result, folder: Path) -> list[Path]:
    """Write the three files of a result; each appears whole or not at all."""
    files = {
        "result.json": json.dumps(attrs.asdict(result), indent=1, sort_keys=True, allow_nan=False) + "\n",
        "summary.csv": summary_csv(result),
        "experiment.toml": repeat_toml(result),
    }
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in files]


def write_atomically(path: Path, content: bytes) -> None:
    """The file has its old content or the new one at every moment.

    Raises `ConfigError` if it cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def summary_csv(result: Result) -> str:
    """One line for each case; the columns are the fields of `CaseResult`."""
    return to_csv([_flat(case) for case in result.cases], [field.name for field in attrs.fields(CaseResult)])


def to_csv(rows: list[dict[str, Any]], columns: list[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(case: CaseResult) -> dict[str, Any]:
    row = attrs.asdict(case)
    row["notes"] = "; ".join(case.notes)
    row["extrapolated"] = str(case.extrapolated).lower()
    return row


def repeat_toml(result: Result) -> str:
    """The experiment as it was run, overrides and seed included."""
    head = f"# Written by sipml {result.version}; `run` on this file repeats the result.\n"
    return head + tomli_w.dumps({**result.experiment, "seed": result.seed})
