"""AddPartitionsToTxn: API key 24, versions 0 to 5."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class AddPartitionsToTxnTopic(Struct):
    """One of ``AddPartitionsToTxnTransaction.topics`` and others."""

    name: str = string()
    partitions: list[int] = array(int32())


class AddPartitionsToTxnTransaction(Struct):
    """One of ``AddPartitionsToTxnRequest.transactions``."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = bool_(default=False)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    """Request of AddPartitionsToTxn."""

    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, "4+", factory=list
    )
    v3_and_below_transactional_id: str = string("0-3", default="")
    v3_and_below_producer_id: int = int64("0-3", default=0)
    v3_and_below_producer_epoch: int = int16("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(
        AddPartitionsToTxnTopic, "0-3", factory=list
    )


class AddPartitionsToTxnPartitionResult(Struct):
    """One of ``AddPartitionsToTxnTopicResult.results_by_partition``."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    """One of ``AddPartitionsToTxnResult.topic_results`` and others."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


class AddPartitionsToTxnResult(Struct):
    """One of ``AddPartitionsToTxnResponse.results_by_transaction``."""

    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    """Response of AddPartitionsToTxn."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, "4+", factory=list
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3", factory=list
    )
