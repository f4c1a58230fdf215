"""Batches of records that a test has as columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.records.arrow_encoder import DEFAULT_BATCH_BYTES, ArrowRows, encode_rows
from millstream.records.builder import BatchOptions
from millstream.records.column_decoder import Int64s


def encode_columns(
    *,
    timestamp_ms: Int64s,
    value: pa.Array,
    key: pa.Array | None = None,
    headers: pa.Array | None = None,
    options: BatchOptions | None = None,
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
) -> list[bytes]:
    """Return batches that hold the rows in their order; see `encode_rows`."""
    rows = ArrowRows(
        rows=len(timestamp_ms),
        key=key,
        value=value,
        headers=headers,
        timestamp=pa.array(np.asarray(timestamp_ms, np.int64)),
    )
    found = encode_rows(rows, options=options, batch_bytes=max_batch_bytes)
    return [bytes(batch.data) for batch in found]
