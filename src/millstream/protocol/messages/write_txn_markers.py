"""WriteTxnMarkers: API key 27, versions 1 to 2."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int8, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class WritableTxnMarkerTopic(Struct):
    """One of ``WritableTxnMarker.topics``."""

    name: str = string()
    partition_indexes: list[int] = array(int32())


class WritableTxnMarker(Struct):
    """One of ``WriteTxnMarkersRequest.markers``."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = bool_()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", default=0, ignorable=True)


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+"):
    """Request of WriteTxnMarkers."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """One of ``WritableTxnMarkerTopicResult.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """One of ``WritableTxnMarkerResult.topics``."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """One of ``WriteTxnMarkersResponse.markers``."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    """Response of WriteTxnMarkers."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
