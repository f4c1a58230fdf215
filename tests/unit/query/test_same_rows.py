"""The rows of a query are the same with pushdown as over all records in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.query.cold_topic import write_topic

import millstream
from millstream.query import pushdown
from millstream.query.engine import Query
from millstream.query.entry import query_settings, source_options

PARTITIONS = 3
LATENESS_MS = 400


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Times are late by less than LATENESS_MS, and values that are no JSON are among them."""
    made = tmp_path_factory.mktemp("logs") / "data"
    (made.parent / "schema.json").write_text(
        '{"format": "json", "columns": [{"name": "n", "type": "int64"}]}'
    )
    rng = random.Random(7)
    write_topic(
        made,
        "hits",
        [
            [
                (
                    1_000 + 50 * number - rng.randrange(LATENESS_MS),
                    None if number % 17 == 3 else b'{"n": %d}' % rng.randrange(10),
                )
                for number in range(70 + partition)
            ]
            for partition in range(PARTITIONS)
        ],
    )
    return made


def as_json(directory: Path) -> dict[str, Any]:
    """A schema file spares the inference of each query."""
    return {"format": "json", "schema": directory.parent / "schema.json"}


@pytest.fixture(scope="module")
def everything(directory: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'").fetchall()
        rows = millstream.sql("SELECT * FROM hits", log_dir=directory, **as_json(directory))
        assert rows.num_rows == 70 + 71 + 72
        connection.register("hits", pa.table(rows))
        yield connection


@pytest.fixture(autouse=True)
def exact_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushdown, "SMALL_GAP", 1)


SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
OFFSETS = st.integers(-2, 75)
TIMES = st.integers(0, 5_000).map(lambda ms: f"make_timestamptz({ms}000)")
LEAVES = st.one_of(
    st.builds(lambda s, n: f"_offset {s} {n}", SIGNS, OFFSETS),
    st.builds(lambda s, n: f"{n} {s} _offset", SIGNS, OFFSETS),
    st.builds(lambda s, n: f"_partition {s} {n}", SIGNS, st.integers(-1, PARTITIONS)),
    st.builds(lambda s, t: f"_timestamp {s} {t}", SIGNS, TIMES),
    st.builds(lambda a, b: f"_timestamp BETWEEN {a} AND {b}", TIMES, TIMES),
    st.builds(lambda s, n: f"n {s} {n}", SIGNS, st.integers(0, 9)),
    st.builds(
        lambda n: f"_offset IN ({', '.join(map(str, n))})",
        st.lists(OFFSETS, min_size=1, max_size=5),
    ),
    st.sampled_from(["n IS NULL", "_offset % 7 = 2", "_key IS NOT NULL", "_partition = n"]),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"({a} AND {b})", inner, inner),
        st.builds(lambda a, b: f"({a} OR {b})", inner, inner),
        st.builds(lambda a: f"(NOT {a})", inner),
    ),
    max_leaves=6,
)
SHAPES = (
    "SELECT _partition, _offset FROM hits WHERE {} ORDER BY ALL",
    "SELECT count(*), sum(n), max(_offset) FROM hits WHERE {}",
    "SELECT a._offset, b.n FROM (SELECT * FROM hits WHERE {}) a JOIN hits b USING (_offset) "
    "WHERE a._partition = 0 AND b._partition = 1 ORDER BY ALL",
    "SELECT _offset FROM hits WHERE _offset < 9 AND n IN (SELECT n FROM hits WHERE {}) ORDER BY 1",
)


@pytest.mark.slow
@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    condition=CONDITIONS,
    shape=st.sampled_from(SHAPES),
    lateness_ms=st.sampled_from([None, LATENESS_MS]),
)
def test_pushdown_changes_no_row(
    directory: Path,
    everything: duckdb.DuckDBPyConnection,
    condition: str,
    shape: str,
    lateness_ms: int | None,
) -> None:
    query = shape.format(condition)
    wanted = everything.execute(query).fetchall()
    found = millstream.sql(query, log_dir=directory, lateness_ms=lateness_ms, **as_json(directory))
    assert [tuple(row.values()) for row in found.to_pylist()] == wanted


@pytest.mark.parametrize(
    ("condition", "lateness_ms", "ranges"),
    [
        ("_offset BETWEEN 3 AND 7 AND _partition = 1", None, ["hits-1[3, 8)"]),
        ("_offset IN (3, 60) AND _partition < 1", None, ["hits-0[3, 4)", "hits-0[60, 61)"]),
        ("_offset < 2 OR _partition = 2", None, ["hits-0[0, 2)", "hits-1[0, 2)", "hits-2[0, 72)"]),
        ("_offset < 0", None, []),
        ("_partition = 0 AND (_offset = 1 OR n = 3)", None, ["hits-0[0, 70)"]),
        ("_partition = 0 AND _timestamp > '1970-01-02'", None, []),
        ("_partition = 0 AND _timestamp < '1970-01-01'", None, ["hits-0[0, 70)"]),
        ("_partition = 0 AND _timestamp < '1970-01-01'", 100, []),
    ],
)
def test_what_is_read(
    directory: Path, condition: str, lateness_ms: int | None, ranges: list[str]
) -> None:
    source = source_options(None, directory, {})
    chosen = query_settings(
        source, ("json", {}, None, {}), max_rejects="5%", lateness_ms=lateness_ms
    )
    with Query(f"SELECT _offset FROM hits WHERE {condition}", chosen) as query:
        read = sum(batch.num_rows for batch in query.run()[1])
        (scan,) = query.tables["hits"].scans
        assert [str(each) for each in scan.ranges] == ranges
        assert scan.records >= read
