"""DeleteTopics: API key 20, versions 1 to 6."""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import array, int16, int32, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DeleteTopicState(Struct):
    """One of ``DeleteTopicsRequest.topics``."""

    name: str | None = string(nullable="0+", default=None)
    topic_id: TopicId = topic_id_()


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
    """Request of DeleteTopics."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", factory=list)
    topic_names: list[str] = array(string(), "0-5", factory=list, ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    """One of ``DeleteTopicsResponse.responses``."""

    name: str | None = string(nullable="6+")
    topic_id: TopicId = topic_id_("6+", default=ZERO_TOPIC_ID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="0+", default=None, ignorable=True)


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    """Response of DeleteTopics."""

    throttle_time_ms: int = int32(default=0)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
