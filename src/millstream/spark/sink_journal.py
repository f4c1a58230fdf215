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
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from millstream.client.core.producer.transactions import PreparedTransaction
from millstream.model.errors import MillstreamError
from millstream.spark.locations.location import Location, as_location

_DECIDED: Final = ".commit"
_COMMITTED: Final = ".committed"
_NAME: Final = "id"

NO_BATCH: Final = -1


class Journal:
    """The files of one query's sink."""

    def __init__(self, directory: Location) -> None:
        self._directory = as_location(directory)

    def name(self) -> str:
        """Return the sink's name, which begins its transactional ids."""
        path = self._directory / _NAME
        if not path.is_file():
            path.check_commits()
            path.create(f"millstream-sink-{uuid.uuid4().hex}".encode())
        return path.read_bytes().decode()

    def last_committed(self) -> int:
        """Return the newest batch that is committed wholly; −1 for none."""
        return max(self._batches(_COMMITTED), default=NO_BATCH)

    def decided(self) -> dict[int, list[PreparedTransaction]]:
        """Return the batches whose commits have begun and not ended, with their transactions."""
        committed = self._batches(_COMMITTED)  # a store copies a file before it deletes the old
        return {
            batch: self._read(batch) for batch in self._batches(_DECIDED) if batch not in committed
        }

    def begun_before(self) -> frozenset[int]:
        """Return the batches with notes of versions of the sink without transactions."""
        return frozenset(map(int, filter(str.isdecimal, self._directory.entries())))

    def decide(self, batch: int, transactions: Sequence[PreparedTransaction]) -> None:
        """Record that a batch is to be committed. MillstreamError if another driver did."""
        path = self._path(batch, _DECIDED)
        content = json.dumps([asdict(each) for each in transactions]).encode()
        try:
            path.create(content)
        except FileExistsError:
            if path.read_bytes() == content:
                return  # a store has written it, and its answer was lost
            raise MillstreamError(
                f"{path} is there: another driver of this query is committing the micro-batch"
            ) from None

    def finish(self, batch: int) -> None:
        """Record that every transaction of a batch is committed; forget the earlier batches."""
        committed = self._path(batch, _COMMITTED)
        self._path(batch, _DECIDED).rename_to(committed)
        committed.settle()
        for earlier in self._batches(_COMMITTED):
            if earlier < batch:
                self._path(earlier, _DECIDED).unlink(missing_ok=True)
                self._path(earlier, _COMMITTED).unlink(missing_ok=True)
        for earlier in self.begun_before():
            if earlier <= batch:
                (self._directory / str(earlier)).remove_all()

    def _read(self, batch: int) -> list[PreparedTransaction]:
        path = self._path(batch, _DECIDED)
        try:
            return [PreparedTransaction(**each) for each in json.loads(path.read_bytes())]
        except (ValueError, TypeError) as error:
            raise MillstreamError(
                f"{path} is damaged ({error}): what this micro-batch has written is not known"
            ) from None

    def _batches(self, suffix: str) -> list[int]:
        names = (name.partition(".") for name in self._directory.entries())
        return sorted(
            int(number) for number, dot, end in names if dot + end == suffix and number.isdecimal()
        )

    def _path(self, batch: int, suffix: str) -> Location:
        return self._directory / f"{batch}{suffix}"
