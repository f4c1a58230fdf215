"""DeleteShareGroupOffsets: API key 92, versions 0."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int16, int32, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """One of ``DeleteShareGroupOffsetsRequest.topics``."""

    topic_name: str = string()


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+"):
    """Request of DeleteShareGroupOffsets."""

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """One of ``DeleteShareGroupOffsetsResponse.responses``."""

    topic_name: str = string()
    topic_id: TopicId = topic_id_()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    """Response of DeleteShareGroupOffsets."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
