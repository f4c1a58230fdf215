"""ShareFetch (key 78), versions 1 to 2 (KIP-932).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        as released; 0 was of the early access. Records at most, and records in one acquired
         range
2        acquire mode (KIP-1206), renewing of locks (KIP-1222): such a request fetches nothing
=======  ====================================================================================

Acknowledges what the request brings, and locks records for the member and sends them
(``runtime.share.share_fetch``). Partitions come in turns: the first of a fetch gets its records
whatever their size. Partitions without records to be had are named in the answer to the first
request of a session, and where they are new in it or refused no more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from millstream.handlers.request import RequestContext
from millstream.handlers.share_requests import (
    FIRST_VERSION_WITH_RENEW,
    LEADER_CHANGED,
    Acknowledged,
    acknowledge,
    end_sessions_with,
    endpoints_of,
    identity,
    leader_of,
    unreadable,
)
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from millstream.runtime.services import Services
from millstream.runtime.share.share_fetch import (
    FetchedSharePartition,
    ShareFetch,
    ShareFetchParams,
)
from millstream.runtime.share.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SessionKey,
    SessionPartition,
)
from millstream.share.record_state import AcquireMode
from millstream.share.state import SharePartitionKey

if TYPE_CHECKING:
    from millstream.model.topic import TopicId

_MODES: Final = {int(mode): mode for mode in AcquireMode}

_Acknowledgements = dict["tuple[TopicId, int]", Acknowledged]


async def handle(
    services: Services, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    """Acknowledge, fetch, and answer both."""
    group_id, member_id = identity(services, context, request.group_id, request.member_id)
    is_renewal = request.is_renew_ack and context.version >= FIRST_VERSION_WITH_RENEW
    if is_renewal:
        _check_fetches_nothing(request)
    if request.share_acquire_mode not in _MODES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"there is no share acquire mode {request.share_acquire_mode}",
        )
    shares = services.shares
    session_key = SessionKey(group_id, member_id)
    batches = {
        (topic.topic_id, each.partition_index): each.acknowledgement_batches
        for topic in request.topics
        for each in topic.partitions
    }
    has_acknowledgements = any(batches.values())
    try:
        wanted = _session(services, context, request, session_key, has_acknowledgements)
    except KafkaError as error:
        if error.error is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
            # A client without a session would come back at once.
            await _pause(services, context, request.max_wait_ms)
        raise
    not_allowed = unreadable(
        services,
        context,
        [*(topic.topic_id for topic in request.topics), *(each.topic_id for each in wanted)],
    )
    acknowledging: Deferred[_Acknowledgements] = Deferred.of({})
    if has_acknowledgements:
        acknowledging = spawn(
            acknowledge(
                services,
                group_id,
                member_id,
                batches,
                may_renew=is_renewal,
                not_allowed=not_allowed,
            )
        )
    fetched, refused = await _fetch(
        services, context, request, session_key, [] if is_renewal else wanted, not_allowed
    )
    acknowledged = await acknowledging
    answered = [*refused, *fetched]
    if request.share_session_epoch != INITIAL_EPOCH:
        answered = [each for each in answered if _is_told(services, session_key, each)]
    if request.share_session_epoch == FINAL_EPOCH:
        shares.sessions.end(session_key)
    response = ShareFetchResponse(
        error_code=0,
        acquisition_lock_timeout_ms=shares.settings_of(group_id).rules.record_lock_duration_ms,
        responses=[],
        node_endpoints=[],
    )
    _fill(services, context.connection.listener, response, answered, acknowledged)
    return response


def failed(
    context: RequestContext, request: ShareFetchRequest, error: KafkaError
) -> ShareFetchResponse:
    """Refuse the request as a whole."""
    return ShareFetchResponse(
        error_code=error.error.code,
        error_message=error.message,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


def _check_fetches_nothing(request: ShareFetchRequest) -> None:
    """Records would have to wait for the answer while the lock that was renewed runs out."""
    wrong = [
        f"{name} must be set to 0"
        for name, value in (
            ("maxBytes", request.max_bytes),
            ("minBytes", request.min_bytes),
            ("maxRecords", request.max_records),
            ("maxWaitMs", request.max_wait_ms),
        )
        if value
    ]
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, ", ".join([*wrong, "if isRenewAck is true."]))


def _session(
    services: Services,
    context: RequestContext,
    request: ShareFetchRequest,
    key: SessionKey,
    has_acknowledgements: bool,
) -> list[SessionPartition]:
    """Begin, continue or look up the session; return the partitions to fetch, in turns."""
    sessions = services.shares.sessions
    epoch = request.share_session_epoch
    if epoch == FINAL_EPOCH:
        sessions.get(key)
        return []
    named = [
        SessionPartition(topic.topic_id, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    if epoch == INITIAL_EPOCH:
        if has_acknowledgements:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        session = sessions.begin(key, context.connection.connection_id, named)
        end_sessions_with(context.connection, services.shares)
    else:
        session = sessions.advance(key, epoch)
        forgotten = [
            SessionPartition(topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        sessions.change(session, named, forgotten)
    partitions = list(session.partitions)
    if not partitions:
        return []
    first = epoch % len(partitions)
    return partitions[first:] + partitions[:first]


async def _fetch(
    services: Services,
    context: RequestContext,
    request: ShareFetchRequest,
    session_key: SessionKey,
    wanted: list[SessionPartition],
    not_allowed: Collection[TopicId],
) -> tuple[list[FetchedSharePartition], list[FetchedSharePartition]]:
    """Return what was fetched, and what names no partition of this cluster or one that the client
    may not read.
    """
    refused: list[FetchedSharePartition] = []
    keys: list[SharePartitionKey] = []
    for topic_id, index in wanted:
        key = SharePartitionKey(session_key.group_id, topic_id, index)
        image = services.metadata.topic_by_id(topic_id)
        if image is None:
            refused.append(FetchedSharePartition(key, ErrorCode.UNKNOWN_TOPIC_ID))
        elif topic_id in not_allowed:
            refused.append(FetchedSharePartition(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif not 0 <= index < len(image.partitions):
            refused.append(FetchedSharePartition(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            keys.append(key)
    max_bytes = min(request.max_bytes, services.config.current.fetch_max_bytes)
    params = ShareFetchParams(
        session_key.group_id,
        session_key.member_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        max_records=request.max_records,
        batch_size=request.batch_size,
        mode=_MODES[request.share_acquire_mode],
    )
    fetch = ShareFetch(services.shares, params, keys)
    fetching = fetch.start()
    if not fetching.done:
        context.connection.abandon = fetch.cancel
    fetched = await fetching
    context.connection.abandon = None
    return fetched, refused


def _is_told(services: Services, key: SessionKey, fetched: FetchedSharePartition) -> bool:
    return services.shares.sessions.told(
        key,
        SessionPartition(fetched.key.topic_id, fetched.key.partition),
        is_refused=fetched.error is not ErrorCode.NONE,
        has_records=fetched.records is not None,
    )


async def _pause(services: Services, context: RequestContext, wait_ms: int) -> None:
    over: Deferred[None] = Deferred()
    timer = services.clock.call_later(wait_ms, lambda: over.complete(None))
    context.connection.abandon = timer.cancel
    await over
    context.connection.abandon = None


def _fill(
    services: Services,
    listener: str,
    response: ShareFetchResponse,
    fetched: list[FetchedSharePartition],
    acknowledged: _Acknowledgements,
) -> None:
    """Put together what was fetched and what became of acknowledgements, by topic."""
    topics: dict[TopicId, ShareFetchableTopicResponse] = {}
    answers: dict[tuple[TopicId, int], PartitionData] = {}
    leaders = []

    def answer(topic_id: TopicId, index: int) -> PartitionData:
        data = answers.get((topic_id, index))
        if data is None:
            data = answers[topic_id, index] = PartitionData(
                partition_index=index,
                error_code=0,
                acknowledge_error_code=0,
                current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
                records=b"",
                acquired_records=[],
            )
            if topic_id not in topics:
                topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id, partitions=[])
                response.responses.append(topics[topic_id])
            topics[topic_id].partitions.append(data)
        return data

    for each in fetched:
        data = answer(each.key.topic_id, each.key.partition)
        data.error_code = each.error.code
        if each.records is not None:
            data.records = each.records
        data.acquired_records = [
            AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in each.acquired
        ]
        if each.error in LEADER_CHANGED:
            leader, leader_epoch = leader_of(services, each.key.topic_id, each.key.partition)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=leader_epoch)
            leaders.append(leader)
    for (topic_id, index), result in acknowledged.items():
        data = answer(topic_id, index)
        data.acknowledge_error_code = result.error.code
        data.acknowledge_error_message = result.message
    for node, host, port in endpoints_of(services, leaders, listener):
        response.node_endpoints.append(
            NodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
        )
