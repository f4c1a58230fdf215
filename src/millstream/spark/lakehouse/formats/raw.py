"""raw: the unchanged record, under the source's own column names. No row is ever rejected."""

from __future__ import annotations

import pyarrow as pa

from millstream.spark.lakehouse.formats.format import HEADERS, TIMESTAMP, Decoded, FormatSpec

__all__ = ["HEADERS", "RAW_COLUMNS", "RawFormat"]

RAW_COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


class RawFormat:
    """Keeps keys and values as bytes."""

    def __init__(self, spec: FormatSpec) -> None:
        self._schema = RAW_COLUMNS

    def table_schema(self) -> pa.Schema:
        """Return the source's columns."""
        return self._schema

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Return the batch."""
        arrays = [batch.column(name) for name in self._schema.names]
        if not arrays[-1].type.equals(HEADERS):
            arrays[-1] = arrays[-1].cast(HEADERS)
        return Decoded(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
