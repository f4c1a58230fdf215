"""Queries over log directories: those of Apache Kafka, and ones made here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.query.cold_topic import write_topic

import millstream
from millstream.model.errors import ConfigError
from millstream.query import rejects
from millstream.query.engine import Query
from millstream.query.entry import query_settings, source_options
from millstream.query.settings import QueryError

KAFKA = Path(__file__).parents[2] / "data" / "kafka-4.3.0"
EXPECTED = json.loads((KAFKA / "expected.json").read_text())


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("logs") / "data"
    objects = [b'{"status": %d, "path": "/%d"}' % (200 + n % 3, n) for n in range(30)]
    write_topic(made, "hits", [[(n, each) for n, each in enumerate(objects)], []])
    write_topic(made, "dev.orders", [[(1, b'{"id": 7}')]])
    lines = [b'1.2.3.4 - - [31/Jan/2024:10:00:00 +0000] "GET / HTTP/1.1" 200 5'] * 3
    write_topic(made, "access", [[(n, line) for n, line in enumerate(lines)]])
    write_topic(made, "noise", [[(n, b"\xff%d" % n) for n in range(3)]])
    write_topic(made, "empty", [[]])
    late = [b'{"n": 1}'] * 20 + [b'{"n": 1.5, "more": "x"}', b'{"n": "no"}']
    (made.parent / "late.json").write_text(
        '{"format": "json", "columns": [{"name": "n", "type": "int64"}]}'
    )
    write_topic(made, "late", [[(n, each) for n, each in enumerate(late)]])
    return made


def rows(query: str, logs: Path = KAFKA, **settings: object) -> list[tuple[object, ...]]:
    table = millstream.sql(query, log_dir=logs, **settings)  # type: ignore[call-overload]
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_records_are_those_that_kafkas_consumers_got(case: str) -> None:
    """Aborted transactions and control records among them."""
    topic, isolation = case.split(" ")
    settings = {"settings": {"kafka.isolation.level": isolation}, "format": "raw"}
    query = f'SELECT _offset, value FROM "{topic}" ORDER BY 1'
    wanted = [(offset, value.encode()) for offset, value in EXPECTED[case]]
    assert rows(query, **settings) == wanted
    if isolation == "read_committed":
        assert rows(query, format="raw") == wanted
        half = [row for row in wanted if row[0] >= 5]
        assert rows(query.replace("ORDER", "WHERE _offset >= 5 ORDER"), format="raw") == half


@pytest.mark.slow
def test_formats_are_guessed_from_the_first_records(logs: Path) -> None:
    counted = "SELECT status, count(*) FROM {} GROUP BY 1 ORDER BY 1"
    assert rows(counted.format("hits"), logs) == [(200, 10), (201, 10), (202, 10)]
    assert rows(counted.format("access"), logs) == [(200, 3)]
    assert rows("SELECT value FROM noise LIMIT 1", logs) == [(b"\xff0",)]
    assert rows("SELECT count(*) FROM empty", logs) == [(0,)]
    assert rows('SELECT id FROM "dev.orders"', logs) == [(7,)]
    assert rows("SELECT text FROM access LIMIT 1", logs, topic_formats={"access": "text"})


def test_topics_and_files_are_joined(logs: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("status,name\n200,OK\n202,Accepted\n")
    query = f"""
        WITH few AS (SELECT * FROM hits WHERE _offset < 3), hits AS (SELECT * FROM few)
        SELECT h.path, n.name, (SELECT max(id) FROM "dev.orders")
        FROM hits h JOIN '{names}' n USING (status) ORDER BY 1
    """
    assert rows(query, logs) == [("/0", "OK", 7), ("/2", "Accepted", 7)]


def test_times_are_in_utc_whatever_the_machine_says(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    query = "SELECT count(*), min(_timestamp)::VARCHAR FROM hits WHERE _timestamp >= {}"
    wanted = [(10, "1970-01-01 00:00:00.02+00")]
    assert rows(query.format("'1970-01-01 00:00:00.02'"), logs) == wanted


def test_values_that_need_wider_columns_begin_the_query_again(logs: Path) -> None:
    late = {"format": "json", "schema": logs.parent / "late.json"}
    query = "SELECT count(*), sum(n), typeof(max(n)) FROM late"
    assert rows(query, logs, **late) == [(21, 21.5, "DOUBLE")]
    streamed = millstream.sql("SELECT n FROM late", log_dir=logs, stream=True, **late)
    assert streamed.schema.types == [pa.float64()]
    assert sum(batch.num_rows for batch in streamed) == 21


def test_records_that_cannot_be_read_are_counted(
    logs: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {"format": "json", "schema": logs.parent / "late.json"}
    assert rows("SELECT count(*) FROM late", logs, **late) == [(21,)]
    assert "1 records of late cannot be read as json" in caplog.text
    with pytest.raises(
        QueryError, match=r"1 records of late cannot be read, more than 0 .*max-rej"
    ):
        rows("SELECT count(*) FROM late", logs, max_rejects="0", **late)
    monkeypatch.setattr(rejects, "LEAST_RECORDS", 20)
    with pytest.raises(
        QueryError, match=r"22 of 22 records of late cannot be read, more than 0.05"
    ):
        rows("SELECT count(*) FROM late", logs, format="access-log")


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT 1 FROM hit", r"there is no topic hit; did you mean hits\?"),
        ("SELECT 1 FROM zzzzzz", "there is no topic zzzzzz; topics: "),
        (
            "SELECT stats FROM hits",
            r"there is no column stats; did you mean status\?.*hits as json",
        ),
        ("SELECT h.stats FROM hits h", r"there is no column stats; did you mean status\?"),
        ("SELECT 1 FROM hits; SELECT 2", "one SELECT, not 2 statements"),
        ("", "one SELECT, not 0 statements"),
        ("COPY hits TO 'x.csv'", "a query is one SELECT: it reads"),
        ("SELEC 1", 'not SQL: syntax error at or near "SELEC"$'),
        ("SELECT 1 FROM my-topic", 'near "-"; a topic whose name has dashes .* double quotes'),
        ("SELECT 1 FROM dev.orders", 'is written in double quotes: "dev.orders"'),
        ("SELECT path::INT FROM hits", r"^Could not convert string '/\d+' to INT32"),
    ],
)
def test_errors_are_one_sentence(logs: Path, query: str, error: str) -> None:
    with pytest.raises(QueryError, match=error) as raised:
        rows(query, logs)
    assert "\n" not in str(raised.value)


def test_wrong_settings(logs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs bootstrap_servers, log_dir, or both"):
        millstream.sql("SELECT 1")
    with pytest.raises(ConfigError, match="a format is one of auto, raw"):
        rows("SELECT 1", logs, format="xml")
    with pytest.raises(ConfigError, match="a format is one of"):
        rows("SELECT 1", logs, topic_formats={"hits": "xml"})
    with pytest.raises(ConfigError, match="option subscribe is not for queries"):
        rows("SELECT 1", logs, settings={"subscribe": "hits"})
    with pytest.raises(ConfigError, match="there is no directory"):
        rows("SELECT 1", tmp_path / "none")
    with pytest.raises(QueryError, match="topic hits: there is no schema file"):
        rows("SELECT 1 FROM hits", logs, format="json", schema=tmp_path / "none.json")


def test_explain_says_what_is_read(logs: Path) -> None:
    query = "SELECT count(*) FROM hits WHERE _offset BETWEEN 3 AND 7 AND _timestamp < '2000-01-01'"
    ((text,),) = rows(f"EXPLAIN {query}", logs)
    assert "to read: 5 of 30 offsets in 1 of 2 partitions: hits-0[3, 8)" in text
    assert "times from above do not end the reading" in text
    assert "records," not in text
    ((text,),) = rows(f"explain analyze {query}", logs)
    assert "  read: 5 records, " in text


@pytest.mark.slow
def test_results_go_to_files_and_replace_files_alone(logs: Path, tmp_path: Path) -> None:
    chosen = query_settings(
        source_options(None, logs, {}), ("auto", {}, None, {}), max_rejects="5%", lateness_ms=None
    )

    def write(
        path: Path, form: str, query: str = "SELECT path FROM hits WHERE _offset < 2"
    ) -> None:
        with Query(query, chosen) as running:
            running.write(str(path), form)

    write(tmp_path / "it's.json", "json")
    assert (tmp_path / "it's.json").read_text() == '{"path":"/0"}\n{"path":"/1"}\n'
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "real.csv")
    write(link, "csv")
    assert (tmp_path / "real.csv").read_text() == "path\n/0\n/1\n"
    assert link.is_symlink()
    write(tmp_path / "rows.parquet", "parquet")
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 2
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(QueryError, match="Could not convert"):
        write(tmp_path / "rows.parquet", "parquet", "SELECT path::INT FROM hits")
    with pytest.raises(QueryError, match="a file is one of json, csv, parquet"):
        write(tmp_path / "rows.orc", "orc")
    assert sorted(os.listdir(tmp_path)) == before
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 2
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, "csv")
        assert os.read(reader, 100) == b"path\n/0\n/1\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_file_that_is_standard_output_keeps_what_it_has(
    logs: Path, tmp_path: Path, form: str
) -> None:
    """As in `(echo; millstream sql … --csv; echo) > file`."""
    path = tmp_path / "all"
    program = Path(sys.executable).with_name("millstream")
    command = [program, "sql", "--log-dir", logs]
    query = "SELECT path FROM hits WHERE _offset < 1"
    without = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    with path.open("w") as out:
        out.write("before\n")
        out.flush()
        subprocess.run([*command, query, f"--{form}"], stdout=out, env=without, check=True)
        out.seek(0, os.SEEK_END)
        out.write("after\n")
    rows = {"json": '{"path":"/0"}', "csv": "path\n/0"}[form]
    assert path.read_text() == f"before\n{rows}\nafter\n"


def test_a_reader_that_is_left_early_closes_what_it_opened(logs: Path) -> None:
    reader = millstream.sql("SELECT * FROM late", log_dir=logs, format="raw", stream=True)
    assert reader.read_next_batch().num_rows
    reader.close()


@pytest.mark.slow
def test_importing_millstream_loads_nothing_of_it(logs: Path) -> None:
    """And a query needs no pyspark."""
    code = (
        "import sys, millstream\n"
        "assert not {'duckdb', 'pyarrow', 'millstream.query'} & set(sys.modules)\n"
        "sys.modules['pyspark'] = None\n"
        f"print(millstream.sql('SELECT count(*) n FROM hits', log_dir={str(logs)!r})['n'])\n"
        "sys.modules['duckdb'] = None\n"
        "del sys.modules['millstream.query.engine'], sys.modules['millstream.query.entry']\n"
        "from millstream.cli.app import run\n"
        f"sys.exit(run(['sql', 'SELECT 1', '--log-dir', {str(logs)!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert "30" in done.stdout
    assert done.stderr == ("millstream: duckdb is missing: pip install 'millstream[sql]'\n")
    assert done.returncode == 1
