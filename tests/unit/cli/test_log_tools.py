"""`millstream log` dump, verify, explain, tree and migrate from the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.storage.support import NOW_MS, SMALL, append, close, create_log

from millstream.cli.main import main
from millstream.model.topic import TopicPartition
from millstream.records.batch import Batch
from millstream.records.log_entries import iter_log_entries
from millstream.storage.checkpoint import format_offsets
from millstream.storage.record_lock import lock_holder

DATA = Path(__file__).parents[2] / "data"
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    shutil.copytree(DATA / "kafka-4.3.0", tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def old_kafka(tmp_path: Path) -> Path:
    shutil.copytree(DATA / "kafka-2.8.2", tmp_path / "old")
    return tmp_path / "old"


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A log of many small segments, one record of one millisecond each."""
    log = create_log(tmp_path, SMALL)
    for n in range(200):
        append(log, b"value %d" % n, timestamps=[NOW_MS + n])
    close(log)
    return tmp_path


def said(capfd: Captured) -> list[str]:
    return capfd.readouterr().out.splitlines()


def objects(capfd: Captured) -> list[dict[str, object]]:
    return [json.loads(line) for line in said(capfd)]


@pytest.fixture
def locked(kafka: Path) -> Iterator[int]:
    """Another process holds the lock of the directory; its id."""
    script = (
        "import sys, time; from millstream.storage.record_lock import LocalLock;"
        f"lock = LocalLock({str(kafka / '.lock')!r}); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.send_signal(signal.SIGKILL)


def snapshot(directory: Path) -> dict[str, tuple[int, int]]:
    """Return every file with its size and the time of its last write."""
    return {
        str(path.relative_to(directory)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
    }


def test_who_holds_a_lock_is_told_without_taking_it(kafka: Path, locked: int) -> None:
    assert lock_holder(str(kafka / ".lock")) == locked
    assert lock_holder(str(kafka / "no such file")) is None
    assert not (kafka / "no such file").exists()


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["verify", "--records", "--json"],
        ["tree"],
        ["tree", "--json"],
        ["explain", "codecs-0", "--offset", "3", "-d"],
        ["explain", "codecs-0", "--timestamp", "2026-11-21", "--json", "-d"],
    ],
)
def test_a_live_directory_is_looked_at_and_left_alone(
    kafka: Path, locked: int, words: list[str], capfd: Captured
) -> None:
    before = snapshot(kafka)
    assert main(["log", *words, str(kafka)]) == 0
    assert snapshot(kafka) == before
    assert lock_holder(str(kafka / ".lock")) == locked
    if words == ["verify"]:
        assert f"in use by process {locked}: no problems" in said(capfd)[-1]


@pytest.mark.usefixtures("terminal")
def test_verify_tells_problems_and_exits_with_1(kafka: Path, capfd: Captured) -> None:
    (kafka / "moves-0" / f"{0:020d}.timeindex").unlink()
    (kafka / "replication-offset-checkpoint").write_text("0\n1\nmoves 0 99\n")
    assert main(["log", "verify", str(kafka)]) == 1
    lines = said(capfd)
    assert lines[0].startswith(f"moves-0/{0:020d}.timeindex: there is no such file. What happens: ")
    assert lines[1].startswith("replication-offset-checkpoint @3: moves-0 has 99, and its log ends")
    assert lines[2].endswith("2 problems")
    assert main(["log", "verify", "--json", str(kafka)]) == 1
    first, second, total = objects(capfd)
    assert set(first) == set(second) == {"file", "position", "problem", "broker"}
    assert (total["partitions"], total["segments"], total["problems"]) == (4, 5, 2)


@pytest.mark.usefixtures("terminal")
def test_verify_takes_one_partition(kafka: Path, capfd: Captured) -> None:
    (kafka / "moves-0" / f"{0:020d}.timeindex").unlink()
    assert main(["log", "verify", str(kafka / "codecs-0")]) == 0
    assert main(["log", "verify", str(kafka / "moves-0")]) == 1
    assert said(capfd)[0].endswith(": 1 partition, 1 segment, 2.5 kB: no problems")


def test_a_directory_that_is_none_of_ours(tmp_path: Path, capfd: Captured) -> None:
    for command in ("verify", "tree", "migrate"):
        assert main(["log", command, str(tmp_path)]) == 1
        assert "is not a log directory" in capfd.readouterr().err


def test_explain_offset(orders: Path, capfd: Captured) -> None:
    assert main(["log", "explain", "orders-0", "-o", "123", "-d", str(orders), "--json"]) == 0
    log, segment, index, scan, record = objects(capfd)
    assert (log["log_start_offset"], log["log_end_offset"]) == (0, 200)
    names = sorted(int(path.stem) for path in orders.glob("orders-0/*.log"))
    assert segment["base_offset"] == max(name for name in names if name <= 123)
    compared = segment["compared"]
    assert isinstance(compared, list)
    assert len(compared) <= len(names).bit_length()
    assert all(each["at_most"] == (int(each["text"]) <= 123) for each in compared)
    assert index["chosen"] is not None
    batches = scan["batches"]
    assert isinstance(batches, list)
    assert batches[0]["position"] == index["position"]
    assert batches[-1]["last_offset"] == 123
    found = record["record"]
    assert isinstance(found, dict)
    assert (found["offset"], found["value"]) == (123, "value 123")


@pytest.mark.slow
def test_explain_every_offset_and_every_time(orders: Path, capfd: Captured) -> None:
    for n in range(0, 200, 7):
        directory = str(orders / "orders-0")
        assert main(["log", "explain", directory, "--offset", str(n), "--json"]) == 0
        by_offset = objects(capfd)[-1]["record"]
        assert main(["log", "explain", directory, "-t", f"@{NOW_MS + n}", "--json"]) == 0
        by_time = objects(capfd)[-1]["record"]
        assert isinstance(by_offset, dict)
        assert by_offset == by_time
        assert by_offset["value"] == f"value {n}"


@pytest.mark.usefixtures("terminal")
def test_explain_where_there_is_nothing(orders: Path, capfd: Captured) -> None:
    directory = str(orders / "orders-0")
    assert main(["log", "explain", directory, "--offset", "200"]) == 1
    assert (
        "offset 200 is not in orders-0: the log holds 0 to 199, and the next record gets offset 200"
        in capfd.readouterr().err
    )
    assert main(["log", "explain", directory, "--timestamp", "@99999999999999"]) == 1
    assert "there is none at or after time" in said(capfd)[-1]
    (orders / "log-start-offset-checkpoint").write_text(
        format_offsets({TopicPartition("orders", 0): 50})
    )
    assert main(["log", "explain", directory, "--offset", "49"]) == 1
    assert "holds 50 to 199" in capfd.readouterr().err


@pytest.mark.usefixtures("terminal")
def test_explain_passes_over_what_compaction_took(kafka: Path, capfd: Captured) -> None:
    assert main(["log", "explain", "compacted-0", "-o", "3", "-d", str(kafka)]) == 0
    lines = said(capfd)
    assert "offset 3 is gone" in lines[-2]
    assert lines[-1].strip().startswith("8  ")


@pytest.mark.parametrize(
    ("words", "complaint", "code"),
    [
        (["orders-0"], "give one of --offset and --timestamp", 2),
        (["orders-0", "-o", "1", "-t", "15m"], "give one of --offset and --timestamp", 2),
        (["orders", "-o", "1"], "'orders' is not TOPIC-PARTITION", 2),
        (["orders-9", "-o", "1"], "give --data-dir", 1),
    ],
)
def test_explain_says_what_is_missing(
    orders: Path, words: list[str], complaint: str, code: int, capfd: Captured
) -> None:
    assert main(["log", "explain", *words, "-d", str(orders)]) == code
    error = capfd.readouterr().err
    assert complaint in error
    assert ("(there: orders-0)" in error) == (words[0] == "orders-9")


def test_tree_as_json(kafka: Path, capfd: Captured) -> None:
    assert main(["log", "tree", "--json", str(kafka)]) == 0
    by_name = {partition["partition"]: partition for partition in objects(capfd)}
    assert set(by_name) == {"codecs-0", "compacted-0", "moves-0", "trimmed-0"}
    assert by_name["moves-0"]["topic_id"] == "Ms4SHiptQfSKJMPdSc5hwA"
    (segment,) = by_name["codecs-0"]["segments"]  # type: ignore[misc]
    assert segment["index_entries"] == 6  # type: ignore[index]


@pytest.mark.usefixtures("terminal")
def test_migrate_and_verify(old_kafka: Path, capfd: Captured) -> None:
    assert main(["log", "migrate", "--dry-run", "--json", str(old_kafka)]) == 0
    planned = [each["file"] for each in objects(capfd)]
    assert len(planned) == 13
    assert main(["log", "migrate", "--json", str(old_kafka)]) == 0
    assert [each["file"] for each in objects(capfd)] == planned
    assert main(["log", "migrate", str(old_kafka)]) == 0
    assert said(capfd) == ["nothing to convert in 6 partitions: all messages are in format 2"]
    assert main(["log", "verify", "--records", str(old_kafka)]) == 0


def test_migrate_refuses_a_directory_in_use(kafka: Path, locked: int, capfd: Captured) -> None:
    before = snapshot(kafka)
    for directory in (kafka, kafka / "codecs-0"):
        assert main(["log", "migrate", str(directory)]) == 1
        assert f"in use by process {locked}: stop that broker" in capfd.readouterr().err
    assert main(["log", "migrate", "--dry-run", str(kafka)]) == 0
    assert snapshot(kafka) == before


def test_migrate_lets_go_of_the_lock(old_kafka: Path) -> None:
    assert main(["log", "migrate", str(old_kafka / "magic0-0")]) == 0
    assert lock_holder(str(old_kafka / ".lock")) is None
    os.chmod(old_kafka / "magic1-0" / f"{0:020d}.log", 0o444)
    path = old_kafka / "magic1-0" / f"{20:020d}.log"
    path.write_bytes(b"\xff" * 100)
    assert main(["log", "migrate", str(old_kafka)]) == 1
    assert lock_holder(str(old_kafka / ".lock")) is None


def test_dump_of_old_formats(capfd: Captured) -> None:
    path = DATA / "kafka-2.8.2" / "magic0-0" / f"{24:020d}.log"
    assert main(["log", "dump", "-r", "--json", str(path)]) == 0
    first = objects(capfd)[0]
    assert (first["magic"], first["offset"], first["timestamp"]) == (0, 27, -1)
    records = first["records"]
    assert isinstance(records, list)
    assert [record["offset"] for record in records] == [24, 25, 26, 27]
    assert main(["log", "dump", str(path)]) == 0
    assert "magic 0" in said(capfd)[1]


@pytest.mark.usefixtures("terminal")
def test_dump_for_a_person(kafka: Path, capfd: Captured) -> None:
    directory = kafka / "moves-0"
    files = [directory / f"{0:020d}.log", directory / f"{0:020d}.index", kafka / "meta.properties"]
    assert main(["log", "dump", *map(str, files)]) == 0
    lines = said(capfd)
    assert lines[0] == str(files[0])
    assert lines[1].split()[:3] == ["position", "bytes", "offsets"]
    assert lines[lines.index(str(files[1])) + 1] == "(no entries)"
    assert main(["log", "dump", "-r", str(files[0])]) == 0
    assert "value=0-1" in said(capfd)[3]


@pytest.mark.usefixtures("terminal")
def test_dump_marks_what_is_wrong_and_ends_there(kafka: Path, capfd: Captured) -> None:
    path = kafka / "moves-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[85] ^= 1
    path.write_bytes(data + bytes(50))
    assert main(["log", "dump", str(path)]) == 1
    captured = capfd.readouterr()
    lines = captured.out.splitlines()
    assert len(lines) == 2
    assert "CRC IS WRONG" in lines[1]
    assert "the batch at offset 0, position 0, fails its CRC" in captured.err


@pytest.mark.usefixtures("terminal")
def test_dump_shows_preallocated_zeros(kafka: Path, capfd: Captured) -> None:
    path = kafka / "moves-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes() + bytes(50))
    assert main(["log", "dump", str(path)]) == 0
    assert said(capfd)[-1].split() == ["676", "50", "zeros,", "preallocated"]


def damaged_batch(orders: Path, offset: int) -> tuple[Path, int]:
    """Flip a bit in the batch that holds an offset; return its file and position."""
    base_offset = max(int(p.stem) for p in orders.glob("orders-0/*.log") if int(p.stem) <= offset)
    path = orders / "orders-0" / f"{base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    position, batch = next(
        (position, batch)
        for position, batch in iter_log_entries(bytes(data))
        if isinstance(batch, Batch) and batch.last_offset >= offset
    )
    data[position + batch.size - 3] ^= 1
    path.write_bytes(data)
    return path, position


@pytest.mark.usefixtures("terminal")
def test_explain_ends_at_damage(orders: Path, capfd: Captured) -> None:
    _, position = damaged_batch(orders, 123)
    for target in (["-o", "123"], ["-t", f"@{NOW_MS + 123}"]):
        words = ["log", "explain", str(orders / "orders-0"), *target]
        assert main([*words, "--json"]) == 1
        *_, scan, record = objects(capfd)
        assert record["record"] is None
        assert f"position {position}, fails its CRC" in str(record["damage"])
        batches = scan["batches"]
        assert isinstance(batches, list)
        assert (batches[-1]["position"], batches[-1]["is_valid"]) == (position, False)
        assert main(words) == 1
        lines = said(capfd)
        assert "its CRC is wrong" in lines[-4]
        assert "the search ends at damage" in lines[-1]


def test_explain_says_where_no_batch_begins(orders: Path, capfd: Captured) -> None:
    path, position = damaged_batch(orders, 123)
    data = bytearray(path.read_bytes())
    data[position : position + 30] = b"\xff" * 30
    path.write_bytes(data)
    assert main(["log", "explain", str(orders / "orders-0"), "-o", "123", "--json"]) == 1
    record = objects(capfd)[-1]
    assert (
        record["damage"]
        == f"{len(data) - position} bytes at position {position} are not a complete batch"
    )


@pytest.mark.usefixtures("terminal")
def test_files_that_recovery_kept_are_known(kafka: Path, capfd: Captured) -> None:
    name = f"{0:020d}.log.damaged-313"
    (kafka / "codecs-0" / name).write_bytes(bytes(1500))
    assert main(["log", "verify", str(kafka)]) == 0
    assert f"codecs-0/{name}: 1.5 kB that a recovery cut off and kept aside" in said(capfd)[0]
    assert main(["log", "verify", str(kafka), "--json"]) == 0
    assert objects(capfd)[0]["kept_bytes"] == 1500
    assert main(["log", "tree", str(kafka)]) == 0
    assert any(f"{name}  1.5 kB, kept aside by a recovery" in line for line in said(capfd))
    assert main(["log", "tree", str(kafka), "--json"]) == 0
    codecs = next(each for each in objects(capfd) if each["partition"] == "codecs-0")
    assert codecs["damaged_files"] == [{"name": name, "bytes": 1500}]
    assert name not in str(codecs["other_files"])


def test_into_a_pipe_go_rows_with_topic_and_partition(kafka: Path, capfd: Captured) -> None:
    def rows(*words: str) -> list[list[str]]:
        assert main(["log", *words]) == 0
        return [line.split("\t") for line in said(capfd)]

    name = "00000000000000000000.log"
    tree = rows("tree", str(kafka))
    assert tree[0] == ["codecs", "0", "current", name, "2540", "6", "7", "0"]
    assert {len(each) for each in tree} == {8}
    path = str(kafka / "moves-0" / name)
    dumped = rows("dump", path, "--records")
    assert {each[0] for each in dumped} == {path}
    assert [each[1] for each in dumped[:5]] == ["batch", "record", "record", "record", "batch"]
    assert dumped[0][2:8] == ["0", "91", "0", "2", "3", "0"]
    index = rows("dump", str(kafka / "codecs-0" / name.replace(".log", ".index")))
    assert [each[1:] for each in index[:2]] == [["7", "313"], ["11", "626"]]
    found = rows("explain", "codecs-0", "--offset", "33", "--data-dir", str(kafka))
    assert {tuple(each[:2]) for each in found} == {("codecs", "0")}
    assert [each[2] for each in found] == [
        *("log", "segment", "offset index", "position", "batch", "batch", "batch", "record")
    ]
    assert found[-1][3] == "33"
    assert rows("verify", str(kafka)) == []
