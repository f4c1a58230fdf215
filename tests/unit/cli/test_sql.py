"""What `millstream sql` prints, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.query.cold_topic import write_topic

from millstream.cli import sql_output
from millstream.cli.app import run
from millstream.cli.sql_output import print_result


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> str:
    made: Path = tmp_path_factory.mktemp("logs") / "data"
    values = [b'{"a": "x\\ty\\\\", "n": 1}', b'{"a": null, "n": 2.5}', b"no object"]
    write_topic(made, "hits", [[(n, value) for n, value in enumerate(values)]])
    return str(made)


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["SELECT 1 FROM hit"], 1, "there is no topic hit; did you mean hits?"),
        (["SELECT 1", "--format", "xml"], 2, "a format is one of auto, raw"),
        (["SELECT 1", "--max-rejects", "x"], 2, "max_rejects: it takes a share (5%)"),
        (["SELECT 1", "--lateness", "x"], 2, "--lateness"),
        (["SELECT 1", "--topic-format", "hits"], 2, "'hits' is not KEY=VALUE"),
        (["SELECT 1", "--output", "orc", "x"], 2, "a file is one of json, csv, parquet"),
    ],
)
def test_errors(
    logs: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, error: str
) -> None:
    assert run(["sql", *words, "--log-dir", logs]) == code
    said = capsys.readouterr()
    assert error in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_pipe_gets_lines_and_standard_error_what_was_left_out(
    logs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT a, n, _offset, _timestamp, _key, [n] FROM hits ORDER BY _offset"
    assert run(["sql", query, "--topic-format", "hits=json", "--log-dir", logs]) == 0
    said = capsys.readouterr()
    assert said.out == (
        "x\\ty\\\\\t1.0\t0\t1970-01-01T00:00:00Z\tk\t[1.0]\n"
        "\\N\t2.5\t1\t1970-01-01T00:00:00.001000Z\tk\t[2.5]\n"
    )
    assert said.err.startswith("millstream: 1 records of hits cannot be read as json and are left")
    words = ["sql", f"EXPLAIN {query}", "--format", "json", "--log-dir", logs]
    assert run(words) == 0
    assert "to read: 3 of 3 offsets in 1 of 1 partitions: hits-0[0, 3)" in capsys.readouterr().out


def test_a_terminal_gets_a_table_of_the_first_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(sql_output, "MOST_ROWS", 2)
    batch = pa.RecordBatch.from_pydict({"name": ["a", "b", "c"], "n": [1, None, 3]})
    print_result(batch.schema, iter([batch]))
    said = capsys.readouterr().out
    assert "name" in said
    assert " c " not in said
    assert "the first 2 rows: a pipe, or --output, gets all" in said
