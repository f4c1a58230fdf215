"""`millstream ingest --resume`: every line once, whatever ends the command in between.

Lines are sent in transactions. The last record of each says how far the files were read that it
has lines of (``ingest_positions``): both are there, or neither. A start initializes the
transactional id, which ends what an earlier process has left open and keeps it from going on; then
it reads the positions.

What a failure leaves in doubt is settled in the same way: the producer is closed, and another one
begins where the positions say.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from millstream.cli.failures import CommandFailedError, complain, sentence
from millstream.cli.followed_files import FollowedFiles, new_position
from millstream.cli.ingest_batches import batches_of
from millstream.cli.ingest_positions import POSITIONS_TOPIC, read_positions
from millstream.cli.line_file import LineFile, Lines, TruncatedError
from millstream.cli.line_limits import BadLineError, LineGate
from millstream.cli.output import counted
from millstream.cli.progress import Progress
from millstream.cli.reaching import NoBrokerError
from millstream.cli.waiting import Waiting
from millstream.client import Producer
from millstream.client.errors import (
    ClientError,
    ConnectionFailedError,
    TransactionError,
    is_retriable,
)
from millstream.client.producer_futures import RowsFuture
from millstream.client.settings import Address
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError

_TRANSACTION_BYTES: Final = 8 * 1024 * 1024
_TRANSACTION_S: Final = 1.0
"""A transaction ends with so many bytes of lines, or after so long."""

_LOOK_S: Final = 1.0
_TICK_S: Final = 0.2
_RETRY_S: Final = 1.0

_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_PERMANENT: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""What ends a transaction, and would end the next one too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is ingested, and where to."""

    words: Sequence[str]
    topic: str
    name: str
    """Who ingests: positions are kept under it."""
    transactional_id: str
    bootstrap: str
    open_producer: Callable[[], Producer]
    batch_bytes: Callable[[int], int]
    """The size of batches for a number of partitions."""
    follow: bool


def ingest_once(job: Job, gate: LineGate, progress: Progress) -> None:
    """Ingest every line of the files that was not ingested before; with ``follow`` until Ctrl-C.

    CommandFailedError says how far it came, and BadLineError which line the topic does not take.
    """
    known: set[tuple[str, int]] | None = None
    while True:
        try:
            with _Session(job, gate, progress, known) as session:
                known = session.known
                with Waiting(session.unreachable, lambda: progress.under_way):
                    session.run()
                return
        except (ClientError, KafkaError, NoBrokerError) as error:
            told = _told(progress)
            if not job.follow or known is None or not _may_pass(error):
                raise CommandFailedError(
                    f"{_reason(error)}; {told}; --resume continues there"
                ) from error
            complain(f"{_reason(error)}; {told}, continuing there")
        except BadLineError as error:
            raise BadLineError(f"{error}; {_told(progress)}") from error
        time.sleep(_RETRY_S)


def _told(progress: Progress) -> str:
    return f"{counted(progress.records, 'record')} written by this command"


def _reason(error: ClientError | KafkaError | NoBrokerError) -> str:
    """Return what has ended a session, in one line."""
    if isinstance(error, TransactionError) and error.error in _FENCED:
        return "another command ingests these files, or the transaction took too long"
    return sentence(error)


def _may_pass(error: Exception) -> bool:
    """Tell whether another session may get on where this one did not."""
    if isinstance(error, TransactionError):
        return error.error not in _PERMANENT
    return isinstance(error, ConnectionFailedError | NoBrokerError) or is_retriable(error)


class _Session:
    """One producer, from the positions that it finds to the end of the files or to an error."""

    def __init__(
        self, job: Job, gate: LineGate, progress: Progress, known: set[tuple[str, int]] | None
    ) -> None:
        """Begin where the positions say.

        ``known`` are those of the session before: CommandFailedError if there are others under the
        same transactional id.
        """
        self._job = job
        self._gate = gate
        self._progress = progress
        self._touched: dict[LineFile, None] = {}
        """Files of whose lines some are in the open transaction."""
        self._under_way: list[RowsFuture] = []
        self._bytes = 0
        self._began = 0.0
        progress.under_way = 0
        self._producer = job.open_producer()
        try:
            places = self._producer.partitions_for(job.topic)
            self._partitions = itertools.cycle(each.topic_partition.partition for each in places)
            self._batch_bytes = job.batch_bytes(len(places))
            self._producer.init_transactions()
            self._positions = read_positions(job.bootstrap, job.name, job.topic)
        except BaseException:
            self._producer.close(0)
            raise
        own = {
            (each.file_id, each.position)
            for each in self._positions.by_id.values()
            if each.owner == job.transactional_id
        }
        if known is not None and not own <= known:
            self._producer.close(0)
            raise CommandFailedError("another command has taken over these files")
        self.known = own | (known or set())
        """Positions that were found, and those that this process wrote or may have written."""
        new = partial(new_position, job.name, job.topic, job.transactional_id)
        self._files = FollowedFiles(job.words, self._positions, new)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Abort what is open, which would hold up readers of committed records."""
        self._files.close_all()
        with suppress(MillstreamError):
            if self._touched:
                self._producer.abort_transaction()
        self._producer.close(0)

    def unreachable(self) -> list[Address]:
        """Return the brokers that cannot be connected to."""
        return self._producer.unreachable()

    def run(self) -> None:
        """Read the files to their ends; with ``follow`` go on."""
        for file in self._files.open_all(follow=self._job.follow):
            self._read_to_the_end(file)
            if not (self._job.follow and file.can_grow):
                self._finish(file)
            elif file.is_quiet:
                self._put_away(file)
        self._commit()
        if self._job.follow:
            self._go_on()

    def _go_on(self) -> None:
        looked = time.monotonic()
        while True:
            moved = False
            for file in self._files:
                moved |= self._read_to_the_end(file)
                if file.is_quiet:
                    self._put_away(file)
            if time.monotonic() - looked > _LOOK_S:
                for file in self._files.look():
                    moved |= self._read_to_the_end(file)
                looked = time.monotonic()
            if not moved or time.monotonic() - self._began > _TRANSACTION_S:
                self._commit()
            if not moved:
                time.sleep(_TICK_S)

    def _read_to_the_end(self, file: LineFile) -> bool:
        """Send what a file has; return False if there was nothing."""
        moved = False
        while True:
            try:
                found = file.read(self._batch_bytes)
            except TruncatedError:
                self._commit()
                if not self._job.follow:
                    raise
                self._files.forget(file)
                for each in self._files.in_order(file.path):
                    self._read_to_the_end(each)
                return True
            if found is None:
                return moved
            moved = True
            self._send(file, found)
            if self._bytes >= _TRANSACTION_BYTES:
                self._commit()

    def _put_away(self, file: LineFile) -> None:
        """Close a file to which nothing is added; one that was renamed is at its end."""
        if file.is_renamed or not file.can_grow:
            self._finish(file)
        elif not file.is_within_a_line:
            self._close(file)

    def _finish(self, file: LineFile) -> None:
        """Send the line that has no line feed, and close the file."""
        self._send(file, file.last_line())
        self._close(file)

    def _close(self, file: LineFile) -> None:
        if file in self._touched:
            self._positions.note(file.committed())
        self._files.close(file)

    def _send(self, file: LineFile, found: Lines) -> None:
        if not found.data:
            return
        lines, error = self._gate.passed(found.lines, str(file.path), file.mark.line + 1)
        if error is None:
            file.mark.advance(found.data, len(found.lines))
            self._progress.add_bytes(len(found.data))
        else:
            file.mark.advance(found.before + b"".join(each + b"\n" for each in lines), len(lines))
        if not self._touched:
            self._producer.begin_transaction()
            self._began = time.monotonic()
        self._touched[file] = None
        for batch in batches_of(lines, self._batch_bytes):
            partition = next(self._partitions)
            future = self._producer.send_values(batch, self._job.topic, partition=partition)
            self._under_way.append(future)
        self._progress.under_way += len(lines)
        self._bytes += len(found.data)
        if error is not None:
            self._commit()
            raise error

    def _commit(self) -> None:
        """End the transaction with the positions of its files."""
        if not self._touched:
            return
        for file in self._touched:
            position = file.committed()
            self.known.add((position.file_id, position.position))
            self._positions.note(position)
            self._producer.send(
                POSITIONS_TOPIC, position.value(), position.file_id.encode(), partition=0
            )
        self._producer.commit_transaction()
        self._touched.clear()
        self._progress.add_records(sum(each.result().rows for each in self._under_way))
        self._under_way.clear()
        self._progress.under_way = 0
        self._bytes = 0
