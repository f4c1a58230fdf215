"""OffsetCommit (key 8), versions 2 to 10.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
2–4      a retention time of its own
3, 4     throttle time; throttled after the answer
5        no retention time any more (KIP-211)
6        leader epochs (KIP-320)
7        static members (KIP-345)
8        flexible
9        GROUP_ID_NOT_FOUND; member epochs of consumer groups (KIP-848)
10       topic ids in place of names (KIP-848)
=======  ====================================================================================

The client needs READ on the group, for which the request is refused as a whole, and on each topic.

An offset is only kept for a partition that exists. Topics that do not are named first in the
answer, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.handlers.access import Access, access_of, topic_name
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_TOPIC_IDS = 10


async def handle(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Commit what can be committed, and say why the rest cannot."""
    access = access_of(services, context)
    if access is not None and not access.allows(
        AclOperation.READ, AclResource.GROUP, request.group_id
    ):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answers = _Answers()
    if access is not None:
        request.topics, refused = _split(services, access, request.topics)
        for topic in refused:
            answers.add(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    known = []
    for topic in request.topics:
        image = _find(services.metadata, topic, context.version)
        if image is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if context.version >= _FIRST_VERSION_WITH_TOPIC_IDS:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            answers.add(topic, topic.partitions, error)
            continue
        count = len(image.partitions)
        topic.name, topic.topic_id = image.name, image.topic_id
        present = [p for p in topic.partitions if 0 <= p.partition_index < count]
        absent = [p for p in topic.partitions if not 0 <= p.partition_index < count]
        answers.add(topic, absent, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if present:
            topic.partitions = present
            known.append(topic)
    if known:
        request.topics = known
        answers.merge(await _commit(services, context, request))
    return OffsetCommitResponse(topics=answers.topics)


def failed(
    context: RequestContext, request: OffsetCommitRequest, error: KafkaError
) -> OffsetCommitResponse:
    """Refuse every partition."""
    answers = _Answers()
    for topic in request.topics:
        answers.add(topic, topic.partitions, error.error)
    return OffsetCommitResponse(topics=answers.topics)


class _Answers:
    """The answers by topic: one entry for a topic however often it is named."""

    def __init__(self) -> None:
        self.topics: list[OffsetCommitResponseTopic] = []
        self._by_topic: dict[tuple[str, TopicId], OffsetCommitResponseTopic] = {}

    def add(
        self,
        topic: OffsetCommitRequestTopic,
        partitions: Iterable[OffsetCommitRequestPartition],
        error: ErrorCode,
    ) -> None:
        answers = [
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error.code
            )
            for partition in partitions
        ]
        if answers:
            self._of(topic.name, topic.topic_id).partitions.extend(answers)

    def merge(self, committed: list[OffsetCommitResponseTopic]) -> None:
        if not self.topics:
            self.topics = committed
            return
        for topic in committed:
            self._of(topic.name, topic.topic_id).partitions.extend(topic.partitions)

    def _of(self, name: str, topic_id: TopicId) -> OffsetCommitResponseTopic:
        answer = self._by_topic.get((name, topic_id))
        if answer is None:
            answer = OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
            self._by_topic[name, topic_id] = answer
            self.topics.append(answer)
        return answer


def _split(
    services: Services, access: Access, topics: list[OffsetCommitRequestTopic]
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitRequestTopic]]:
    """Return the topics that the client may read, with those that are unknown, and the others."""
    names = [topic_name(services, topic.name, topic.topic_id) for topic in topics]
    allowed = access.allowed_names(AclOperation.READ, AclResource.TOPIC, filter(None, names))
    may_read = [not name or name in allowed for name in names]
    return (
        [topic for topic, may in zip(topics, may_read, strict=True) if may],
        [topic for topic, may in zip(topics, may_read, strict=True) if not may],
    )


def _find(
    metadata: MetadataCache, topic: OffsetCommitRequestTopic, version: int
) -> TopicImage | None:
    if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        return metadata.topic_by_id(topic.topic_id)
    return metadata.topic(topic.name)


async def _commit(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> list[OffsetCommitResponseTopic]:
    """Return what the coordinator answers; a refusal of all stands at each partition."""
    try:
        return (await services.groups.commit_offsets(request, context.version)).topics
    except KafkaError as error:
        return failed(context, request, error).topics
