"""In which log directory a new log is made: the one that was asked for, else the one with the
fewest logs that takes new ones (KIP-113, KIP-1066).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from millstream.model.topic import TopicPartition

MAX_PREFERENCES: Final = 100_000
"""How many are remembered; beyond it the oldest is forgotten. Whoever may move replicas names as
many partitions as he likes, and each costs some hundred bytes until the broker stops."""


class LogPlacement:
    """The log directories that are preferred for partitions, and those that take no new logs."""

    __slots__ = ("_preferred", "cordoned")

    def __init__(self) -> None:
        self.cordoned: frozenset[str] = frozenset()
        """Directories that take no new logs, as absolute paths."""
        self._preferred: dict[TopicPartition, str] = {}

    def prefer(self, topic_partition: TopicPartition, directory: str) -> None:
        """Remember, until this process ends, where a log is to be made (Kafka:
        ``maybeUpdatePreferredLogDir``).
        """
        self._preferred.pop(topic_partition, None)
        if len(self._preferred) >= MAX_PREFERENCES:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[topic_partition] = directory

    def choose(
        self, topic_partition: TopicPartition, online: Sequence[str], used: Iterable[str]
    ) -> str:
        """Return the directory of a new log, one of those that are ``online``, of which one is
        ``used`` for each log that there is. A preference counts once.
        """
        preferred = self._preferred.pop(topic_partition, None)
        if preferred is not None and preferred in online:
            return preferred
        if len(online) == 1:
            return online[0]
        open_ones = [path for path in online if path not in self.cordoned]
        counts = Counter(used)
        return min(open_ones or online, key=lambda path: counts[path])
