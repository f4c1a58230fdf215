"""Keys and values that are not text, for `millstream consume -s`: Avro, Protobuf and JSON of a
schema registry, Avro by a schema file, and kcat's packed numbers.
"""

from __future__ import annotations

import base64
import json
import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from millstream.cli.arguments import UsageError
from millstream.cli.client_options import registry_settings
from millstream.cli.failures import CommandFailedError
from millstream.cli.record_text import Piece, payload_fields
from millstream.config.references import resolve
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicPartition
from millstream.records.record import Header, Record
from millstream.schemas.complete import CompleteSchema
from millstream.schemas.registry import open_registry, registry_place
from millstream.schemas.schema import SchemaType
from millstream.schemas.settings import read_registry_settings
from millstream.schemas.values import Definition, ValueDecoder, reader_of

_REGISTERED: Final[Mapping[str, SchemaType]] = {
    "avro": SchemaType.AVRO,
    "protobuf": SchemaType.PROTOBUF,
    "json": SchemaType.JSON,
}
_NEEDS: Final = {
    SchemaType.AVRO: ("fastavro",),
    SchemaType.PROTOBUF: ("google.protobuf", "grpc_tools"),
}
_AVRO_FILE: Final = "avro:"
_PACKED: Final = re.compile(r"[<>]?[bBhHiIqQc]+s?|[<>]?s")
_OPTION: Final = "-s"

Decode = Callable[[bytes, Sequence[Header]], Any]


def decoders_of(items: Sequence[str], url: str | None) -> dict[str, Decode]:
    """Return what reads ``key`` and ``value``, as far as ``-s`` says so.

    BadParameter and UsageError for a format that there is not, or a registry that is not named.
    """
    found: dict[str, Decode] = {}
    for item in items:
        part, equals, form = item.partition("=")
        if not equals:
            part, form = "value", item
        if part not in ("key", "value"):
            raise typer.BadParameter(
                f"{item!r} is not key=FORMAT or value=FORMAT", param_hint=_OPTION
            )
        found[part] = _decoder(form, url, is_key=part == "key")
    return found


def _decoder(form: str, url: str | None, *, is_key: bool) -> Decode:
    if form in _REGISTERED:
        return _registered(_REGISTERED[form], url, is_key=is_key)
    if form.startswith(_AVRO_FILE):
        return _of_file(Path(form.removeprefix(_AVRO_FILE)))
    if _PACKED.fullmatch(form):
        return _packed(form)
    raise typer.BadParameter(
        f"{form!r} is not one of {', '.join(_REGISTERED)}, avro:FILE and kcat's letters "
        f"(as i or >q)",
        param_hint=_OPTION,
    )


def _registered(kind: SchemaType, url: str | None, *, is_key: bool) -> Decode:
    for package in _NEEDS.get(kind, ()):
        import_module(package)  # what is missing is told before anything is read
    settings = read_registry_settings(resolve(registry_settings(url), os.environ))
    if settings is None:
        raise UsageError(f"-s {kind.value.lower()} needs --schema-registry URL, or avro:FILE")
    decoder = ValueDecoder(open_registry(registry_place(settings)), kind)
    return lambda data, headers: decoder.decode(data, headers, is_key=is_key)


def _of_file(path: Path) -> Decode:
    text = path.read_text(encoding="utf-8")
    schema = CompleteSchema(SchemaType.AVRO, text)
    read = reader_of(Definition(SchemaType.AVRO, text.encode(), schema))
    return lambda data, _: read(data)


def _packed(form: str) -> Decode:
    """Return a reader of numbers, big-endian unless it says otherwise; ``s`` is text that follows
    them, ``c`` a character.
    """
    order, letters = (form[0], form[1:]) if form[0] in "<>" else (">", form)
    ends_with_text = letters.endswith("s")
    numbers = struct.Struct(order + letters.removesuffix("s"))

    def read(data: bytes, _: Sequence[Header]) -> Any:
        if len(data) < numbers.size or (len(data) > numbers.size and not ends_with_text):
            raise ValueError(f"it has {len(data)} bytes, and {form} has {numbers.size}")
        values: list[Any] = list(numbers.unpack_from(data))
        if ends_with_text:
            values.append(data[numbers.size :])
        return values[0] if len(values) == 1 else values

    return read


def decoding(decoders: Mapping[str, Decode], render: Piece, *, as_json: bool) -> Piece:
    """Return what prints a record with its key and value decoded.

    CommandFailedError names the record that cannot be read.
    """

    def shown(topic_partition: TopicPartition, record: Record) -> bytes:
        parts = {"key": record.key, "value": record.value}
        found = {
            name: _decoded(decoders[name], data, name, topic_partition, record)
            for name, data in parts.items()
            if name in decoders and data is not None
        }
        if as_json:
            fields = json.loads(render(topic_partition, record._replace(key=None, value=None)))
            for name, data in parts.items():
                fields |= {name: found[name]} if name in found else payload_fields(name, data)
            for name in parts:
                if f"{name}_base64" in fields:
                    del fields[name]
            return _json(fields) + b"\n"
        key = _text(found["key"]) if "key" in found else record.key
        value = _text(found["value"]) if "value" in found else record.value
        return render(topic_partition, record._replace(key=key, value=value))

    return shown


def _decoded(
    decode: Decode, data: bytes, name: str, topic_partition: TopicPartition, record: Record
) -> Any:
    try:
        return decode(data, record.headers)
    except (ValueError, MillstreamError) as error:
        raise CommandFailedError(
            f"the {name} of offset {record.offset} in {topic_partition} cannot be read: {error} "
            f"(-p {topic_partition.partition} -o {record.offset + 1} continues after it)"
        ) from error


def _text(value: Any) -> bytes:
    """Return text as it is, and everything else as JSON."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _json(value)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=_plain).encode()


def _plain(value: object) -> object:
    """Return what JSON has for a value that it has not."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value)
