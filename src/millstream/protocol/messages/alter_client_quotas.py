"""AlterClientQuotas: API key 49, versions 0 to 1."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, float64, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class EntityData(Struct):
    """One of ``EntryData.entity`` and of ``ResponseEntryData.entity``."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Struct):
    """One of ``EntryData.ops``."""

    key: str = string()
    value: float = float64()
    remove: bool = bool_()


class EntryData(Struct):
    """One of ``AlterClientQuotasRequest.entries``."""

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    """Request of AlterClientQuotas."""

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = bool_()


class ResponseEntryData(Struct):
    """One of ``AlterClientQuotasResponse.entries``."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    """Response of AlterClientQuotas."""

    throttle_time_ms: int = int32(default=0)
    entries: list[ResponseEntryData] = array(ResponseEntryData)
