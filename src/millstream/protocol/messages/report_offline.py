"""ReportOffline: API key 10005, version 0. Between brokers of Millstream only.

A broker tells the controller which of its replicas it cannot serve, because their log directory has
failed: all of them, each time (Kafka: the offline replicas of ``LeaderAndIsr`` answers, KIP-112).
"""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int16, int32, int64, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class OfflineReplica(Struct):
    """One of ``ReportOfflineRequest.replicas``."""

    topic_id: TopicId = topic_id_()
    index: int = int32()


class ReportOfflineRequest(Request, key=10005, versions="0", flexible="0+"):
    """Request of ReportOffline."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    replicas: list[OfflineReplica] = array(OfflineReplica)


class ReportOfflineResponse(Response, key=10005, versions="0", flexible="0+"):
    """Response of ReportOffline."""

    error_code: int = int16(default=0)
