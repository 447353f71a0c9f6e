"""A folder of records, one JSON file each, that many processes and machines may share."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from sipml_core import __version__
from sipml_core.errors import ConfigError, brief
from sipml_core.fields import frozen

#: What was found about one question, as JSON has it.
Answer = dict[str, Any]

#: Of the files; records of another format count as none.
FORMAT = 2

#: A key: a SHA-256 hash.
_KEY = re.compile("[0-9a-f]{64}")


@frozen(kw_only=True)
class Record:
    """What is kept under one key."""

    #: What kind of question it answers: "estimate" or "simulation".
    kind: str
    answer: Answer
    #: The case in words, for people who look into the store.
    about: str = ""
    #: Further findings by name, which few ask for: a recording of the run, say.
    details: Mapping[str, Any] = attrs.Factory(dict)

    @property
    def failed(self) -> bool:
        """Whether the answer is a reason why there is none."""
        return "infeasible" in self.answer


@frozen
class ResultStore:
    """A folder of records; None: nothing is kept.

    Records are written whole or not at all, under a key of all that they depend on, so two that write the
    same key write the same record, and nobody waits for anybody.
    """

    folder: Path | None

    def get(self, key: str, details: Iterable[str] = ()) -> Record | None:
        """Return the record if there is one that holds all `details`; a damaged file counts as none."""
        if self.folder is None:
            return None
        record = read_record(self._path(key))
        return record if record is not None and set(details) <= set(record.details) else None

    def put(self, key: str, record: Record) -> None:
        """Keep a record; at every moment its file is whole or not there.

        Raises
        ------
        ConfigError
            It cannot be written: the disk is full, say.
        """
        if self.folder is None:
            return
        path = self._path(key)
        known = read_record(path) if path.exists() else None
        if known is not None and known.answer == record.answer:
            # Details that were asked for at other times stay.
            record = attrs.evolve(record, details={**known.details, **record.details})
        document = {"format": FORMAT, "sipml": __version__, **attrs.asdict(record, recurse=False)}
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".record-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(document, file)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise _unwritable(self.folder, error) from None

    def refuse_unwritable(self) -> None:
        """`ConfigError` if no record could be written here."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".record-"):
                pass
        except (OSError, ValueError) as error:
            raise _unwritable(self.folder, error) from None

    def files(self) -> Iterator[Path]:
        """Yield the file of every record, whatever its format; nothing else that lies in the folder."""
        if self.folder is not None:
            for path in self.folder.glob("??/*.json"):
                if _KEY.fullmatch(path.parent.name + path.stem):
                    yield path

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key[2:]}.json"


def read_record(path: Path) -> Record | None:
    """Return the record of a file, None if it is damaged or of another format."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT or not isinstance(document["answer"], dict):
            return None
        return Record(**{field.name: document[field.name] for field in attrs.fields(Record)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def default_store_folder() -> Path:
    """Return where results are kept unless --store says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sipml"


def usable_store(folder: Path | None) -> tuple[ResultStore, str]:
    """Return the store in `folder`, or in the default one (None), and a warning if that cannot be written.

    Raises
    ------
    ConfigError
        The folder that was named cannot be written.
    """
    store = ResultStore(folder or default_store_folder())
    try:
        store.refuse_unwritable()
    except ConfigError as error:
        if folder is not None:
            raise
        return ResultStore(None), f"results are not kept: {error}"
    return store, ""


def _unwritable(folder: Path, error: Exception) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else error
    return ConfigError(
        f"cannot write to the store {brief(str(folder))}: {reason}; "
        "choose another with --store, or --no-store"
    )
