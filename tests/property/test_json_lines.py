"""JSON read through the kernel's lines is what is read without the kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.records import kernel
from millstream.records.json_kernel import LINE, LineMaker
from millstream.records.kernel import Library
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.format import HEADERS, TIMESTAMP
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS

COLUMNS = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", TIMESTAMP),
        ("o", pa.struct([("i", pa.int64())])),
        ("l", pa.list_(pa.string())),
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from([2**53 + 1, 2**63, 10**30, 1.5, -0.25, 1e300]),
    st.sampled_from(["", "a", "2024-01-31T10:00:00Z", "2024-01-31", "ü\u2028", '"\\\n', "12"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("inos"), inner, max_size=2)
    ),
    max_leaves=3,
)
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(-9, 9),
        "x": st.sampled_from([0.5, 2, None]),
        "s": st.text(max_size=9),
        "t": st.just("2024-01-31T10:00:00Z"),
        "l": st.lists(st.text(max_size=2), max_size=2),
    },
)
OBJECTS = st.dictionaries(st.sampled_from([*COLUMNS.names, "N", "new", "_key"]), VALUES, max_size=3)
SPACES = st.sampled_from([(",", ":"), (" ,\n", "\r:\t"), (", ", ": ")])
TEXTS = st.tuples(FITTING | OBJECTS, SPACES, st.booleans()).map(
    lambda made: json.dumps(made[0], separators=made[1], ensure_ascii=made[2]).encode()
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


@st.composite
def damaged(draw: Any) -> bytes:
    text = bytearray(draw(TEXTS))
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(text)))
        text[place : place + draw(st.integers(0, 1))] = draw(
            st.sampled_from([b"", b"{", b"}", b"[", b'"', b"\\", b",", b"0", b"\xff", b"-", b"\n"])
        )
    return bytes(text)


def of(values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    columns: dict[str, Any] = {
        "key": [None] * count,
        "value": values,
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "timestampType": [0] * count,
        "headers": pa.nulls(count, HEADERS),
    }
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[each.name], each.type) for each in RAW_COLUMNS], schema=RAW_COLUMNS
    )


@pytest.mark.slow
@pytest.mark.parametrize("evolve", ["true", "false"])
@given(
    st.lists(FITTING.map(lambda made: json.dumps(made).encode()) | TEXTS | damaged() | st.none())
)
@example([b'{"N":[]}', b'{"N":{}}'])  # what has no kind yet takes no column's name
@example([b'{"N":[{"a":null}]}', b'{"N":{"a":[0]}}'])
@example([b'{"_key":1}', b'{"new":1}'])  # a name that is taken, beside one that is new
def test_both_ways_agree(evolve: str, values: list[bytes | None]) -> None:
    spec = FormatSpec(kind="json", columns=COLUMNS, options={"evolve": evolve})
    batch = of([None, *values]).slice(1)
    found = make_format(spec).decode(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_loaded", None)
        plain = make_format(spec).decode(batch)
    assert found.rows.to_pylist() == plain.rows.to_pylist()
    assert [each.row for each in found.rejected] == [each.row for each in plain.rejected]
    assert set(found.wider or ()) == set(plain.wider or ())
    if found.wider is None:  # else the driver has all of it read again
        assert list(found.rejected) == list(plain.rejected)


@given(damaged())
def test_a_line_is_an_object_for_python_too(value: bytes) -> None:
    library = kernel.library()
    assert library is not None
    lines = LineMaker(library, {}, most_deep=50).lines(pa.array([value]))
    try:
        is_object = isinstance(json.loads(value.decode()), dict)
    except ValueError:
        is_object = False
    if lines.states[0] == LINE:
        assert is_object
        assert json.loads(bytes(lines.text)) == json.loads(value)
        assert bytes(lines.text).count(b"\n") == 1
    elif is_object:
        assert b"Infinity" in value or b"NaN" in value or b"\\ud" in value.lower()
