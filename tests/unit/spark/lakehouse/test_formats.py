"""Every format: what it reads, what it rejects and why; no row is ever lost."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConfigError
from millstream.records import kernel
from millstream.spark.lakehouse.formats import (
    Decoded,
    Format,
    FormatSpec,
    avro,
    check_options,
    csv_lines,
    json_lines,
    json_values,
    make_format,
)
from millstream.spark.lakehouse.formats.format import METADATA, TIMESTAMP
from millstream.spark.lakehouse.formats.raw import HEADERS, RAW_COLUMNS

LINE = (
    b'1.2.3.4 - bob [17/May/2015:10:05:03 +0200] "GET /a%20b HTTP/1.1" 200 12 '
    b'"http://x/" "Agent \\"q\\""'
)


def source(values: Sequence[bytes | None]) -> pa.RecordBatch:
    rows = len(values)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"key"] * rows, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(["t"] * rows),
            pa.array([3] * rows, pa.int32()),
            pa.array(range(100, 100 + rows), pa.int64()),
            pa.array([1000] * rows, TIMESTAMP),
            pa.array([0] * rows, pa.int32()),
            pa.nulls(rows, HEADERS),
        ],
        schema=RAW_COLUMNS,
    )


def decode(form: Format, *values: bytes | None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    decoded = form.decode(source(values))
    return fields(decoded), {each.row: each.reason for each in decoded.rejected}


def fields(decoded: Decoded) -> list[dict[str, Any]]:
    names = [name for name in decoded.rows.schema.names if name not in METADATA.names]
    return list(decoded.rows.select(names).to_pylist())


def test_raw_is_the_record() -> None:
    batch = source([b"a", None])
    decoded = make_format(FormatSpec()).decode(batch)
    assert decoded.rows.equals(batch)


def test_every_row_knows_its_record() -> None:
    form = make_format(FormatSpec(kind="text"))
    (row,) = form.decode(source([b"line"])).rows.to_pylist()
    assert row == {
        "text": "line",
        "_topic": "t",
        "_partition": 3,
        "_offset": 100,
        "_timestamp": datetime.fromtimestamp(0.001, UTC),
        "_key": b"key",
        "_headers": None,
    }
    assert form.table_schema().names == ["text", *METADATA.names]


def test_headers_come_along() -> None:
    batch = source([b"a", b"b"])
    headers = pa.array([[{"key": "h", "value": b"1"}], None], HEADERS)
    batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", headers)
    rows = make_format(FormatSpec(kind="text")).decode(batch).rows
    assert rows.column("_headers").to_pylist() == [[{"key": "h", "value": b"1"}], None]


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("string", "Grüße".encode(), "Grüße"),
        ("short", b"\xff\xff", -1),
        ("int", b"\0\0\1\0", 256),
        ("long", b"\0" * 7 + b"\5", 5),
        ("double", b"\x3f\xf8" + b"\0" * 6, 1.5),
        ("uuid", str(uuid.UUID(int=5)).encode(), str(uuid.UUID(int=5))),
        ("binary", b"\xff", b"\xff"),
    ],
)
def test_keys_are_decoded(kind: str, key: bytes, value: object) -> None:
    form = make_format(
        FormatSpec(kind="json", columns=pa.schema([("n", pa.int64())]), options={"key": kind})
    )
    batch = source([b'{"n":1}', b"bad", b'{"n":2}', b'{"n":3}'])
    keys = pa.array([key, key, None, b"\xff" * 3], pa.binary())
    batch = batch.set_column(batch.schema.get_field_index("key"), "key", keys)
    found = form.decode(batch)
    assert found.rows.schema == form.table_schema()
    wrong = [] if kind == "binary" else [3]
    assert found.rows.column("_key").to_pylist()[:2] == [value, None]
    assert found.rows.column("n").to_pylist() == [1, 2, 3][: 3 - len(wrong)]
    assert [each.row for each in found.rejected] == [1, *wrong]


# --- times ---------------------------------------------------------------------------------------

NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
TIMES: list[tuple[str, datetime | None]] = [
    ("2024-01-31 12:00:00", NOON),
    ("2024-01-31T12:00:00", NOON),
    ("2024-01-31T12:00:00Z", NOON),
    ("2024-01-31T14:00:00+02:00", NOON),
    ("2024-01-31 14:00:00 +0200", NOON),
    ("2024-01-31 10:00-02", NOON),
    ("2024-01-31 12", NOON),
    ("2024-01-31 12:00:00.123456789", NOON.replace(microsecond=123456)),
    ("2024-01-31", NOON.replace(hour=0)),
    ("2024-13-31 12:00:00", None),
    ("1706702400", None),
    ("noon", None),
]


@pytest.mark.parametrize("kind", ["csv", "text", "json"])
@pytest.mark.parametrize(("text", "time"), TIMES)
def test_times_of_each_format(kind: str, text: str, time: datetime | None) -> None:
    """A time without a zone is in UTC; it is rejected alone if it is none."""
    columns = pa.schema([("t", TIMESTAMP), ("n", pa.int64())])
    options = {"pattern": r"(?P<t>.*),(?P<n>\d+)"} if kind == "text" else {}
    form = make_format(FormatSpec(kind=kind, columns=columns, options=options))
    line = '{"t":"%s","n":%d}' if kind == "json" else "%s,%d"
    values = [(line % (each, n)).encode() for n, each in enumerate(["2024-01-31 12:00:00", text])]
    rows, rejected = decode(form, *values)
    assert rows[0]["t"] == NOON
    assert [row["t"] for row in rows[1:]] == ([] if time is None else [time])
    assert list(rejected) == ([1] if time is None else [])


def test_inference_and_reading_agree_on_times() -> None:
    lines = [b"2024-01-31 10:00:00,1", b"2024-02-01 11:30:00,2"]
    spec = FormatSpec(kind="csv", options={"header": "t,n"})
    columns = csv_lines.infer(lines, spec)
    assert columns.field("t").type == TIMESTAMP
    form = make_format(FormatSpec(kind="csv", columns=columns, options=dict(spec.options)))
    rows, rejected = decode(form, *lines)
    assert not rejected
    assert rows[1]["t"] == datetime(2024, 2, 1, 11, 30, tzinfo=UTC)


@pytest.mark.parametrize("number", [1706695200, 1706695200000, 1706695200.5, True])
def test_numbers_are_no_times(number: object) -> None:
    """They became times in January 1970."""
    columns = pa.schema([("t", TIMESTAMP), ("s", pa.struct([("u", TIMESTAMP)]))])
    form = make_format(FormatSpec(kind="json", columns=columns))
    good = b'{"t":"2024-01-31T12:00:00Z","s":{"u":"2024-01-31 12:00:00"}}'
    for field in (b'{"t":%s}', b'{"s":{"u":%s}}'):
        rows, rejected = decode(form, good, field % json.dumps(number).encode())
        assert [row["t"] for row in rows] == [NOON]
        assert rows[0]["s"] == {"u": NOON}
        assert "is not a time, which is a text" in rejected[1]


def test_times_without_a_zone() -> None:
    columns = pa.schema([("t", pa.timestamp("us"))])
    form = make_format(FormatSpec(kind="csv", columns=columns))
    rows, rejected = decode(form, b"2024-01-31 12:00:00", b"2024-01-31 12:00:00Z")
    assert [row["t"] for row in rows] == [datetime(2024, 1, 31, 12)]
    assert list(rejected) == [1]


# --- text ----------------------------------------------------------------------------------------


def test_access_log_lines() -> None:
    form = make_format(FormatSpec(kind="text", options={"pattern": "access_log"}))
    short = b'1.2.3.4 - - [17/May/2015:10:05:03 +0000] "-" 408 -'
    rows, rejected = decode(form, LINE, short, None, b"no log line", b"\xff")
    assert rows[0] == {
        "client": "1.2.3.4",
        "identity": "-",
        "user": "bob",
        "time": datetime(2015, 5, 17, 8, 5, 3, tzinfo=UTC),
        "method": "GET",
        "path": "/a%20b",
        "protocol": "HTTP/1.1",
        "status": 200,
        "bytes": 12,
        "referrer": "http://x/",
        "agent": 'Agent \\"q\\"',
    }
    assert (rows[1]["status"], rows[1]["bytes"]) == (408, None)
    assert rows[2]["status"] is None
    assert rejected == {
        3: "the line does not match the pattern",
        4: "the value is not UTF-8",
    }


def test_a_group_that_does_not_fit_its_type() -> None:
    columns = pa.schema([("n", pa.int32()), ("t", TIMESTAMP)])
    pattern = r"(?P<n>\S+) (?P<t>\S+)"
    form = make_format(FormatSpec(kind="text", columns=columns, options={"pattern": pattern}))
    rows, rejected = decode(form, b"1 2020-01-01T00:00:00Z", b"x 2020-01-01T00:00:00Z", b"2 -")
    assert [row["n"] for row in rows] == [1, 2]
    assert rows[1]["t"] is None
    assert rejected == {1: "column n: x is not a valid int32"}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("no group", "no named group"), ("(?P<a>x", "no RE2"), (r"(?P<a>\d)(?=x)", "no RE2")],
)
def test_patterns_that_are_none(pattern: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_format(FormatSpec(kind="text", options={"pattern": pattern}))


# --- JSON ----------------------------------------------------------------------------------------

COLUMNS = pa.schema([("a", pa.int64()), ("t", TIMESTAMP), ("s", pa.string())])


def json_form(**options: str) -> Format:
    return make_format(FormatSpec(kind="json", columns=COLUMNS, options=options))


def test_objects() -> None:
    rows, rejected = decode(
        json_form(), b' {"a":1, "s":"x\\ny"}', None, b'{"t":"2020-01-01T00:00:00Z"}', b"{}"
    )
    assert rows == [
        {"a": 1, "t": None, "s": "x\ny"},
        {"a": None, "t": None, "s": None},
        {"a": None, "t": datetime(2020, 1, 1, tzinfo=UTC), "s": None},
        {"a": None, "t": None, "s": None},
    ]
    assert not rejected


@pytest.mark.parametrize(
    "bad",
    [b"", b"nope", b"[1]", b"3", b'{"a":1}{"a":2}', b'{"a":1', b'{"a":"x"}', b"\xff", b'{"t":"x"}'],
)
def test_what_is_no_such_object_is_rejected_alone(bad: bytes) -> None:
    rows, rejected = decode(json_form(), b'{"a":1}', bad, b'{"a":2}')
    assert [row["a"] for row in rows] == [1, 2]
    assert list(rejected) == [1]
    assert rejected[1]


def test_the_bad_ones_among_many() -> None:
    values = [b'{"a":%d}' % number for number in range(2000)]
    values[700] = values[1999] = b"bad"
    rows, rejected = decode(json_form(), *values)
    assert [row["a"] for row in rows] == [n for n in range(2000) if n not in (700, 1999)]
    assert sorted(rejected) == [700, 1999]


@pytest.mark.parametrize("beside", [b'{"a":2}', b"not read at once"])
def test_new_fields_and_wider_types_are_told(beside: bytes) -> None:
    decoded = json_form().decode(source([b'{"a":1.5,"new":{"x":[1]}}', beside]))
    assert decoded.wider is not None
    assert decoded.wider.field("a").type == pa.float64()
    assert decoded.wider.field("new").type == pa.struct([("x", pa.list_(pa.int64()))])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int64(), b"%d%s"),
        (pa.list_(pa.int64()), b"[1,%d%s]"),
        (pa.struct([("x", pa.int64())]), b'{"x":%d%s}'),
    ],
)
def test_many_numbers_that_need_a_wider_column_are_read_together(
    kind: pa.DataType, value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was read by itself: minutes for a batch that is read again anyway."""
    singles: list[bytes] = []
    read = json_values.read_object

    def counted(value: bytes) -> Any:
        singles.append(value)
        return read(value)

    monkeypatch.setattr(json_lines, "read_object", counted)
    form = make_format(
        FormatSpec(kind="json", columns=pa.schema([("id", pa.int64()), ("n", kind)]))
    )
    large = 2**60 + 1
    values = [
        b'{"id":%d,"n":%s}' % (large + n, value % (n, b".5" if n % 3 else b"")) for n in range(3000)
    ]
    decoded = form.decode(source([*values, b"bad"]))
    assert len(singles) <= 4
    assert decoded.wider is not None
    assert decoded.wider.field("id").type == pa.int64()
    assert "double" in str(decoded.wider.field("n").type)
    assert decoded.rows.column("id").to_pylist() == [large + n for n in range(0, 3000, 3)]
    assert [e.row for e in decoded.rejected] == [n for n in range(3001) if n % 3 or n == 3000]
    wide = make_format(FormatSpec(kind="json", columns=decoded.wider)).decode(source(values))
    assert (wide.rows.num_rows, wide.wider) == (3000, None)


def test_without_evolution_they_are_not() -> None:
    decoded = json_form(evolve="false").decode(source([b'{"a":1,"new":1}', b'{"a":1.5}']))
    assert decoded.wider is None
    assert [each.row for each in decoded.rejected] == [1]


def test_text_in_a_number_does_not_make_the_column_text() -> None:
    decoded = json_form().decode(source([b'{"a":"x"}', b'{"a":1}']))
    assert decoded.wider is None
    assert [each.row for each in decoded.rejected] == [0]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), st.just(b'{"a":1}')), max_size=12))
def test_every_row_is_read_or_rejected(values: list[bytes | None]) -> None:
    decoded = json_form().decode(source(values))
    kept = [offset - 100 for offset in decoded.rows.column("_offset").to_pylist()]
    assert sorted(kept + [each.row for each in decoded.rejected]) == list(range(len(values)))


def test_inference() -> None:
    seen = json_values.infer(
        [
            b'{"a":1,"n":null,"d":"2020-01-01T00:00:00Z"}',
            b'{"a":1.5,"l":[],"o":{},"p":{"q":null},"r":[{"s":null,"t":1}]}',
        ]
    )
    assert {field.name: str(field.type) for field in seen} == {
        "a": "double",
        "d": "timestamp[us, tz=UTC]",
        "r": "list<item: struct<t: int64>>",
    }


def test_what_was_null_so_far_has_no_column_yet() -> None:
    """A column of text would reject the numbers that come later."""
    form = json_form()
    nothing = form.decode(source([b'{"a":1,"new":null,"list":[],"object":{"x":null}}']))
    assert nothing.wider is None
    assert nothing.rows.num_rows == 1
    something = form.decode(source([b'{"new":null}', b'{"new":5}']))
    assert something.wider is not None
    assert something.wider.field("new").type == pa.int64()


@pytest.mark.parametrize(
    "bad", [b'{"s":"\xff\xfe"}', b'{"\xff":1}', b'{"d":' + b"[" * 5000 + b"]" * 5000 + b"}"]
)
def test_text_that_is_none(bad: bytes) -> None:
    """Arrow's reader takes bytes that are not UTF-8 for text, and readers of the table fail."""
    rows, rejected = decode(json_form(), b'{"a":1}', bad)
    assert [row["a"] for row in rows] == [1]
    assert list(rejected) == [1]


def test_brackets_without_end_take_no_time() -> None:
    """Arrow's reader would need hours for these 200 KB."""
    deep = b'{"d":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert list(decode(json_form(), b'{"a":1}', deep)[1]) == [1]
    flat = b'{"a":1,"s":"' + b"[" * 1000 + b'"}'
    assert [row["a"] for row in decode(json_form(), flat)[0]] == [1]


@pytest.mark.parametrize("depth", [51, 900])
def test_types_are_not_inferred_of_what_is_nested_too_deep(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's reader takes a fifth of a second for 2 KB of brackets."""

    def infer(values: list[bytes | None]) -> pa.Schema:
        raise AssertionError(f"asked for {values}")

    monkeypatch.setattr(json_lines, "infer", infer)
    deep = b'{"d":' + b"[" * depth + b"1" + b"]" * depth + b"}"
    assert decode(json_form(), deep) == ([], {0: "nested more than 50 deep"})


def test_json_records_do_not_continue_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kernel, which looks at each by itself: a list that stays open takes in the object
    behind it, which ends it and begins a row with the number of its own.
    """
    monkeypatch.setattr(kernel, "_loaded", None)
    for name in ("\u2329row\u232a", "\\u2329row\\u232a"):
        values = (b'{"x":[{},', f'{{"a":1}}]}}\n{{"{name}":1,"a":9}}'.encode())
        for evolve in ("true", "false"):
            rows, rejected = decode(json_form(evolve=evolve), *values)
            assert rows == []
            assert list(rejected) == [0, 1]


@pytest.mark.parametrize("has_kernel", [True, False])
@pytest.mark.parametrize("space", [b"\v", b"\f", b"\r\v", b"\xc2\xa0"])
def test_what_python_alone_takes_for_space_is_none_in_json(
    space: bytes, has_kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_kernel:
        monkeypatch.setattr(kernel, "_loaded", None)
    values = (space + b'{"a":1}', b"{" + space + b'"a":1}', b'{"a":1}' + space, b' {\r\n"a":1}\t')
    rows, rejected = decode(json_form(), *values)
    assert [row["a"] for row in rows] == [1]
    assert list(rejected) == [0, 1, 2]


@pytest.mark.parametrize("name", ["_key", "A", "_Offset", "date"])
def test_a_field_whose_name_is_taken(name: str) -> None:
    spec = FormatSpec(kind="json", columns=COLUMNS, reserved=frozenset(["date"]))
    values = [b'{"a":1}', b'{"a":2,"%s":3}' % name.encode()]
    decoded = make_format(spec).decode(source(values))
    assert decoded.wider is None
    assert [each.row for each in decoded.rejected] == [1]
    assert name in decoded.rejected[0].reason
    ignoring = make_format(FormatSpec(kind="json", columns=COLUMNS, options={"evolve": "false"}))
    assert ignoring.decode(source(values)).rows.num_rows == 2


def test_new_fields_that_differ_in_case_alone() -> None:
    decoded = json_form().decode(source([b'{"new":1,"NEW":2}', b'{"New":3}']))
    assert decoded.wider is not None
    assert decoded.wider.names == [*COLUMNS.names, "new"]


def test_numbers_that_would_be_cut_off_or_rounded() -> None:
    columns = pa.schema(
        [("n", pa.float64()), ("l", pa.list_(pa.int64())), ("o", pa.struct([("x", pa.int64())]))]
    )
    form = make_format(FormatSpec(kind="json", columns=columns, options={"evolve": "false"}))
    large = 2**60 + 1
    rows, rejected = decode(
        form,
        b'{"n":1.5}',
        b'{"n":%d}' % large,
        b'{"l":[1,2.5]}',
        b'{"o":{"x":1.5}}',
        b'{"n":1e300}',
    )
    assert [row["n"] for row in rows] == [1.5, 1e300]
    assert list(rejected) == [1, 2, 3]


def test_a_date_that_somebody_chose_stays_one() -> None:
    form = make_format(FormatSpec(kind="json", columns=pa.schema([("d", pa.date32())])))
    decoded = form.decode(source([b'{"d":"2024-01-01"}']))
    assert decoded.wider is None
    assert decoded.rows.column("d").to_pylist() == [date(2024, 1, 1)]


def test_options_of_a_format() -> None:
    check_options("csv", {"delimiter": ";"})
    with pytest.raises(ConfigError, match="no option delimeter; options: delimiter, quote"):
        check_options("csv", {"delimeter": ";"})
    with pytest.raises(ConfigError, match="evolve takes true or false"):
        check_options("json", {"evolve": "no"})


# --- CSV -----------------------------------------------------------------------------------------


def test_csv() -> None:
    columns = pa.schema([("n", pa.int64()), ("s", pa.string())])
    form = make_format(FormatSpec(kind="csv", columns=columns))
    rows, rejected = decode(form, b"1,x", b",y")
    assert rows == [{"n": 1, "s": "x"}, {"n": None, "s": "y"}]
    assert not rejected
    rows, rejected = decode(form, b'2,"a,\nb"', b"z,1", b"1", b"", b"3,c")
    assert rows == [{"n": 2, "s": "a,\nb"}, {"n": 3, "s": "c"}]
    assert sorted(rejected) == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "column", "value", "bad"),
    [
        ("csv", pa.int64(), b" 1,x", b"1,2,3"),
        ("csv", pa.float64(), b"1.5 ,x", b"y,x"),
        ("csv", pa.string(), b"y" * 200_000 + b",x", b"1"),
        ("csv", pa.string(), b'"' + b"y\n" * 100_000 + b'",x', None),
        ("json", TIMESTAMP, b'{"a":"2020-01-01","b":"x"}', b"bad"),
        ("json", TIMESTAMP, b'{"a":"2020-01-01T10:00:00","b":"x"}', b'{"a":[1]}'),
        ("json", TIMESTAMP, b'{"a":"2020-01-01 10:00:00.5","b":"x"}', b'{"b":"\xff"}'),
    ],
)
def test_a_bad_value_does_not_spoil_the_one_beside_it(
    kind: str, column: pa.DataType, value: bytes, bad: bytes | None
) -> None:
    columns = pa.schema([("a", column), ("b", pa.string())])
    form = make_format(FormatSpec(kind=kind, columns=columns))
    alone, rejected = decode(form, value)
    assert (len(alone), rejected) == (1, {})
    rows, rejected = decode(form, value, bad, value)
    assert [rows[0], rows[-1]] == alone * 2
    assert list(rejected) == ([] if bad is None else [1])


def test_csv_records_do_not_take_the_place_of_each_other() -> None:
    """One in which a quote stays open takes those behind it in, and one with carriage returns fills
    their places: the count of rows alone tells nothing.
    """
    columns = pa.schema([(name, pa.string()) for name in "abc"])
    form = make_format(FormatSpec(kind="csv", columns=columns))
    values = (b'1,2,"x', b"5,6,7", b'y"', b"a,b,c\rd,e,f\rg,h,i", b'8,9,"\r"')
    rows, rejected = decode(form, *values)
    assert [tuple(row.values()) for row in rows] == [("1", "2", "x"), *map(tuple, ["567", "89\r"])]
    assert list(rejected) == [2, 3]


@pytest.mark.parametrize("marks", [0, 1, 2, 3])
def test_a_csv_record_is_the_same_wherever_it_stands(marks: int) -> None:
    columns = pa.schema([("a", pa.string()), ("n", pa.int64())])
    form = make_format(FormatSpec(kind="csv", columns=columns))
    marked = b"\xef\xbb\xbf" * marks + b"a,1"
    alone, _ = decode(form, marked)
    rows, rejected = decode(form, marked, b"x,2", marked)
    assert rows == [*alone, {"a": "x", "n": 2}, *alone]
    assert not rejected
    assert alone == [{"a": "\ufeff" * (marks - 1) + "a", "n": 1}]


@pytest.mark.parametrize("header", ["true", "False"])
def test_a_csv_header_that_spark_would_take_is_refused(header: str) -> None:
    with pytest.raises(ConfigError, match="the names of the columns, as header=id,name,amount"):
        csv_lines.infer([b"id,name", b"1,x"], FormatSpec(kind="csv", options={"header": header}))


def test_csv_inference() -> None:
    spec = FormatSpec(kind="csv", options={"header": "when,what", "delimiter": ";"})
    seen = csv_lines.infer([b"2020-01-01T00:00:00;1", b"2020-01-01T00:00:01;2.5"], spec)
    assert {field.name: str(field.type) for field in seen} == {
        "when": "timestamp[us, tz=UTC]",
        "what": "double",
    }
    assert csv_lines.infer([b"1,x"], FormatSpec(kind="csv")).names == ["column_1", "column_2"]
    lines = csv_lines.infer([b"12:30:00,x\r\n", b"12:31:00,y\n"], FormatSpec(kind="csv"))
    assert lines.types == [pa.string(), pa.string()]
    rows, rejected = decode(make_format(FormatSpec(kind="csv", columns=lines)), b"12:30:00,x\r\n")
    assert rows == [{"column_1": "12:30:00", "column_2": "x"}]
    assert not rejected


# --- Avro and Protobuf ---------------------------------------------------------------------------

UUID_TYPE = {"type": "string", "logicalType": "uuid"}
LOCAL_TIME = {"type": "long", "logicalType": "local-timestamp-millis"}
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {
            "name": "o",
            "type": [
                "null",
                {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]},
            ],
        },
    ],
}


def datum(number: int) -> bytes:
    out = io.BytesIO()
    value = {"a": number, "t": datetime(2020, 1, 1, tzinfo=UTC), "m": {"k": 1}, "o": None}
    fastavro.schemaless_writer(out, AVRO, value)
    return out.getvalue()


def test_avro() -> None:
    definition = json.dumps(AVRO).encode()
    form = make_format(FormatSpec(kind="avro", definition=definition))
    rows, rejected = decode(form, datum(7), b"", datum(8) + b"x")
    assert rows == [{"a": 7, "t": datetime(2020, 1, 1, tzinfo=UTC), "m": [("k", 1)], "o": None}]
    assert sorted(rejected) == [1, 2]
    framed = FormatSpec(
        kind="avro",
        definition=definition,
        options={"framing": "confluent"},
        writers={5: definition},
    )
    rows, rejected = decode(make_format(framed), b"\x00\x00\x00\x00\x05" + datum(9), datum(9))
    assert [row["a"] for row in rows] == [9]
    assert list(rejected) == [1]


def test_the_writers_schema_is_that_of_the_id(tmp_path: Path) -> None:
    """Two schemas of the same types in another order: the wrong one swaps the values."""

    def schema(*names: str) -> bytes:
        fields = [{"name": name, "type": "string"} for name in names]
        return json.dumps({"type": "record", "name": "R", "fields": fields}).encode()

    def framed(number: int, definition: bytes, **value: str) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(definition)), value)
        return b"\0" + number.to_bytes(4, "big") + out.getvalue()

    old, new = schema("last", "first"), schema("first", "last")
    (tmp_path / "old.avsc").write_bytes(old)
    writers = avro.read_writers(f"7, 5={tmp_path}/old.avsc", new)
    options = {"framing": "confluent"}
    form = make_format(FormatSpec(kind="avro", definition=new, options=options, writers=writers))
    ann = {"first": "Ann", "last": "Lee"}
    rows, rejected = decode(
        form, framed(7, new, **ann), framed(5, old, **ann), framed(6, old, **ann)
    )
    assert rows == [ann, ann]
    assert rejected == {2: "schema id 6 is not in the option schema_id"}
    with pytest.raises(ConfigError, match="or the option schema_id"):
        make_format(FormatSpec(kind="avro", definition=new, options=options))
    for wrong in ("", "x", "5=/nowhere"):
        with pytest.raises(ConfigError, match="schema_id"):
            avro.read_writers(wrong, new)


def test_maps_of_a_schema_file() -> None:
    columns = pa.schema([("m", pa.map_(pa.string(), pa.int64())), ("n", pa.int64())])
    rows, rejected = decode(
        make_format(FormatSpec(kind="json", columns=columns)),
        b'{"m":{"a":1,"b":2},"n":1}',
        b'{"m":3}',
        b"{}",
    )
    assert [row["m"] for row in rows] == [[("a", 1), ("b", 2)], None]
    assert list(rejected) == [1]


def test_avro_types_inside_of_others() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "id", "type": UUID_TYPE}]}
    micros = {"type": "long", "logicalType": "local-timestamp-micros"}
    fields = [{"name": "i", "type": inner}, {"name": "l", "type": LOCAL_TIME}]
    fields += [{"name": "u", "type": micros}]
    schema: dict[str, Any] = {"type": "record", "name": "O", "fields": fields}
    out = io.BytesIO()
    value: dict[str, Any] = {"i": {"id": uuid.UUID(int=5)}, "l": datetime(2020, 1, 1)}
    value["u"] = datetime(2020, 1, 1, microsecond=5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    form = make_format(FormatSpec(kind="avro", definition=json.dumps(schema).encode()))
    rows, rejected = decode(form, out.getvalue())
    assert not rejected
    assert rows == [{**value, "i": {"id": str(uuid.UUID(int=5))}}]
    assert form.table_schema().field("l").type == pa.timestamp("us")
    assert form.table_schema().field("u").type == pa.timestamp("us")


def test_protobuf() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="x.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="M")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="a", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(name="s", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    spec = FormatSpec(
        kind="protobuf", definition=files.SerializeToString(), options={"message": "p.M"}
    )
    rows, rejected = decode(make_format(spec), b"\x08\x05\x12\x01x", b"\xff", b"")
    assert rows == [{"a": 5, "s": ["x"]}, {"a": 0, "s": []}]
    assert list(rejected) == [1]
    with pytest.raises(ConfigError, match=r"no message p\.N"):
        make_format(
            FormatSpec(kind="protobuf", definition=spec.definition, options={"message": "p.N"})
        )


def test_a_field_may_not_take_a_name_of_the_tables_own() -> None:
    with pytest.raises(ConfigError, match="_offset"):
        make_format(
            FormatSpec(kind="json", columns=pa.schema([("_offset", pa.int64())]))
        ).table_schema()


def test_the_reason_of_a_datum_that_is_cut_off_is_the_same_each_time() -> None:
    """fastavro words it with the address of an object: the same record, read again, was another."""
    fields = [{"name": "x", "type": "double"}]
    definition = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    form = make_format(FormatSpec(kind="avro", definition=definition))
    _, rejected = decode(form, b"abc")
    assert rejected == {0: "the datum is cut off: cannot read double"}
