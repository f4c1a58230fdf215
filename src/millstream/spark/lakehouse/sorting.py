"""The order of the rows in a table's files: ``user_id, ts desc``. Pure.

Nulls come last either way, and rows of equal columns keep the order of their offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.model.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_DIRECTIONS: Final = {"asc": False, "desc": True}


@dataclass(frozen=True, slots=True)
class SortField:
    """One column of an order."""

    column: str
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.column} desc" if self.descending else self.column


def parse_sort_by(text: str) -> tuple[SortField, ...]:
    """Read ``user_id, ts desc``; ConfigError says what is wrong."""
    fields = tuple(_field(part.split()) for part in text.split(","))
    if len({field.column for field in fields}) < len(fields):
        raise ConfigError(f"sort by {text!r}: a column stands there twice")
    return fields


def _field(words: Sequence[str]) -> SortField:
    direction = words[1].lower() if len(words) == 2 else "asc"
    if not 1 <= len(words) <= 2 or direction not in _DIRECTIONS:
        raise ConfigError(
            f"sort by {' '.join(words)!r}: each part is a column, with asc or desc behind it"
        )
    return SortField(words[0], _DIRECTIONS[direction])


def check_sort_by(fields: Sequence[SortField], schema: pa.Schema) -> None:
    """Raise ConfigError unless the columns are there and their values have one order."""
    import pyarrow as pa

    for field in fields:
        if schema.get_field_index(field.column) < 0:
            raise ConfigError(
                f"sort by {field}: there is no column {field.column}; columns: "
                f"{', '.join(schema.names)}"
            )
        kind = schema.field(field.column).type
        # Not fractions: readers do not agree on where NaN and -0.0 stand.
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise ConfigError(f"sort by {field}: rows are not sorted by a column of {kind}")


def in_order(rows: pa.Table, fields: Sequence[SortField]) -> pa.Table:
    """Return rows in an order; as they are without one. Columns that they lack are passed over."""
    import pyarrow.compute as pc

    from millstream.spark.lakehouse.gathering import take_rows

    keys = [
        (field.column, "descending" if field.descending else "ascending")
        for field in fields
        if field.column in rows.column_names
    ]
    if not keys:
        return rows
    return take_rows(rows, pc.sort_indices(rows, sort_keys=keys).to_numpy())
