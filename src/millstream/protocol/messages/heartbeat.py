"""Heartbeat: API key 12, versions 0 to 4."""

from __future__ import annotations

from millstream.protocol.fields import int16, int32, string
from millstream.protocol.message import Request, Response


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    """Request of Heartbeat."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    """Response of Heartbeat."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
