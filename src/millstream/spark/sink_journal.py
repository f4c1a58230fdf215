"""Which micro-batches of a query are in their topics, and which are being committed.

::

    <checkpoint>/millstream-sink/id                 the sink's name, made at its first batch
    <checkpoint>/millstream-sink/<batch>.commit     decided: the transactions to be committed
    <checkpoint>/millstream-sink/<batch>.committed  all of them are

Only the driver reads and writes it. A batch is decided when its file ``.commit`` is there: from
then on its transactions are committed, if necessary by the next start of the query, and a replay
writes nothing. Before that they are aborted, and a replay writes the batch again.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from millstream.client.core.producer.transactions import PreparedTransaction
from millstream.model.errors import MillstreamError

_DECIDED: Final = ".commit"
_COMMITTED: Final = ".committed"
_NAME: Final = "id"

NO_BATCH: Final = -1


class Journal:
    """The files of one query's sink."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def name(self) -> str:
        """Return the sink's name, which begins its transactional ids."""
        path = self._directory / _NAME
        if not path.exists():
            self._directory.mkdir(parents=True, exist_ok=True)
            _write(path, f"millstream-sink-{uuid.uuid4().hex}")
        return path.read_text()

    def last_committed(self) -> int:
        """Return the newest batch that is committed wholly; −1 for none."""
        return max(self._batches(_COMMITTED), default=NO_BATCH)

    def decided(self) -> dict[int, list[PreparedTransaction]]:
        """Return the batches whose commits have begun and not ended, with their transactions."""
        return {batch: self._read(batch) for batch in self._batches(_DECIDED)}

    def begun_before(self) -> frozenset[int]:
        """Return the batches with notes of versions of the sink without transactions."""
        return frozenset(
            int(path.name)
            for path in self._paths("[0-9]*")
            if path.is_dir() and path.name.isdecimal()
        )

    def decide(self, batch: int, transactions: Sequence[PreparedTransaction]) -> None:
        """Record that a batch is to be committed. MillstreamError if another driver did."""
        path = self._path(batch, _DECIDED)
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            _write(path, json.dumps([asdict(each) for each in transactions]))
        except FileExistsError:
            raise MillstreamError(
                f"{path} is there: another driver of this query is committing the micro-batch"
            ) from None

    def finish(self, batch: int) -> None:
        """Record that every transaction of a batch is committed; forget the earlier batches."""
        self._path(batch, _DECIDED).rename(self._path(batch, _COMMITTED))
        _sync(self._directory)
        for earlier in self._batches(_COMMITTED):
            if earlier < batch:
                self._path(earlier, _COMMITTED).unlink(missing_ok=True)
        for path in self._paths("[0-9]*"):
            if path.is_dir() and path.name.isdecimal() and int(path.name) <= batch:
                shutil.rmtree(path, ignore_errors=True)

    def _read(self, batch: int) -> list[PreparedTransaction]:
        path = self._path(batch, _DECIDED)
        try:
            return [PreparedTransaction(**each) for each in json.loads(path.read_text())]
        except (ValueError, TypeError) as error:
            raise MillstreamError(
                f"{path} is damaged ({error}): what this micro-batch has written is not known"
            ) from None

    def _batches(self, suffix: str) -> list[int]:
        return sorted(int(path.stem) for path in self._paths(f"*{suffix}") if path.stem.isdecimal())

    def _paths(self, pattern: str) -> list[Path]:
        return list(self._directory.glob(pattern)) if self._directory.is_dir() else []

    def _path(self, batch: int, suffix: str) -> Path:
        return self._directory / f"{batch}{suffix}"


def _write(path: Path, text: str) -> None:
    """Create a file, durably and whole; FileExistsError if it is there."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
    _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
