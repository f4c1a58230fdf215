"""Chooses the partition of a record.

The partition given; else the key's, by murmur2 as in Java and librdkafka's ``murmur2_random``; else
a partition that stays the same for ``batch.size`` bytes and is then chosen again at random, less
often those with queued batches (KIP-794; Kafka: ``BuiltInPartitioner``). ``round_robin`` and a
user's function replace the last two.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Final, Protocol, cast

from millstream.client.partitioner import murmur2 as murmur2_in_python
from millstream.model.errors import ConfigError
from millstream.records import kernel

ROUND_ROBIN: Final = "round_robin"
_KEYS_KEPT: Final = 10_000
_LONGEST_KEY_KEPT: Final = 64


class PartitionFunction(Protocol):
    """A partitioner of the user's own."""

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int, /
    ) -> int:
        """Return a partition from 0 to ``partitions`` − 1."""


def chosen(setting: object) -> PartitionFunction | None:
    """Return the function of the setting ``partitioner``, None for the default."""
    if setting is None or setting == "default":
        return None
    if setting == ROUND_ROBIN:
        return RoundRobin()
    if callable(setting):
        return cast(PartitionFunction, setting)
    raise ConfigError(f"partitioner = {setting!r}: it takes 'default', 'round_robin' or a function")


class RoundRobin:
    """Sends each record of a topic to the next partition, ignoring keys."""

    def __init__(self) -> None:
        self._counters: dict[str, itertools.count[int]] = {}

    def __call__(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        """Return the next partition of a topic."""
        counter = self._counters.get(topic)
        if counter is None:
            counter = self._counters.setdefault(topic, itertools.count())
        return next(counter) % partitions


def hash_function() -> Callable[[bytes], int]:
    """Return murmur2 with Kafka's seed: the kernel's, or the one in Python."""
    library = kernel.library()
    if library is None:
        return murmur2_in_python
    in_c = library.murmur2
    return lambda key: in_c(key, len(key))


class KeyPartitioner:
    """Partitions of keys, with a cache of recent keys."""

    def __init__(self) -> None:
        self._hash = hash_function()
        self._known: dict[bytes, int] = {}

    def partition(self, key: bytes, partitions: int) -> int:
        """Return the partition of a key (Kafka: ``BuiltInPartitioner.partitionForKey``)."""
        hashed = self._known.get(key)
        if hashed is None:
            hashed = self._hash(key) & 0x7FFFFFFF
            if len(self._known) >= _KEYS_KEPT:
                self._known.clear()
            if len(key) <= _LONGEST_KEY_KEPT:
                self._known[key] = hashed
        return hashed % partitions


class StickyChoice:
    """The partition for records without a key, of one topic."""

    def __init__(self, random: Callable[[], float], batch_size: int) -> None:
        self.current: int | None = None
        self._random = random
        self._batch_size = max(batch_size, 1)
        self._bytes = 0
        self._weighed: tuple[list[int], list[int]] = ([], [])
        """Partitions, and the running totals of their weights. The client's thread replaces both
        at once, while threads of the user choose.
        """

    def partition(self, count: int, available: Callable[[], list[int]]) -> int:
        """Return the current partition of ``count``, or choose one; ``available`` have leaders."""
        if self.current is None or self.current >= count:
            self._switch(count, available)
        assert self.current is not None
        return self.current

    def produced(self, size: int, count: int, available: Callable[[], list[int]]) -> None:
        """Count the bytes of a batch that has ended; after ``batch.size`` of them switch to another
        partition.
        """
        self._bytes += size
        if self._bytes >= self._batch_size:
            self._switch(count, available)

    def weigh(self, queue_sizes: Mapping[int, int], count: int) -> None:
        """Set the number of queued batches of each available partition, of ``count``."""
        sizes = set(queue_sizes.values())
        if count < 2 or not sizes or (len(sizes) == 1 and len(queue_sizes) == count):
            self._weighed = ([], [])
            return
        most = max(sizes) + 1
        totals = accumulate(most - size for size in queue_sizes.values())
        self._weighed = (list(queue_sizes), list(totals))

    def _switch(self, count: int, available: Callable[[], list[int]]) -> None:
        self._bytes = 0
        ids, totals = self._weighed
        if totals and max(ids) < count:
            # Otherwise they are of a deleted topic of this name that had more partitions.
            drawn = int(self._random() * totals[-1])
            self.current = ids[bisect.bisect_right(totals, drawn)]
            return
        choices = available() or list(range(count))
        self.current = choices[int(self._random() * len(choices))]
