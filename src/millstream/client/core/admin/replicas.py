"""Replicas: log directories, leader elections, reassignments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from millstream.client.core.admin.outcome import Outcome, Outcomes, done, refusal
from millstream.client.core.admin.routing import Routing
from millstream.client.errors import UnsupportedVersionError
from millstream.model.errors import KafkaError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from millstream.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from millstream.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from millstream.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from millstream.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


@dataclass(frozen=True, slots=True)
class ReplicaOnDisk:
    """One replica in a log directory; ``is_future`` while it moves there."""

    size_bytes: int
    offset_lag: Offset
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """One log directory of one broker; bytes are −1 if the broker does not return them."""

    path: str
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool = False
    """True if it gets no new partitions (KIP-1066)."""
    replicas: Mapping[TopicPartition, ReplicaOnDisk] = field(default_factory=dict)
    error: KafkaError | None = None


class ElectionType(IntEnum):
    """The type of an election: preferred (the first replica), or unclean (any live one)."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Reassignment:
    """An ongoing reassignment: all replicas, and those being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplicas:
    """The replicas and the leader of one partition; ``leader`` is −1 if there is none.

    ``elr`` are out of sync but have all committed records, ``last_known_elr`` are the last members
    of the ELR (KIP-966); both are empty if brokers do not return them.
    """

    leader: int
    leader_epoch: LeaderEpoch
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


class Replicas(Routing):
    """Operations on replicas."""

    async def describe_partitions(
        self, topics: Iterable[str] = ()
    ) -> dict[TopicPartition, PartitionReplicas]:
        """Return the replicas of the partitions of all topics, or of some existing ones."""
        wanted = [TopicRequest(name=name) for name in sorted(topics)]
        found: dict[TopicPartition, PartitionReplicas] = {}
        cursor: Cursor | None = None
        while True:
            request = DescribeTopicPartitionsRequest(topics=wanted, cursor=cursor)
            try:
                response = await self.ask_any(request, DescribeTopicPartitionsResponse)
            except UnsupportedVersionError:
                return await self._partitions_in_metadata([each.name for each in wanted])
            for topic in response.topics:
                for row in topic.partitions:
                    topic_partition = TopicPartition(topic.name or "", row.partition_index)
                    found[topic_partition] = PartitionReplicas(
                        leader=row.leader_id,
                        leader_epoch=row.leader_epoch,
                        replicas=tuple(row.replica_nodes),
                        isr=tuple(row.isr_nodes),
                        elr=tuple(row.eligible_leader_replicas or ()),
                        last_known_elr=tuple(row.last_known_elr or ()),
                    )
            cursor = response.next_cursor
            if cursor is None:
                return found

    async def _partitions_in_metadata(
        self, topics: list[str]
    ) -> dict[TopicPartition, PartitionReplicas]:
        metadata = await self.metadata(topics or None)
        return {
            each.topic_partition: PartitionReplicas(
                leader=each.leader,
                leader_epoch=each.leader_epoch,
                replicas=each.replicas,
                isr=each.isr,
            )
            for topic in metadata.topics.values()
            for each in topic.partitions
        }

    async def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        topic_partitions: Iterable[TopicPartition] | None = None,
    ) -> Outcomes[int, list[LogDirectory]]:
        """Return the log directories of brokers (None: all) with all replicas, or with some."""
        wanted = list(brokers) if brokers is not None else list((await self.metadata()).brokers)
        topics = None if topic_partitions is None else _by_topic(topic_partitions)
        rows = (
            None
            if topics is None
            else [DescribableLogDirTopic(topic=name, partitions=some) for name, some in topics]
        )

        async def ask(broker_id: int, _: list[int]) -> dict[int, Outcome[list[LogDirectory]]]:
            response = await self.ask_broker(
                broker_id, DescribeLogDirsRequest(topics=rows), DescribeLogDirsResponse
            )
            error = refusal(response.error_code, None, f"broker {broker_id}")
            return {broker_id: Outcome([_directory(each) for each in response.results], error)}

        return await self.each_broker(wanted, ask)

    async def alter_replica_log_dirs(
        self, moves: Mapping[tuple[TopicPartition, int], str]
    ) -> Outcomes[tuple[TopicPartition, int], None]:
        """Move replicas, given as (partition, broker id), to other directories of their broker."""

        async def ask(
            pending: list[tuple[TopicPartition, int]],
        ) -> dict[tuple[TopicPartition, int], Outcome[None]]:
            brokers: dict[int, list[tuple[TopicPartition, int]]] = {}
            for move in pending:
                brokers.setdefault(move[1], []).append(move)
            return await self.apart(brokers, ask_broker)

        async def ask_broker(
            broker_id: int, some: list[tuple[TopicPartition, int]]
        ) -> dict[tuple[TopicPartition, int], Outcome[None]]:
            paths: dict[str, list[TopicPartition]] = {}
            for move in some:
                paths.setdefault(moves[move], []).append(move[0])
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirTopic(name=name, partitions=indexes)
                            for name, indexes in _by_topic(topic_partitions)
                        ],
                    )
                    for path, topic_partitions in paths.items()
                ]
            )
            response = await self.ask_broker(broker_id, request, AlterReplicaLogDirsResponse)
            return {
                (TopicPartition(topic.topic_name, row.partition_index), broker_id): done(
                    row.error_code, None, f"{topic.topic_name}-{row.partition_index}"
                )
                for topic in response.results
                for row in topic.partitions
            }

        return await self.each(moves, ask)

    async def elect_leaders(
        self,
        topic_partitions: Iterable[TopicPartition] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
    ) -> Outcomes[TopicPartition, None]:
        """Elect leaders of partitions, or with None of all partitions that need it (KIP-460)."""
        topics = None if topic_partitions is None else _by_topic(topic_partitions)
        request = ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=None
            if topics is None
            else [TopicPartitions(topic=name, partitions=some) for name, some in topics],
            timeout_ms=self.timeout_ms,
        )

        async def ask(_: list[None]) -> dict[None, Outcome[Outcomes[TopicPartition, None]]]:
            response = await self.ask_controller(request, ElectLeadersResponse)
            found: Outcomes[TopicPartition, None] = Outcomes()
            for topic in response.replica_election_results:
                for row in topic.partition_result:
                    topic_partition = TopicPartition(topic.topic, row.partition_id)
                    found[topic_partition] = done(
                        row.error_code, row.error_message, str(topic_partition)
                    )
            return {None: Outcome(found, refusal(response.error_code, None, "an election"))}

        return (await self.each([None], ask))[None].get()

    async def alter_partition_reassignments(
        self, assignments: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Outcomes[TopicPartition, None]:
        """Move partitions to these brokers, the preferred leader first; None cancels a move."""

        async def ask(pending: list[TopicPartition]) -> dict[TopicPartition, Outcome[None]]:
            topics: dict[str, list[ReassignablePartition]] = {}
            for topic_partition in pending:
                brokers = assignments[topic_partition]
                topics.setdefault(topic_partition.topic, []).append(
                    ReassignablePartition(
                        partition_index=topic_partition.partition,
                        replicas=None if brokers is None else list(brokers),
                    )
                )
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self.timeout_ms,
                topics=[
                    ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()
                ],
            )
            response = await self.ask_controller(request, AlterPartitionReassignmentsResponse)
            whole = refusal(response.error_code, response.error_message, "reassignments")
            if whole is not None:
                return {topic_partition: Outcome(None, whole) for topic_partition in pending}
            return {
                TopicPartition(topic.name, row.partition_index): done(
                    row.error_code, row.error_message, f"{topic.name}-{row.partition_index}"
                )
                for topic in response.responses
                for row in topic.partitions
            }

        return await self.each(assignments, ask)

    async def list_partition_reassignments(
        self, topic_partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the ongoing reassignments, of all partitions or of some."""
        topics = None if topic_partitions is None else _by_topic(topic_partitions)
        request = ListPartitionReassignmentsRequest(
            timeout_ms=self.timeout_ms,
            topics=None
            if topics is None
            else [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=some)
                for name, some in topics
            ],
        )

        async def ask(_: list[None]) -> dict[None, Outcome[dict[TopicPartition, Reassignment]]]:
            response = await self.ask_controller(request, ListPartitionReassignmentsResponse)
            found = {
                TopicPartition(topic.name, row.partition_index): Reassignment(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in response.topics
                for row in topic.partitions
            }
            error = refusal(response.error_code, response.error_message, "reassignments")
            return {None: Outcome(found, error)}

        return (await self.each([None], ask))[None].get()


def _by_topic(topic_partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic_partition in topic_partitions:
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return list(topics.items())


def _directory(row: DescribeLogDirsResult) -> LogDirectory:
    return LogDirectory(
        path=row.log_dir,
        total_bytes=row.total_bytes,
        usable_bytes=row.usable_bytes,
        is_cordoned=row.is_cordoned,
        error=refusal(row.error_code, None, f"log directory {row.log_dir}"),
        replicas={
            TopicPartition(topic.name, each.partition_index): ReplicaOnDisk(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in row.topics
            for each in topic.partitions
        },
    )
