"""Logs being moved from one log directory to another (``-future`` directories).

A future log is filled while the current one serves on. Once it holds the same batches it replaces
the current log, by two renames on two volumes::

    1. <directory a>/t-0                 ->  <directory a>/t-0.<id>-delete
    2. <directory b>/t-0.<id>-future     ->  <directory b>/t-0

A power loss may keep either, none or both, so at start (Kafka stops there and asks the operator)::

    current   future    what it means              what is done
    --------  --------  -------------------------  ---------------------------------------------
    yes       yes       the copy was under way     the copy goes on
    no        yes       rename 1 alone is on disk  the future log is the log
    two of them         rename 2 alone is on disk  the longer one is the log, the other is a stray

While a log directory is offline nothing is done: the current log may be there. Kafka:
``LogManager.replaceCurrentWithFutureLog``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from millstream.model.errors import StorageError
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.directory import DirectoryKind, PartitionDirectory, directory_name
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_renaming import rename_log

_log = logging.getLogger(__name__)


class FutureLogs:
    """The future logs of all directories, by partition."""

    __slots__ = ("_environment", "_logs")

    def __init__(self, environment: LogEnvironment) -> None:
        self._environment = environment
        self._logs: dict[TopicPartition, Log] = {}

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the future log of a partition, or None."""
        return self._logs.get(topic_partition)

    def add(self, log: Log) -> None:
        """Record a future log that was found at start. Of two the second is left out."""
        if log.topic_partition in self._logs:
            _log.warning("%s is a superfluous copy and is left unchanged", log.directory)
            log.abandon()
            return
        self._logs[log.topic_partition] = log

    def create(self, current: Log, directory: str, *, now_ms: int) -> Log:
        """Make an empty future log in ``directory``, from the log start of ``current`` on.

        Raises StorageError.
        """
        topic_partition = current.topic_partition
        name = directory_name(
            topic_partition, DirectoryKind.FUTURE, self._environment.new_id().hex()
        )
        log = Log.create(
            self._environment,
            PartitionDirectory(directory, name, topic_partition),
            current.config,
            topic_id=current.topic_id,
            now_ms=now_ms,
        )
        if current.log_start_offset:
            log.truncation.truncate_fully_and_start_at(current.log_start_offset, now_ms=now_ms)
        self._logs[topic_partition] = log
        return log

    def pop(self, topic_partition: TopicPartition) -> Log | None:
        """Forget a future log; its files stay."""
        return self._logs.pop(topic_partition, None)

    def drop_directory(self, directory: str) -> list[TopicPartition]:
        """Forget the future logs in a directory that has failed; return their partitions."""
        gone = [log for log in self._logs.values() if log.log_directory == directory]
        for log in gone:
            del self._logs[log.topic_partition]
            log.abandon()
        return [log.topic_partition for log in gone]

    def take_name(self, log: Log) -> None:
        """Give a future log the name of a current one; it is no future log any more.

        Raises StorageError.
        """
        rename_log(self._environment, log, DirectoryKind.CURRENT)
        log.durability.note_directory()
        self._logs.pop(log.topic_partition, None)

    def sync_plan(self, directories: Sequence[str]) -> Callable[[], None]:
        """Return a function, safe on another thread, that brings the names in these log directories
        to disk. Raises StorageError.
        """

        def sync() -> None:
            for directory in directories:
                try:
                    self._environment.file_system.sync_directory(directory)
                except OSError as error:
                    raise StorageError(directory, f"flush failed: {error}") from error

        return sync


def which_counts(one: Log, other: Log, topic_id: TopicId | None) -> tuple[Log, Log] | None:
    """Return two logs of one partition, the valid one first; None if that cannot be determined.

    With equal topic ids a move was under way, and the shorter log is a prefix of the longer one.
    With different topic ids the log with the current ``topic_id`` is valid: the other is in a
    directory that was offline when the topic was deleted and created again, or whose rename a power
    loss has undone. A log that was just created may not have its id yet: it is not valid while it
    is empty; with records in it, it is valid if the other one's id is not that of the topic.
    ``topic_id`` is ``ZERO_TOPIC_ID`` where it is certain that there is no topic of that name, and
    None where that is not known.
    """
    if one.topic_id != other.topic_id:
        for log, rest in ((one, other), (other, one)):
            if topic_id is not None and log.topic_id == topic_id:
                return log, rest
        for log, rest in ((one, other), (other, one)):
            if log.topic_id is None and not log.size:
                return rest, log
            if log.topic_id is None and topic_id is not None:
                return log, rest
        # Neither is of the topic that there is: what becomes of logs of deleted topics is decided
        # for the one, and the other is put aside.
        return None if topic_id is None else (one, other)
    if one.topic_id is None:
        return None
    longer, shorter = (one, other) if one.log_end_offset >= other.log_end_offset else (other, one)
    end = shorter.log_end_offset
    # Where the longer one begins beyond the shorter one, it was truncated fully before the move.
    overlap = end > max(shorter.log_start_offset, longer.log_start_offset)
    if overlap and longer.epoch_for_offset(end - 1) != shorter.epoch_for_offset(end - 1):
        return None
    return longer, shorter
