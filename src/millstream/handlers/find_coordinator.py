"""FindCoordinator (key 10), versions 0 to 6.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        key types: group 0, transaction 1; throttle time and an error message
2        throttled after the answer
3        flexible
4        several keys at once (KIP-699)
5        TRANSACTION_ABORTABLE, which this answer never needs (KIP-890)
6        key type 2, share groups (KIP-932)
=======  ====================================================================================

A key of type 2 is "group:topic id:partition"; any other text is INVALID_REQUEST.

The first question about a key of a type creates the internal topic of its coordinator and waits for
it. For a type that nobody coordinates here the answer is INVALID_REQUEST. A broker that leads the
key's partition and has lost the leader's lease does not name itself: COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import Final

from millstream.handlers.access import Access, access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.broker import Endpoint
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.runtime.coordinators.coordinator_registry import CoordinatorType
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_KEYS: Final = 4
_FIRST_VERSION_WITH_SHARES: Final = 6
_NEEDED: Final = {
    int(CoordinatorType.GROUP): (AclResource.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    int(CoordinatorType.TRANSACTION): (
        AclResource.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}
"""What the client needs DESCRIBE on to ask for a coordinator, and how it is refused."""

_NO_NODE: Final = -1
_NO_PORT: Final = -1


async def handle(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """Name the broker that leads each key's partition."""
    access = access_of(services, context)
    not_allowed = {} if access is None else _not_allowed(access, context, request)
    keys = _keys(context, request)
    if not_allowed and all(key in not_allowed for key in keys):
        return _fit_version(context, [_unknown(key, not_allowed[key]) for key in keys])
    entry = services.coordinators.find(request.key_type)
    image = services.metadata.topic(entry.topic)
    if image is None:
        image = await _create(services, entry.topic)
    found = []
    nodes = services.metadata.seen_from(context.connection.listener)
    for key in keys:
        if key in not_allowed:
            found.append(_unknown(key, not_allowed[key]))
            continue
        try:
            index = entry.partition_of(key, len(image.partitions))
        except KafkaError as error:
            found.append(_unknown(key, error))
            continue
        leader = image.partitions[index].leader
        node = nodes.get(leader)
        partition = services.partitions.find(entry.topic, index)
        is_replaced = partition is not None and partition.refusal_to_answer() is not None
        if node is None or is_replaced or not services.metadata.is_reachable(leader):
            found.append(_unknown(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
        else:
            found.append(_known(key, leader, node.endpoint(context.connection.listener)))
    return _fit_version(context, found)


def _not_allowed(
    access: Access, context: RequestContext, request: FindCoordinatorRequest
) -> dict[str, KafkaError]:
    """Return why which keys are refused: the client needs DESCRIBE on the group or transactional
    id, and CLUSTER_ACTION to find the coordinator of share partitions at all.
    """
    if request.key_type == CoordinatorType.SHARE:
        if context.version >= _FIRST_VERSION_WITH_SHARES:
            access.require_on_cluster(AclOperation.CLUSTER_ACTION)
        return {}
    needed = _NEEDED.get(request.key_type)
    if needed is None:
        return {}
    resource, error = needed
    return {
        key: KafkaError(error)
        for key in _keys(context, request)
        if not access.allows(AclOperation.DESCRIBE, resource, key)
    }


async def _create(services: Services, topic: str) -> TopicImage:
    try:
        return await services.ensure_topic(topic)
    except KafkaError as error:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error


def failed(
    context: RequestContext, request: FindCoordinatorRequest, error: KafkaError
) -> FindCoordinatorResponse:
    """Refuse every key."""
    return _fit_version(context, [_unknown(key, error) for key in _keys(context, request)])


def _keys(context: RequestContext, request: FindCoordinatorRequest) -> list[str]:
    if context.version >= _FIRST_VERSION_WITH_KEYS:
        return request.coordinator_keys
    return [request.key]


def _known(key: str, node_id: int, endpoint: Endpoint) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=node_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.NONE.code,
        error_message="",
    )


def _unknown(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=_NO_NODE,
        host="",
        port=_NO_PORT,
        error_code=error.error.code,
        error_message=error.message or error.error.name,
    )


def _fit_version(context: RequestContext, found: list[Coordinator]) -> FindCoordinatorResponse:
    if context.version >= _FIRST_VERSION_WITH_KEYS:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        # Kafka names the error even when there is none.
        error_message=one.error_message or ErrorCode.NONE.name,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )
