"""Metrics of the groups that are coordinated here, and of transactions.

The lag of a group is what it has committed against the high watermark of the partition, which its
leader knows: for partitions that are led elsewhere the other brokers are asked with ListOffsets, in
the background, and a scrape shows what they answered last.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.leadership import NO_LEADER
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Response
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.runtime.coordinators.coordinator_registry import (
    CoordinatorRegistry,
    CoordinatorType,
)
from millstream.runtime.services import Services
from millstream.server.metrics import catalogue
from millstream.server.metrics.families import Family, gauge
from millstream.server.metrics.group_lag import EndOffsets
from millstream.server.metrics.of_logs import Part

if TYPE_CHECKING:
    from millstream.coordinator.group.coordinator import GroupCoordinator
    from millstream.coordinator.transaction.coordinator import TransactionCoordinator

log = logging.getLogger(__name__)

ASK_MS: Final = 5_000.0
"""How often other brokers are asked at most, and how long their answer is waited for."""
PARTITIONS_OF_A_REQUEST: Final = 2_000
_OFFSETS_AT_ONCE: Final = 200
_LATEST: Final = -1
_CONSUMER: Final = -1


class GroupMetrics:
    """Looks at the groups and transactions that are coordinated here."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._ends: dict[TopicPartition, EndOffsets] = {}
        self._remote: dict[TopicPartition, int] = {}
        """High watermarks of partitions that are led elsewhere."""
        self._asked_ms = float("-inf")
        self._wanted: dict[TopicPartition, None] = {}

    def of_groups(self, *, with_lag: bool) -> Part:
        """Yield the families of groups. What is looked at may change at each None: a group with
        thousands of offsets is looked at in parts too.
        """
        states: Counter[str] = Counter()
        members = Family(catalogue.GROUP_MEMBERS)
        rebalances = Family(catalogue.GROUP_REBALANCES)
        offsets = Family(catalogue.GROUP_OFFSET)
        lags = Family(catalogue.GROUP_LAG)
        seconds = Family(catalogue.GROUP_LAG_SECONDS)
        self._wanted = {}
        now_s = self._services.clock.monotonic_ms() / 1_000
        looked_at = 0
        for shard in self._group_shards():
            for group in tuple(shard.groups):
                group_id = group.group_id
                looked_at += 1
                states[group.listed().group_state] += 1
                members.add(len(getattr(group, "members", ())), group_id)
                epoch = getattr(group, "group_epoch", None)
                rebalances.add(
                    getattr(group, "generation_id", 0) if epoch is None else epoch, group_id
                )
                for topic, by_partition in tuple(shard.offsets.of_group(group_id).items()):
                    for index, committed in tuple(by_partition.items()):
                        labels = (group_id, topic, str(index))
                        offsets.add(committed.offset, *labels)
                        looked_at += 1
                        end = self._end_of(topic, index, now_s) if with_lag else None
                        if end is not None:
                            lags.add(max(0, end - committed.offset), *labels)
                            known = self._ends[TopicPartition(topic, index)]
                            seconds.add(known.lag_seconds(committed.offset, now_s), *labels)
                        if looked_at >= _OFFSETS_AT_ONCE:
                            looked_at = 0
                            yield None
                if looked_at >= _OFFSETS_AT_ONCE:
                    looked_at = 0
                    yield None
        counts = Family(catalogue.GROUPS)
        for state, count in sorted(states.items()):
            counts.add(count, state)
        yield from (counts, members, rebalances, offsets, lags, seconds)
        self._forget_others()
        self._ask()

    def _group_shards(self) -> Iterable[GroupCoordinator]:
        return _active_shards(self._services.coordinators, CoordinatorType.GROUP)

    def _end_of(self, topic: str, index: int, now_s: float) -> int | None:
        """Return the high watermark of a partition, None where it is not known yet."""
        topic_partition = TopicPartition(topic, index)
        partition = self._services.partitions.find(topic, index)
        if partition is not None:
            end = partition.high_watermark
        else:
            self._wanted[topic_partition] = None
            if topic_partition not in self._remote:
                return None
            end = self._remote[topic_partition]
        self._ends.setdefault(topic_partition, EndOffsets()).note(end, now_s)
        return end

    def _forget_others(self) -> None:
        """Forget partitions that are gone."""
        metadata = self._services.metadata
        for known in (self._ends, self._remote):
            for each in [each for each in known if metadata.topic(each.topic) is None]:
                del known[each]

    def _ask(self) -> None:
        """Ask the other leaders how far the partitions reach whose ends were wanted."""
        now_ms = self._services.clock.monotonic_ms()
        if not self._wanted or now_ms - self._asked_ms < ASK_MS:
            return
        self._asked_ms = now_ms
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for each in self._wanted:
            image = self._services.metadata.topic(each.topic)
            if image is None or each.partition >= len(image.partitions):
                continue
            leader = image.partitions[each.partition].leader
            if leader not in (NO_LEADER, self._services.node.broker_id):
                by_leader.setdefault(leader, []).append(each)
        for leader, wanted in by_leader.items():
            for start in range(0, len(wanted), PARTITIONS_OF_A_REQUEST):
                request = _list_offsets(wanted[start : start + PARTITIONS_OF_A_REQUEST])
                sent = self._services.send_request(leader, request, int(ASK_MS))
                sent.on_done(self._answered)

    def _answered(self, outcome: Deferred[Response]) -> None:
        try:
            response = outcome.result()
        except Exception as error:  # it is asked again
            log.debug("the ends of partitions are not known: %s", error)
            return
        assert isinstance(response, ListOffsetsResponse)
        for topic in response.topics:
            for partition in topic.partitions:
                if not partition.error_code:
                    key = TopicPartition(topic.name, partition.partition_index)
                    self._remote[key] = partition.offset

    def of_transactions(self) -> Part:
        """Yield the families of transactions."""
        states: Counter[str] = Counter()
        oldest_ms = now_ms = self._services.clock.now_ms()
        looked_at = 0
        for shard in self._transaction_shards():
            for _, transaction in tuple(shard.transactions):
                states[transaction.state.text] += 1
                if transaction.state.name in ("ONGOING", "PREPARE_COMMIT", "PREPARE_ABORT"):
                    oldest_ms = min(oldest_ms, max(0, transaction.start_ms))
                looked_at += 1
                if looked_at >= _OFFSETS_AT_ONCE:
                    looked_at = 0
                    yield None
        family = Family(catalogue.TRANSACTIONS)
        for state, count in sorted(states.items()):
            family.add(count, state)
        yield family
        yield gauge(catalogue.OLDEST_TRANSACTION, max(0, now_ms - oldest_ms) / 1_000)

    def _transaction_shards(self) -> Iterable[TransactionCoordinator]:
        return _active_shards(self._services.coordinators, CoordinatorType.TRANSACTION)


def _active_shards(coordinators: CoordinatorRegistry, kind: CoordinatorType) -> Iterable[Any]:
    """Return the shards that a coordinator runs here; one that was not needed is not made."""
    made = coordinators.find(kind).made
    return () if made is None else made.active_shards()


def _list_offsets(wanted: Iterable[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for each in wanted:
        partition = ListOffsetsPartition(
            partition_index=each.partition, current_leader_epoch=-1, timestamp=_LATEST
        )
        topics.setdefault(each.topic, []).append(partition)
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=0,
        timeout_ms=int(ASK_MS),
        topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
    )
