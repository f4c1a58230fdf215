"""DescribeLogDirs: API key 35, versions 1 to 5."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DescribableLogDirTopic(Struct):
    """One of ``DescribeLogDirsRequest.topics``."""

    topic: str = string()
    partitions: list[int] = array(int32())


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+"):
    """Request of DescribeLogDirs."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


class DescribeLogDirsPartition(Struct):
    """One of ``DescribeLogDirsTopic.partitions``."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = bool_()


class DescribeLogDirsTopic(Struct):
    """One of ``DescribeLogDirsResult.topics``."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One of ``DescribeLogDirsResponse.results``."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = bool_("5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    """Response of DescribeLogDirs."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
