"""Every kind of file of a log directory as JSON."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from millstream.cli.log_dump import dump_file
from millstream.cli.main import main
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicId, TopicPartition
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec
from millstream.records.control import ControlType, EndTransactionMarker, build_marker_batch
from millstream.storage.checkpoint import format_lines, format_offsets
from millstream.storage.partition_metadata import format_partition_metadata
from millstream.storage.producer_snapshot import encode_snapshot
from millstream.storage.producer_state import BatchMetadata, ProducerEntry

BASE = "00000000000000000100"


def batch(offset: int, codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(BatchOptions(base_offset=offset, leader_epoch=2, codec=codec))
    builder.append(1000, b"k", b"\xff", (("h", None),))
    builder.append(2000, None, "ü".encode())
    return builder.build()


def test_a_log_with_records(tmp_path: Path) -> None:
    path = tmp_path / f"{BASE}.log"
    marker = build_marker_batch(
        EndTransactionMarker(ControlType.ABORT, 4),
        producer_id=7,
        producer_epoch=1,
        timestamp_ms=5,
        base_offset=104,
    )
    path.write_bytes(batch(100) + batch(102, Codec.ZSTD) + marker)
    first, second, third = dump_file(path, with_records=True)
    assert first["base_offset"] == 100
    assert first["last_offset"] == 101
    assert first["leader_epoch"] == 2
    assert first["is_valid"] is True
    assert first["records"] == [
        {
            "offset": 100,
            "timestamp": 1000,
            "key": "k",
            "value_base64": "/w==",
            "headers": [{"key": "h", "value": None}],
        },
        {"offset": 101, "timestamp": 2000, "key": None, "value": "ü", "headers": []},
    ]
    assert (second["codec"], second["position"]) == ("zstd", len(batch(100)))
    assert (third["marker"], third["coordinator_epoch"]) == ("abort", 4)


def test_a_damaged_log_is_shown_up_to_the_damage(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{BASE}.log"
    damaged = bytearray(batch(102))
    damaged[-1] ^= 1
    path.write_bytes(batch(100) + damaged + batch(104))
    assert main(["log", "dump", str(path), "--json"]) == 1
    said = capfd.readouterr()
    assert [json.loads(line)["is_valid"] for line in said.out.splitlines()] == [True, False]
    assert f"the batch at offset 102, position {len(batch(100))}, fails its CRC" in said.err


def test_a_log_that_ends_inside_a_batch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{BASE}.log"
    path.write_bytes(batch(100) + batch(104)[:-3])
    assert main(["log", "dump", str(path), "--json"]) == 1
    said = capfd.readouterr()
    assert [json.loads(line)["is_valid"] for line in said.out.splitlines()] == [True]
    assert "not a complete batch" in said.err


@pytest.mark.usefixtures("terminal")
def test_of_what_recovery_kept_every_whole_batch_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damaged = bytearray(batch(102))
    damaged[-1] ^= 1
    path = tmp_path / f"{BASE}.log.damaged-4096"
    path.write_bytes(damaged + batch(104) + batch(106) + bytes(200) + batch(108) + b"torn")
    assert main(["log", "dump", str(path), "--records", "--json"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    size = len(batch(104))
    assert [(line["position"], line.get("damaged"), line.get("base_offset")) for line in lines] == [
        (0, len(damaged), None),
        (len(damaged), None, 104),
        (len(damaged) + size, None, 106),
        (len(damaged) + 2 * size, 200, None),
        (len(damaged) + 2 * size + 200, None, 108),
        (len(damaged) + 3 * size + 200, 4, None),
    ]
    assert all(line["records"] for line in lines if "base_offset" in line)
    assert main(["log", "dump", str(path)]) == 0
    text = capfd.readouterr().out
    assert text.count("no batch that is whole") == 3


def test_indexes_end_where_the_preallocated_zeros_begin(tmp_path: Path) -> None:
    offset_index = tmp_path / f"{BASE}.index"
    offset_index.write_bytes(struct.pack(">iiii", 1, 4200, 3, 9000) + bytes(80))
    assert list(dump_file(offset_index)) == [
        {"offset": 101, "position": 4200},
        {"offset": 103, "position": 9000},
    ]
    time_index = tmp_path / f"{BASE}.timeindex.deleted"
    time_index.write_bytes(struct.pack(">qi", 1234, 1) + bytes(24))
    assert list(dump_file(time_index)) == [{"timestamp": 1234, "offset": 101}]
    offset_index.write_bytes(struct.pack(">ii", 1, 2) + b"123")
    with pytest.raises(MillstreamError, match="3 bytes behind the last complete entry"):
        list(dump_file(offset_index))


def test_a_transaction_index(tmp_path: Path) -> None:
    path = tmp_path / f"{BASE}.txnindex"
    path.write_bytes(struct.pack(">hqqqq", 0, 7, 100, 104, 105))
    assert list(dump_file(path)) == [
        {
            "version": 0,
            "producer_id": 7,
            "first_offset": 100,
            "last_offset": 104,
            "last_stable_offset": 105,
        }
    ]


def test_a_producer_snapshot(tmp_path: Path) -> None:
    entry = ProducerEntry(7, 1)
    entry.add(1, BatchMetadata(9, 109, 4, 5000))
    path = tmp_path / f"{BASE}.snapshot"
    path.write_bytes(encode_snapshot([entry]))
    (dumped,) = dump_file(path)
    assert dumped["producer_id"] == 7
    assert (dumped["last_sequence"], dumped["last_offset"], dumped["offset_delta"]) == (9, 109, 4)
    path.write_bytes(b"\x00" * 20)
    with pytest.raises(MillstreamError):
        list(dump_file(path))


def test_text_files(tmp_path: Path) -> None:
    def dumped(name: str, text: str) -> list[dict[str, object]]:
        (tmp_path / name).write_text(text)
        return list(dump_file(tmp_path / name))

    assert dumped("leader-epoch-checkpoint", format_lines(["0 0", "3 120"])) == [
        {"epoch": 0, "start_offset": 0},
        {"epoch": 3, "start_offset": 120},
    ]
    (metadata,) = dumped(
        "partition.metadata", format_partition_metadata(TopicId(b"0123456789abcdef"))
    )
    assert metadata == {"version": "0", "topic_id": "MDEyMzQ1Njc4OWFiY2RlZg"}
    assert dumped(
        "replication-offset-checkpoint", format_offsets({TopicPartition("a.b", 2): 9})
    ) == [{"topic": "a.b", "partition": 2, "offset": 9}]
    assert dumped("meta.properties", "#\nversion=1\nnode.id=1\n") == [
        {"version": "1", "node.id": "1"}
    ]


@pytest.mark.parametrize("name", ["notes.txt", "12.logs", "log", ".index"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(MillstreamError, match="not the name of a log file"):
        list(dump_file(tmp_path / name))
