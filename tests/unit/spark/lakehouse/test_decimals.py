"""Decimals of values that are text: exact in every format and way of reading, or rejected."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.records import kernel
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS

KIND: Final = pa.decimal128(5, 2)
SOUND: Final = {
    "1": "1.00",
    "-1.25": "-1.25",
    "999.99": "999.99",
    "1.500": "1.50",
    "15e-1": "1.50",
    "1e2": "100.00",
    "-0": "0.00",
}
WRONG: Final = ("99999", "1000", "-1000.00", "1.505", "0.001", "1e3", "1e999", "1e-30")
"""Of too many digits, some of them only with the zeros that the column's scale adds."""


def read(
    columns: Sequence[tuple[str, pa.DataType]], values: Sequence[bytes], **spec: str
) -> tuple[pa.RecordBatch, dict[int, str]]:
    given = {"value": values, "topic": ["t"] * len(values), "offset": range(len(values))}
    arrays = [
        pa.array(given[each.name], each.type)
        if each.name in given
        else pa.nulls(len(values), each.type)
        for each in RAW_COLUMNS
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=RAW_COLUMNS)
    found = make_format(FormatSpec(columns=pa.schema(columns), **spec)).decode(batch)  # type: ignore[arg-type]
    return found.rows, {each.row: each.reason for each in found.rejected}


def stored(rows: pa.RecordBatch) -> list[Decimal]:
    """Return what a file has: numbers beyond a column's precision were other ones there."""
    file = io.BytesIO()
    pq.write_table(pa.table({"d": rows.column("d")}), file)
    values: list[Decimal] = pq.read_table(file)["d"].to_pylist()
    return values


@pytest.fixture(params=[True, False], autouse=True)
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(kernel, "_loaded", None)


MORE: Final = pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="alone"),
        pytest.param({"t": pa.timestamp("us", "UTC")}, id="beside a time"),
        pytest.param({"m": pa.map_(pa.string(), pa.int64())}, id="beside a map"),
    ],
)
OTHERS: Final = '"t":"2024-01-31","m":{"a":1,"a":2}'
"""Values that only Python reads, and with them the whole record."""


@MORE
@pytest.mark.parametrize("is_text", [True, False])
def test_decimals_of_json_are_what_is_written(
    more: dict[str, pa.DataType], *, is_text: bool
) -> None:
    numbers = [*SOUND, *WRONG]
    given = [json.dumps(each) if is_text else each for each in numbers]
    values = [f'{{"d":{each},{OTHERS}}}'.encode() for each in given]
    columns = [("d", KIND), *more.items(), *(("n", pa.int64()) for _ in range(not more))]
    rows, rejected = read(columns, values, kind="json")
    expected = {n: f"column d: {text} is not a valid {KIND}" for n, text in enumerate(numbers)}
    assert rejected == {n: why for n, why in expected.items() if n >= len(SOUND)}
    assert stored(rows) == [Decimal(each) for each in SOUND.values()]


@pytest.mark.parametrize(
    "value", ["true", '"x"', '""', "[1]", "{}", '" 1"', '"1_0"', "NaN", '"\\u0661"']
)
def test_what_is_no_number_is_rejected(value: str) -> None:
    rows, rejected = read([("d", KIND)], [b'{"d":%s}' % value.encode(), b'{"d":1}'], kind="json")
    assert (list(rejected), stored(rows)) == ([0], [Decimal(1)])


def test_decimals_inside_of_others_are_looked_at() -> None:
    kind = pa.struct([("l", pa.list_(KIND))])
    values = [b'{"o":{"l":[1,%s]}}' % each for each in (b"999.99", b"99999", b"2.5", b"null")]
    rows, rejected = read([("o", kind)], values, kind="json")
    assert rejected == {1: f"column o: 99999 is not a valid {KIND}"}
    one = Decimal(1)
    assert [each["l"] for each in rows.column("o").to_pylist()] == [
        [one, Decimal("999.99")],
        [one, Decimal("2.5")],
        [one, None],
    ]


def test_decimals_of_csv_are_what_is_written() -> None:
    values = [f"{each},x".encode() for each in (*SOUND, *WRONG)]
    rows, rejected = read([("d", KIND), ("s", pa.string())], values, kind="csv")
    assert list(rejected) == list(range(len(SOUND), len(values)))
    assert stored(rows) == [Decimal(each) for each in SOUND.values()]
