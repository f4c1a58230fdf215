"""Metadata (key 3), versions 0 to 13.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        an empty list of topics means all of them
1        null means all, an empty list none; racks, the controller, internal topics
2        cluster id
4        a field: whether unknown topics are created
5        offline replicas
6        LISTENER_NOT_FOUND for a leader that does not listen where the client asks
7        leader epochs
8        authorized operations (KIP-430); those of the cluster left again in version 11
9        flexible
10       topic ids in answers; 10 and 11 have the field in requests and refuse it
12       topics by id, with a null name (KIP-516)
13       an error for the answer as a whole
=======  ====================================================================================

The client needs DESCRIBE on a topic. Where it asks for all topics, those that it may not describe
are left out; one that it names is TOPIC_AUTHORIZATION_FAILED, whether or not it exists. To create a
topic it needs CREATE on the cluster or on the topic.

A topic that is created on the way is there, with its leaders, when the answer leaves, and an error
of the creation is in the answer; Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION at once and lets
the client ask again. Topics of one request are created in parallel to nothing: one by one. What is
not there after some seconds, as while nobody is the controller, is answered as Kafka answers it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from millstream.handlers import authorized_operations
from millstream.handlers.access import Access, access_of, with_added
from millstream.handlers.request import Reply, RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER, PartitionState
from millstream.model.topic import (
    INTERNAL_TOPICS,
    ZERO_TOPIC_ID,
    TopicId,
    validate_topic_name,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.pauses import at_most
from millstream.runtime.services import Services

if TYPE_CHECKING:
    from millstream.runtime.client_usage import Mutations

_FIRST_VERSION_WITH_MISSING_LISTENERS: Final = 6
_FIRST_VERSION_WITH_IDS: Final = 12
_CREATION_LIMIT_MS: Final = 5_000
"""How long an answer waits for topics to be made: those that are there are waited for, too."""


def handle(services: Services, context: RequestContext, request: MetadataRequest) -> Reply:
    """Tell about topics, brokers and the controller; create topics where that is asked for."""
    _check_ids(context, request)
    metadata = services.metadata
    access = access_of(services, context)
    view = _View(metadata, context)
    if request.topics is None or (context.version == 0 and not request.topics):
        images: Iterable[TopicImage] = metadata.topics()
        if access is not None:
            images, _ = access.split(
                AclOperation.DESCRIBE,
                AclResource.TOPIC,
                list(images),
                lambda image: image.name,
                tell_denied=False,
            )
        return _response(services, context, request, [view.topic(image) for image in images])
    ids = {topic.topic_id for topic in request.topics if topic.topic_id != ZERO_TOPIC_ID}
    if ids:
        topics = [view.topic_by_id(each) for each in ids]
        if access is not None:
            topics = _hide_by_id(access, topics)
        return _response(services, context, request, topics)
    # A name that is asked for twice is answered once.
    names = list(dict.fromkeys(_name(topic.name) for topic in request.topics))
    if access is not None:
        return _answer_allowed(services, context, request, names, access)
    if request.allow_auto_topic_creation and services.config.current.auto_create_topics_enable:
        missing = [name for name in names if metadata.topic(name) is None]
        if missing:
            return _create_and_answer(services, context, request, names)
    return _response(services, context, request, [view.topic_by_name(name) for name in names])


def _hide_by_id(access: Access, topics: list[MetadataResponseTopic]) -> list[MetadataResponseTopic]:
    """Put a refusal in place of the topics that the client may not describe: it knows their ids,
    and is not told their names.
    """
    names = [topic.name for topic in topics if topic.name is not None]
    allowed = access.allowed_names(AclOperation.DESCRIBE, AclResource.TOPIC, names)
    return [
        topic
        if topic.name is None or topic.name in allowed
        else MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED.code,
            name=None,
            topic_id=topic.topic_id,
            partitions=[],
        )
        for topic in topics
    ]


def _answer_allowed(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    names: list[str],
    access: Access,
) -> Reply:
    """Tell about topics by name, as far as the client may DESCRIBE them. What is missing is created
    if it may CREATE topics, or that topic. A refusal does not tell whether the topic is there.
    """
    metadata = services.metadata
    allowed = access.allowed_names(AclOperation.DESCRIBE, AclResource.TOPIC, names)
    missing = [name for name in names if name in allowed and metadata.topic(name) is None]
    creates = (
        request.allow_auto_topic_creation and services.config.current.auto_create_topics_enable
    )
    not_creatable = frozenset[str]()
    if creates and missing and not access.on_cluster(AclOperation.CREATE, tell_denied=False):
        not_creatable = frozenset(missing) - access.allowed_names(
            AclOperation.CREATE, AclResource.TOPIC, missing
        )
    shown = [name for name in names if name in allowed and name not in not_creatable]
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    refused = [
        MetadataResponseTopic(error_code=error.code, name=name, partitions=[])
        for name in names
        if name not in allowed
    ]
    refused += [_no_topic(name, error) for name in not_creatable]
    reply: Reply
    if creates and not not_creatable.issuperset(missing):
        reply = _create_and_answer(services, context, request, shown)
    else:
        view = _View(metadata, context)
        reply = _response(services, context, request, [view.topic_by_name(each) for each in shown])
    return with_added(reply, lambda response: response.topics.extend(refused))


def failed(
    context: RequestContext, request: MetadataRequest, error: KafkaError
) -> MetadataResponse:
    """Refuse every topic that was named."""
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=error.error.code,
                name=topic.name or "",
                topic_id=topic.topic_id,
                partitions=[],
            )
            for topic in request.topics or ()
        ],
        error_code=error.error.code,
    )


def _check_ids(context: RequestContext, request: MetadataRequest) -> None:
    if context.version >= _FIRST_VERSION_WITH_IDS:
        return
    for topic in request.topics or ():
        if topic.name is None:
            reason = f"Topic name can not be null for version {context.version}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        if topic.topic_id != ZERO_TOPIC_ID:
            reason = f"Topic IDs are not supported in requests for version {context.version}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _name(name: str | None) -> str:
    if name is None:
        # Neither an id nor a name: Apache Kafka fails and answers the same.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic has neither a name nor an id")
    return name


async def _create_and_answer(
    services: Services, context: RequestContext, request: MetadataRequest, names: Iterable[str]
) -> MetadataResponse:
    topics = []
    deadline_ms = services.clock.monotonic_ms() + _CREATION_LIMIT_MS
    mutations = None
    if services.quotas is not None:
        user = context.connection.principal.name
        mutations = services.quotas.mutations(user, context.client_id, is_strict=True)
    for name in names:
        try:
            image = services.metadata.topic(name) or await _create(
                services, name, deadline_ms, mutations
            )
        except KafkaError as error:
            topics.append(_no_topic(name, error.error))
        else:
            topics.append(_View(services.metadata, context).topic(image))
    return _response(services, context, request, topics)


async def _create(
    services: Services, name: str, deadline_ms: float, mutations: Mutations | None
) -> TopicImage:
    """Have a topic created. One above the client's quota of changes is unknown for now: the client
    asks again.
    """
    validate_topic_name(name)
    if mutations is not None:
        try:
            mutations.charge(services.config.current.num_partitions)
        except KafkaError as error:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message) from error
    left_ms = deadline_ms - services.clock.monotonic_ms()
    image = None
    if left_ms > 0:
        image = await at_most(services.clock, services.ensure_topic(name), left_ms)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return image


def _response(
    services: Services,
    context: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        access = access_of(services, context)
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = authorized_operations.of_topic(
                    access, topic.name
                )
    cluster_operations = authorized_operations.NOT_ASKED
    if request.include_cluster_authorized_operations:
        access = access_of(services, context)
        cluster_operations = authorized_operations.of_cluster(access)
    metadata = services.metadata
    brokers = []
    for broker in metadata.seen_from(context.connection.listener).values():
        endpoint = broker.endpoint(context.connection.listener)
        brokers.append(
            MetadataResponseBroker(
                node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
        )
    return MetadataResponse(
        brokers=brokers,
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


class _View:
    """What one request may see of the cluster."""

    def __init__(self, metadata: MetadataCache, context: RequestContext) -> None:
        self._metadata = metadata
        self._live = metadata.seen_from(context.connection.listener)
        self._version = context.version
        self._without_listener = (
            ErrorCode.LISTENER_NOT_FOUND
            if context.version >= _FIRST_VERSION_WITH_MISSING_LISTENERS
            else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def topic_by_name(self, name: str) -> MetadataResponseTopic:
        image = self._metadata.topic(name)
        if image is not None:
            return self.topic(image)
        try:
            validate_topic_name(name)
        except KafkaError as error:
            return _no_topic(name, error.error)
        return _no_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def topic_by_id(self, topic_id: TopicId) -> MetadataResponseTopic:
        image = self._metadata.topic_by_id(topic_id)
        if image is not None:
            return self.topic(image)
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID.code, name=None, topic_id=topic_id, partitions=[]
        )

    def topic(self, image: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE.code,
            name=image.name,
            topic_id=image.topic_id,
            is_internal=image.is_internal,
            partitions=[
                self._partition(index, state) for index, state in enumerate(image.partitions)
            ],
        )

    def _partition(self, index: int, state: PartitionState) -> MetadataResponsePartition:
        live = self._live
        leader, error = state.leader, ErrorCode.NONE
        if not self._metadata.is_reachable(leader):
            leader, error = NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE
        elif leader not in live:
            leader, error = NO_LEADER, self._without_listener
        replicas, isr = state.replicas, state.isr
        offline: list[int] = [each for each in replicas if each not in live]
        if offline and self._version == 0:
            replicas = tuple(each for each in replicas if each in live)
            isr = tuple(each for each in isr if each in live)
            if error is ErrorCode.NONE:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error.code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(replicas),
            isr_nodes=list(isr),
            offline_replicas=offline,
        )


def _no_topic(name: str, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error.code, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )
