"""Records as text: one JSON object each, or a format string with kcat's tokens."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Final

from millstream.model.topic import TopicPartition
from millstream.records.record import Record

FORMAT_HELP: Final = (
    "Format with kcat's tokens: %t topic, %p partition, %o offset, %k key, %s value, %T timestamp, "
    "%h headers, %K and %S their lengths; \\n and \\t work."
)

DECODE_HELP: Final = (
    "Format of keys and values: key=FORMAT, value=FORMAT, or FORMAT for values. "
    "FORMAT is avro, protobuf "
    "or json of a schema registry; avro:FILE for a schema in a file; or kcat's "
    "letters for packed numbers, such as i or >q. May be repeated."
)

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(.)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+)", re.DOTALL)

Piece = Callable[[TopicPartition, Record], bytes]


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


_TOKENS: Final[dict[str, Piece]] = {
    "t": lambda topic_partition, record: topic_partition.topic.encode(),
    "p": lambda topic_partition, record: str(topic_partition.partition).encode(),
    "o": lambda topic_partition, record: str(record.offset).encode(),
    "k": lambda topic_partition, record: record.key or b"",
    "s": lambda topic_partition, record: record.value or b"",
    "T": lambda topic_partition, record: str(record.timestamp).encode(),
    "K": lambda topic_partition, record: _length(record.key),
    "S": lambda topic_partition, record: _length(record.value),
    "h": lambda topic_partition, record: b",".join(
        key.encode() + b"=" + (b"NULL" if value is None else value) for key, value in record.headers
    ),
    "%": lambda topic_partition, record: b"%",
}


def compile_format(text: str) -> Piece:
    """Return a function that prints a record; ValueError names a token that does not exist."""
    pieces: list[bytes | Piece] = []
    for match in _TOKEN.finditer(text):
        letter, escape, plain = match.groups()
        if plain is not None:
            pieces.append(plain.encode())
        elif escape is not None:
            named = _ESCAPES.get(escape, escape.encode())
            pieces.append(bytes([int(escape[1:], 16)]) if len(escape) == 3 else named)
        elif letter in _TOKENS:
            pieces.append(_TOKENS[letter])
        else:
            raise ValueError(f"%{letter} is not a format token")
    return lambda topic_partition, record: b"".join(
        piece if isinstance(piece, bytes) else piece(topic_partition, record) for piece in pieces
    )


def as_json(topic_partition: TopicPartition, record: Record) -> bytes:
    """Return a record as one line of JSON; bytes that are not UTF-8 stand under ``…_base64``."""
    fields: dict[str, object] = {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **payload_fields("key", record.key),
        **payload_fields("value", record.value),
    }
    if record.headers:
        fields["headers"] = [
            {"key": key, **payload_fields("value", value)} for key, value in record.headers
        ]
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def payload_fields(name: str, data: bytes | None) -> dict[str, object]:
    """Return ``{name: text}``, or ``{name_base64: …}`` for bytes that are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
