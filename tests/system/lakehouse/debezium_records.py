"""The records of a table's changes as Debezium writes them: envelopes in JSON, and in Avro with the
schemas in a registry.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

import fastavro
from tests.schema_registry import RegistryServer

from millstream.schemas.framing import frame

TIME_MS: Final = 1_700_000_000_000

Row = Mapping[str, Any]


class ChangeWriter(Protocol):
    """Encodes the changes of a table ``users``."""

    def key(self, number: int) -> bytes:
        """Return the key of a row's records."""

    def value(self, op: str, number: int, before: Row | None, after: Row | None) -> bytes:
        """Return the envelope of a change."""

    def change_schema(self) -> None:
        """Have the table a column city from here on, and fractions in balance."""


class JsonChanges:
    """Envelopes as Debezium's JsonConverter writes them without schemas."""

    def key(self, number: int) -> bytes:
        """See :class:`ChangeWriter`."""
        return b'{"id":%d}' % number

    def value(self, op: str, number: int, before: Row | None, after: Row | None) -> bytes:
        """See :class:`ChangeWriter`."""
        return (
            f'{{"before":{json.dumps(before)},"after":{json.dumps(after)},'
            f'"source":{json.dumps(_source(number))},"op":"{op}","ts_ms":{TIME_MS},'
            '"transaction":null}'
        ).encode()

    def change_schema(self) -> None:
        """See :class:`ChangeWriter`: each row has its names with it."""


class AvroChanges:
    """Envelopes and keys in Avro, framed with the ids under which a registry has their schemas."""

    def __init__(self, registry: RegistryServer, topic: str) -> None:
        self._registry = registry
        self._topic = topic
        self._key_id, self._key_schema = self._register("key", KEY)
        self._id, self._schema = self._register("value", envelope(OLD_ROW))

    def key(self, number: int) -> bytes:
        """See :class:`ChangeWriter`."""
        return _framed(self._key_id, self._key_schema, {"id": number})

    def value(self, op: str, number: int, before: Row | None, after: Row | None) -> bytes:
        """See :class:`ChangeWriter`."""
        change = {"before": before, "after": after, "source": _source(number), "op": op}
        return _framed(self._id, self._schema, {**change, "ts_ms": TIME_MS, "transaction": None})

    def change_schema(self) -> None:
        """See :class:`ChangeWriter`: the next version of the subject."""
        self._id, self._schema = self._register("value", envelope(NEW_ROW))

    def _register(self, part: str, schema: dict[str, Any]) -> tuple[int, Any]:
        number = self._registry.register(f"{self._topic}-{part}", schema)
        return number, fastavro.parse_schema(schema)


def _framed(number: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return frame(number, out.getvalue())


def _source(number: int) -> dict[str, Any]:
    return {
        "version": "3.0.0.Final",
        "connector": "postgresql",
        "name": "dbserver1",
        "ts_ms": TIME_MS,
        "snapshot": "false",
        "db": "shop",
        "schema": "public",
        "table": "users",
        "txId": number,
        "lsn": number * 0x9E3779B1 % (1 << 40),
    }


def _optional(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _named(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


SPACE: Final = "dbserver1.public.users"
KEY: Final = {
    "type": "record",
    "name": "Key",
    "namespace": SPACE,
    "fields": [_named("id", "long")],
}
OLD_ROW: Final = (
    _named("id", "long"),
    _optional("name", "string"),
    _optional("balance", "long"),
    _optional("is_active", "boolean"),
)
NEW_ROW: Final = (
    _named("id", "long"),
    _optional("name", "string"),
    _optional("balance", "double"),
    _optional("is_active", "boolean"),
    _optional("city", "string"),
)
_SOURCE: Final = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        *(_named(name, "string") for name in ("version", "connector", "name")),
        _named("ts_ms", "long"),
        _optional("snapshot", "string"),
        *(_named(name, "string") for name in ("db", "schema", "table")),
        _optional("txId", "long"),
        _optional("lsn", "long"),
    ],
}
_TRANSACTION: Final = {
    "type": "record",
    "name": "block",
    "namespace": "event",
    "fields": [
        _named("id", "string"),
        _named("total_order", "long"),
        _named("data_collection_order", "long"),
    ],
}


def envelope(row: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return the schema of the envelopes of rows with these fields."""
    value = {"type": "record", "name": "Value", "fields": list(row)}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": SPACE,
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            _named("source", _SOURCE),
            _named("op", "string"),
            _optional("ts_ms", "long"),
            {"name": "transaction", "type": ["null", _TRANSACTION], "default": None},
        ],
    }
