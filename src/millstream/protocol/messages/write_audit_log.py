"""WriteAuditLog: API key 10009, version 0. Between brokers of Millstream only.

A broker has records of its audit log appended to a partition of ``__audit_log``, which clients do
not write.
"""

from __future__ import annotations

from millstream.protocol.fields import bytes_, int16, int32, string
from millstream.protocol.message import Request, Response


class WriteAuditLogRequest(Request, key=10009, versions="0", flexible="0+"):
    """Request of WriteAuditLog. ``records`` is one batch."""

    partition_index: int = int32()
    timeout_ms: int = int32()
    records: bytes = bytes_()


class WriteAuditLogResponse(Response, key=10009, versions="0", flexible="0+"):
    """Response of WriteAuditLog; without an error the records are committed."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
