"""Batches that other programs wrote, and ours in the hands of other programs' decoders.

``foreign_batches.json`` holds log files of Apache Kafka 4.3 as they were produced by librdkafka
2.16 and by Kafka's own producer in each codec, and a partition with two transactions.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records

from millstream.records.batch import Batch, iter_batches
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.control import ControlType, build_marker_batch, parse_marker
from millstream.records.isolation import CommittedOnly
from millstream.records.record import Record, iter_records, read_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # the package reads its files the old way
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

FOREIGN = json.loads(Path(__file__).with_name("foreign_batches.json").read_text())
RECORDS = [
    Record(i, 1_700_000_000_000 + i, b"k%d" % i if i % 3 else None, b"v" * (i * 37), headers)
    for i, headers in enumerate([(), (("a", b"1"), ("ä", None)), ()] * 20)
]


def log_of(name: str) -> list[Batch]:
    batches = list(iter_batches(bytes.fromhex(FOREIGN[name])))
    for batch in batches:
        batch.ensure_valid()
    return batches


@pytest.mark.parametrize("codec", list(Codec))
def test_librdkafka_batches_are_read(codec: Codec) -> None:
    (batch,) = log_of(f"librdkafka-{codec.name.lower()}")
    assert batch.codec == codec
    for index, record in enumerate(iter_records(batch)):
        headers = (("h", b"%d" % index), ("n", None)) if index % 2 else ()
        value = FOREIGN["lines"][index].encode()
        assert record == (index, 1_700_000_000_000 + index, b"key%d" % index, value, headers)


@pytest.mark.parametrize("codec", list(Codec))
def test_java_batches_are_read(codec: Codec) -> None:
    (batch,) = log_of(f"java-{codec.name.lower()}")
    assert batch.codec == codec
    records = read_records(batch)
    assert len(records) == 40
    assert all(record.value.decode() in FOREIGN["lines"] for record in records if record.value)


def test_uncompressed_java_batch_is_built_byte_for_byte() -> None:
    (batch,) = log_of("java-none")
    options = BatchOptions(
        leader_epoch=0,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
    assert encode_batch(read_records(batch), options) == batch.buffer


def test_markers_are_those_of_kafka_byte_for_byte() -> None:
    markers = [batch for batch in log_of("transaction") if batch.is_control]
    assert [batch.size for batch in markers] == [78, 78]
    for batch, control_type in zip(markers, [ControlType.COMMIT, ControlType.ABORT], strict=True):
        marker = parse_marker(batch)
        assert marker is not None
        assert marker.control_type is control_type
        rebuilt = build_marker_batch(
            marker,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            timestamp_ms=batch.base_timestamp,
            base_offset=batch.base_offset,
            leader_epoch=batch.partition_leader_epoch,
        )
        assert rebuilt == batch.buffer


def test_aborted_records_are_left_out() -> None:
    keep = CommittedOnly([(0, 2)])
    kept = [batch for batch in log_of("transaction") if keep(batch)]
    assert [record.value for batch in kept for record in iter_records(batch)] == [b"kept"]


@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_python_reads_ours(codec: Codec) -> None:
    theirs = DefaultRecordBatch(encode_batch(RECORDS, BatchOptions(codec=codec)))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_kafka_python_is_read(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), True, 7, 3, 11, 1 << 20)
    for record in RECORDS:
        headers = list(record.headers)
        builder.append(record.offset, record.timestamp, record.key, record.value, headers)
    batch = Batch(memoryview(bytes(builder.build())))
    batch.ensure_valid()
    assert read_records(batch) == RECORDS
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert (batch.is_transactional, batch.is_control, batch.codec) == (True, False, codec)


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_agrees_both_ways(codec: Codec) -> None:
    options: dict[str, Any] = {
        "magic": 2,
        "compression_type": int(codec),
        "is_transactional": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "batch_size": 1 << 20,
    }
    builder = aiokafka_records.DefaultRecordBatchBuilder(**options)
    for record in RECORDS:
        headers = list(record.headers)
        builder.append(record.offset, record.timestamp, record.key, record.value, headers)
    assert read_records(Batch(memoryview(bytes(builder.build())))) == RECORDS
    ours = encode_batch(RECORDS, BatchOptions(codec=codec))
    theirs = aiokafka_records.DefaultRecordBatch(bytearray(ours))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == RECORDS
