"""Fetch (key 1), versions 4 to 18.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
4        isolation level, aborted transactions
5        log start offset
7        fetch sessions (KIP-227)
9        the client's leader epoch (KIP-320)
11       rack of the client (KIP-392)
12       flexible; last fetched epoch, diverging epoch
13       topic ids (KIP-516)
15       replica state in place of replica id
16       the current leader with a refusal (KIP-951)
17, 18   fields of the metadata quorum: read and left alone
=======  ====================================================================================

Here a request becomes what is to be read (``FetchParams``, the partitions of its session) and what
was read becomes an answer; ``runtime.replicas.delayed_fetch`` reads and waits, and
``fetch_reader`` says what a consumer or a follower (``replica_id``, ``replica_state``) is told of
one partition. A fetch is dropped when its peer goes. Consumers may read from a follower from
version 11 on.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final

from millstream.handlers.current_leader import current_leader, live_nodes
from millstream.handlers.request import Answer, RequestContext
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from millstream.runtime.replicas.delayed_fetch import DelayedFetch, FetchOutcome
from millstream.runtime.replicas.fetch_reader import (
    FetchAbilities,
    FetchedPartition,
    FetchParams,
)
from millstream.runtime.replicas.fetch_sessions import FetchContext, PartitionFetch
from millstream.runtime.replicas.partition import READ_COMMITTED, READ_UNCOMMITTED
from millstream.runtime.replicas.replica_manager import ReplicaManager
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_SESSIONS: Final = 7
_FIRST_VERSION_WITH_RACKS: Final = 11
_FIRST_VERSION_WITH_DIVERGENCE: Final = 12
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_FIRST_VERSION_WITH_LEADERS: Final = 16
_LAST_VERSION: Final = 18
_ABILITIES: Final = {
    version: FetchAbilities(
        by_topic_id=version >= _FIRST_VERSION_WITH_TOPIC_IDS,
        reads_followers=version >= _FIRST_VERSION_WITH_RACKS,
        hears_of_divergence=version >= _FIRST_VERSION_WITH_DIVERGENCE,
    )
    for version in range(_LAST_VERSION + 1)
}
_ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, READ_COMMITTED)

_LEADER_CHANGED: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}
)
"""Who gets UNKNOWN_LEADER_EPOCH knows more than we."""

_Read = tuple[PartitionFetch, FetchedPartition]


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> Answer | Coroutine[Deferred[Any], None, Answer]:
    """Read what the request names; wait where that is less than it asks for."""
    if request.isolation_level not in _ISOLATION_LEVELS:
        error = f"there is no isolation level {request.isolation_level}"
        return failed(context, request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error))
    params = _params(services, context.version, request)
    if params.replica_id >= 0:
        cluster = services.cluster
        if cluster is not None and context.connection.listener != cluster.listener_name:
            error = f"replicas do not fetch on {context.connection.listener}"
            return failed(
                context, request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error)
            )
        if services.partitions.replicas is not None:
            services.partitions.replicas.heard_from(params.replica_id)
    now_ms = services.clock.monotonic_ms()
    fetch_context = services.fetch_sessions.open(request, context.version, now_ms)
    if fetch_context.error is not ErrorCode.NONE:
        return _session_refused(context, request, fetch_context.error)
    fetch = DelayedFetch(
        fetch_context.partitions,
        params,
        services.partitions,
        skips_quiet=fetch_context.session is not None and not params.rack,
    )
    outcome = fetch.start(request.max_wait_ms)
    if isinstance(outcome, Deferred):
        return _later(services, context, fetch_context, fetch, outcome)
    return _answer(services, context, fetch_context, fetch, outcome)


def _session_refused(
    context: RequestContext, request: FetchRequest, error: ErrorCode
) -> FetchResponse:
    if error is ErrorCode.INVALID_REQUEST:
        message = "the request and its session name too many partitions"
        return failed(context, request, KafkaError(error, message))
    return FetchResponse(error_code=error.code, responses=[])


async def _later(
    services: Services,
    context: RequestContext,
    fetch_context: FetchContext,
    fetch: DelayedFetch,
    reading: Deferred[FetchOutcome],
) -> Answer:
    replicas = services.partitions.replicas
    if fetch.params.replica_id >= 0 and replicas is not None:
        return await _later_to_follower(services, context, fetch_context, fetch, reading, replicas)
    context.connection.abandon = fetch.cancel
    outcome = await reading
    context.connection.abandon = None
    return _answer(services, context, fetch_context, fetch, outcome)


async def _later_to_follower(
    services: Services,
    context: RequestContext,
    fetch_context: FetchContext,
    fetch: DelayedFetch,
    reading: Deferred[FetchOutcome],
    replicas: ReplicaManager,
) -> Answer:
    """Answer a follower, which counts as one that fetches until then."""
    end_pending = replicas.begin_pending_fetch(fetch.params.replica_id)

    def abandon() -> None:
        fetch.cancel()
        end_pending()

    context.connection.abandon = abandon
    try:
        outcome = await reading
    finally:
        # None after the connection was closed: a read that was under way completes all the same.
        if context.connection.abandon is not None:
            context.connection.abandon = None
            end_pending()
    return _answer(services, context, fetch_context, fetch, outcome)


def failed(context: RequestContext, request: FetchRequest, error: KafkaError) -> FetchResponse:
    """Refuse the request as a whole; versions without topic ids say so in every partition too."""
    topics = request.topics if context.version < _FIRST_VERSION_WITH_TOPIC_IDS else []
    refusal = FetchedPartition(error.error, aborted=[])
    return FetchResponse(
        error_code=error.error.code if context.version >= _FIRST_VERSION_WITH_SESSIONS else 0,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[_partition_data(each.partition, refusal) for each in topic.partitions],
            )
            for topic in topics
        ],
    )


def _params(services: Services, version: int, request: FetchRequest) -> FetchParams:
    """Say who fetches, as this version tells it, and how much."""
    config = services.config.current
    max_bytes = min(request.max_bytes, config.fetch_max_bytes)
    params = FetchParams(
        request.isolation_level, max_bytes, min(request.min_bytes, max_bytes), _ABILITIES[version]
    )
    if config.selects_replicas_by_rack:
        params.rack = request.rack_id
    state = request.replica_state
    if request.replica_id >= 0:
        params.replica_id = BrokerId(request.replica_id)
    elif state.replica_id >= 0:
        params.replica_id = BrokerId(state.replica_id)
        params.replica_epoch = state.replica_epoch
    return params


def _answer(
    services: Services,
    context: RequestContext,
    fetch_context: FetchContext,
    fetch: DelayedFetch,
    outcome: FetchOutcome,
) -> FetchResponse:
    """Choose what the client has to be told, by its session."""
    if outcome.throttled_size:
        fetch.sent(outcome)
    reads = outcome.reads
    if outcome.unknown:
        reads = reads + outcome.unknown
    session = fetch_context.session
    session_id = 0
    if session is not None:
        session_id = session.session_id
        reads = [read for read in reads if session.select(*read)]
    elif fetch_context.opens_session:
        session_id = _open_session(services, context.version, fetch, reads)
    response = FetchResponse(session_id=session_id, responses=_by_topic(reads, context.version))
    if outcome.urgent and context.version >= _FIRST_VERSION_WITH_LEADERS:
        _name_leaders(services, context.connection.listener, response, reads)
    return response


def _name_leaders(
    services: Services, listener: str, response: FetchResponse, reads: list[_Read]
) -> None:
    """Say who leads what is refused for another leadership (KIP-951)."""
    leaders = []
    answers = (data for topic in response.responses for data in topic.partitions)
    for (fetch, found), data in zip(reads, answers, strict=True):
        if found.error in _LEADER_CHANGED:
            leader, epoch = current_leader(services, fetch.topic, fetch.partition)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            leaders.append(leader)
    for node in live_nodes(services, leaders, listener):
        at = node.endpoint(listener)
        response.node_endpoints.append(
            NodeEndpoint(node_id=node.broker_id, host=at.host, port=at.port, rack=node.rack)
        )


def _open_session(services: Services, version: int, fetch: DelayedFetch, reads: list[_Read]) -> int:
    for wanted, found in reads:
        wanted.told_high_watermark = found.high_watermark
        wanted.told_log_start_offset = found.log_start_offset
    session = services.fetch_sessions.create(
        (wanted for wanted, _ in reads),
        version,
        services.clock.monotonic_ms(),
        of_follower=fetch.params.replica_id >= 0,
    )
    return 0 if session is None else session.session_id


def _by_topic(reads: list[_Read], version: int) -> list[FetchableTopicResponse]:
    """Put neighbours of one topic together; the order of partitions stays."""
    by_topic_id = _ABILITIES[version].by_topic_id
    responses: list[FetchableTopicResponse] = []
    last: PartitionFetch | None = None
    for fetch, found in reads:
        data = _partition_data(fetch.partition, found)
        if last is None or last.topic != fetch.topic or last.topic_id != fetch.topic_id:
            last = fetch
            topic_id = fetch.topic_id if by_topic_id else ZERO_TOPIC_ID
            responses.append(
                FetchableTopicResponse(topic=fetch.topic, topic_id=topic_id, partitions=[data])
            )
        else:
            responses[-1].partitions.append(data)
    return responses


def _partition_data(index: int, found: FetchedPartition) -> PartitionData:
    aborted = found.aborted
    data = PartitionData(
        partition_index=index,
        error_code=found.error.code,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        preferred_read_replica=found.preferred_read_replica,
        aborted_transactions=None
        if aborted is None
        else [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
            for one in aborted
        ],
        records=b"" if found.records is None else found.records,
    )
    if found.diverging is not None:
        epoch, end_offset = found.diverging
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data
