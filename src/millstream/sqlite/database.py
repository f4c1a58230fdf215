"""One SQLite file that holds a tree of versioned nodes. Synchronous; used by one thread at a time.

::

    nodes     path (key) | parent | data | version | creation_id | session (0 = not ephemeral)
    counters  name (key) | value         "transaction": the creation id given out last
                                         "session": how often the file was opened

Every call of :meth:`Database.multi` is one transaction and, with ``synchronous=FULL`` and a
write-ahead log, one fsync. The file is locked for as long as it is open, so no second broker can
use the directory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from millstream.model.errors import StorageError
from millstream.model.metadata_store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    Done,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
)

FILE_NAME: Final = "millstream-metadata.sqlite"

_SCHEMA: Final = """
CREATE TABLE nodes (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    creation_id INTEGER NOT NULL,
    session INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX nodes_by_parent ON nodes (parent);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('transaction', 0), ('session', 0);
INSERT INTO nodes VALUES ('/', '', x'', 0, 0, 0);
PRAGMA user_version = 1;
"""


class Database:
    """The tree. Opening it deletes the ephemeral nodes of earlier sessions."""

    def __init__(self, directory: Path) -> None:
        """Open or create the file; StorageError if that fails or another process has it open."""
        self._directory = str(directory)
        with self._disk_errors():
            self._connection = sqlite3.connect(
                directory / FILE_NAME,
                isolation_level=None,
                check_same_thread=False,
                timeout=0,
                cached_statements=32,
            )
            try:
                self._open()
            except BaseException:
                self._connection.close()
                raise

    def _open(self) -> None:
        run = self._connection.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = FULL")
        if run("PRAGMA user_version").fetchone()[0] == 0:
            self._connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        with self._transaction():
            run("UPDATE counters SET value = value + 1 WHERE name = 'session'")
            run("DELETE FROM nodes WHERE session <> 0")
            counters = dict(run("SELECT name, value FROM counters").fetchall())
        self._last_transaction: int = counters["transaction"]
        self.session: int = counters["session"]

    def get(self, path: str) -> Node:
        """Read a node; NoNodeError when it is absent."""
        with self._disk_errors():
            row = self._connection.execute(
                "SELECT data, version, creation_id, session FROM nodes WHERE path = ?", (path,)
            ).fetchone()
        if row is None:
            raise NoNodeError(path)
        return _node(row)

    def present(self, paths: Iterable[str]) -> dict[str, Node]:
        """Return the nodes that exist among ``paths``, by path."""
        found = {}
        for path in paths:
            with suppress(NoNodeError):
                found[path] = self.get(path)
        return found

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of a node's children, sorted; NoNodeError when the node is absent."""
        self.get(path)
        start = len(path.rstrip("/")) + 1
        with self._disk_errors():
            rows = self._connection.execute("SELECT path FROM nodes WHERE parent = ?", (path,))
            return tuple(sorted(row[0][start:] for row in rows))

    def tree(self, path: str) -> dict[str, Node]:
        """Return a node and all nodes below it, by path in order; empty when it is absent."""
        below = path.rstrip("/")
        with self._disk_errors():
            rows = self._connection.execute(
                "SELECT path, data, version, creation_id, session FROM nodes"
                " WHERE path = ? OR (path > ? AND path < ?) ORDER BY path",
                (path, f"{below}/", f"{below}0"),  # "0" is the character after "/"
            )
            return {row[0]: _node(row[1:]) for row in rows}

    def multi(self, operations: Sequence[Operation]) -> tuple[Done, ...]:
        """Carry out all operations or none, on disk when this returns."""
        transaction = self._last_transaction + 1
        with self._disk_errors(), self._transaction():
            self._connection.execute(
                "UPDATE counters SET value = ? WHERE name = 'transaction'", (transaction,)
            )
            done = tuple(self._apply(operation, transaction) for operation in operations)
        self._last_transaction = transaction
        return done

    def close(self) -> None:
        """Remove this session's ephemeral nodes and close the file."""
        with self._disk_errors():
            try:
                self._connection.execute("DELETE FROM nodes WHERE session <> 0")
            finally:
                self._connection.close()

    def abandon(self) -> None:
        """Close the file without clean-up, as a killed process would."""
        self._connection.close()

    def _apply(self, operation: Operation, transaction: int) -> Done:
        match operation:
            case Create():
                return self._create(operation, transaction)
            case SetData():
                version, creation_id = self._expect(operation.path, operation.version)
                self._connection.execute(
                    "UPDATE nodes SET data = ?, version = ? WHERE path = ?",
                    (operation.data, version + 1, operation.path),
                )
                return Done(version + 1, creation_id)
            case Delete():
                return self._delete(operation)
            case Check():
                return Done(*self._expect(operation.path, operation.version))

    def _create(self, operation: Create, transaction: int) -> Done:
        path = operation.path
        parent = parent_of(path)
        run = self._connection.execute
        if run("SELECT 1 FROM nodes WHERE path = ?", (parent,)).fetchone() is None:
            raise NoNodeError(path)
        session = self.session if operation.ephemeral else 0
        try:
            run(
                "INSERT INTO nodes VALUES (?, ?, ?, 0, ?, ?)",
                (path, parent, operation.data, transaction, session),
            )
        except sqlite3.IntegrityError:
            raise NodeExistsError(path) from None
        return Done(0, transaction)

    def _delete(self, operation: Delete) -> Done:
        path = operation.path
        self._expect(path, operation.version)
        run = self._connection.execute
        if run("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone() is not None:
            raise NotEmptyError(path)
        run("DELETE FROM nodes WHERE path = ?", (path,))
        return Done(-1, -1)

    def _expect(self, path: str, version: int) -> tuple[int, int]:
        """Return version and creation id of a node that has the version named."""
        row = self._connection.execute(
            "SELECT version, creation_id FROM nodes WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, row[0]):
            raise BadVersionError(path)
        return row[0], row[1]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(self._directory, f"metadata: {error}") from error


def parent_of(path: str) -> str:
    """Return the path of the parent of a node other than the root."""
    assert path.startswith("/"), f"not a path: {path!r}"
    assert not path.endswith("/"), f"not a path: {path!r}"
    return path.rpartition("/")[0] or "/"


def _node(row: tuple[bytes, int, int, int]) -> Node:
    return Node(*row)
