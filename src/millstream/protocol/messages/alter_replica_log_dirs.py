"""AlterReplicaLogDirs: API key 34, versions 1 to 2."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class AlterReplicaLogDirTopic(Struct):
    """One of ``AlterReplicaLogDir.topics``."""

    name: str = string()
    partitions: list[int] = array(int32())


class AlterReplicaLogDir(Struct):
    """One of ``AlterReplicaLogDirsRequest.dirs``."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(Request, key=34, versions="1-2", flexible="2+"):
    """Request of AlterReplicaLogDirs."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    """One of ``AlterReplicaLogDirTopicResult.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    """One of ``AlterReplicaLogDirsResponse.results``."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    """Response of AlterReplicaLogDirs."""

    throttle_time_ms: int = int32(default=0)
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
