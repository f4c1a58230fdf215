"""Sorts the rows of a batch by the partitions of an Iceberg table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.spark.lakehouse.partitioning import PartitionField


def by_partition(
    batch: pa.RecordBatch, fields: Sequence[PartitionField]
) -> Iterator[tuple[Hashable, pa.RecordBatch]]:
    """Yield the rows of each partition with its values, in the order in which they came."""
    codes = np.zeros(len(batch), np.int64)
    columns = []
    for field in fields:
        encoded = pc.dictionary_encode(
            transformed(batch.column(field.column), field), null_encoding="encode"
        )
        columns.append(encoded)
        codes = codes * max(len(encoded.dictionary), 1) + encoded.indices.to_numpy()
        # Counted anew after each field, or many fields would overflow.
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(batch)], strict=True):
        first = int(order[start])
        values = tuple(
            column.dictionary[column.indices[first].as_py()].as_py() for column in columns
        )
        # Copied: a slice would keep the whole batch while its partition waits.
        yield values, batch if end - start == len(batch) else batch.take(pa.array(order[start:end]))


def transformed(values: pa.Array, field: PartitionField) -> pa.Array:
    """Return the partition values of a column; null of null."""
    if field.transform == "identity":
        # Times as numbers: Python has none of some of them.
        return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
    from pyiceberg_core import transform

    function: Callable[..., pa.Array] = getattr(transform, field.transform)
    return function(values) if field.count is None else function(values, field.count)
