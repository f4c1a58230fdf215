"""FindCoordinator: API key 10, versions 0 to 6."""

from __future__ import annotations

from millstream.protocol.fields import array, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    """Request of FindCoordinator."""

    key: str = string("0-3", default="")
    key_type: int = int8("1+", default=0)
    coordinator_keys: list[str] = array(string(), "4+", factory=list)


class Coordinator(Struct):
    """One of ``FindCoordinatorResponse.coordinators``."""

    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    """Response of FindCoordinator."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("0-3", default=0)
    error_message: str | None = string("1-3", nullable="0+", default="", ignorable=True)
    node_id: int = int32("0-3", default=0)
    host: str = string("0-3", default="")
    port: int = int32("0-3", default=0)
    coordinators: list[Coordinator] = array(Coordinator, "4+", factory=list)
