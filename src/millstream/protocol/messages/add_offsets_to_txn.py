"""AddOffsetsToTxn: API key 25, versions 0 to 4."""

from __future__ import annotations

from millstream.protocol.fields import int16, int32, int64, string
from millstream.protocol.message import Request, Response


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    """Request of AddOffsetsToTxn."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    """Response of AddOffsetsToTxn."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
