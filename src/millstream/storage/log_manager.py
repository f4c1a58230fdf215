"""Every log of this broker: start-up, look-up, creation, deletion, checkpoints, clean close."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.log import Log


class LogManager:
    """The log directories and the logs in them. Synchronous; one owner.

    A StorageError that leaves a log names its log directory: hand it to
    :meth:`directory_failed`, which takes that directory offline and returns the partitions lost.
    """

    def start(
        self,
        *,
        config_of: Callable[[TopicPartition, TopicId | None], TopicConfig],
        now_ms: int,
    ) -> None:
        """Lock the directories, read checkpoints and the clean-shutdown marker, load every log."""
        raise NotImplementedError

    @property
    def cluster_id(self) -> str | None:
        """Cluster id in ``meta.properties``, if one was found."""
        raise NotImplementedError

    @property
    def directories(self) -> Sequence[str]:
        """The log directories that are online."""
        raise NotImplementedError

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the log of a partition, or None."""
        raise NotImplementedError

    def logs(self) -> Iterable[Log]:
        """Return every log."""
        raise NotImplementedError

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        *,
        now_ms: int,
    ) -> Log:
        """Return the log of a partition, made in the emptiest directory if it is new.

        Raises KafkaError(INCONSISTENT_TOPIC_ID) when the log belongs to another topic id;
        StorageError.
        """
        raise NotImplementedError

    def delete(self, topic_partition: TopicPartition, *, now_ms: int) -> bool:
        """Rename a partition's directory to ``-delete`` now; its files are removed by
        :meth:`remove_deleted` after ``file.delete.delay.ms``. False when there is no log.
        """
        raise NotImplementedError

    def remove_deleted(self, *, now_ms: int) -> None:
        """Remove the directories and files that were deleted long enough ago."""
        raise NotImplementedError

    def next_removal_ms(self) -> int | None:
        """Return when :meth:`remove_deleted` has something to do next; None if never."""
        raise NotImplementedError

    def delete_old_segments(self, *, now_ms: int) -> int:
        """Apply retention to every log (call each ``log.retention.check.interval.ms``)."""
        raise NotImplementedError

    def checkpoint_plan(self) -> Callable[[], None]:
        """Return a function, safe on another thread, that writes the recovery points, log starts
        and high watermarks of this moment. Raises StorageError.
        """
        raise NotImplementedError

    def checkpoint(self) -> None:
        """Write the checkpoints now."""
        raise NotImplementedError

    def directory_failed(self, directory: str) -> list[TopicPartition]:
        """Take a log directory offline; return the partitions that are gone with it."""
        raise NotImplementedError

    def close(self, *, now_ms: int) -> None:
        """Flush and close every log, write the checkpoints, then the clean-shutdown markers."""
        raise NotImplementedError
