"""How far files were ingested: one record for each file, in the transaction of its lines.

The records are in the compacted topic ``__millstream_ingest``. A record's key names the file by a
random id; its value is a JSON object::

    {"name", "topic", "owner", "origin", "path", "device", "inode", "position", "line", "head",
     "tail"}

``name`` is who ingests (by default the host), ``owner`` the transactional id. ``position`` counts
bytes of the file's content, after decompression, and ``line`` the lines before it. ``head`` and
``tail`` are SHA-256 of the first and the last 1,024 bytes before ``position``, or as many as there
are: a file is known by its content, because names, inodes and devices are used again.

Kafka Connect keeps the offsets of its sources in the same way (KIP-618).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from millstream.cli.arguments import open_admin
from millstream.cli.consume import open_consumer
from millstream.cli.failures import CommandFailedError, complain
from millstream.cli.ingest_files import Source, is_compressed, open_source, rotated_beside
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.admin.topics import NewTopic
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition

POSITIONS_TOPIC: Final = "__millstream_ingest"
_PLACE: Final = TopicPartition(POSITIONS_TOPIC, 0)
_PRINT_BYTES: Final = 1024
_READ_BYTES: Final = 1 << 20
_POLL_S: Final = 0.5
_PATIENCE_S: Final = 5.0


@dataclass(slots=True)
class Mark:
    """A place in the content of a file, and the bytes that tell whether it is the same file."""

    position: int = 0
    line: int = 0
    head: bytes = b""
    tail: bytes = b""

    def advance(self, data: bytes, lines: int) -> None:
        """Go on by what was read."""
        if len(self.head) < _PRINT_BYTES:
            self.head += data[: _PRINT_BYTES - len(self.head)]
        self.tail = (self.tail + data)[-_PRINT_BYTES:]
        self.position += len(data)
        self.line += lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a file was ingested."""

    file_id: str
    name: str
    topic: str
    owner: str
    origin: str
    """The path that was read when the file was found first; a rotation may have moved it."""
    path: str
    device: int
    inode: int
    position: int
    line: int
    head: str
    tail: str

    @classmethod
    def read(cls, key: bytes, value: bytes) -> Self:
        """Read a record; ValueError or TypeError for one that somebody else has written."""
        return cls(file_id=key.decode(), **json.loads(value))

    def value(self) -> bytes:
        """Return the value of the record."""
        fields = asdict(self)
        del fields["file_id"]
        return json.dumps(fields, ensure_ascii=False).encode()

    def at(self, mark: Mark, path: Path, status: os.stat_result) -> Self:
        """Return the position of the same file at another mark, where it is now."""
        return replace(
            self,
            path=str(path.absolute()),
            device=status.st_dev,
            inode=status.st_ino,
            position=mark.position,
            line=mark.line,
            head=_digest(mark.head),
            tail=_digest(mark.tail),
        )

    def is_of(self, status: os.stat_result) -> bool:
        """Tell whether this was about the file with that device and inode."""
        return (self.device, self.inode) == (status.st_dev, status.st_ino)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def open_at(path: Path, position: Position) -> tuple[Source, Mark] | None:
    """Open a file where ``position`` says that it was left; None if it holds something else."""
    source = open_source(path)
    mark = _restored(source, position, seeks=not is_compressed(path))
    if mark is None:
        source.close()
        return None
    return source, mark


def _restored(source: Source, position: Position, *, seeks: bool) -> Mark | None:
    head = _read_exactly(source, min(_PRINT_BYTES, position.position))
    if _digest(head) != position.head:
        return None
    tail_from = max(position.position - _PRINT_BYTES, 0)
    if seeks:
        getattr(source, "seek")(tail_from)  # noqa: B009  (a plain file)
        tail = _read_exactly(source, position.position - tail_from)
    else:
        tail = head
        left = position.position - len(head)
        while left and (data := source.read(min(left, _READ_BYTES))):
            left -= len(data)
            tail = (tail + data)[-_PRINT_BYTES:]
        if left:
            return None
    if _digest(tail) != position.tail:
        return None
    return Mark(position.position, position.line, head, tail)


def _read_exactly(source: Source, size: int) -> bytes:
    found = b""
    while len(found) < size and (data := source.read(size - len(found))):
        found += data
    return found


@dataclass(slots=True)
class Positions:
    """The positions of one name and topic, by the id of the file."""

    by_id: dict[str, Position] = field(default_factory=dict)

    def note(self, position: Position) -> None:
        """Take the newest position of a file."""
        self.by_id.pop(position.file_id, None)
        self.by_id[position.file_id] = position

    def of_path(self, path: Path) -> list[Position]:
        """Return the positions of files that are or were at ``path``, the last first."""
        wanted = str(path.absolute())
        return [
            each for each in reversed(self.by_id.values()) if wanted in (each.path, each.origin)
        ]

    def find(
        self, path: Path, *, taken: Iterable[str] = ()
    ) -> tuple[Position, Source, Mark] | None:
        """Open a file where it was left; None for one of which nothing was ingested.

        The same content counts: under the same inode, else at the same path, else under a name that
        a rotation gives, else if where it was there is another file now, or none. Any other copy of
        a file is another file. ``taken`` are the ids of files that are being read.
        """
        status = path.stat()
        left = [each for each in self.by_id.values() if each.file_id not in set(taken)]
        same = [each for each in left if each.is_of(status)]
        here = [each for each in self.of_path(path) if each in left and each not in same]
        for each in [*same, *here]:
            opened = open_at(path, each)
            if opened is not None:
                return each, *opened
        for each in left:
            if each in same or each in here:
                continue
            opened = open_at(path, each)
            if opened is not None:
                if path in _rotated(Path(each.origin)) or not _still_holds(each):
                    return each, *opened
                opened[0].close()
        return None


def _rotated(path: Path) -> list[Path]:
    return list(rotated_beside(path)) if path.parent.is_dir() else []


def _still_holds(position: Position) -> bool:
    """Tell whether what was ingested is still where it was."""
    try:
        opened = open_at(Path(position.path), position)
    except (OSError, CommandFailedError):
        return False
    if opened is None:
        return False
    opened[0].close()
    return True


def create_positions_topic(bootstrap: str) -> None:
    """Create the topic of positions if it is not there."""
    topic = NewTopic(POSITIONS_TOPIC, 1, configs={"cleanup.policy": "compact"})
    with open_admin(bootstrap) as admin:
        error = admin.create_topics([topic])[POSITIONS_TOPIC].error
    if error is not None and error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise error


def read_positions(bootstrap: str, name: str, topic: str) -> Positions:
    """Return the positions of a name and a topic, all that are committed.

    Called once the transactional id has been initialized, so that what it left open has ended. An
    open transaction of another ingest is waited for: a committed record may follow it.
    """
    with open_admin(bootstrap) as admin:
        found = admin.list_offsets({_PLACE: LATEST}).get_all()[_PLACE]
    end = 0 if found is None else found.offset
    positions = Positions()
    with open_consumer(bootstrap, read_committed=True) as consumer:
        consumer.assign([_PLACE])
        consumer.seek(_PLACE, consumer.beginning_offsets([_PLACE])[_PLACE])
        tell_at = time.monotonic() + _PATIENCE_S
        while consumer.position(_PLACE) < end:
            if time.monotonic() > tell_at:
                complain("waiting for the end of a transaction of another ingest")
                tell_at = float("inf")
            for record in consumer.poll(_POLL_S):
                if record.key is None or record.value is None:
                    continue
                try:
                    position = Position.read(record.key, record.value)
                except (ValueError, TypeError):
                    continue
                if (position.name, position.topic) == (name, topic):
                    positions.note(position)
    return positions
