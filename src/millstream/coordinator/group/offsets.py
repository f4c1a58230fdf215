"""The committed offsets of groups, from the records of one shard.

A commit inside a transaction is pending until the transaction's marker: a commit marker applies it,
unless a later commit was made outside of the transaction, and an abort marker discards it (Kafka:
``OffsetMetadataManager``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.model.producer import NO_PRODUCER_ID
from millstream.model.topic import TopicId
from millstream.protocol.messages.coordinator_records import OffsetCommitKey, OffsetCommitValue

NO_EXPIRY: Final = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The committed offset of a group in one partition.

    ``expire_timestamp_ms`` is -1 for the retention that the broker sets. ``record_offset`` orders
    commits: the offset of the record, or a number that grows as offsets do.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: TopicId
    record_offset: int


class OffsetKey(NamedTuple):
    """One partition of one group."""

    group_id: str
    topic: str
    partition: int


_NONE: Final[Mapping[str, Mapping[int, CommittedOffset]]] = {}


class OffsetStore:
    """The committed offsets of one shard, and those of transactions that are open."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._by_transaction: dict[int, dict[OffsetKey, CommittedOffset]] = {}
        self._open: dict[str, dict[OffsetKey, set[int]]] = {}
        """Per group, the producer ids whose open transactions commit an offset."""

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        """Return what was committed last, or None."""
        return self.of_group(key.group_id).get(key.topic, {}).get(key.partition)

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return a group's offsets by topic and partition."""
        return self._offsets.get(group_id, _NONE)

    def group_ids(self) -> Iterator[str]:
        """Yield every group that has an offset."""
        return iter(self._offsets)

    def is_unstable(self, key: OffsetKey) -> bool:
        """True while a transaction that commits this offset is open."""
        return key in self._open.get(key.group_id, ())

    def unstable_keys(self, group_id: str) -> list[OffsetKey]:
        """Return the group's partitions that open transactions commit."""
        return list(self._open.get(group_id, ()))

    def pending(self) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Yield what open transactions commit."""
        for offsets in self._by_transaction.values():
            yield from offsets.items()

    def replay(
        self,
        record_key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        *,
        record_offset: int,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Apply a record; one with a producer id belongs to a transaction."""
        key = OffsetKey(record_key.group, record_key.topic, record_key.partition)
        if value is None:
            self._forget(key)
            return
        committed = CommittedOffset(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=value.expire_timestamp,
            topic_id=value.topic_id,
            record_offset=record_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(key, committed)
        else:
            self._by_transaction.setdefault(producer_id, {})[key] = committed
            self._open.setdefault(key.group_id, {}).setdefault(key, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a producer's commit or abort marker."""
        for key, offset in self._by_transaction.pop(producer_id, {}).items():
            self._close(key, producer_id)
            if committed:
                present = self.get(key)
                if present is None or present.record_offset < offset.record_offset:
                    self._put(key, offset)

    def _put(self, key: OffsetKey, committed: CommittedOffset) -> None:
        topics = self._offsets.setdefault(key.group_id, {})
        topics.setdefault(key.topic, {})[key.partition] = committed

    def _forget(self, key: OffsetKey) -> None:
        topics = self._offsets.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if key.topic in topics and not partitions:
            del topics[key.topic]
        if key.group_id in self._offsets and not topics:
            del self._offsets[key.group_id]
        for producer_id in tuple(self._open.get(key.group_id, {}).get(key, ())):
            self._close(key, producer_id)
            del self._by_transaction[producer_id][key]

    def _close(self, key: OffsetKey, producer_id: int) -> None:
        of_group = self._open[key.group_id]
        of_group[key].discard(producer_id)
        if not of_group[key]:
            del of_group[key]
        if not of_group:
            del self._open[key.group_id]
