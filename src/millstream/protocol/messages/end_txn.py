"""EndTxn: API key 26, versions 0 to 5."""

from __future__ import annotations

from millstream.protocol.fields import bool_, int16, int32, int64, string
from millstream.protocol.message import Request, Response


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    """Request of EndTxn."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = bool_()


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    """Response of EndTxn."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
