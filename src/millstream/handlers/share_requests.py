"""What ShareFetch and ShareAcknowledge have in common: who asks, and acknowledgements.

Kafka: ``KafkaApis.handleAcknowledgements``, ``validateAcknowledgementBatches``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.handlers.access import access_of
from millstream.handlers.current_leader import current_leader, live_nodes
from millstream.model.acl import AclOperation, AclResource
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import SHARE_VERSION
from millstream.model.leadership import NO_LEADER
from millstream.model.offsets import NO_LEADER_EPOCH
from millstream.runtime.services import Services
from millstream.share.acknowledgements import AcknowledgementBatch, runs_of
from millstream.share.state import SharePartitionKey

if TYPE_CHECKING:
    from millstream.handlers.request import ConnectionInfo, RequestContext
    from millstream.model.deferred import Deferred
    from millstream.model.topic import TopicId
    from millstream.runtime.share.share_partitions import SharePartitions

_MAX_MEMBER_ID_LENGTH: Final = 36
"""A UUID as text."""

FIRST_VERSION_WITH_RENEW: Final = 2

LEADER_CHANGED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


@dataclass(slots=True)
class Acknowledged:
    """What a consumer hears of its acknowledgements of one partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def identity(
    services: Services, context: RequestContext, group_id: str | None, member_id: str | None
) -> tuple[str, str]:
    """Return group and member of a request, or raise the KafkaError that refuses it as a whole: the
    client needs READ on the group.
    """
    if services.metadata.features.level(SHARE_VERSION) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    access = access_of(services, context)
    if access is not None and not access.allows(AclOperation.READ, AclResource.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not member_id or len(member_id) > _MAX_MEMBER_ID_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group_id, member_id


def unreadable(
    services: Services, context: RequestContext, topic_ids: Iterable[TopicId]
) -> Collection[TopicId]:
    """Return the topics that the client may not READ; not those that are unknown."""
    access = access_of(services, context)
    if access is None:
        return ()
    images = [services.metadata.topic_by_id(each) for each in dict.fromkeys(topic_ids)]
    known = [image for image in images if image is not None]
    _, refused = access.split(AclOperation.READ, AclResource.TOPIC, known, lambda image: image.name)
    return {image.topic_id for image in refused}


def end_sessions_with(connection: ConnectionInfo, shares: SharePartitions) -> None:
    """End the share sessions of a connection when it is closed."""
    connection_id = connection.connection_id
    connection.on_closed = lambda: shares.sessions.connection_closed(connection_id)


async def acknowledge(
    services: Services,
    group_id: str,
    member_id: str,
    batches: Mapping[tuple[TopicId, int], Sequence[AcknowledgementBatch]],
    *,
    may_renew: bool,
    not_allowed: Collection[TopicId] = (),
) -> dict[tuple[TopicId, int], Acknowledged]:
    """Take the acknowledgements of each partition; return what each came to, once persisted.
    ``not_allowed`` are topics that the client may not read.
    """
    results: dict[tuple[TopicId, int], Acknowledged] = {}
    without: list[tuple[TopicId, int]] = []
    pending: list[tuple[tuple[TopicId, int], Deferred[None]]] = []
    shares = services.shares
    for each, of_partition in batches.items():
        try:
            topic_id, index = each
            if topic_id in not_allowed:
                runs_of(of_partition, may_renew=may_renew)  # Kafka looks at the batches first
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            _check_known(services, topic_id, index, of_partition, may_renew=may_renew)
            if not of_partition:
                without.append(each)
                continue
            runs = runs_of(of_partition, may_renew=may_renew)
        except KafkaError as error:
            results[each] = Acknowledged(error.error)
            continue
        key = SharePartitionKey(group_id, topic_id, index)
        pending.append((each, shares.acknowledge(key, member_id, runs)))
    for each, outcome in pending:
        try:
            await outcome
        except KafkaError as error:
            results[each] = Acknowledged(error.error, error.message)
        else:
            results[each] = Acknowledged()
    if pending:
        # Kafka leaves out what has no acknowledgements where nothing else has any.
        results.update((each, Acknowledged()) for each in without)
    return results


def _check_known(
    services: Services,
    topic_id: TopicId,
    index: int,
    batches: Sequence[AcknowledgementBatch],
    *,
    may_renew: bool,
) -> None:
    """Raise UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION; before the latter Kafka looks at the
    batches.
    """
    image = services.metadata.topic_by_id(topic_id)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= index < len(image.partitions):
        runs_of(batches, may_renew=may_renew)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def leader_of(services: Services, topic_id: TopicId, index: int) -> tuple[int, int]:
    """Return a partition's leader and its epoch, both -1 where they are not known."""
    image = services.metadata.topic_by_id(topic_id)
    if image is None:
        return NO_LEADER, NO_LEADER_EPOCH
    return current_leader(services, image.name, index)


def endpoints_of(
    services: Services, leaders: Iterable[int], listener: str
) -> list[tuple[BrokerNode, str, int]]:
    """Return the brokers that lead what is refused here, with host and port for this listener."""
    nodes = live_nodes(services, map(BrokerId, leaders), listener)
    return [(node, node.endpoint(listener).host, node.endpoint(listener).port) for node in nodes]
