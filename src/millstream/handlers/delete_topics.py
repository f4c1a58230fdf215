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

A topic is gone when the answer leaves; its files go later. A time-out of 0 or less times out at
once.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from millstream.handlers.request import RequestContext
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
    chosen = _Chosen(services.metadata)
    chosen.read(request)
    topic_ids = list(chosen.names_by_id)
    results = await services.controller.topics.delete_topics(topic_ids)
    for topic_id, result in zip(topic_ids, results, strict=True):
        error = result if isinstance(result, KafkaError) else None
        chosen.answer(chosen.names_by_id[topic_id], topic_id, error)
    return DeleteTopicsResponse(responses=chosen.responses)


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


class _Chosen:
    """Sorts out which topics a request means, and answers for those that it may not mean."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self.names_by_id: dict[TopicId, str] = {}
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
        for topic_id, count in topic_ids.items():
            self._read_id(topic_id, count)
        for name, count in names.items():
            self._read_name(name, count, topic_ids)

    def _read_id(self, topic_id: TopicId, count: int) -> None:
        image = self._metadata.topic_by_id(topic_id)
        if count > 1:
            self._refuse(None, topic_id, "Duplicate topic id.")
        elif image is None:
            reason = "This server does not host this topic ID."
            self.answer(None, topic_id, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, reason))
        else:
            self.names_by_id[topic_id] = image.name

    def _read_name(self, name: str, count: int, topic_ids: Counter[TopicId]) -> None:
        image = self._metadata.topic(name)
        if count > 1:
            self._refuse(name, ZERO_TOPIC_ID, "Duplicate topic name.")
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
