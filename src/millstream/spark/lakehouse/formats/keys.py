"""The records' keys, decoded into the column ``_key`` of a decoded table.

Option ``key`` of every format but raw, named after Kafka's serializers: ``binary`` (as it is),
``string`` (UTF-8), ``short``, ``int``, ``long`` (big-endian, of 2, 4 and 8 bytes), ``float``,
``double``, ``uuid`` (a text); ``avro``, ``protobuf``, ``json`` are `framed_keys`. A record whose
key is no such value is rejected. A null stays null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats.format import Decoded, Format, Rejected

_KEY: Final = "_key"
_DECODERS: Final[Mapping[str, tuple[pa.DataType, Callable[[bytes], Any]]]] = {
    "string": (pa.string(), bytes.decode),
    "short": (pa.int16(), lambda key: struct.unpack(">h", key)[0]),
    "int": (pa.int32(), lambda key: struct.unpack(">i", key)[0]),
    "long": (pa.int64(), lambda key: struct.unpack(">q", key)[0]),
    "float": (pa.float32(), lambda key: struct.unpack(">f", key)[0]),
    "double": (pa.float64(), lambda key: struct.unpack(">d", key)[0]),
    "uuid": (pa.string(), lambda key: str(UUID(key.decode()))),
}
REGISTERED: Final = ("avro", "protobuf", "json")
"""Kinds of keys that name their schemas (`framed_keys`)."""
KINDS: Final = ("binary", *_DECODERS, *REGISTERED)


def check_kind(kind: str) -> None:
    """Raise ConfigError for a kind of key that there is not."""
    if kind not in KINDS:
        raise ConfigError(f"option key takes one of {', '.join(KINDS)}, not {kind!r}")


class KeyedFormat:
    """A format whose keys are decoded too."""

    def __init__(self, inner: Format, kind: str) -> None:
        self._inner = inner
        self._kind = kind
        self._type, self._read = _DECODERS[kind]

    def table_schema(self) -> pa.Schema:
        """Return the format's columns; ``_key`` has the type of the keys."""
        schema = self._inner.table_schema()
        return pa.schema([e.with_type(self._type) if e.name == _KEY else e for e in schema])

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode values and keys."""
        found = self._inner.decode(batch)
        gone = {each.row for each in found.rejected}
        kept = [row for row in range(len(batch)) if row not in gone]
        keys: list[Any] = []
        good: list[int] = []
        rejected = list(found.rejected)
        index = found.rows.schema.get_field_index(_KEY)
        for position, key in enumerate(found.rows.column(index).to_pylist()):
            try:
                keys.append(None if key is None else self._read(key))
            except (ValueError, struct.error):
                reason = f"the key is no {self._kind}: {key[:40]!r}"
                rejected.append(Rejected(kept[position], reason))
            else:
                good.append(position)
        rows = found.rows
        if len(good) < len(rows):
            rows = rows.take(pa.array(good, pa.int32()))
            rejected.sort(key=lambda each: each.row)
        rows = rows.set_column(index, pa.field(_KEY, self._type), pa.array(keys, self._type))
        return Decoded(rows, rejected, found.wider)
