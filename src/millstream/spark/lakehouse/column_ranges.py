"""Keeps a column of large integers from becoming a column of doubles.

A double holds whole numbers up to 2^53. Where a column has larger ones, which identifiers often
are, one record with a fraction is no reason to round them all.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.spark.lakehouse.formats.format import MOST_EXACT
from millstream.spark.locations.location import Location


def without_rounding(
    known: pa.Schema, wanted: pa.Schema, files: Iterable[Location]
) -> tuple[pa.Schema, frozenset[str]]:
    """Return ``wanted`` with the types of ``known`` for columns whose values in files a double
    cannot represent, and the names of those columns.
    """
    paths = list(files)
    fixed = frozenset(
        field.name
        for field in known
        if pa.types.is_int64(field.type)
        and pa.types.is_floating(wanted.field(field.name).type)
        and any(_has_large(path, field.name) for path in paths)
    )
    columns = [known.field(f.name) if f.name in fixed else f for f in wanted]
    return pa.schema(columns), fixed


def _has_large(path: Location, column: str) -> bool:
    file = pq.ParquetFile(path.open_input())
    index = file.schema_arrow.get_field_index(column)
    if index < 0 or not pa.types.is_integer(file.schema_arrow.field(index).type):
        return False
    ends = pc.min_max(file.read(columns=[column])[column])
    return any(abs(ends[end].as_py() or 0) > MOST_EXACT for end in ("min", "max"))
