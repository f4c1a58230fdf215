"""How an Iceberg table is split into partitions: transforms of columns. Pure.

Iceberg specification, "Partition Transforms": ``identity``, ``bucket``, ``truncate``, ``year``,
``month``, ``day``, ``hour``. A table that is split by the day of one column only is the subject of
``LoadSettings.event_time``, which every kind of table has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.model.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

TIMES: Final = ("year", "month", "day", "hour")
_COUNTED: Final = ("bucket", "truncate")
_CALL: Final = re.compile(r"(?P<name>[a-z]+)\s*\(\s*(?P<inside>[^()]*?)\s*\)")
_ICEBERG: Final = re.compile(r"(?P<name>[a-z]+)(?:\[(?P<count>\d+)\])?")
_MOST_COUNT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One transform of one column: ``bucket(16, user_id)``; ``identity`` is the column's name."""

    transform: str
    column: str
    count: int | None = None
    """The buckets of ``bucket``, the width of ``truncate``; None for others."""

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        count = "" if self.count is None else f"{self.count}, "
        return f"{self.transform}({count}{self.column})"

    @property
    def iceberg(self) -> str:
        """Return the transform as Iceberg writes it: ``bucket[16]``."""
        return self.transform if self.count is None else f"{self.transform}[{self.count}]"


def from_iceberg(transform: str, column: str) -> PartitionField:
    """Return a field of a table's partition spec; ``transform`` is Iceberg's text."""
    found = _ICEBERG.fullmatch(transform)
    if found is None:
        return PartitionField(transform, column)
    count = found["count"]
    return PartitionField(found["name"], column, None if count is None else int(count))


def parse_partition_by(text: str) -> tuple[PartitionField, ...]:
    """Read ``day(ts), bucket(16, user_id), region``; ConfigError says what is wrong."""
    fields = tuple(_field(part) for part in _parts(text))
    if len({(field.transform, field.column) for field in fields}) < len(fields):
        raise ConfigError(f"partition by {text!r}: a transform of a column stands there twice")
    times = [field.column for field in fields if field.transform in TIMES]
    if len(set(times)) < len(times):
        raise ConfigError(
            f"partition by {text!r}: one column has two of {', '.join(TIMES)}, and the finer one "
            "says what the other says"
        )
    return fields


def _parts(text: str) -> list[str]:
    """Split at the commas outside of parentheses."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", text)]


def _field(part: str) -> PartitionField:
    found = _CALL.fullmatch(part)
    if found is None:
        if not part or set(part) & set("()"):
            raise ConfigError(_wrong(part))
        return PartitionField("identity", part)
    name, inside = found["name"], found["inside"]
    if name in _COUNTED:
        count, comma, column = (each.strip() for each in inside.partition(","))
        if not comma or not column or not count.isdecimal() or not 0 < int(count) <= _MOST_COUNT:
            raise ConfigError(_wrong(part))
        return PartitionField(name, column, int(count))
    if name not in (*TIMES, "identity") or not inside or "," in inside:
        raise ConfigError(_wrong(part))
    return PartitionField(name, inside)


def _wrong(part: str) -> str:
    return (
        f"partition by {part!r}: each part is a column, or one of year(C), month(C), day(C), "
        "hour(C), bucket(N, C), truncate(N, C)"
    )


def check_partition_by(fields: Sequence[PartitionField], schema: pa.Schema) -> None:
    """Raise ConfigError unless the columns are there and of types that the transforms take."""
    for field in fields:
        if schema.get_field_index(field.column) < 0:
            raise ConfigError(
                f"partition by {field}: there is no column {field.column}; columns: "
                f"{', '.join(schema.names)}"
            )
        kind = schema.field(field.column).type
        if not _takes(field.transform, kind):
            raise ConfigError(f"partition by {field}: {field.transform} takes no column of {kind}")


def _takes(transform: str, kind: pa.DataType) -> bool:
    import pyarrow as pa

    is_time = bool(pa.types.is_timestamp(kind))
    is_date = bool(pa.types.is_date32(kind))
    if transform == "hour":
        return is_time
    if transform in TIMES:
        return is_time or is_date
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
    is_cut = bool(is_number or is_text or is_bytes)
    if transform == "truncate":
        return is_cut
    # Not fractions: NaN is no value, and -0.0 and 0.0 are two in some readers.
    is_whole = is_cut or is_time or is_date
    return is_whole or (transform == "identity" and kind == pa.bool_())
