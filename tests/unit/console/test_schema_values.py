"""Keys and values that name their schema, and what is shown where it cannot be used."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pytest

from millstream.client.core.consumer.record import ConsumerRecord
from millstream.console.decoding import plain, shown
from millstream.console.schema_values import SchemaValues, as_json
from millstream.schemas.framing import KEY_HEADER, frame
from millstream.schemas.registry import SchemaRegistry, StaticSchemas
from millstream.schemas.schema import (
    Registered,
    RegistryAwayError,
    Schema,
    SchemaKey,
    SchemaType,
)

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
    ],
}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; message Line { string article = 1; } }'
GUID = UUID("2d6b0000-0000-0000-0000-000000000001")
SCHEMAS = StaticSchemas(
    by_key={
        7: Schema(SchemaType.AVRO, json.dumps(ORDER)),
        8: Schema(SchemaType.PROTOBUF, PROTO),
        9: Schema(SchemaType.JSON, '{"type": "object"}'),
        GUID: Schema(SchemaType.AVRO, '"string"'),
    }
)


def avro() -> bytes:
    out = io.BytesIO()
    value = {"id": 2**60, "at": datetime(2026, 1, 31, tzinfo=UTC), "raw": b"\xff"}
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), value)
    return out.getvalue()


def record(
    value: bytes | None, key: bytes | None = None, headers: Any = ()
) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(
        topic="orders",
        partition=0,
        offset=0,
        leader_epoch=0,
        timestamp=0,
        timestamp_type=0,
        key=key,
        value=value,
        headers=tuple(headers),
    )


def value_of(data: bytes, schemas: SchemaValues | None = None, decoder: str = "auto") -> Any:
    schemas = SchemaValues(SchemaRegistry(SCHEMAS)) if schemas is None else schemas
    return shown(record(data), decoder, schemas)["value"]


@pytest.mark.parametrize(
    ("data", "kind", "expected"),
    [
        (
            frame(7, avro()),
            "Avro",
            {"id": 2**60, "at": "2026-01-31T00:00:00+00:00", "raw": "/w=="},
        ),
        (frame(8, b"\x08\x2a", (0,)), "Protobuf", {"id": "42"}),
        (frame(8, b"\x0a\x01x", (0, 0)), "Protobuf", {"article": "x"}),
        (frame(9, b'{"a": [1.5]}'), "JSON Schema", {"a": [1.5]}),
    ],
    ids=["avro", "protobuf", "nested message", "json"],
)
def test_a_value_is_decoded_by_the_schema_that_it_names(
    data: bytes, kind: str, expected: object
) -> None:
    found = value_of(data)
    assert found == {
        "kind": kind,
        "size": len(data),
        "schema": str(data[4]),
        "json": expected,
    }


def test_a_key_may_name_its_schema_in_a_header() -> None:
    keyed = record(None, b"\x04ab", [(KEY_HEADER, b"\x01" + GUID.bytes)])
    found = shown(keyed, "auto", SchemaValues(SchemaRegistry(SCHEMAS)))
    assert (found["key"]["kind"], found["key"]["json"]) == ("Avro", "ab")
    assert found["value"] is None
    assert plain(found)["key"] == "ab"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(99, b"x"), "schema 99"),
        (frame(7, b"\x02"), "not of its Avro schema"),
        (frame(8, b"\xff", (0,)), "not of its Protobuf schema"),
        (frame(9, b"{"), "schema 9"),
    ],
    ids=["unknown", "avro", "protobuf", "json"],
)
def test_what_is_not_of_its_schema_is_shown_as_it_looks_with_the_reason(
    data: bytes, reason: str
) -> None:
    found = value_of(data)
    assert reason in found["error"]
    assert "text" in found


def test_what_names_no_schema_is_shown_as_it_looks() -> None:
    assert value_of(b'{"a": 1}') == {"kind": "json", "size": 8, "json": {"a": 1}}
    assert "names no schema" in value_of(b'{"a": 1}', decoder="schema")["error"]
    assert "error" not in value_of(b"\x00\x00\x00\x00\x07", decoder="hex")


@dataclass
class Away:
    """A registry that does not answer."""

    asked: list[SchemaKey] = field(default_factory=list)

    def schema(self, key: SchemaKey) -> Schema:
        self.asked.append(key)
        raise RegistryAwayError("nobody answers")

    def version(self, subject: str, version: int | None) -> Registered:
        raise AssertionError


def test_a_registry_that_does_not_answer_is_asked_once_for_a_page() -> None:
    now_s = [0.0]
    away = Away()
    schemas = SchemaValues(SchemaRegistry(away), lambda: now_s[0])
    found = [value_of(frame(number, b"x"), schemas)["error"] for number in range(3)]
    assert found == ["nobody answers"] * 3
    assert away.asked == [0]
    now_s[0] = 6.0
    value_of(frame(5, b"x"), schemas)
    assert away.asked == [0, 5]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1.50"), 1.5),
        (Decimal("0.12345678901234567890"), "0.12345678901234567890"),
        (Decimal("NaN"), "NaN"),
        (float("inf"), "inf"),
        (True, True),
        ({1: (b"\x00", GUID)}, {"1": ["AA==", str(GUID)]}),
    ],
)
def test_json_has_what_it_can_have_and_text_for_the_rest(value: Any, expected: Any) -> None:
    found = as_json(value)
    assert found == expected
    json.dumps(found, allow_nan=False)
