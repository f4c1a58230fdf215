"""Topics: create, delete, more partitions, list, describe, delete records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.client.core.admin.outcome import Outcome, Outcomes, done, refusal
from millstream.client.core.admin.routing import Routing
from millstream.client.metadata import Topic
from millstream.model.errors import ErrorCode
from millstream.model.offsets import Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

BROKER_DEFAULT: Final = -1
"""The broker's default of partitions or replication factor (KIP-464)."""

TO_HIGH_WATERMARK: Final = -1
"""Offset for ``delete_records``: everything."""

_FIRST_WITH_IDS: Final = 6


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. ``assignments`` (partition to brokers) replaces the numbers."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A created topic; the numbers are −1 and the id is zero if the broker does not return them."""

    topic_id: TopicId
    partitions: int
    replication_factor: int


class Topics(Routing):
    """Operations on topics."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Outcomes[str, CreatedTopic]:
        """Create topics, or only validate the request."""
        wanted = {topic.name: topic for topic in topics}

        async def ask(names: list[str]) -> dict[str, Outcome[CreatedTopic]]:
            request = CreateTopicsRequest(
                topics=[creatable_topic(wanted[name]) for name in names],
                timeout_ms=self.timeout_ms,
                validate_only=validate_only,
            )
            response = await self.ask_controller(request, CreateTopicsResponse)
            return {
                each.name: Outcome(
                    CreatedTopic(
                        topic_id=each.topic_id,
                        partitions=each.num_partitions,
                        replication_factor=each.replication_factor,
                    ),
                    refusal(each.error_code, each.error_message, f"topic {each.name!r}"),
                )
                for each in response.topics
            }

        return await self.each(wanted, ask)

    async def delete_topics(self, names: Iterable[str]) -> Outcomes[str, None]:
        """Delete topics by name."""

        async def ask(pending: list[str]) -> dict[str, Outcome[None]]:
            states = [DeleteTopicState(name=name, topic_id=ZERO_TOPIC_ID) for name in pending]
            response = await self._delete(states, pending)
            return {
                each.name or "": done(each.error_code, each.error_message, f"topic {each.name!r}")
                for each in response.responses
            }

        return await self.each(names, ask)

    async def delete_topics_by_id(self, ids: Iterable[TopicId]) -> Outcomes[TopicId, None]:
        """Delete topics by id; UnsupportedVersionError if brokers only support names."""

        async def ask(pending: list[TopicId]) -> dict[TopicId, Outcome[None]]:
            states = [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in pending]
            response = await self._delete(states, [])
            return {
                each.topic_id: done(each.error_code, each.error_message, "a topic by id")
                for each in response.responses
            }

        return await self.each(ids, ask)

    async def _delete(
        self, states: list[DeleteTopicState], names: list[str]
    ) -> DeleteTopicsResponse:
        if self.network.controller_id not in self.network.brokers:
            await self.metadata()
        controller = self.network.controller_id
        if controller not in self.network.brokers:
            controller = self.network.least_loaded()
        version = await self.network.version_for(controller, DeleteTopicsRequest)
        # Older brokers only support names, and return an error without one.
        by_state = version >= _FIRST_WITH_IDS or not names
        request = DeleteTopicsRequest(
            topics=states if by_state else [], topic_names=names, timeout_ms=self.timeout_ms
        )
        return await self.network.call(
            controller, request, DeleteTopicsResponse, version=_FIRST_WITH_IDS if by_state else None
        )

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> Outcomes[str, None]:
        """Raise the number of partitions of each topic to the count given.

        ``assignments`` names the brokers of each new partition of a topic.
        """
        given = assignments or {}

        async def ask(names: list[str]) -> dict[str, Outcome[None]]:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(
                        name=name,
                        count=counts[name],
                        assignments=[
                            CreatePartitionsAssignment(broker_ids=list(brokers))
                            for brokers in given[name]
                        ]
                        if name in given
                        else None,
                    )
                    for name in names
                ],
                timeout_ms=self.timeout_ms,
                validate_only=validate_only,
            )
            response = await self.ask_controller(request, CreatePartitionsResponse)
            return {
                each.name: done(each.error_code, each.error_message, f"topic {each.name!r}")
                for each in response.results
            }

        return await self.each(counts, ask)

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, in alphabetical order."""

        async def ask(_: list[None]) -> dict[None, Outcome[list[str]]]:
            metadata = await self.metadata(None)
            names = [
                name
                for name, topic in metadata.topics.items()
                if include_internal or not topic.is_internal
            ]
            return {None: Outcome(sorted(names))}

        return (await self.each([None], ask))[None].get()

    async def describe_topics(self, names: Iterable[str]) -> Outcomes[str, Topic]:
        """Return id, partitions, leaders, replicas and ISR of topics."""

        async def ask(pending: list[str]) -> dict[str, Outcome[Topic]]:
            metadata = await self.metadata(pending)
            return {
                name: Outcome(topic)
                if topic.error is ErrorCode.NONE
                else Outcome(None, refusal(topic.error.code, None, f"topic {name!r}"))
                for name, topic in metadata.topics.items()
            }

        return await self.each(names, ask)

    async def delete_records(
        self, before: Mapping[TopicPartition, Offset]
    ) -> Outcomes[TopicPartition, Offset]:
        """Move each partition's log start to an offset, or to ``TO_HIGH_WATERMARK``.

        Returns the new log start offsets.
        """

        async def ask(pending: list[TopicPartition]) -> dict[TopicPartition, Outcome[Offset]]:
            leaders, failed = await self.by_leader(pending)
            found = await self.apart(leaders, ask_leader)
            return found | {
                topic_partition: Outcome(None, error) for topic_partition, error in failed.items()
            }

        async def ask_leader(
            leader: int, topic_partitions: list[TopicPartition]
        ) -> dict[TopicPartition, Outcome[Offset]]:
            request = DeleteRecordsRequest(
                topics=_delete_rows(
                    {
                        topic_partition: before[topic_partition]
                        for topic_partition in topic_partitions
                    }
                ),
                timeout_ms=self.timeout_ms,
            )
            response = await self.network.call(leader, request, DeleteRecordsResponse)
            found: dict[TopicPartition, Outcome[Offset]] = {}
            for topic in response.topics:
                for row in topic.partitions:
                    topic_partition = TopicPartition(topic.name, row.partition_index)
                    error = refusal(row.error_code, None, str(topic_partition))
                    found[topic_partition] = Outcome(row.low_watermark, error)
            return found

        return await self.each(before, ask)


def creatable_topic(topic: NewTopic) -> CreatableTopic:
    """Return a topic in the form of a request."""
    assigned = topic.assignments is not None
    return CreatableTopic(
        name=topic.name,
        num_partitions=BROKER_DEFAULT if assigned else topic.partitions,
        replication_factor=BROKER_DEFAULT if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in (topic.assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _delete_rows(before: Mapping[TopicPartition, Offset]) -> list[DeleteRecordsTopic]:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for topic_partition, offset in before.items():
        topics.setdefault(topic_partition.topic, []).append(
            DeleteRecordsPartition(partition_index=topic_partition.partition, offset=offset)
        )
    return [DeleteRecordsTopic(name=name, partitions=rows) for name, rows in topics.items()]
