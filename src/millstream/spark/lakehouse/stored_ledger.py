"""How a table stores a ledger: as one value for all partitions.

Iceberg has it as one property. Delta's ``txn`` actions hold one number each, so there the number
names a file, written before the commit::

    PATH/_millstream/ledger/<number>.json      {"load": app id, "entries": {name: number}}

A file is never changed. Of two planners each writes its own, and one of them commits its number.

Tables written before have an entry for each name instead: a property or a ``txn`` action. Those are
read where the value lacks a name, and never written, but for ``batch``: it is ``REFUSED_BATCH``.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from millstream.model.errors import MillstreamError
from millstream.spark.lakehouse.ledger import APPLIED, BATCH, REJECTS
from millstream.spark.locations.location import Location

REFUSED_BATCH: Final = 0
"""What an older version finds as the last batch. A load without one begins with a commit that must
find no entry of its name, so it ends there (ConcurrentLoadError) and duplicates no row.
"""
_STALE_S: Final = 86_400.0
_OLD_PREFIX: Final = "millstream."
_PREFIX: Final = "millstream-ledger."
"""No property of an entry begins like this."""
_ENTRY: Final = re.compile(rf"{BATCH}|{REJECTS}|{APPLIED}|[^/]+/\d+(/(start|id|epoch))?")


class LostLedgerError(MillstreamError):
    """A table names a ledger whose file is not there: what it holds of the topics is unknown."""


def to_text(entries: Mapping[str, int]) -> str:
    """Return a ledger as one text."""
    return json.dumps(dict(sorted(entries.items())), separators=(",", ":"))


def only(entries: Mapping[str, int], keys: Iterable[str]) -> dict[str, int]:
    """Return the entries of these names that are there."""
    return {key: entries[key] for key in keys if key in entries}


def property_name(app_id: str) -> str:
    """Return the name of the property with a load's ledger."""
    return f"{_PREFIX}{app_id}"


def from_properties(properties: Mapping[str, str], app_id: str) -> dict[str, int]:
    """Return the ledger of a load; also where an older version has written it."""
    found: dict[str, int] = {
        name.removeprefix(f"{_OLD_PREFIX}{app_id}."): int(properties[name])
        for name in old_properties(properties, app_id)
    }
    return {**found, **json.loads(properties.get(property_name(app_id), "{}"))}


def refusal(app_id: str) -> tuple[str, str]:
    """Return the property that makes an older version refuse a load."""
    return f"{_OLD_PREFIX}{app_id}.{BATCH}", str(REFUSED_BATCH)


def old_properties(properties: Mapping[str, str], app_id: str) -> list[str]:
    """Return the properties of a load's entries in a table written before.

    The same name is that of load ``a`` with topic ``b.c`` and of load ``a.b`` with topic ``c``. It
    is taken for that of a load that has committed a batch, and of two of them the longer one.
    """
    last = f".{BATCH}"
    loads = [
        name.removesuffix(BATCH)
        for name in properties
        if name.startswith(_OLD_PREFIX) and name.endswith(last)
        if int(properties[name]) != REFUSED_BATCH
    ]
    own = f"{_OLD_PREFIX}{app_id}."
    found = []
    for name in properties:
        if not name.startswith(own) or not _ENTRY.fullmatch(name.removeprefix(own)):
            continue
        if own == max((each for each in loads if name.startswith(each)), key=len, default=own):
            found.append(name)
    return found


class LedgerFiles:
    """The files of the ledgers of one table."""

    def __init__(self, directory: Location) -> None:
        self._directory = directory

    def read(self, number: int) -> dict[str, int] | None:
        """Return the entries of a ledger; None if there is no such file (any more)."""
        try:
            value: dict[str, Any] = json.loads(self._path(number).read_bytes())
        except FileNotFoundError:
            return None
        entries: dict[str, int] = value["entries"]
        return entries

    def write(self, app_id: str, entries: Mapping[str, int]) -> int:
        """Write a ledger durably; return its number."""
        number = secrets.randbits(62) | 1
        value = {"load": app_id, "entries": dict(sorted(entries.items()))}
        self._path(number).replace_with(json.dumps(value).encode())
        return number

    def remove(self, number: int) -> None:
        """Remove a ledger that another one has replaced."""
        self._path(number).unlink(missing_ok=True)

    def stale(self) -> list[tuple[int, str]]:
        """Return the numbers and loads of files that are older than a day: that no table names
        them is then no load's commit in progress.
        """
        paths = [
            self._directory / found.path
            for found in self._directory.found_files()
            if found.path.endswith(".json") and found.modified_s < time.time() - _STALE_S
        ]
        return [(int(path.stem), json.loads(path.read_bytes())["load"]) for path in paths]

    def _path(self, number: int) -> Location:
        return self._directory / f"{number}.json"
