"""One SQLite file that holds a tree of versioned nodes. Synchronous; used by one thread at a time.

::

    nodes     path (key) | parent | data | version | creation_id | session (0 = not ephemeral)
    counters  name (key) | value         "transaction": the creation id given out last
                                         "session": the session id given out last
    sessions  id (key) | secret | timeout_ms    those of the brokers that share the file

Every call of :meth:`Database.multi` is one transaction and, with ``synchronous=FULL`` and a
write-ahead log, one fsync; those inside one :meth:`Database.batch` share both. The file is locked
for as long as it is open, so no second broker can use the directory.

A broker on its own is the only session, which ends with the file. A keeper opens the file *shared*:
sessions are added and ended, and outlive it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
MOVED_FILE: Final = "millstream-metadata.moved"
"""Stands beside a file whose nodes were moved to a ZooKeeper, and names that: two stores of one
cluster would part.
"""

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


_DAMAGED: Final = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})

_SESSIONS: Final = """
CREATE TABLE IF NOT EXISTS sessions (
    id INTEGER PRIMARY KEY,
    secret BLOB NOT NULL,
    timeout_ms INTEGER NOT NULL
)
"""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session of a shared file: what proves who resumes it, and its time-out."""

    secret: bytes
    timeout_ms: int


class Database:
    """The tree. Opening it deletes the ephemeral nodes of earlier sessions; where it is ``shared``,
    of those only that are not stored.
    """

    def __init__(self, directory: Path, *, shared: bool = False) -> None:
        """Open or create the file; StorageError if that fails or another process has it open."""
        self._directory = str(directory)
        if (directory / MOVED_FILE).exists():
            text = (directory / MOVED_FILE).read_text(encoding="utf-8").strip()
            raise StorageError(
                self._directory,
                f"the metadata was moved to ZooKeeper: set zookeeper.connect={text}, or remove "
                f"{MOVED_FILE} to use what is here again",
            )
        self._shared = shared
        self._in_batch = False
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
            run(_SESSIONS)
            if self._shared:
                run(
                    "DELETE FROM nodes"
                    " WHERE session <> 0 AND session NOT IN (SELECT id FROM sessions)"
                )
            else:
                run("UPDATE counters SET value = value + 1 WHERE name = 'session'")
                run("DELETE FROM nodes WHERE session <> 0")
                run("DELETE FROM sessions")
            counters = dict(run("SELECT name, value FROM counters").fetchall())
        self._last_transaction: int = counters["transaction"]
        self.session: int = counters["session"]
        """The only session of a file that is not shared."""

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

    def part_of_tree(
        self, path: str, *, after: str, max_bytes: int
    ) -> tuple[dict[str, Node], bool]:
        """Return nodes below ``path`` in order, those behind ``after``, until they take
        ``max_bytes`` or more; True when there are no others.
        """
        below = path.rstrip("/")
        with self._disk_errors():
            rows = self._connection.execute(
                "SELECT path, data, version, creation_id, session FROM nodes"
                " WHERE path > ? AND path < ? ORDER BY path",
                (max(after, f"{below}/"), f"{below}0"),
            )
            found = {}
            size = 0
            for row in rows:
                found[row[0]] = _node(row[1:])
                size += len(row[0]) + len(row[1])
                if size >= max_bytes:
                    return found, False
        return found, True

    def multi(self, operations: Sequence[Operation], session: int = 0) -> tuple[Done, ...]:
        """Carry out all operations or none, on disk when this returns or, inside a batch, when the
        batch ends. ``session`` owns what is made ephemeral, in a shared file.
        """
        transaction = self._last_transaction + 1
        owner = session if self._shared else self.session
        with self._disk_errors(), self._transaction():
            self._connection.execute(
                "UPDATE counters SET value = ? WHERE name = 'transaction'", (transaction,)
            )
            done = tuple(self._apply(operation, transaction, owner) for operation in operations)
        self._last_transaction = transaction
        return done

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Make one transaction, and one fsync, of all that is done inside: each ``multi`` still
        succeeds or fails by itself. Nothing of it counts before the batch has ended.
        """
        before = self._last_transaction
        with self._disk_errors(), self._transaction():
            self._in_batch = True
            try:
                yield
            except BaseException:
                self._last_transaction = before
                raise
            finally:
                self._in_batch = False

    # --- the sessions of a shared file ------------------------------------------------------------

    @property
    def last_creation_id(self) -> int:
        """The creation id that was given out last."""
        return self._last_transaction

    def sessions(self) -> dict[int, StoredSession]:
        """Return the sessions that have not ended, by id."""
        with self._disk_errors():
            rows = self._connection.execute("SELECT id, secret, timeout_ms FROM sessions")
            return {row[0]: StoredSession(row[1], row[2]) for row in rows}

    def add_session(self, session: StoredSession) -> int:
        """Store a new session; return its id, which no session has had before."""
        run = self._connection.execute
        with self._disk_errors(), self._transaction():
            run("UPDATE counters SET value = value + 1 WHERE name = 'session'")
            number: int = run("SELECT value FROM counters WHERE name = 'session'").fetchone()[0]
            run(
                "INSERT INTO sessions VALUES (?, ?, ?)",
                (number, session.secret, session.timeout_ms),
            )
        return number

    def end_session(self, number: int) -> tuple[str, ...]:
        """Forget a session; return the paths of its ephemeral nodes, which are deleted."""
        run = self._connection.execute
        with self._disk_errors(), self._transaction():
            rows = run("SELECT path FROM nodes WHERE session = ? ORDER BY path", (number,))
            paths = tuple(row[0] for row in rows.fetchall())
            run("DELETE FROM nodes WHERE session = ?", (number,))
            run("DELETE FROM sessions WHERE id = ?", (number,))
        return paths

    def close(self) -> None:
        """Close the file; where it is not shared, its ephemeral nodes are removed."""
        with self._disk_errors():
            try:
                if not self._shared:
                    self._connection.execute("DELETE FROM nodes WHERE session <> 0")
            finally:
                self._connection.close()

    def abandon(self) -> None:
        """Close the file without clean-up, as a killed process would."""
        self._connection.close()

    def _apply(self, operation: Operation, transaction: int, owner: int) -> Done:
        match operation:
            case Create():
                return self._create(operation, transaction, owner)
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

    def _create(self, operation: Create, transaction: int, owner: int) -> Done:
        path = operation.path
        parent = parent_of(path)
        run = self._connection.execute
        if run("SELECT 1 FROM nodes WHERE path = ?", (parent,)).fetchone() is None:
            raise NoNodeError(path)
        session = owner if operation.ephemeral else 0
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
        if self._in_batch:
            with self._savepoint():
                yield
            return
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT one")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK TO one")
                self._connection.execute("RELEASE one")
            raise
        self._connection.execute("RELEASE one")

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # Errors of Python's own, as of a database that is closed, have no name.
            if getattr(error, "sqlite_errorname", None) in _DAMAGED:
                raise StorageError(
                    self._directory,
                    f"{FILE_NAME} is damaged ({error}): restore it from a backup. Without the file "
                    "the broker knows the topics that have logs, but no settings, users and rules",
                ) from error
            raise StorageError(self._directory, f"metadata: {error}") from error


def parent_of(path: str) -> str:
    """Return the path of the parent of a node other than the root."""
    assert path.startswith("/"), f"not a path: {path!r}"
    assert not path.endswith("/"), f"not a path: {path!r}"
    return path.rpartition("/")[0] or "/"


def _node(row: tuple[bytes, int, int, int]) -> Node:
    return Node(*row)
