"""csv: each value is one record of comma-separated values; the schema names its columns in order.

Options: ``delimiter`` (","), ``quote`` ('"'), ``null`` (the text that stands for null, ""). A value
with another number of fields than the schema has columns is rejected. Times: see ``times``.
"""

from __future__ import annotations

import csv
import re
from codecs import BOM_UTF8
from typing import Final

import pyarrow as pa
import pyarrow.csv as pcsv

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats.decimals import are_in_range
from millstream.spark.lakehouse.formats.format import (
    TIMESTAMP,
    Decoded,
    Fields,
    FormatSpec,
    add_metadata,
    decode_in_parts,
    decode_rows,
    spread,
    with_metadata,
)
from millstream.spark.lakehouse.formats.times import to_microseconds, to_times

_BOOLEANS: Final = frozenset({"true", "false"})
_BREAK: Final = re.compile(rb"[\r\n]")


class CsvFormat:
    """Values between delimiters."""

    def __init__(self, spec: FormatSpec) -> None:
        self._columns = spec.columns
        self._delimiter = spec.option("delimiter", ",")
        self._quote = spec.option("quote", '"')
        self._null = spec.option("null", "")
        for name, text in (("delimiter", self._delimiter), ("quote", self._quote)):
            if len(text) != 1:
                raise ConfigError(f"option {name} takes one character, not {text!r}")

    def table_schema(self) -> pa.Schema:
        """Return the columns of the fields and of the records' positions."""
        return with_metadata(self._columns)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Split every value."""
        return decode_in_parts(
            batch, self._decode_fast, lambda one: decode_rows(one, self._columns, self._read)
        )

    def _decode_fast(self, batch: pa.RecordBatch) -> Decoded | None:
        found = batch.column("value").to_pylist()
        values = [_one_line(value) for value in found if value is not None]
        if not values:
            nulls = [pa.nulls(len(found), column.type) for column in self._columns]
            return Decoded(add_metadata(nulls, self._columns, batch, None))
        # A line break would shift all following lines, and a quote that is not closed may hide it.
        if not all(values) or (len(values) > 1 and any(map(_BREAK.search, values))):
            return None
        if values[0].startswith(BOM_UTF8):  # which Arrow leaves out in front of the first one
            return None
        lines = b"\n".join(values)
        try:
            table = pcsv.read_csv(
                pa.py_buffer(lines),
                read_options=pcsv.ReadOptions(
                    column_names=self._columns.names, use_threads=False, block_size=len(lines) + 1
                ),
                parse_options=pcsv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char=self._quote,
                    ignore_empty_lines=False,
                    newlines_in_values=len(values) == 1,
                ),
                convert_options=pcsv.ConvertOptions(
                    column_types=_texts_for_times(self._columns),
                    null_values=[self._null],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(values):
            return None
        arrays = []
        for column in self._columns:
            array = table[column.name].combine_chunks()
            if pa.types.is_timestamp(column.type):
                array, bad = to_times(array, column.type)
                if bad:
                    return None
            if pa.types.is_decimal(column.type) and not are_in_range(array):
                return None
            arrays.append(array)
        arrays = spread(arrays, found)
        return Decoded(add_metadata(arrays, self._columns, batch, None))

    def _read(self, value: bytes) -> Fields:
        rows = list(
            csv.reader(
                [value.removeprefix(BOM_UTF8).decode()],
                delimiter=self._delimiter,
                quotechar=self._quote,
                strict=True,
            )
        )
        texts = rows[0] if rows else []
        if len(rows) > 1 or len(texts) != len(self._columns):
            raise ValueError(f"{len(texts)} fields, not {len(self._columns)}")
        return {
            column.name: None
            if text == self._null
            else text
            if pa.types.is_string(column.type)
            else to_microseconds(text, column.type)
            if pa.types.is_timestamp(column.type)
            else pa.scalar(text).cast(column.type).as_py()
            for column, text in zip(self._columns, texts, strict=True)
        }


def _texts_for_times(columns: pa.Schema) -> pa.Schema:
    return pa.schema(
        [e.with_type(pa.string()) if pa.types.is_timestamp(e.type) else e for e in columns]
    )


def infer(values: list[bytes], spec: FormatSpec) -> pa.Schema:
    """Return columns for sampled values; option ``header`` names them with commas in between.

    Without it they are called ``column_1``, ``column_2`` and so on. ConfigError without a value.
    """
    lines = [line for value in values if (line := _one_line(value)) and b"\n" not in line]
    if not lines:
        raise ConfigError("no schema can be inferred: the topic is empty; state one in a file")
    if spec.option("header", "").strip().lower() in _BOOLEANS:
        raise ConfigError(
            "option header: it takes the names of the columns, as header=id,name,amount; without "
            "it they are column_1, column_2 and so on, and no record is taken for a header line"
        )
    names = [name.strip() for name in spec.option("header", "").split(",") if name.strip()]
    table = pcsv.read_csv(
        pa.py_buffer(b"\n".join(lines) + b"\n"),
        read_options=pcsv.ReadOptions(
            column_names=names or None, autogenerate_column_names=not names
        ),
        parse_options=pcsv.ParseOptions(
            delimiter=spec.option("delimiter", ","),
            quote_char=spec.option("quote", '"'),
            invalid_row_handler=lambda row: "skip",
        ),
    )
    found = table.schema if names else table.rename_columns(_numbered(table.num_columns)).schema
    return pa.schema([field.with_type(_plain(field.type)) for field in found])


def _numbered(count: int) -> list[str]:
    return [f"column_{number}" for number in range(1, count + 1)]


def _one_line(value: bytes) -> bytes:
    """Return a value without the trailing end of line that some producers send, and without the
    mark of UTF-8 in front, as a file's first line has it.
    """
    return value.removeprefix(BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind) or pa.types.is_time(kind):  # Delta has no type for times of day
        return pa.string()
    return TIMESTAMP if pa.types.is_timestamp(kind) else kind
