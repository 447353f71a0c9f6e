"""Results on disk: result.json, summary.csv and the configuration that repeats them."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import tomli_w

from sipml_core.errors import ConfigError, brief
from sipml_core.fields import frozen, sha256_of
from sipml_core.model import HOST, LANGUAGE, ROUNDS, CaseResult, Result

if TYPE_CHECKING:
    from sipml_core.searching import SearchResult


def prepare_folder(folder: Path) -> None:
    """Make the folder and check that it can be written, before anything is computed.

    Raises `ConfigError` naming the folder if not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".sipml-"):
            pass
    except (OSError, ValueError) as error:  # a null character, or letters that names of files cannot have
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"cannot write to the output folder {brief(str(folder))}: {reason}; choose another with --out"
        ) from None


def write_result(result: Result, folder: Path) -> list[Path]:
    """Write the files of a result; each appears whole or not at all.

    result.json and summary.csv, candidates.csv where degrees were left out, experiment.toml, and in
    ``inputs/`` a copy of each file that the experiment names: the folder repeats the run wherever it is.
    """
    inputs = Inputs.of(result)
    document = attrs.asdict(result, filter=_is_written)
    files = {
        "result.json": to_json(inputs.document(document)),
        "summary.csv": summary_csv(result.cases),
        "experiment.toml": repeat_toml(result, inputs),
    }
    if result.candidates:
        files["candidates.csv"] = summary_csv(result.candidates)
    copies = inputs.copies()
    for name, content in [*copies.items(), *((name, text.encode()) for name, text in files.items())]:
        (folder / name).parent.mkdir(exist_ok=True)
        write_atomically(folder / name, content)
    if not result.candidates:
        (folder / "candidates.csv").unlink(missing_ok=True)  # of an earlier run
    return [folder / name for name in (*files, *copies)]


def _is_written(field: attrs.Attribute[Any], value: Any) -> bool:
    """Whether JSON has a field: not what details are made of, nor empty ones that only some cases have."""
    of_some = field.metadata.keys() & {LANGUAGE, HOST, ROUNDS}
    return field.name not in ("timelines", "recorded") and not (of_some and value is None)


@frozen(kw_only=True)
class Inputs:
    """The files that an experiment names, and what a folder of results calls them: no path of the machine."""

    #: Name in the folder of results, by absolute name.
    names: dict[str, str]
    #: SHA-256, by absolute name.
    hashes: dict[str, str]

    @classmethod
    def of(cls, result: Result | SearchResult) -> Inputs:
        """Return those of a result; files of the same name are told apart by their hash."""
        bases = [Path(file).name for file in result.files]
        return cls(
            names={
                file: f"inputs/{base}" if bases.count(base) == 1 else f"inputs/{digest[:8]}-{base}"
                for (file, digest), base in zip(result.files.items(), bases, strict=True)
            },
            hashes=result.files,
        )

    def document(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a result as plain tables, its files called as the folder calls them."""
        hashes = {self.names[file]: digest for file, digest in self.hashes.items()}
        return {**document, "experiment": self.tables(document["experiment"]), "files": hashes}

    def tables(self, value: Any) -> Any:
        """Return tables whose files are called as the folder calls them."""
        if isinstance(value, dict):
            return {key: self.tables(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.tables(item) for item in value]
        return self.names.get(value, value) if isinstance(value, str) else value

    def copies(self) -> dict[str, bytes]:
        """Return the content of each file by its name in the folder.

        Raises
        ------
        ConfigError
            A file has gone, or has changed while the experiment ran.
        """
        found = {}
        for file, name in self.names.items():
            try:
                content = Path(file).read_bytes()
            except OSError as error:
                raise ConfigError(f"cannot read {file} again: {error.strerror}") from None
            if sha256_of(content) != self.hashes[file]:
                raise ConfigError(f"{file} has changed while the experiment ran")
            found[name] = content
        return found


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


def summary_csv(cases: Iterable[CaseResult]) -> str:
    """Return a line for each case; the columns are the fields of `CaseResult`.

    Those of language models, of hosts that take time, and of choices in rounds, are there if a case has one.
    """
    found = list(cases)
    rows = [{**plain_row(attrs.asdict(case)), "notes": "; ".join(case.notes)} for case in found]
    absent = set()
    if not any(case.tokens_per_s_gpu for case in found):
        absent.add(LANGUAGE)
    if all(case.host_wait_us is None for case in found):
        absent.add(HOST)
    if all(case.one_round_us is None for case in found):
        absent.add(ROUNDS)
    columns = [field.name for field in attrs.fields(CaseResult) if not absent & field.metadata.keys()]
    return to_csv([{key: row[key] for key in columns} for row in rows], columns)


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """Values as CSV has them: lower-case truth values, nothing for what is not known."""
    return {
        key: "" if value is None else str(value).lower() if isinstance(value, bool) else value
        for key, value in row.items()
    }


def to_csv(rows: list[dict[str, Any]], columns: list[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_json(document: dict[str, Any]) -> str:
    """A document as JSON; `ValueError` if it holds a number that JSON has not."""
    return json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"


def repeat_toml(result: Result, inputs: Inputs) -> str:
    """The experiment as it was run, nothing left to a default; versions stand in comments."""
    made_with = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    head = f"# Written by sipml {result.version}; `run` on this file repeats the result.\n"
    head += f"# Made with {made_with}\n" if made_with else ""
    return head + tomli_w.dumps(inputs.tables(result.experiment))
