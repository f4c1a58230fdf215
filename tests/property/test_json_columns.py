"""JSON that the kernel writes as columns is what Python reads; what it leaves is judged there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from millstream.records import kernel
from millstream.records.json_columns_kernel import JsonColumns, json_columns_library
from millstream.records.kernel import Library
from millstream.spark.lakehouse.formats.format import LOCAL_TIMESTAMP, TIMESTAMP

COLUMNS: Final = pa.schema(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("f", pa.float32()),
        ("d", pa.decimal128(9, 3)),
        ("m", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("o", pa.struct([("s", pa.string()), ("l", pa.list_(pa.float64()))])),
        ("l", pa.list_(pa.struct([("n", pa.int64())]))),
    ]
)
NAMES: Final = st.sampled_from([*COLUMNS.names, "unknown", "ü", "N"])
NUMBERS: Final = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(str),
    st.sampled_from(["0", "-0", "00", "1.", "-", "1e", "1e5", "1E-3", "2.50", "-0.0", "1e22"]),
    st.sampled_from(["9007199254740993", "123456789012345678", "1e23", "1e9999", "0.1", "1.5e+3"]),
    st.sampled_from(["0.30000000000000004", "1.7976931348623157e308", "4.35", "123456.789"]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
    st.decimals(-1000, 1000, places=3).map(str),
)
TEXTS: Final = st.one_of(
    st.text(max_size=12).map(json.dumps),
    st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(['"\\u00e9\\ud83d\\ude00\\/"', '"\\ud800"', '"\\x"', '"a\tb"', '"', '"\\"']),
)
SCALARS: Final = NUMBERS | TEXTS | st.sampled_from(["true", "false", "null", "nul", "truex", ""])
SPACE: Final = st.sampled_from(["", "", " ", "\n\t"])


@st.composite
def objects(draw: Any, values: st.SearchStrategy[str]) -> str:
    space = draw(SPACE)
    fields = draw(st.lists(st.tuples(NAMES, values), max_size=4))
    inside = f"{space},{space}".join(f'"{n}"{space}:{space}{each}' for n, each in fields)
    return f"{space}{{{space}{inside}{space}}}{space}"


@st.composite
def lists(draw: Any, values: st.SearchStrategy[str]) -> str:
    space = draw(SPACE)
    items = draw(st.lists(values, max_size=3))
    return f"[{space}{f'{space},{space}'.join(items)}{space}]"


VALUES: Final = st.recursive(SCALARS, lambda inner: objects(inner) | lists(inner), max_leaves=6)
SOUND: Final = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.integers(-(10**18) + 1, 10**18 - 1),
        "i": st.integers(-(2**31), 2**31 - 1),
        "x": st.none() | st.decimals(-(10**6), 10**6, places=4).map(float).map(lambda x: x or 0.5),
        "s": st.none() | st.text(max_size=20),
        "b": st.booleans(),
        "f": st.none() | st.floats(-1024, 1024, width=16).map(lambda x: x or 0.5),
        "d": st.none() | st.integers(-999_999, 999_999) | st.sampled_from(["0.125", "-7.5"]),
        "m": st.none() | st.dictionaries(st.text(max_size=3), st.none() | st.just([1]), max_size=3),
        "o": st.none() | st.fixed_dictionaries({"l": st.none() | st.just([0.5, None])}),
        "l": st.lists(st.none() | st.fixed_dictionaries({"n": st.integers(-9, 9)}), max_size=3),
    },
)


@pytest.fixture(scope="module", autouse=True)
def _library() -> Iterator[None]:
    """Use the kernel that the environment names (``native/sanitize.py``), or the installed one."""
    path = os.environ.get("MILLSTREAM_FUZZ_KERNEL")
    with pytest.MonkeyPatch.context() as patch:
        if path:
            patch.setattr(kernel, "_loaded", Library(Path(path)))
        elif kernel.library() is None:
            pytest.skip(kernel.describe())
        yield


def read(
    values: list[bytes | None], columns: pa.Schema, *, skip_unknown: bool = True
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the rows that the kernel read and the numbers of those that it left."""
    library = json_columns_library()
    assert library is not None
    found = JsonColumns(library, columns, skip_unknown=skip_unknown).read(pa.array(values))
    rows = pa.RecordBatch.from_arrays(found.arrays, schema=columns)
    rows.validate(full=True)
    return rows.to_pylist(), found.left.tolist()


def fitted(value: Any, kind: pa.DataType) -> Any:
    """Return what a column holds of a value of Python's own reader."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: fitted(value.get(each.name), each.type) for each in kind}
    if pa.types.is_list(kind):
        return [fitted(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return [(name, fitted(each, kind.item_type)) for name, each in value.items()]
    if pa.types.is_decimal(kind):
        exact = Decimal(value.text if isinstance(value, Written) else value)
        return exact.quantize(THOUSANDTH) + 0  # there is no -0
    if pa.types.is_float32(kind):
        return pa.scalar(float(value), kind).as_py()
    return float(value) if pa.types.is_floating(kind) else value


class Written(float):
    """A number that is not whole, and how it was written."""

    def __new__(cls, text: str) -> Written:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


ALL: Final = pa.struct(list(COLUMNS))
THOUSANDTH: Final = Decimal("0.001")


@given(st.lists(SOUND, max_size=5), st.booleans())
def test_sound_objects_are_all_read(objects: list[dict[str, Any]], escapes: bool) -> None:
    values: list[bytes | None] = [
        json.dumps(each, ensure_ascii=escapes).encode("utf-8", "surrogatepass") for each in objects
    ]
    rows, left = read([None, *values], COLUMNS, skip_unknown=False)
    assert left == []
    assert rows == [fitted({}, ALL), *(fitted(each, ALL) for each in objects)]


@pytest.mark.slow
@given(st.lists(objects(VALUES) | VALUES, max_size=6), st.booleans())
@example(['{"n":1,"n":2}', '{"n":1}}', '{"n":1', '{"n":1} x', '{"n":[}'], True)
@example(
    ["{" + '"unknown":' + "[" * 60 + "]" * 60 + "}", '{"unknown":' + "[" * 30 + "]" * 30 + "}"],
    True,
)
def test_what_is_read_is_what_python_reads(texts: list[str], skip_unknown: bool) -> None:
    values: list[bytes | None] = [each.encode("utf-8", "surrogatepass") for each in texts]
    rows, left = read(values, COLUMNS, skip_unknown=skip_unknown)
    assert len(rows) + len(left) == len(values)
    for row, number in zip(rows, sorted(set(range(len(values))).difference(left)), strict=True):
        found = json.loads(texts[number], parse_float=Written)
        assert isinstance(found, dict)
        assert skip_unknown or set(found) <= set(COLUMNS.names)
        assert str(row) == str(fitted(found, ALL))  # a double bit by bit


@pytest.mark.parametrize(
    "value",
    [
        b'{"s":"\xff"}',
        b'{"s":"\xed\xa0\x80"}',
        b'{"unknown":"\xc0\x80"}',
        b'{"\xff":1}',
        b"\xff",
        b"",
    ],
)
def test_bytes_that_are_no_text_are_left(value: bytes) -> None:
    assert read([value], COLUMNS) == ([], [0])


def written(digits: int, exponent: int, point: int, size: str) -> str:
    """Return a number with a point before the last digits, and with an exponent unless it is 0."""
    text = str(digits).rjust(point + 1, "0")
    text = f"{text[:-point]}.{text[-point:]}" if point else text
    return f"{text}{size}{exponent}" if exponent else text


@given(
    st.integers(1, 10**19 - 1) | st.floats(1e15, 2.0**63 - 1025).map(int),
    st.integers(-30, 30),
    st.integers(0, 25),
    st.sampled_from("eE"),
    st.booleans(),
)
@example(9007199254740993, 0, 1, "e", False)  # half way between two, the even one is below
@example(9007199254740995, 0, 1, "e", False)  # and above
@example(10**19 - 1, 27, 0, "e", False)
@example(10**19 - 1, -27, 0, "e", False)
@example(1, -27, 0, "e", False)
@example(2**63 + 1025, 1, 0, "e", False)
def test_doubles_of_up_to_nineteen_digits_are_rounded_once(
    digits: int, exponent: int, point: int, size: str, is_negative: bool
) -> None:
    text = "-" * is_negative + written(digits, exponent, point, size)
    rows, left = read([b'{"x":%s}' % text.encode()], X)
    if left:
        assert not -27 <= exponent - point <= 27 or (text.lstrip("-").isdigit() and digits > 2**53)
    else:
        assert rows == [{"x": float(text)}]


@given(st.integers(0, 22), st.integers(0), st.sampled_from([-1, 0, 1]))
def test_numbers_half_way_between_two_doubles_go_to_the_even_one(
    five: int, chosen: int, beside: int
) -> None:
    """Odd numbers of 54 bits, times a power of two: and those that are one below or above."""
    least = -(-(2**53) // 5**five)
    odd = (least + chosen % max(least // 2, 1)) | 1
    assume((odd * 5**five).bit_length() == 54)
    below = written(10 * odd + beside, five, 1, "e")
    assert read([b'{"x":%s}' % below.encode()], X) == ([{"x": float(below)}], [])
    above = written(100_000 * odd + beside, five, 5, "e") if five > 10 else below
    assert read([b'{"x":%s}' % above.encode()], X) == ([{"x": float(above)}], [])


@given(
    st.integers(1, 38).flatmap(
        lambda digits: st.tuples(
            st.just(digits), st.integers(0, digits), st.integers(-(10**digits) + 1, 10**digits - 1)
        )
    ),
    st.integers(0, 2),
    st.booleans(),
)
def test_decimals(kind: tuple[int, int, int], fewer: int, is_text: bool) -> None:
    """All of up to nineteen digits, and none that the column does not hold."""
    precision, scale, unscaled = kind
    point = max(scale - fewer, 0)
    text = "-" * (unscaled < 0) + written(abs(unscaled), 0, point, "e")
    schema = pa.schema([("d", pa.decimal128(precision, scale))])
    value = f'"{text}"' if is_text else text
    rows, left = read([b'{"d":%s}' % value.encode()], schema)
    has_room = abs(unscaled) * 10 ** (scale - point) < 10**precision
    assert bool(left) == (not has_room or abs(unscaled) >= 10**19)
    if not left:
        assert rows == [{"d": Decimal(text)}]


@pytest.mark.parametrize(
    "text",
    ["99999", "1000", "1.500", "1e2", "1.", ".5", "+1", "01", '"1', '"+1"', '"1 "', "1x", "true"],
)
def test_other_decimals_are_left_to_python(text: str) -> None:
    schema = pa.schema([("d", pa.decimal128(5, 2))])
    assert read([b'{"d":%s}' % text.encode()], schema) == ([], [0])


@pytest.mark.parametrize("text", ["16777217", "1e39", "1e-40", "1.0000000596046448", "-0", "1.5.5"])
def test_floats_that_may_be_rounded_twice_are_left_to_python(text: str) -> None:
    assert read([b'{"f":%s}' % text.encode()], COLUMNS) == ([], [0])


@given(st.dates(date(2, 1, 1), date(9998, 12, 31)))
def test_dates(day: date) -> None:
    schema = pa.schema([("d", pa.date32())])
    rows, left = read([b'{"d":"%s"}' % day.isoformat().encode(), b'{"d":1}'], schema)
    assert (rows, left) == ([{"d": day}], [1])


def test_maps_have_each_key_once() -> None:
    schema = pa.schema([("m", pa.map_(pa.string(), pa.map_(pa.string(), pa.float64())))])
    rows, left = read(
        [
            b'{"m":{"a":{"a":1},"b":null,"\\u00e9":{}}}',
            b'{"m":{"a":{"a":1,"a":2}}}',
            b'{"m":{"a":null,"\\u0061":null}}',
            b'{"m":[]}',
            b'{"m":{"a":{"a":1}}}',
            json.dumps({"m": {str(n): {"n": n} for n in range(200)}}).encode(),
            b'{"m":{"a":{"a":1},}}',
        ],
        schema,
    )
    assert left == [1, 2, 3, 6]
    assert rows == [
        {"m": [("a", [("a", 1.0)]), ("b", None), ("é", [])]},
        {"m": [("a", [("a", 1.0)])]},
        {"m": [(str(n), [("n", float(n))]) for n in range(200)]},
    ]


X: Final = pa.schema([("x", pa.float64())])
TIMES: Final = pa.schema([("t", TIMESTAMP), ("l", LOCAL_TIMESTAMP)])


@given(
    st.datetimes(datetime(2, 1, 2), datetime(9998, 12, 30)),
    st.none() | st.integers(-23 * 60, 23 * 60),
    st.sampled_from("T "),
)
def test_times(local: datetime, offset: int | None, between: str) -> None:
    zone = UTC if offset is None else timezone(timedelta(minutes=offset))
    instant = local.replace(tzinfo=zone)
    text = instant.isoformat(between)
    if offset is None:
        text = text.replace("+00:00", "Z")
    value = json.dumps({"t": text, "l": local.isoformat(between)}).encode()
    rows, left = read([value], TIMES)
    assert left == []
    assert rows == [{"t": instant.astimezone(UTC), "l": local}]


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:60:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00.1234567Z",
        "2024-01-01T00:00:00z",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00+02",
        "2024-01-01T00:00:00Zx",
        "2024-01-01",
        "0001-01-01T00:00:00+01:00",
        "2024-01-01T00:00:0\\u0030Z",
    ],
)
def test_other_times_are_left_to_python(text: str) -> None:
    assert read([b'{"t":"%s"}' % text.encode()], TIMES) == ([], [0])


def test_a_local_time_has_no_zone() -> None:
    assert read([b'{"l":"2024-01-01T00:00:00Z"}'], TIMES) == ([], [0])


def test_columns_grow() -> None:
    big = {"s": "ü" * 30_000, "l": [{"n": n} for n in range(500)]}
    values: list[bytes | None] = [json.dumps(big).encode(), b"{", b'{"s":"x"}'] * 3
    rows, left = read(values, COLUMNS)
    assert left == [1, 4, 7]
    assert rows == [fitted(big, ALL), fitted({"s": "x"}, ALL)] * 3
