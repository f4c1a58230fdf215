"""ProposeIsr: API key 10001, version 0. Between brokers of Millstream only.

A leader proposes another ISR to the controller (Kafka: ``AlterPartition``, KIP-497, KIP-841). The
answer holds the whole state as it was written.
"""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int8, int16, int32, int64, string, struct, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.push_metadata import PushedMember, PushedPartition
from millstream.protocol.schema import Struct


class ProposedPartition(Struct):
    """One of ``ProposeIsrRequest.partitions``."""

    topic_id: TopicId = topic_id_()
    index: int = int32()
    leader_epoch: int = int32()
    partition_epoch: int = int32()
    isr: list[PushedMember] = array(PushedMember)
    leader_recovery_state: int = int8(default=0)


class ProposeIsrRequest(Request, key=10001, versions="0", flexible="0+"):
    """Request of ProposeIsr."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    partitions: list[ProposedPartition] = array(ProposedPartition)


class ProposedResult(Struct):
    """One of ``ProposeIsrResponse.partitions``, in the order of the request."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state: PushedPartition | None = struct(PushedPartition, nullable="0+", default=None)


class ProposeIsrResponse(Response, key=10001, versions="0", flexible="0+"):
    """Response of ProposeIsr."""

    error_code: int = int16(default=0)
    partitions: list[ProposedResult] = array(ProposedResult)
