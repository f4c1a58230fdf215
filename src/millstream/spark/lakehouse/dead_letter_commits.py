"""Dead letters are committed with the rows of their batch: the table's own commit names them.

No kind of table can commit together with another one, so there is one commit that decides, that of
the table, and one that follows from it::

    manifest of the batch's dead letters       X_dead_letters/_millstream/rejected/<number>.json
    commit of the table                        rows, offsets, and the entry ``rejects``: <number>
    commit of the dead letters                 the manifest's files, and ``applied``: <number>

A load that dies before the table's commit leaves a manifest that no table names: those dead letters
never were. One that dies after it leaves a number that the dead letters lack: whoever opens the
table next commits them, and does it once, because the ledger of the dead letters changes in the
same commit.

The dead letters are never ahead of their table. If they are (the table was deleted, or set back to
an older state, or a version of Millstream that committed dead letters first has died), what is
ahead is deleted before the load goes on: those records are read again, and judged by the present
columns.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millstream.model.offsets import Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.spark.lakehouse import ledger as ledgers
from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.landing import DEAD_LETTER_COLUMNS
from millstream.spark.lakehouse.ledger import APPLIED, BATCH, REJECTS, Ledger
from millstream.spark.lakehouse.table import (
    MILLSTREAM_DIRECTORY,
    ConcurrentLoadError,
    Layout,
    Table,
    TableName,
    dead_letters_of,
    open_table,
)
from millstream.spark.locations.location import Location
from millstream.spark.ranges import OffsetRange

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The dead letters of one batch, before they are in their table."""

    load: str
    number: int
    entries: Mapping[str, int]
    """What the ledger of the dead letters gets with them."""
    files: Sequence[DataFile]

    @property
    def batch(self) -> int:
        """The batch's number."""
        return self.entries[BATCH]


class DeadLetterCommits:
    """The dead letters of one load."""

    def __init__(self, dead_letters: Table, app_id: str) -> None:
        self._table = dead_letters
        self._app_id = app_id
        self._settled = 0

    def note(
        self,
        batch: int,
        ranges: Sequence[OffsetRange],
        topic_ids: Mapping[str, TopicId],
        files: Sequence[DataFile],
    ) -> int:
        """Write the manifest of a batch, durably; return its number for the table's commit."""
        number = secrets.randbits(62) | 1
        entries = ledgers.after(Ledger({BATCH: batch - 1}), ranges, topic_ids)
        entries = {key: value for key, value in entries.items() if not key.endswith("/start")}
        value = {
            "load": self._app_id,
            "number": number,
            "entries": {**entries, APPLIED: number},
            "files": [file.to_json() for file in files],
        }
        (_directory(self._table) / f"{number}.json").replace_with(json.dumps(value).encode())
        return number

    def settle(self, ledger: Ledger) -> list[str]:
        """Commit the dead letters that the table's ledger names and that are not in their table
        yet; return the paths of their files.
        """
        number = ledger.entries.get(REJECTS, 0)
        if not number or number == self._settled:
            return []
        manifest = read_manifest(self._table, number)
        paths = [] if manifest is None else self._apply(manifest)
        if manifest is None and self._ledger([APPLIED]).get(APPLIED) != number:
            log.warning(
                "%s: the dead letters of batch %d were removed before they were committed",
                self._table.name,
                ledger.batch,
            )
        self._settled = number
        _forget(self._table, self._app_id, up_to_batch=ledger.batch)
        return paths

    def _apply(self, manifest: Manifest) -> list[str]:
        for _ in range(_ATTEMPTS):
            if not self._table.exists():
                self._table.create(Layout(schema=DEAD_LETTER_COLUMNS))
            known = self._ledger(manifest.entries)
            if known.get(APPLIED) == manifest.number or known.get(BATCH, 0) >= manifest.batch:
                return []
            try:
                self._table.commit(self._app_id, manifest.entries, manifest.files, expected=known)
            except ConcurrentLoadError:  # another process has committed them, or soon will have
                continue
            return [file.path for file in manifest.files]
        raise ConcurrentLoadError(f"{self._table.name}: other loads commit all the time")

    def trim(
        self,
        table: Table,
        positions: Mapping[TopicPartition, Offset],
        topic_ids: Mapping[str, TopicId],
    ) -> None:
        """Delete dead letters that are ahead of the table; ``positions`` are where the load goes
        on.

        RecreatedTopicError if they are those of another topic of the same name.
        """
        if not self._table.exists():
            return
        keys = ledgers.keys(positions)
        known = Ledger(self._ledger(keys))
        for topic_partition in positions:
            topic_id = topic_ids.get(topic_partition.topic, ZERO_TOPIC_ID)
            known.check_topic(topic_partition, topic_id, self._table.name)
        # Read after the dead letters: none that another load commits meanwhile seems to be ahead.
        ledger = Ledger(table.ledger(self._app_id, keys))
        ahead = {
            each: end
            for each, position in positions.items()
            if (known.position(each) or 0) > (end := max(ledger.position(each) or 0, position))
        }
        if not ahead and known.batch <= ledger.batch:
            return
        entries = {ledgers.position_key(each): position for each, position in ahead.items()}
        if known.batch > ledger.batch:
            entries[BATCH] = ledger.batch
        expected = {key: known.entries[key] for key in entries if key in known.entries}
        self._forget_sent(ahead)
        self._table.truncate(ahead, self._app_id, entries, expected=expected)
        log.warning(
            "%s: dead letters ahead of the table are deleted and their records read again: %s",
            self._table.name,
            ", ".join(f"{each} from {position} on" for each, position in sorted(ahead.items())),
        )

    def _forget_sent(self, ahead: Mapping[TopicPartition, Offset]) -> None:
        """Set back what was sent to a topic: other records may become dead letters now."""
        load = topic_ledger(self._app_id)
        known = self._table.ledger(load, map(ledgers.position_key, ahead))
        lower = {
            key: position
            for each, position in ahead.items()
            if known.get(key := ledgers.position_key(each), 0) > position
        }
        if lower:
            expected = {key: known[key] for key in lower}
            self._table.commit(load, lower, [], expected=expected)

    def _ledger(self, keys: Iterable[str]) -> dict[str, int]:
        return self._table.ledger(self._app_id, keys) if self._table.exists() else {}


def topic_ledger(app_id: str) -> str:
    """Return the name under which a load keeps what it has sent to a topic of dead letters."""
    return f"{app_id}:topic"


def pending(table: Table, dead_letters: Table, app_id: str) -> Manifest | None:
    """Return the dead letters that the table's commit names and that are not in their table yet."""
    number = table.ledger(app_id, [REJECTS]).get(REJECTS, 0)
    manifest = read_manifest(dead_letters, number) if number else None
    if manifest is None:
        return None
    known = dead_letters.ledger(app_id, [APPLIED, BATCH]) if dead_letters.exists() else {}
    is_applied = known.get(APPLIED) == number or known.get(BATCH, 0) >= manifest.batch
    return None if is_applied else manifest


def settle_all(name: TableName) -> int:
    """Commit the dead letters of every load that a crash has left; return their number.

    ``name`` is the table's name, or that of its dead letters.
    """
    own = dead_letters_of(name)
    path = name.path
    if path.name.endswith("_dead_letters"):
        own, name = name, TableName(name.kind, path.with_name(path.name[: -len("_dead_letters")]))
    table, dead_letters = open_table(name), open_table(own)
    if not table.exists():
        return 0
    count = 0
    for manifest in _manifests(dead_letters):
        ledger = Ledger(table.ledger(manifest.load, [REJECTS, BATCH]))
        if ledger.entries.get(REJECTS) == manifest.number:
            DeadLetterCommits(dead_letters, manifest.load).settle(ledger)
            count += sum(file.rows for file in manifest.files)
    return count


def _directory(table: Table) -> Location:
    return table.name.path / MILLSTREAM_DIRECTORY / "rejected"


def read_manifest(dead_letters: Table, number: int) -> Manifest | None:
    """Return a manifest; None if it is not there, because its dead letters are committed."""
    return _read(_directory(dead_letters) / f"{number}.json")


def _manifests(dead_letters: Table) -> list[Manifest]:
    directory = _directory(dead_letters)
    names = sorted(name for name in directory.entries() if name.endswith(".json"))
    found = (_read(directory / name) for name in names)
    return [each for each in found if each is not None]


def _forget(dead_letters: Table, app_id: str, *, up_to_batch: int) -> None:
    """Remove the manifests of a load that are committed, or can never be."""
    for manifest in _manifests(dead_letters):
        if manifest.load == app_id and manifest.batch <= up_to_batch:
            (_directory(dead_letters) / f"{manifest.number}.json").unlink(missing_ok=True)


def _read(path: Location) -> Manifest | None:
    try:
        value: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return Manifest(
        load=value["load"],
        number=value["number"],
        entries=value["entries"],
        files=[DataFile.from_json(each) for each in value["files"]],
    )
