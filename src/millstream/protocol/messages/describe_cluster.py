"""DescribeCluster: API key 60, versions 0 to 2."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    """Request of DescribeCluster."""

    include_cluster_authorized_operations: bool = bool_()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = bool_("2+", default=False)


class DescribeClusterBroker(Struct):
    """One of ``DescribeClusterResponse.brokers``."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = bool_("2+", default=False)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    """Response of DescribeCluster."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
