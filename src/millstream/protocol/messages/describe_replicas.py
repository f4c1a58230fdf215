"""DescribeReplicas: API key 10004, version 0. Between brokers of Millstream only.

The controller requests the log ends of some replicas, to elect the longest log where no replica is
known to have everything.
"""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, bool_, int16, int32, int64, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class AskedReplica(Struct):
    """One of ``DescribeReplicasRequest.replicas``."""

    topic_id: TopicId = topic_id_()
    index: int = int32()


class DescribeReplicasRequest(Request, key=10004, versions="0", flexible="0+"):
    """Request of DescribeReplicas."""

    controller_epoch: int = int32()
    replicas: list[AskedReplica] = array(AskedReplica)


class DescribedReplica(Struct):
    """One of ``DescribeReplicasResponse.replicas``, in the order of the request."""

    present: bool = bool_()
    last_epoch: int = int32(default=-1)
    log_end_offset: int = int64(default=-1)


class DescribeReplicasResponse(Response, key=10004, versions="0", flexible="0+"):
    """Response of DescribeReplicas."""

    error_code: int = int16(default=0)
    replicas: list[DescribedReplica] = array(DescribedReplica)
