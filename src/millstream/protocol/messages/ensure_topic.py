"""EnsureTopic: API key 10003, version 0. Between brokers of Millstream only.

A broker has the controller create a topic that a client named or that a coordinator needs; the
answer holds the topic, so that the broker knows it at once.
"""

from __future__ import annotations

from millstream.protocol.fields import int16, int32, int64, string, struct
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.push_metadata import PushedTopic


class EnsureTopicRequest(Request, key=10003, versions="0", flexible="0+"):
    """Request of EnsureTopic."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    name: str = string()


class EnsureTopicResponse(Response, key=10003, versions="0", flexible="0+"):
    """Response of EnsureTopic. ``topic`` is the present topic; the sender applies it when it is
    pushed.
    """

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    controller_epoch: int = int32(default=-1)
    topic: PushedTopic | None = struct(PushedTopic, nullable="0+", default=None)
