"""A directory of Parquet files with Millstream's own log of commits.

::

    PATH/_millstream/log/00000000000000000007.json      one commit
                         00000000000000000007.state     the whole table as of that commit
    PATH/_millstream/staging/…                          files of uncommitted batches
    PATH/[date=YYYY-MM-DD/]millstream-….parquet         committed files, and nothing else

A commit is JSON: ``{"schema": …, "add": [paths], "remove": [paths], "ledger": {app: {key: n}}}``,
each part where it changed. It is created by a link that fails if the number is taken, so that only
one of two writers succeeds; then its files are moved from staging into place. After a crash in
between, the next process that opens the table finishes the moves. A reader that only lists the
directory sees committed data only.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from millstream.model.errors import ConfigError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.compaction import (
    rewrite_columns,
    rewrite_small_files,
    rewrite_without,
)
from millstream.spark.lakehouse.data_files import SUFFIX, DataFile
from millstream.spark.lakehouse.sorting import SortField
from millstream.spark.lakehouse.table import (
    MILLSTREAM_DIRECTORY,
    Compaction,
    ConcurrentLoadError,
    Layout,
    TableName,
    check_new_directory,
    check_same_split,
)
from millstream.spark.lakehouse.widening import changed_columns, check_same_columns, merge, plain
from millstream.spark.lakehouse.written_files import check_unchanged, check_written
from millstream.spark.locations.location import Location

_STATE_INTERVAL: Final = 50
_ATTEMPTS: Final = 20


@dataclass(slots=True)
class _State:
    """The table as of commit ``version``; −1 before there is one."""

    version: int = -1
    schema: pa.Schema | None = None
    partition_column: str | None = None
    files: list[str] = field(default_factory=list)
    ledger: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def known_schema(self) -> pa.Schema:
        assert self.schema is not None
        return self.schema

    def apply(self, commit: Mapping[str, Any]) -> None:
        self.version += 1
        if "schema" in commit:
            encoded = base64.b64decode(commit["schema"]["arrow"])
            self.schema = pa.ipc.read_schema(pa.py_buffer(encoded))
            self.partition_column = commit["schema"]["partitionColumn"]
        removed = Counter(commit.get("remove", ()))
        kept = []
        for path in self.files:
            if removed[path] > 0:
                removed[path] -= 1
            else:
                kept.append(path)
        self.files = [*kept, *commit.get("add", ())]
        for app_id, entries in commit.get("ledger", {}).items():
            self.ledger.setdefault(app_id, {}).update(entries)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": _schema_json(self.known_schema, self.partition_column),
            "add": self.files,
            "ledger": self.ledger,
        }


class ParquetTableFiles:
    """One directory of Parquet files."""

    def __init__(self, name: TableName) -> None:
        self.name = name
        self._log = name.path / MILLSTREAM_DIRECTORY / "log"

    @property
    def data_directory(self) -> Location:
        """The table's own directory."""
        return self.name.path

    @property
    def staging_directory(self) -> Location:
        """A directory that readers of Parquet ignore, because its name begins with ``_``."""
        return self.name.path / MILLSTREAM_DIRECTORY / "staging"

    @property
    def keeps_partition_column(self) -> bool:
        """True: the day is in the path (Hive partitioning)."""
        return True

    def exists(self) -> bool:
        """See :class:`Table`."""
        return any(name.endswith(".json") for name in self._log.entries())

    def create(self, layout: Layout) -> None:
        """See :class:`Table`."""
        column = layout.partition_column if layout.is_partitioned else None
        schema = layout.schema
        if column is not None:
            schema = schema.append(pa.field(column, pa.date32()))
        if self.exists():
            state = self._read()
            check_same_columns(str(self.name), state.known_schema, schema)
            found = [state.partition_column] if state.partition_column else []
            check_same_split(self.name, found, [column] if column else [])
            return
        if layout.properties:
            raise ConfigError(f"{self.name}: a directory of Parquet files has no table properties")
        check_new_directory(self.name, ())
        self._log.check_commits()
        self._log.make_directory()
        with contextlib.suppress(_TakenError):
            self._write(_State(), {"schema": _schema_json(schema, column)})

    def schema(self) -> pa.Schema:
        """See :class:`Table`."""
        return self._read().known_schema

    def sort_by(self) -> Sequence[SortField]:
        """See :class:`Table`. None: this kind keeps no order."""
        return ()

    def add_columns(self, schema: pa.Schema) -> None:
        """See :class:`Table`. For wider types the files with narrower ones are rewritten: readers
        of a directory do not merge two types in one column.
        """
        for state in self._attempts():
            merged = merge(state.known_schema, schema)
            added, widened = changed_columns(state.known_schema, merged)
            if not added and not widened:
                return
            old, new = rewrite_columns(
                self.name.path, state.files, self.staging_directory, columns=widened
            )
            changed = {"schema": _schema_json(merged, state.partition_column)}
            with contextlib.suppress(_TakenError):
                self._write(state, {**changed, "add": new, "remove": old})
                return

    def ledger(self, app_id: str, keys: Iterable[str]) -> dict[str, int]:
        """See :class:`Table`."""
        entries = self._read().ledger.get(app_id, {})
        return {key: entries[key] for key in keys if key in entries}

    def was_set_back(self, app_id: str) -> bool:
        """Return False: the ledger is part of each state of the table."""
        return False

    def commit(
        self,
        app_id: str,
        entries: Mapping[str, int],
        files: Sequence[DataFile],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """See :class:`Table`."""
        commit = {"add": [file.path for file in files], "ledger": {app_id: dict(entries)}}
        for state in self._attempts():
            self._check_ledger(state, app_id, entries, expected)
            # Behind the ledger: who has committed has removed the files of those who were late.
            columns = check_written(self.staging_directory, files)
            check_unchanged(str(self.name), plain(state.known_schema), columns)
            with contextlib.suppress(_TakenError):
                self._write(state, commit)
                return

    def _check_ledger(
        self,
        state: _State,
        app_id: str,
        entries: Mapping[str, int],
        expected: Mapping[str, int],
    ) -> None:
        known = state.ledger.get(app_id, {})
        asked = {key: known[key] for key in {*expected, *entries} if key in known}
        if asked != dict(expected):
            raise ConcurrentLoadError(f"{self.name}: another load of {app_id} has committed")

    def files(self) -> list[str]:
        """See :class:`Table`."""
        return self._read().files

    def deleted_rows(self) -> dict[str, Sequence[int]]:
        """Return {}: a directory of Parquet files has no such rows."""
        return {}

    def retained(self) -> set[str]:
        """See :class:`Table`. Removed files have been moved by then."""
        return set(self.files())

    def remove_duplicates(self) -> list[str]:
        """See :class:`Table`."""
        for state in self._attempts():
            twice = {path: count - 1 for path, count in Counter(state.files).items() if count > 1}
            if not twice:
                return []
            with contextlib.suppress(_TakenError):
                surplus = [path for path, count in twice.items() for _ in range(count)]
                self._write(state, {"remove": surplus})
                return sorted(twice)
        return []

    def compact(self, *, target_bytes: int) -> Compaction:
        """See :class:`Table`. The old files are kept until :meth:`expire`, hidden from readers."""
        state = self._read()
        old, new = rewrite_small_files(
            self.name.path, state.files, self.staging_directory, target_bytes=target_bytes
        )
        if not old:
            return Compaction()
        for current in self._attempts():
            if not set(old) <= set(current.files):
                break
            with contextlib.suppress(_TakenError):
                self._write(current, {"add": new, "remove": old})
                return Compaction(len(old), len(new))
        return Compaction()

    def delete_rows(self, offsets: Mapping[TopicPartition, Sequence[Offset]]) -> None:
        """See :class:`Table`."""
        for state in self._attempts():
            old, new = rewrite_without(
                self.name.path, state.files, self.staging_directory, offsets=offsets
            )
            if not old:
                return
            with contextlib.suppress(_TakenError):
                self._write(state, {"add": new, "remove": old})
                return

    def truncate(
        self,
        positions: Mapping[TopicPartition, Offset],
        app_id: str,
        entries: Mapping[str, int],
        *,
        expected: Mapping[str, int],
    ) -> None:
        """See :class:`Table`."""
        for state in self._attempts():
            self._check_ledger(state, app_id, entries, expected)
            old, new = rewrite_without(
                self.name.path, state.files, self.staging_directory, ends=positions
            )
            changed = {"add": new, "remove": old, "ledger": {app_id: dict(entries)}}
            with contextlib.suppress(_TakenError):
                self._write(state, changed)
                return

    def expire(self, *, keep_ms: int) -> int:
        """See :class:`Table`."""
        state = self._read()
        self._write_state(state)
        horizon = time.time() - keep_ms / 1000
        for each in self._log.found_files():
            version, _, suffix = each.path.partition(".")
            is_older = suffix in ("json", "state") and int(version) < state.version
            if is_older and each.modified_s < horizon:
                (self._log / each.path).unlink(missing_ok=True)
        removed = 0
        retired = self.name.path / MILLSTREAM_DIRECTORY / "retired"
        for each in retired.found_files():
            if each.path.endswith(SUFFIX) and each.modified_s < horizon:
                (retired / each.path).unlink(missing_ok=True)
                removed += 1
        return removed

    # The log of commits

    def _attempts(self) -> Iterable[_State]:
        for _ in range(_ATTEMPTS):
            yield self._read()
        raise ConcurrentLoadError(f"{self.name}: every attempt to commit met another commit")

    def _read(self) -> _State:
        """Return the newest state. If a file of the log disappears while it is read, :meth:`expire`
        has removed it, and there is a newer whole state.
        """
        if not self.exists():
            raise MillstreamError(f"{self.name} is not a table")
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(FileNotFoundError):
                return self._replay()
        return self._replay()

    def _replay(self) -> _State:
        """Replay the log from its newest whole state, and finish the moves that a crash
        interrupted.
        """
        names = [name.partition(".") for name in self._log.entries()]
        versions = sorted(int(number) for number, _, suffix in names if suffix == "json")
        states = sorted((int(n) for n, _, suffix in names if suffix == "state"), reverse=True)
        state = _State()
        if states:
            state.version = states[0] - 1
            state.apply(self._parsed(states[0], "state"))
        for version in versions:
            if version <= state.version:
                continue
            if version != state.version + 1:
                raise MillstreamError(f"{self.name}: commit {state.version + 1} is missing")
            state.apply(self._parsed(version, "json"))
        if versions:
            self._finish(state, self._parsed(versions[-1], "json"))
        return state

    def _parsed(self, version: int, suffix: str) -> dict[str, Any]:
        path = self._path(version, suffix)
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError as error:
            raise MillstreamError(f"{path} is damaged: {error}") from None
        return found

    def _path(self, version: int, suffix: str) -> Location:
        return self._log / f"{version:020d}.{suffix}"

    def _write(self, state: _State, commit: Mapping[str, Any]) -> None:
        """Write the commit after ``state``; _TakenError if another process has written it."""
        version = state.version + 1
        try:
            self._path(version, "json").create(json.dumps(commit).encode())
        except FileExistsError:
            raise _TakenError from None
        state.apply(commit)
        self._finish(state, commit)
        if version % _STATE_INTERVAL == 0 and version:
            self._write_state(state)

    def _write_state(self, state: _State) -> None:
        self._path(state.version, "state").replace_with(json.dumps(state.to_json()).encode())

    def _finish(self, state: _State, commit: Mapping[str, Any]) -> None:
        """Move a commit's files into place, and hide those it removed. Idempotent."""
        still = set(state.files)
        for path in commit.get("remove", ()):
            if path not in still:
                _retire(
                    self.name.path / path, self.name.path / MILLSTREAM_DIRECTORY / "retired" / path
                )
        for path in commit.get("add", ()):
            if path in still:
                _move(self.staging_directory / path, self.name.path / path)


class _TakenError(Exception):
    """The number of a commit is taken."""


def _move(source: Location, target: Location) -> None:
    with contextlib.suppress(FileNotFoundError):
        source.rename_to(target)


def _retire(source: Location, target: Location) -> None:
    """Hide a file from readers; its modification time becomes the time of its removal."""
    with contextlib.suppress(FileNotFoundError):
        source.renew()
        _move(source, target)


def _schema_json(schema: pa.Schema, partition_column: str | None) -> dict[str, Any]:
    return {
        "columns": {field.name: str(field.type) for field in schema},
        "partitionColumn": partition_column,
        "arrow": base64.b64encode(schema.serialize().to_pybytes()).decode(),
    }
