"""Requests and answers as plain dictionaries, on top of ``millstream.protocol``.

Fields carry Kafka's names in snake case. A field that is left out is zero, empty, or its default;
one that the version does not carry is dropped, so that one dictionary serves all versions. A uuid
is written as 32 hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.interop.differential.apis import api_key

from millstream.protocol.api import APIS, request_class
from millstream.protocol.codec import decode_response as decode_message
from millstream.protocol.codec import encode_request as encode_message
from millstream.protocol.schema import Field, Struct

_ZERO: Final[dict[str, object]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": bytes(16),
}


def encode_request(
    api: str,
    version: int,
    fields: Mapping[str, object],
    correlation_id: int,
    client_id: str | None,
) -> bytes:
    """Return a request without its frame size."""
    message = _struct(request_class(api_key(api)), version, fields)
    return encode_message(message, version, correlation_id, client_id).join()[4:]  # type: ignore[arg-type]


def decode_response(api: str, version: int, payload: bytes) -> dict[str, Any]:
    """Return the fields that ``version`` of the answer has."""
    _, message = decode_message(api_key(api), version, payload)
    return _fields(message, version)


def is_flexible(api: str, version: int) -> bool:
    """Whether the version has compact lengths and tagged fields."""
    return version >= APIS[api_key(api)].first_flexible


def _struct(cls: type[Struct], version: int, fields: Mapping[str, object]) -> Struct:
    unknown = set(fields) - {field.name for field in cls.FIELDS}
    assert not unknown, f"{cls.__name__} has no {unknown}"
    values = {
        field.name: _value(field, version, fields[field.name])
        if field.name in fields and field.in_version(version)
        else _absent(field)
        for field in cls.FIELDS
    }
    return cls(**values)


def _value(field: Field, version: int, value: object) -> object:
    if value is None:
        return None
    if isinstance(field.element, type) and isinstance(value, list):
        return [_struct(field.element, version, each) for each in value]
    if isinstance(field.element, type):
        assert isinstance(value, Mapping)
        return _struct(field.element, version, value)
    if isinstance(field.element, Field):
        assert isinstance(value, list)
        return [_value(field.element, version, each) for each in value]
    return bytes.fromhex(value) if field.kind == "uuid" and isinstance(value, str) else value


def _absent(field: Field) -> object:
    if not field.required:
        return field.default_value()
    return [] if field.kind == "array" else _ZERO.get(field.kind, 0)


def _fields(message: Struct, version: int) -> dict[str, Any]:
    return {
        field.name: _plain(field, version, getattr(message, field.name))
        for field in message.FIELDS
        if field.in_version(version)
    }


def _plain(field: Field, version: int, value: object) -> object:
    if isinstance(value, Struct):
        return _fields(value, version)
    if isinstance(value, list):
        if isinstance(field.element, Field):
            return [_plain(field.element, version, each) for each in value]
        return [_fields(each, version) for each in value]
    if isinstance(value, memoryview):
        return bytes(value)
    return value.hex() if field.kind == "uuid" and isinstance(value, bytes) else value
