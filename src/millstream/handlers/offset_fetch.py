"""OffsetFetch (key 9), versions 1 to 10.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
2        all topics of a group when none is named; an error for the whole answer
3, 4     throttle time; throttled after the answer
5        leader epochs (KIP-320)
6        flexible
7        a partition in an open transaction can be refused (KIP-447)
8        several groups at once (KIP-709)
9        member epochs of consumer groups (KIP-848)
10       topic ids in place of names (KIP-848)
=======  ====================================================================================

The client needs DESCRIBE on each group and each topic. Where all topics are wanted, those that it
may not describe are left out.

An offset committed to a topic that was deleted since, and made anew under the same name, is not
returned.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.handlers.access import Access, access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_GROUP_ERROR = 2
_FIRST_VERSION_WITH_GROUPS = 8
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_NO_OFFSET = -1


async def handle(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Return the offsets of every group asked for."""
    access = access_of(services, context)
    pending = [
        _Fetching(services, context.version, group, access, require_stable=request.require_stable)
        for group in _groups(context, request)
    ]
    return _fit_version(context, [await fetching.finish() for fetching in pending])


def failed(
    context: RequestContext, request: OffsetFetchRequest, error: KafkaError
) -> OffsetFetchResponse:
    """Refuse every group."""
    refused = [
        _refused_group(context.version, group, error.error) for group in _groups(context, request)
    ]
    return _fit_version(context, refused)


class _Fetching:
    """One group's offsets on their way."""

    def __init__(
        self,
        services: Services,
        version: int,
        group: OffsetFetchRequestGroup,
        access: Access | None,
        *,
        require_stable: bool,
    ) -> None:
        self._metadata = services.metadata
        self._version = version
        self._group = group
        self._access = access
        self._wants_all = group.topics is None
        self._refused: list[OffsetFetchResponseTopics] = []
        """Topics that are unknown, or that the client may not describe."""
        self._reply: Deferred[OffsetFetchResponseGroup]
        if access is not None and not access.allows(
            AclOperation.DESCRIBE, AclResource.GROUP, group.group_id
        ):
            self._reply = Deferred()
            self._reply.fail(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return
        if group.topics is not None:
            # Those that go to the coordinator; a refusal of the group names all topics.
            group = OffsetFetchRequestGroup(
                group_id=group.group_id,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
                topics=self._resolve(group.topics),
            )
        self._reply = services.groups.fetch_offsets(group, require_stable=require_stable)

    async def finish(self) -> OffsetFetchResponseGroup:
        """Wait for the group's offsets."""
        try:
            response = await self._reply
        except KafkaError as refused:
            error = refused.error
            if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                # Consumers before 3.9 give up at this one, and look again at the other.
                error = ErrorCode.NOT_COORDINATOR
            return _refused_group(self._version, self._group, error)
        if response.error_code:
            return response
        if self._wants_all and self._access is not None:
            response.topics, _ = self._access.split(
                AclOperation.DESCRIBE, AclResource.TOPIC, response.topics, lambda topic: topic.name
            )
        if self._wants_all and self._version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            response.topics = list(_with_ids(self._metadata, response.topics))
        response.topics += self._refused
        return response

    def _resolve(self, topics: list[OffsetFetchRequestTopics]) -> list[OffsetFetchRequestTopics]:
        """Give each topic its name and id, and return those that may be asked for."""
        known = []
        for topic in topics:
            if self._version < _FIRST_VERSION_WITH_TOPIC_IDS:
                image = self._metadata.topic(topic.name)
                topic.topic_id = ZERO_TOPIC_ID if image is None else image.topic_id
                known.append(topic)
                continue
            image = self._metadata.topic_by_id(topic.topic_id)
            if image is None:
                self._refused.append(_refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                topic.name = image.name
                known.append(topic)
        if self._access is None:
            return known
        allowed, refused = self._access.split(
            AclOperation.DESCRIBE, AclResource.TOPIC, known, lambda topic: topic.name
        )
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self._refused += [_refused_topic(topic, error) for topic in refused]
        return allowed


def _with_ids(
    metadata: MetadataCache, topics: Iterable[OffsetFetchResponseTopics]
) -> Iterable[OffsetFetchResponseTopics]:
    """Yield the topics that still exist, with their ids."""
    for topic in topics:
        image = metadata.topic(topic.name)
        if image is not None:
            topic.topic_id = image.topic_id
            yield topic


def _groups(context: RequestContext, request: OffsetFetchRequest) -> list[OffsetFetchRequestGroup]:
    """Return the groups asked for, the one of older versions in the newer form."""
    if context.version >= _FIRST_VERSION_WITH_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _refused_group(
    version: int, group: OffsetFetchRequestGroup, error: ErrorCode
) -> OffsetFetchResponseGroup:
    if version >= _FIRST_VERSION_WITH_GROUP_ERROR:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        topics=[_refused_topic(topic, error) for topic in group.topics or ()],
    )


def _refused_topic(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=_NO_OFFSET,
                metadata="",
                error_code=error.code,
            )
            for index in topic.partition_indexes
        ],
    )


def _fit_version(
    context: RequestContext, groups: list[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    if context.version >= _FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
