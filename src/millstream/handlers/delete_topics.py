"""DeleteTopics (key 20), versions 1 to 6.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
2        throttled after the answer
3        TOPIC_DELETION_DISABLED where older versions have INVALID_REQUEST
4        flexible
5        error messages; throttling by quota (KIP-599); this broker has no such quota
6        by topic id (KIP-516)
=======  ====================================================================================

The client needs DELETE on the cluster or on each topic. One that it may not even DESCRIBE is
TOPIC_AUTHORIZATION_FAILED whether or not it exists.

A topic is gone when the answer leaves; its files go later. A time-out of 0 or less times out at
once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from millstream.handlers.access import Access, access_of
from millstream.handlers.mutation_quota import charge, mutations_of, throttle_ms
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_DISABLED_ERROR: Final = 3
_FIRST_VERSION_WITH_IDS: Final = 6
_FIRST_STRICT_VERSION: Final = 5


async def handle(
    services: Services, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete topics."""
    if not services.config.current.delete_topic_enable:
        if context.version < _FIRST_VERSION_WITH_DISABLED_ERROR:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    chosen = _Chosen(services.metadata, _deleter(access_of(services, context)))
    chosen.read(request)
    mutations = mutations_of(services, context, strict_since=_FIRST_STRICT_VERSION)
    topic_ids = charge(
        mutations,
        list(chosen.names_by_id),
        lambda each: _partition_count(services, each),
        lambda each, error: chosen.answer(chosen.names_by_id[each], each, error),
    )
    results = await services.controller.topics.delete_topics(topic_ids)
    for topic_id, result in zip(topic_ids, results, strict=True):
        error = result if isinstance(result, KafkaError) else None
        chosen.answer(chosen.names_by_id[topic_id], topic_id, error)
    return DeleteTopicsResponse(throttle_time_ms=throttle_ms(mutations), responses=chosen.responses)


def _partition_count(services: Services, topic_id: TopicId) -> int:
    image = services.metadata.topic_by_id(topic_id)
    return 0 if image is None else len(image.partitions)


def failed(
    context: RequestContext, request: DeleteTopicsRequest, error: KafkaError
) -> DeleteTopicsResponse:
    """Refuse every topic."""
    named = [(name, ZERO_TOPIC_ID) for name in request.topic_names]
    if context.version >= _FIRST_VERSION_WITH_IDS:
        named = [(topic.name or "", topic.topic_id) for topic in request.topics]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=error.error.code,
                error_message=error.message,
            )
            for name, topic_id in named
        ]
    )


def _deleter(access: Access | None) -> Access | None:
    """Return what the client may do, None if it may delete every topic."""
    if access is None or access.on_cluster(AclOperation.DELETE, tell_denied=False):
        return None
    return access


class _Chosen:
    """Sorts out which topics a request means, and answers for those that it may not mean."""

    def __init__(self, metadata: MetadataCache, access: Access | None) -> None:
        """``access`` is None for a client that may delete everything."""
        self._metadata = metadata
        self._access = access
        self.names_by_id: dict[TopicId, str] = {}
        self._describable = frozenset[str]()
        self._deletable = frozenset[str]()
        self.responses: list[DeletableTopicResult] = []

    def answer(self, name: str | None, topic_id: TopicId, error: KafkaError | None) -> None:
        """Add one answer."""
        self.responses.append(
            DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=(ErrorCode.NONE if error is None else error.error).code,
                error_message=None if error is None else error.message,
            )
        )

    def read(self, request: DeleteTopicsRequest) -> None:
        """Take ids first, then names, as Apache Kafka does: a name whose topic an id meant already
        spoils both.
        """
        names, topic_ids = Counter(request.topic_names), Counter[TopicId]()
        for topic in request.topics:
            if topic.topic_id == ZERO_TOPIC_ID:
                if topic.name is None:
                    self._refuse(None, ZERO_TOPIC_ID, "Neither topic name nor id were specified.")
                else:
                    names[topic.name] += 1
            elif topic.name is None:
                topic_ids[topic.topic_id] += 1
            else:
                reason = "You may not specify both topic name and topic id."
                self._refuse(topic.name, topic.topic_id, reason)
        self._ask([name for name, count in names.items() if count == 1], topic_ids)
        for topic_id, count in topic_ids.items():
            self._read_id(topic_id, count)
        for name, count in names.items():
            self._read_name(name, count, topic_ids)

    def _ask(self, names: Iterable[str], topic_ids: Iterable[TopicId]) -> None:
        """Find out which topics the client may delete, and which it may know of."""
        if self._access is None:
            return
        images = map(self._metadata.topic_by_id, topic_ids)
        asked = {*names, *(image.name for image in images if image is not None)}
        topic = AclResource.TOPIC
        self._describable = self._access.allowed_names(AclOperation.DESCRIBE, topic, asked)
        self._deletable = self._access.allowed_names(AclOperation.DELETE, topic, asked)

    def _may_describe(self, name: str) -> bool:
        return self._access is None or name in self._describable

    def _may_delete(self, name: str) -> bool:
        return self._access is None or name in self._deletable

    def _read_id(self, topic_id: TopicId, count: int) -> None:
        image = self._metadata.topic_by_id(topic_id)
        if count > 1:
            self._refuse(None, topic_id, "Duplicate topic id.")
        elif image is None:
            reason = "This server does not host this topic ID."
            self.answer(None, topic_id, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, reason))
        elif not self._may_delete(image.name):
            name = image.name if self._may_describe(image.name) else None
            self.answer(name, topic_id, _not_allowed())
        else:
            self.names_by_id[topic_id] = image.name

    def _read_name(self, name: str, count: int, topic_ids: Counter[TopicId]) -> None:
        image = self._metadata.topic(name)
        if count > 1:
            self._refuse(name, ZERO_TOPIC_ID, "Duplicate topic name.")
        elif not self._may_describe(name) or (image is not None and not self._may_delete(name)):
            self.answer(name, ZERO_TOPIC_ID, _not_allowed())
        elif image is None:
            reason = "This server does not host this topic-partition."
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
            self.answer(name, ZERO_TOPIC_ID, error)
        elif image.topic_id in topic_ids:
            self.names_by_id.pop(image.topic_id, None)
            reason = "The provided topic name maps to an ID that was already supplied."
            self._refuse(name, image.topic_id, reason)
        else:
            self.names_by_id[image.topic_id] = name

    def _refuse(self, name: str | None, topic_id: TopicId, reason: str) -> None:
        self.answer(name, topic_id, KafkaError(ErrorCode.INVALID_REQUEST, reason))


def _not_allowed() -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
