"""The sort order of an Iceberg table (specification, "Sorting")."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortOrder
from pyiceberg.table.update.sorting import UpdateSortOrder
from pyiceberg.transforms import IdentityTransform

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.sorting import SortField
from millstream.spark.lakehouse.table import TableName


def order_of(schema: Schema, order: SortOrder) -> tuple[SortField, ...]:
    """Return the order of a table's rows, up to the first transform that another program has put
    there.
    """
    found = []
    for field in order.fields:
        column = schema.find_column_name(field.source_id)
        if column is None or not isinstance(field.transform, IdentityTransform):
            break
        found.append(SortField(column, field.direction == SortDirection.DESC))
    return tuple(found)


def add_order(update: UpdateSortOrder, fields: Sequence[SortField]) -> None:
    """Give a new table its order; nulls are last."""
    for field in fields:
        add = update.desc if field.descending else update.asc
        add(field.column, IdentityTransform())


def check_same_order(
    name: TableName, found: Sequence[SortField], wanted: Sequence[SortField]
) -> None:
    """Raise ConfigError unless a table has the order that a load names, if it names one."""
    if wanted and tuple(found) != tuple(wanted):
        raise ConfigError(
            f"{name} is there and is sorted by {', '.join(map(str, found)) or 'nothing'}, not by "
            f"{', '.join(map(str, wanted))}: a load without --sort-by keeps the table's order"
        )
