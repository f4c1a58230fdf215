"""The values of a chaos run: as they are, or as the only field of an Avro or a Protobuf record."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Final

import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

FORMATS: Final = ("raw", "avro", "protobuf")
RAW_COLUMNS: Final = ("partition", "offset", "key", "value")
_DECODED_COLUMNS: Final = ("_partition", "_offset", "_key", "value")
_AVRO: Final = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "value", "type": ["null", "bytes"]}],
}
_AVRO_SCHEMA: Final = fastavro.parse_schema(_AVRO)
_LONG: Final = 0x80


def words(form: str, directory: Path) -> list[str]:
    """Return how a load is told to read the values; writes their definition."""
    if form == "raw":
        return []
    path = directory / f"definition.{form}"
    path.write_bytes(json.dumps(_AVRO).encode() if form == "avro" else _descriptor())
    told = ["--format", form, "--format-option", f"definition={path}"]
    return told if form == "avro" else [*told, "--format-option", "message=Event"]


def encoded(form: str, value: bytes) -> bytes:
    """Return a value, shorter than 128 bytes, as a record of the format."""
    if form == "raw":
        return value
    if form == "protobuf":
        assert len(value) < _LONG
        return bytes([1 << 3 | 2, len(value)]) + value
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _AVRO_SCHEMA, {"value": value})
    return out.getvalue()


def columns(form: str) -> tuple[str, ...]:
    """Return the columns of a table, in the order of ``RAW_COLUMNS``."""
    return RAW_COLUMNS if form == "raw" else _DECODED_COLUMNS


def as_raw(found: pa.Table, form: str) -> pa.Table:
    """Return the rows of a table under the names of raw ones."""
    return found.select(list(columns(form))).rename_columns(list(RAW_COLUMNS))


def _descriptor() -> bytes:
    files = FileDescriptorSet()
    file = files.file.add(name="event.proto", syntax="proto3")
    file.message_type.add(name="Event").field.add(
        name="value",
        number=1,
        type=FieldDescriptorProto.TYPE_BYTES,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )
    return files.SerializeToString()
