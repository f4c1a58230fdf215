"""JSON that the kernel writes as columns is what Python reads; what it leaves is judged there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import example, given
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
        ("o", pa.struct([("s", pa.string()), ("l", pa.list_(pa.float64()))])),
        ("l", pa.list_(pa.struct([("n", pa.int64())]))),
    ]
)
NAMES: Final = st.sampled_from([*COLUMNS.names, "unknown", "ü", "N"])
NUMBERS: Final = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(str),
    st.sampled_from(["0", "-0", "00", "1.", "-", "1e", "1e5", "1E-3", "2.50", "-0.0", "1e22"]),
    st.sampled_from(["9007199254740993", "123456789012345678", "1e23", "1e9999", "0.1", "1.5e+3"]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
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
    return float(value) if pa.types.is_floating(kind) else value


ALL: Final = pa.struct(list(COLUMNS))


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
        found = json.loads(texts[number])
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
