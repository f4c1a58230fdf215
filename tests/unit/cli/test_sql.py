"""What `millstream sql` prints, and how it ends."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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
        (["SELECT 1", "--output", "x.orc"], 2, "add --json, --csv, --parquet (see millstream sql"),
        (["SELECT 1", "--output", "-"], 2, "--output -: the name does not say in which format"),
        (["SELECT 1", "--json", "--csv"], 2, "one format at a time, not --json and --csv"),
        (["SELECT 1", "--json", "--output", "no/such/x"], 1, "no/such"),
        (["EXPLAIN SELECT 1", "--json"], 1, "EXPLAIN has no rows for a file"),
        (["-"], 2, "- reads the query from standard input, which is empty"),
    ],
)
def test_errors(
    logs: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    error: str,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
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


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--json"], '{"n":1.0,"a":"x\\ty\\\\"}\n{"n":2.5,"a":null}\n'),
        (["--csv"], "n,a\n1.0,x\ty\\\n2.5,\n"),
        (["--csv", "--output", "-"], "n,a\n1.0,x\ty\\\n2.5,\n"),
    ],
)
def test_formats_on_standard_output(
    logs: str, capfd: pytest.CaptureFixture[str], more: list[str], text: str
) -> None:
    query = "SELECT n, a FROM hits ORDER BY _offset"
    assert run(["sql", query, "--topic-format", "hits=json", "--log-dir", logs, *more]) == 0
    assert capfd.readouterr().out == text


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("r.JSONL", []),
        ("r.csv", []),
        ("r.parquet", []),
        ("r", ["--json"]),
        ("r.csv", ["--parquet"]),
    ],
)
def test_files_are_of_the_format_that_is_asked_for_or_that_their_names_end_with(
    logs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, more: list[str]
) -> None:
    form = (more[0].removeprefix("--") if more else name.split(".")[1].lower()).replace(
        "jsonl", "json"
    )
    file = tmp_path / name
    words = ["sql", "SELECT n FROM hits", "--topic-format", "hits=json", "--log-dir", logs]
    assert run([*words, "--output", str(file), *more]) == 0
    assert capsys.readouterr().out == ""
    read = {
        "json": lambda: [json.loads(line)["n"] for line in file.read_text().splitlines()],
        "csv": lambda: [float(line) for line in file.read_text().splitlines()[1:]],
        "parquet": lambda: pq.read_table(file).column("n").to_pylist(),
    }[form]
    assert read() == [1.0, 2.5]


def test_the_query_from_standard_input(
    logs: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("-- how many\nSELECT count(*)\nFROM hits;\n"))
    assert run(["sql", "-", "--log-dir", logs, "--format", "raw"]) == 0
    assert capsys.readouterr().out == "3\n"


def test_a_terminal_is_not_given_parquet(
    logs: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["sql", "SELECT 1", "--parquet", "--log-dir", logs]) == 2
    assert "a terminal cannot show Parquet" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error_to_tell(logs: str) -> None:
    """As in `millstream sql … --json | head -1`."""
    query = "SELECT * FROM range(3000000)"
    for more in ([], ["--json"], ["--csv"]):
        with subprocess.Popen(
            [sys.executable, "-m", "millstream.cli.main", "sql", query, "--log-dir", logs, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            running.stdout.readline()
            running.stdout.close()
            assert (running.stderr.read(), running.wait(60)) == (b"", 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_standard_output_that_is_full_is_named(logs: str) -> None:
    words = ["sql", "SELECT 1", "--json", "--log-dir", logs]
    with open("/dev/full", "w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "millstream.cli.main", *words],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    said = "millstream: standard output: No space left on device\n"
    assert (done.stderr, done.returncode) == (said, 1)


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
    assert "the first 2 rows: a pipe, --json, --csv or --output gets all" in said
