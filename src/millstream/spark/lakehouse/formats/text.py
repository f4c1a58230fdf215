"""text: a line of text; with a regular expression its named groups become columns.

Options: ``pattern`` is an RE2 expression with groups ``(?P<name>…)``, or ``access_log`` for the
common and combined formats of web servers. Without one the table has a column ``text``. Types of
the columns are those of the schema: a group that is empty, or ``-``, is null unless it is a string;
one that does not fit its type rejects the row. Times: see ``times``.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats.format import (
    TIMESTAMP,
    Decoded,
    FormatSpec,
    Rejected,
    add_metadata,
    as_text,
    true_rows,
    with_metadata,
)
from millstream.spark.lakehouse.formats.times import to_times

ACCESS_LOG: Final = (
    r"^(?P<client>\S+) (?P<identity>\S+) (?P<user>\S+) \[(?P<time>[^\]]*)\] "
    r'"(?:(?P<method>[A-Z]+) (?P<path>(?:[^"\\ ]|\\.)*)(?: (?P<protocol>[^"\\ ]*))?'
    r'|(?:[^"\\]|\\.)*)" '
    r"(?P<status>\d{3}) (?P<bytes>\d+|-)"
    r'(?: "(?P<referrer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)")?'
)
ACCESS_LOG_COLUMNS: Final = pa.schema(
    [
        ("client", pa.string()),
        ("identity", pa.string()),
        ("user", pa.string()),
        ("time", TIMESTAMP),
        ("method", pa.string()),
        ("path", pa.string()),
        ("protocol", pa.string()),
        ("status", pa.int32()),
        ("bytes", pa.int64()),
        ("referrer", pa.string()),
        ("agent", pa.string()),
    ]
)
_MONTHS: Final = tuple("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split())  # noqa: SIM905 - a line instead of twelve
_SERVER_TIME: Final = (
    r"^(?P<day>\d\d)/(?P<month>[A-Z][a-z]{2})/(?P<year>\d{4}):(?P<time>\d\d:\d\d:\d\d) "
    r"(?P<zone>[+-]\d{4})$"
)


def default_columns(pattern: str | None) -> pa.Schema:
    """Return the columns of a pattern without a schema."""
    if pattern is None:
        return pa.schema([("text", pa.string())])
    if pattern == "access_log":
        return ACCESS_LOG_COLUMNS
    return pa.schema([(name, pa.string()) for name in _groups(pattern)])


def _groups(pattern: str) -> list[str]:
    names = re.findall(r"\(\?P<([A-Za-z_]\w*)>", pattern)
    if not names:
        raise ConfigError(f"option pattern has no named group (?P<name>…): {pattern}")
    return names


class TextFormat:
    """Decodes lines, whole or by a pattern."""

    def __init__(self, spec: FormatSpec) -> None:
        pattern = spec.options.get("pattern")
        self._pattern = ACCESS_LOG if pattern == "access_log" else pattern
        self._columns = spec.columns if len(spec.columns) else default_columns(pattern)
        if self._pattern is not None:
            self._check_pattern(self._pattern)

    def _check_pattern(self, pattern: str) -> None:
        groups = _groups(pattern)
        missing = [name for name in self._columns.names if name not in groups]
        if missing:
            raise ConfigError(f"option pattern has no group {', '.join(missing)}")
        try:
            pc.extract_regex(pa.array([""]), pattern)
        except pa.ArrowInvalid as error:
            raise ConfigError(f"option pattern is no RE2 expression ({error}): {pattern}") from None

    def table_schema(self) -> pa.Schema:
        """Return the columns of the groups and of the records' positions."""
        return with_metadata(self._columns)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Match every line."""
        texts, not_utf8 = as_text(batch.column("value"))
        reasons = dict.fromkeys(not_utf8, "the value is not UTF-8")
        if self._pattern is None:
            arrays = [texts]
        else:
            matched = pc.extract_regex(texts, self._pattern)
            unmatched = pc.and_(pc.is_null(matched), pc.is_valid(texts))
            for row in true_rows(unmatched):
                reasons.setdefault(row, "the line does not match the pattern")
            arrays = [
                _typed(_group(matched, column.name), column, reasons) for column in self._columns
            ]
        if not reasons:
            return Decoded(add_metadata(arrays, self._columns, batch, None))
        rows = pa.array([row for row in range(len(batch)) if row not in reasons], pa.int32())
        kept = [array.take(rows) for array in arrays]
        rejected = [Rejected(row, reasons[row]) for row in sorted(reasons)]
        return Decoded(add_metadata(kept, self._columns, batch, rows), rejected)


def _group(matched: pa.StructArray, name: str) -> pa.Array:
    return pc.struct_field(matched, name)


def _typed(texts: pa.Array, column: pa.Field, reasons: dict[int, str]) -> pa.Array:
    """Convert a group to its column's type; record the rows where that fails."""
    if pa.types.is_string(column.type):
        return texts
    empty = pc.is_in(texts, value_set=pa.array(["", "-"]))
    texts = pc.if_else(empty, pa.scalar(None, pa.string()), texts)
    if pa.types.is_timestamp(column.type):
        times, bad = to_times(iso_times(texts), column.type)
        for row in bad:
            reasons.setdefault(
                row, f"column {column.name}: {texts[row]} is not a valid {column.type}"
            )
        return times
    try:
        return texts.cast(column.type)
    except pa.ArrowInvalid:
        pass
    values: list[pa.Scalar] = []
    for row, text in enumerate(texts):
        try:
            values.append(text.cast(column.type))
        except pa.ArrowInvalid:
            reasons.setdefault(row, f"column {column.name}: {text} is not a valid {column.type}")
            values.append(pa.scalar(None, column.type))
    return pa.array([value.as_py() for value in values], column.type)


def iso_times(texts: pa.Array) -> pa.Array:
    """Return times of web servers (``17/May/2015:10:05:03 +0000``) in ISO 8601, others unchanged.

    >>> iso_times(pa.array(["17/May/2015:10:05:03 +0200"])).to_pylist()
    ['2015-05-17T10:05:03+0200']
    """
    parts = pc.extract_regex(texts, _SERVER_TIME)
    if parts.null_count == len(parts):
        return texts
    month = pc.index_in(pc.struct_field(parts, "month"), value_set=pa.array(_MONTHS))
    numbers = pa.array([f"{number:02}" for number in range(1, 13)])
    date = pc.binary_join_element_wise(
        pc.struct_field(parts, "year"),
        numbers.take(month),
        pc.struct_field(parts, "day"),
        "-",
    )
    time = pc.binary_join_element_wise(
        pc.struct_field(parts, "time"), pc.struct_field(parts, "zone"), ""
    )
    return pc.coalesce(pc.binary_join_element_wise(date, time, "T"), texts)
