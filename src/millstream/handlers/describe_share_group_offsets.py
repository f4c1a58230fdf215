"""DescribeShareGroupOffsets (key 90), versions 0 and 1 (KIP-932).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        the start offset and leader epoch of each share partition
1        the lag (KIP-1226)
=======  ====================================================================================

Without topics, all share partitions that have state are described. A topic, partition or group that
is not there has start offset -1: that nothing is known of it is no error. The lag is the records
from the start offset on that are not finished; -1 where that is unknown. A partition whose leader
cannot be asked for its end has an error. The client needs DESCRIBE on each group and topic; where
all are described, topics that it may not DESCRIBE are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from millstream.handlers.access import Access, access_of
from millstream.handlers.groups import require_share_groups
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.services import Services
from millstream.share.state import (
    NO_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    ShareStateSummary,
)

UNKNOWN_LAG: Final = -1
LATEST: Final = -1
"""The timestamp of ListOffsets that asks for the end of a partition."""
TIMEOUT_MS: Final = 5_000

_NOTHING: Final = ShareStateSummary(0, 0, UNINITIALIZED_START_OFFSET, NO_DELIVERY_COMPLETE_COUNT)

_Place = tuple[str, int]
"""A topic and a partition."""


async def handle(
    services: Services, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group."""
    require_share_groups(services)
    access = access_of(services, context)
    groups = []
    for group in request.groups:
        try:
            groups.append(await _describe(services, group, access))
        except KafkaError as error:
            groups.append(_refused(group.group_id, error))
    return DescribeShareGroupOffsetsResponse(groups=groups)


def failed(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest, error: KafkaError
) -> DescribeShareGroupOffsetsResponse:
    """Refuse every group."""
    return DescribeShareGroupOffsetsResponse(
        groups=[_refused(group.group_id, error) for group in request.groups]
    )


async def _describe(
    services: Services, group: DescribeShareGroupOffsetsRequestGroup, access: Access | None
) -> DescribeShareGroupOffsetsResponseGroup:
    describe = AclOperation.DESCRIBE
    if access is not None and not access.allows(describe, AclResource.GROUP, group.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    not_allowed: list[DescribeShareGroupOffsetsResponseTopic] = []
    unknown: list[DescribeShareGroupOffsetsResponseTopic] = []
    wanted: list[tuple[TopicImage, Sequence[int]]] = []
    if group.topics is None:
        known = await services.share_groups.initialized_partitions(group.group_id)
        for topic_id, partitions in known.items():
            image = services.metadata.topic_by_id(topic_id)
            if image is not None:
                wanted.append((image, sorted(partitions)))
        if access is not None:
            wanted, _ = access.split(describe, AclResource.TOPIC, wanted, lambda each: each[0].name)
    else:
        asked = group.topics
        if access is not None:
            asked, refused = access.split(
                describe, AclResource.TOPIC, asked, lambda topic: topic.topic_name
            )
            not_allowed = [_refused_topic(each.topic_name, each.partitions) for each in refused]
        for topic in asked:
            image = services.metadata.topic(topic.topic_name)
            if image is None:
                unknown.append(_unknown_topic(topic.topic_name, topic.partitions))
            else:
                # Of a partition that is named twice there is one answer, as in Kafka.
                wanted.append((image, tuple(dict.fromkeys(topic.partitions))))
    summaries = await _summaries(services, group.group_id, wanted)
    ends = await _ends(services, wanted, summaries)
    topics = [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=image.name,
            topic_id=image.topic_id,
            partitions=[
                _partition(index, summaries[image.name, index], ends.get((image.name, index)))
                for index in partitions
            ],
        )
        for image, partitions in wanted
    ]
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id,
        topics=topics + unknown + not_allowed,
        error_code=ErrorCode.NONE.code,
    )


async def _summaries(
    services: Services, group_id: str, wanted: Iterable[tuple[TopicImage, Sequence[int]]]
) -> dict[_Place, ShareStateSummary]:
    """Return what the share coordinators know; an error counts as nothing known, as in Kafka."""
    begun = {}
    summaries: dict[_Place, ShareStateSummary] = {}
    for image, partitions in wanted:
        for index in partitions:
            summaries[image.name, index] = _NOTHING
            if 0 <= index < len(image.partitions):
                key = SharePartitionKey(group_id, image.topic_id, index)
                begun[image.name, index] = services.share_persister.read_summary(key)
    for place, reply in begun.items():
        try:
            summaries[place] = await reply
        except KafkaError:
            continue
    return summaries


async def _ends(
    services: Services,
    wanted: Iterable[tuple[TopicImage, Sequence[int]]],
    summaries: dict[_Place, ShareStateSummary],
) -> dict[_Place, int | KafkaError]:
    """Ask the leaders for the ends of the partitions whose lag is to be computed."""
    by_leader: dict[BrokerId, dict[str, list[int]]] = {}
    for image, partitions in wanted:
        for index in partitions:
            summary = summaries[image.name, index]
            if (
                summary.start_offset != UNINITIALIZED_START_OFFSET
                and summary.delivery_complete_count != NO_DELIVERY_COMPLETE_COUNT
            ):
                leader = image.partitions[index].leader
                by_leader.setdefault(leader, {}).setdefault(image.name, []).append(index)
    begun = [
        (topics, services.send_request(leader, _list_offsets(topics), TIMEOUT_MS))
        for leader, topics in by_leader.items()
    ]
    ends: dict[_Place, int | KafkaError] = {}
    for topics, reply in begun:
        try:
            response = await reply
        except KafkaError as error:
            ends |= {(name, index): error for name, indexes in topics.items() for index in indexes}
            continue
        assert isinstance(response, ListOffsetsResponse)
        for topic in response.topics:
            for each in topic.partitions:
                ends[topic.name, each.partition_index] = (
                    KafkaError(ErrorCode.of(each.error_code)) if each.error_code else each.offset
                )
    return ends


def _list_offsets(topics: dict[str, list[int]]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=LATEST)
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ],
        timeout_ms=TIMEOUT_MS,
    )


def _partition(
    index: int, summary: ShareStateSummary, end: int | KafkaError | None
) -> DescribeShareGroupOffsetsResponsePartition:
    if isinstance(end, KafkaError):
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index,
            start_offset=0,
            leader_epoch=0,
            error_code=end.error.code,
            error_message=end.message or end.error.name,
        )
    lag = UNKNOWN_LAG
    if end is not None:
        lag = end - summary.start_offset - summary.delivery_complete_count
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=lag,
        error_code=ErrorCode.NONE.code,
    )


def _refused_topic(name: str, partitions: Iterable[int]) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_TOPIC_ID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=UNINITIALIZED_START_OFFSET,
                leader_epoch=0,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED.code,
                error_message=ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
            )
            for index in partitions
        ],
    )


def _unknown_topic(name: str, partitions: Iterable[int]) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_TOPIC_ID,
        partitions=[_partition(index, _NOTHING, None) for index in partitions],
    )


def _refused(group_id: str, error: KafkaError) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id,
        topics=[],
        error_code=error.error.code,
        error_message=error.message or error.error.name,
    )
