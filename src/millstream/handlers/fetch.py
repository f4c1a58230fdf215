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

from millstream.handlers.access import Access, access_of, topic_name
from millstream.handlers.current_leader import current_leader, live_nodes
from millstream.handlers.request import Answer, RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from millstream.runtime.client_usage import ClientUsage
from millstream.runtime.replicas.delayed_fetch import DelayedFetch, FetchOutcome
from millstream.runtime.replicas.fetch_reader import (
    FetchAbilities,
    FetchParams,
    not_here,
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
    {ErrorCode.NOT_LEADER_OR_FOLLOWER.code, ErrorCode.FENCED_LEADER_EPOCH.code}
)
"""Who gets UNKNOWN_LEADER_EPOCH knows more than we."""

_NONE: Final = ErrorCode.NONE
_TOPIC: Final = AclResource.TOPIC

_Read = tuple[PartitionFetch, PartitionData]


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> Answer | Coroutine[Deferred[Any], None, Answer]:
    """Read what the request names; wait where that is less than it asks for."""
    if request.isolation_level not in _ISOLATION_LEVELS:
        error = f"there is no isolation level {request.isolation_level}"
        return failed(context, request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error))
    params = _params(services, context.version, request)
    if params.replica_id >= 0:
        refusal = _follower_refused(services, context, request)
        if refusal is not None:
            return refusal
        if services.partitions.replicas is not None:
            services.partitions.replicas.heard_from(params.replica_id)
    fetch_context = services.fetch_sessions.open(
        request, context.version, services.clock.monotonic_ms()
    )
    if fetch_context.error is not _NONE:
        return _session_refused(context, request, fetch_context.error)
    fetch = DelayedFetch(
        fetch_context.partitions,
        params,
        services.partitions,
        skips_quiet=fetch_context.session is not None and not params.rack,
    )
    outcome = fetch.start(request.max_wait_ms)
    if isinstance(outcome, Deferred):
        replicas = services.partitions.replicas
        if params.replica_id >= 0 and replicas is not None:
            return _later_to_follower(services, context, fetch_context, fetch, outcome, replicas)
        return _later(services, context, fetch_context, fetch, outcome)
    return _answer(services, context, fetch_context, fetch, outcome)


def handle_authorized(
    services: Services, context: RequestContext, request: FetchRequest
) -> Answer | Coroutine[Deferred[Any], None, Answer]:
    """Read what the client may read: a consumer READ on each topic, of its session too; a follower
    needs CLUSTER_ACTION on the cluster. The others are TOPIC_AUTHORIZATION_FAILED.

    A session that was found to hold nothing else is not looked through again while neither its
    client nor the rules change. Followers are few: `handle` asks about them.
    """
    for topic in request.topics:
        if (topic.topic or topic.topic_id) not in context.connection.readable:
            return _look_through(services, context, request)
    if request.session_id and not _was_read_through(services, context, request.session_id):
        return _look_through(services, context, request)
    return handle(services, context, request)


def _follower_refused(
    services: Services, context: RequestContext, request: FetchRequest
) -> FetchResponse | None:
    """Refuse who says to be a follower and may not be one, or asks on a listener of clients."""
    access = access_of(services, context)
    if access is not None and not access.on_cluster(AclOperation.CLUSTER_ACTION):
        refused = [
            (PartitionFetch(topic.topic, topic.topic_id, each), _not_authorized(each.partition))
            for topic in request.topics
            for each in topic.partitions
        ]
        return FetchResponse(responses=_by_topic(refused, context.version))
    cluster = services.cluster
    if cluster is not None and context.connection.listener != cluster.listener_name:
        error = f"replicas do not fetch on {context.connection.listener}"
        return failed(context, request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error))
    return None


def _was_read_through(services: Services, context: RequestContext, session_id: int) -> bool:
    """Tell whether all that a session holds was found to be readable for this client."""
    session = services.fetch_sessions.get(session_id)
    decisions = context.connection.decisions
    return session is None or (decisions is not None and session.allowed_to is decisions.kept_since)


def _look_through(
    services: Services, context: RequestContext, request: FetchRequest
) -> Answer | Coroutine[Deferred[Any], None, Answer]:
    access = access_of(services, context)
    is_follower = request.replica_id >= 0 or request.replica_state.replica_id >= 0
    if access is None or is_follower:
        return handle(services, context, request)
    return _handle_allowed(services, context, request, access)


def _handle_allowed(
    services: Services, context: RequestContext, request: FetchRequest, access: Access
) -> Answer | Coroutine[Deferred[Any], None, Answer]:
    """Read what may be read, and refuse the rest."""
    session = services.fetch_sessions.get(request.session_id) if request.session_id else None
    named = [(topic.topic, topic.topic_id) for topic in request.topics]
    if session is not None:
        named += [(each.topic, each.topic_id) for each in session.partitions.values()]
    names = {each: topic_name(services, *each) for each in dict.fromkeys(named)}
    allowed = access.allowed_names(AclOperation.READ, _TOPIC, filter(None, names.values()))
    refused = {each for each, name in names.items() if name and name not in allowed}
    if session is not None:
        # The request may add a topic that is refused, or one that is not known here yet.
        session.allowed_to = None
    if not refused:
        access.keep_readable(
            name or topic_id for (name, topic_id) in names if names[name, topic_id]
        )
        if session is not None and all(names.values()):
            session.allowed_to = access.kept_since
        return handle(services, context, request)
    if request.isolation_level not in _ISOLATION_LEVELS:
        return handle(services, context, request)
    now_ms = services.clock.monotonic_ms()
    fetch_context = services.fetch_sessions.open(request, context.version, now_ms)
    if fetch_context.error is not ErrorCode.NONE:
        return _session_refused(context, request, fetch_context.error)
    wanted: list[PartitionFetch] = []
    not_allowed: list[_Read] = []
    for each in fetch_context.partitions:
        if (each.topic, each.topic_id) in refused:
            not_allowed.append((each, _not_authorized(each.partition)))
        else:
            wanted.append(each)
    params = _params(services, context.version, request)
    fetch = DelayedFetch(wanted, params, services.partitions)
    if not wanted:
        outcome = FetchOutcome(0)
        outcome.unknown = not_allowed
        return _answer(services, context, fetch_context, fetch, outcome)
    reading = fetch.start(request.max_wait_ms)
    return _rest_later(services, context, fetch_context, fetch, reading, not_allowed)


async def _rest_later(
    services: Services,
    context: RequestContext,
    fetch_context: FetchContext,
    fetch: DelayedFetch,
    reading: FetchOutcome | Deferred[FetchOutcome],
    refused: list[_Read],
) -> Answer:
    if isinstance(reading, Deferred):
        context.connection.abandon = fetch.cancel
        reading = await reading
        context.connection.abandon = None
    reading.unknown = [*reading.unknown, *refused]
    return _answer(services, context, fetch_context, fetch, reading)


def _not_authorized(partition: int) -> PartitionData:
    return not_here(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


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
    return FetchResponse(
        error_code=error.error.code if context.version >= _FIRST_VERSION_WITH_SESSIONS else 0,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[not_here(each.partition, error.error) for each in topic.partitions],
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
    if services.quotas is not None and _has_quota(services, fetch.params):
        refusal = _throttled(services.quotas, context, fetch_context, outcome)
        if refusal is not None:
            return refusal
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


def _has_quota(services: Services, params: FetchParams) -> bool:
    """Tell whether quotas of clients hold: not for a follower, and a broker on its own has none."""
    return params.replica_id < 0 or services.cluster is None


def _throttled(
    quotas: ClientUsage,
    context: RequestContext,
    fetch_context: FetchContext,
    outcome: FetchOutcome,
) -> FetchResponse | None:
    """Return the empty answer for a consumer that is above its quota, None for any other; its
    session stays as it is.
    """
    size = outcome.size
    user = context.connection.principal.name
    throttle_ms = quotas.fetched(user, context.client_id, size)
    if not throttle_ms:
        return None
    session = fetch_context.session
    return FetchResponse(
        throttle_time_ms=throttle_ms,
        session_id=0 if session is None else session.session_id,
        responses=[],
    )


def _name_leaders(
    services: Services, listener: str, response: FetchResponse, reads: list[_Read]
) -> None:
    """Say who leads what is refused for another leadership (KIP-951)."""
    leaders = []
    for fetch, found in reads:
        if found.error_code in _LEADER_CHANGED:
            leader, epoch = current_leader(services, fetch.topic, fetch.partition)
            found.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
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
    by_topic_id = version >= _FIRST_VERSION_WITH_TOPIC_IDS
    responses: list[FetchableTopicResponse] = []
    last: PartitionFetch | None = None
    for fetch, found in reads:
        topic = fetch.topic
        if last is not None and last.topic == topic and last.topic_id == fetch.topic_id:
            responses[-1].partitions.append(found)
            continue
        last = fetch
        topic_id = fetch.topic_id if by_topic_id else ZERO_TOPIC_ID
        responses.append(FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[found]))
    return responses
