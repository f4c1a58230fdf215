"""DescribeTransactions: API key 65, versions 0."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    """Request of DescribeTransactions."""

    transactional_ids: list[str] = array(string())


class TopicData(Struct):
    """One of ``TransactionState.topics``."""

    topic: str = string()
    partitions: list[int] = array(int32())


class TransactionState(Struct):
    """One of ``DescribeTransactionsResponse.transaction_states``."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    """Response of DescribeTransactions."""

    throttle_time_ms: int = int32(default=0)
    transaction_states: list[TransactionState] = array(TransactionState)
