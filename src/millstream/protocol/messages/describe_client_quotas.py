"""DescribeClientQuotas: API key 48, versions 0 to 1."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, float64, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ComponentData(Struct):
    """One of ``DescribeClientQuotasRequest.components``."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+"):
    """Request of DescribeClientQuotas."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = bool_()


class EntityData(Struct):
    """One of ``EntryData.entity``."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Struct):
    """One of ``EntryData.values``."""

    key: str = string()
    value: float = float64()


class EntryData(Struct):
    """One of ``DescribeClientQuotasResponse.entries``."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    """Response of DescribeClientQuotas."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
