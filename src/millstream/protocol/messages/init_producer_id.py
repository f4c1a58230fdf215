"""InitProducerId: API key 22, versions 0 to 5."""

from __future__ import annotations

from millstream.protocol.fields import int16, int32, int64, string
from millstream.protocol.message import Request, Response


class InitProducerIdRequest(Request, key=22, versions="0-5", flexible="2+"):
    """Request of InitProducerId."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Response, key=22, versions="0-5", flexible="2+"):
    """Response of InitProducerId."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
