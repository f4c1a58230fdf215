"""ListTransactions: API key 66, versions 0 to 2."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+"):
    """Request of ListTransactions."""

    state_filters: list[str] = array(string())
    producer_id_filters: list[int] = array(int64())
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="0+", default=None)


class TransactionState(Struct):
    """One of ``ListTransactionsResponse.transaction_states``."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    """Response of ListTransactions."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string())
    transaction_states: list[TransactionState] = array(TransactionState)
