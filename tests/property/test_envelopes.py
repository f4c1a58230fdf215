"""Envelopes of Debezium read as columns are what is read record by record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.records import kernel
from millstream.spark.lakehouse.formats import FormatSpec
from millstream.spark.lakehouse.formats.changes import ChangeFormat
from millstream.spark.lakehouse.formats.debezium import UNAVAILABLE, Change
from millstream.spark.lakehouse.formats.format import HEADERS
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS

pytestmark = pytest.mark.skipif(kernel.library() is None, reason=kernel.describe())

COLUMNS = pa.schema(
    [
        *(("id", pa.int64()), ("k\xe4", pa.string()), ("x", pa.float64())),
        *(("schema", pa.string()), ("payload", pa.int64()), ("op", pa.string())),
    ]
)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from([1, 2, 3, 1, 2, None, "1", [1], 2.0]),
        "k\xe4": st.sampled_from(["a", "b", 'q"\\\n', "ü", None]),
        "x": st.sampled_from([0.5, 2, None, "{", UNAVAILABLE, {"id": 3}]),
        "schema": st.sampled_from(["public", None, {"type": "struct"}, {}, "{"]),
        "payload": st.sampled_from([1, 2, None, {"id": 1}, {"payload": 1}]),
        "op": st.sampled_from(["d", None]),
    },
)
GOOD_ROWS = st.fixed_dictionaries(
    {
        **{"id": st.integers(1, 3), "k\xe4": st.sampled_from("ab")},
        "x": st.sampled_from([0.5, 1.5]),
    },
    optional={
        **{"schema": st.sampled_from("ab"), "payload": st.integers(1, 3), "op": st.just("x")},
    },
)
ANY_ROW = st.one_of(GOOD_ROWS, GOOD_ROWS, ROWS, st.none(), st.sampled_from([1, "row", []]))
ENVELOPES = st.fixed_dictionaries(
    {"before": ANY_ROW, "after": ANY_ROW},
    optional={
        "op": st.sampled_from(["c", "u", "r", "d", "u", "d", "t", "m", 1, None]),
        "source": st.sampled_from([{"op": "d", "after": {}}, None]),
        "payload": ANY_ROW,
    },
)


def wrapped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    with_schema = inner.map(lambda value: {"schema": {"type": "struct"}, "payload": value})
    return st.one_of(inner, inner, with_schema)


SPACES = st.sampled_from([(",", ":"), (" ,\n", "\r:\t"), (", ", ": ")])


@st.composite
def texts(draw: Any, of: st.SearchStrategy[Any]) -> bytes:
    text = bytearray(
        json.dumps(draw(of), separators=draw(SPACES), ensure_ascii=draw(st.booleans())).encode()
    )
    if not draw(st.integers(0, 9)):
        place = draw(st.integers(0, len(text)))
        text[place : place + draw(st.integers(0, 1))] = draw(
            st.sampled_from([b"", b"{", b"}", b'"', b"\\", b",", b"\xff", b'"op":"d",', b"NaN"])
        )
    return bytes(text)


VALUES = st.one_of(
    st.none(), texts(wrapped(ENVELOPES)), texts(wrapped(ENVELOPES)), st.just(b'{"\\u006fp":"d"}')
)
KEYS = st.one_of(
    st.none(), texts(wrapped(ROWS)), texts(wrapped(GOOD_ROWS)), st.sampled_from([b"7", b"a", b""])
)


def of(pairs: Sequence[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    count = len(pairs)
    columns: dict[str, Any] = {
        "key": [key for key, _ in pairs],
        "value": [value for _, value in pairs],
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "timestampType": [0] * count,
        "headers": pa.nulls(count, HEADERS),
    }
    arrays = [pa.array(columns[each.name], each.type) for each in RAW_COLUMNS]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_COLUMNS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *(("debezium", ("id",)), ("debezium", ("id", "k\xe4")), ("json", ("k\xe4", "id"))),
        *(("debezium", ("schema", "payload")), ("json", ("payload", "id"))),
    ],
)
@given(pairs=st.lists(st.tuples(KEYS, VALUES), max_size=12))
def test_columns_say_what_records_say(
    kind: str, key: tuple[str, ...], pairs: list[tuple[bytes | None, bytes | None]]
) -> None:
    spec = FormatSpec(kind=kind, columns=COLUMNS, options={"evolve": "false"})
    by_columns, by_records = ChangeFormat(spec, key), ChangeFormat(spec, key)
    assert by_columns._columns is not None
    by_records._columns = None
    batch = of(pairs)
    found, expected = by_columns.decode(batch), by_records.decode(batch)
    assert found.rejected == expected.rejected
    assert found.rows.equals(expected.rows), (found.rows.to_pylist(), expected.rows.to_pylist())


def test_the_usual_records_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = FormatSpec(kind="debezium", columns=COLUMNS)
    form = ChangeFormat(spec, ("id",))

    def read(*given: bytes | None) -> Change:
        raise AssertionError(given)

    monkeypatch.setattr(form, "_read", read)
    row, other = b'{"id":1,"x":0.5}', b'{"id":1,"x":0.7}'
    value = b'{"before":%s,"after":%s,"op":"%s"}'
    pairs = [
        (b'{"id":1}', value % (b"null", row, b"c")),
        (b'{"id":1}', value % (row, other, b"u")),
        (b'{"id":1}', value % (other, b"null", b"d")),
        (b'{"id":1}', None),
        (b'{"schema":{},"payload":{"id":2}}', None),
        (b'{"id":1}', b'{"schema":{},"payload":%s}' % (value % (b"null", row, b"r"))),
        (b'{"id":3}', value % (b"null", b"null", b"d")),
    ]
    found = form.decode(of(pairs))
    assert not found.rejected
    assert found.rows["id"].to_pylist() == [1, 1, 1, 1, 2, 1, 3]
    assert found.rows["x"].to_pylist() == [0.5, 0.7, None, None, None, 0.5, None]
    assert found.rows["_change"].to_pylist() == [0, 0, 1, 1, 1, 0, 1]


DIGITS = b"12345678901234567890.123456789"
EXACT = Decimal(DIGITS.decode())
DECIMALS = pa.schema([("id", pa.int64()), ("amount", pa.decimal128(38, 9))])


def decoded(
    columns: pa.Schema, key: Sequence[str], *pairs: tuple[bytes | None, bytes | None]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows and reasons, the same by columns and record by record."""
    spec = FormatSpec(kind="debezium", columns=columns, options={"evolve": "false"})
    by_columns, by_records = ChangeFormat(spec, key), ChangeFormat(spec, key)
    by_records._columns = None
    found, expected = by_columns.decode(of(pairs)), by_records.decode(of(pairs))
    assert found.rows.equals(expected.rows)
    assert found.rejected == expected.rejected
    rows = found.rows.select([*columns.names, "_change"]).to_pylist()
    return rows, [each.reason for each in found.rejected]


def test_decimals_keep_their_digits() -> None:
    row = b'{"id":1,"amount":%s}' % DIGITS
    other = b'{"id":1 ,"amount":-%s}' % DIGITS
    value = b'{"before":%s,"after":%s,"op":"%s"}'
    wrapper = b'{"schema":null,"payload":%s,"n":1.5}'
    pairs = [
        (None, value % (b"null", row, b"c")),
        (None, wrapper % (value % (row, other, b"u"))),
        (None, b'{"op":"d",%s' % (value % (other, row, b"u"))[1:]),  # a name twice: read by itself
    ]
    rows, reasons = decoded(DECIMALS, ["id"], *pairs)
    assert not reasons
    assert [each["amount"] for each in rows] == [EXACT, EXACT.copy_negate(), EXACT]


def test_keys_that_are_decimals_keep_their_digits() -> None:
    value = b'{"before":%s,"after":%s,"op":"%s"}'
    row = b'{"id":1,"amount":%s}'
    near = DIGITS[:-1] + b"8"  # the same as a double
    pairs = [
        (None, value % (row % DIGITS, b"null", b"d")),
        (b'{"amount":%s}' % DIGITS, None),
        (DIGITS, None),
        (None, value % (row % DIGITS, row % near, b"u")),
        (None, value % (row % b"1.50", row % b"1.5", b"u")),
    ]
    rows, reasons = decoded(DECIMALS, ["amount"], *pairs)
    assert [each["amount"] for each in rows] == [EXACT, EXACT, EXACT, Decimal("1.5")]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "an update changed amount of the key"
    ]


WRAPPED = b'{"schema":{"type":"struct"},"payload":%s}'


@pytest.mark.parametrize(
    ("key", "record", "expected"),
    [
        (("payload", "id"), b'{"payload":5,"id":1}', (5, 1)),
        (("payload", "id"), WRAPPED % b'{"payload":5,"id":1}', (5, 1)),
        (("payload",), b'{"payload":5}', (5,)),
        (("payload",), WRAPPED % b"5", (5,)),
        (("schema", "payload"), b'{"schema":"public","payload":5}', ("public", 5)),
        (("schema", "payload"), WRAPPED % b'{"schema":"public","payload":5}', ("public", 5)),
        (("schema", "id"), b'{"schema":"public","id":1}', ("public", 1)),
        (("op", "payload"), WRAPPED % b'{"op":"x","payload":5}', ("x", 5)),
        (("id",), b'{"schema":null,"payload":{"id":1}}', (1,)),
        (("schema",), WRAPPED % b"7", ("7",)),
        (("schema",), b"7", ("7",)),
    ],
)
def test_key_columns_with_the_names_of_the_wrapper(
    key: tuple[str, ...], record: bytes, expected: tuple[Any, ...]
) -> None:
    rows, reasons = decoded(COLUMNS, key, (record, None))
    assert not reasons
    assert tuple(rows[0][name] for name in key) == expected


def test_an_op_that_is_no_text() -> None:
    _, reasons = decoded(DECIMALS, ["id"], (None, b'{"op":[1.5]}'), (None, b'{"op":1.5}'))
    assert reasons == ["op [1.5] changes no row", "op 1.5 changes no row"]
