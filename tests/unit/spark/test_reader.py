"""What a task reads, against a scripted broker and without a JVM."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker

from millstream.client.errors import ConnectionFailedError
from millstream.client.fetch import Fetched
from millstream.model.errors import CorruptLogError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.fetch import AbortedTransaction, FetchRequest
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec
from millstream.records.control import ControlType, EndTransactionMarker, build_marker_batch
from millstream.spark import reader
from millstream.spark.kafka_settings import parse_kafka_settings
from millstream.spark.plan import DataLossError
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import RangeReader, ReadRules, read_range, read_ranges

pytestmark = pytest.mark.usefixtures("each_kernel")

PLACE = TopicPartition(TOPIC, 0)
SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def rules(bootstrap: str = "h:1", *, lenient: bool = False, **kafka: str) -> ReadRules:
    settings = {"bootstrap.servers": bootstrap, "max.partition.fetch.bytes": "1"}
    named = {name.replace("_", "."): text for name, text in kafka.items()}
    return ReadRules(parse_kafka_settings(settings | named), not lenient, 300)


def batch(offset: int, count: int, codec: Codec = Codec.NONE, **options: int | bool) -> bytes:
    builder = BatchBuilder(BatchOptions(base_offset=offset, codec=codec, **options))  # type: ignore[arg-type]
    for number in range(count):
        builder.append(0, None, b"%d" % (offset + number))
    return builder.build()


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for each in batches for offset in each.column("offset").to_pylist()]


def test_a_range_is_cut_out_of_the_batches_that_hold_it(broker: ScriptedBroker) -> None:
    for _ in range(4):
        broker.append(batch(0, 10))
    found = read_range(OffsetRange(PLACE, 7, 25), rules(broker.bootstrap), SCHEMA)
    assert offsets(found) == list(range(7, 25))


def test_ranges_are_read_over_one_connection(broker: ScriptedBroker) -> None:
    for _ in range(4):
        broker.append(batch(0, 10))
    ranges = [OffsetRange(PLACE, 25, 35), OffsetRange(PLACE, 0, 5), OffsetRange(PLACE, 12, 40)]
    wanted = [*range(25, 35), *range(5), *range(12, 40)]
    kept = list(read_ranges(ranges, rules(broker.bootstrap), SCHEMA))
    assert offsets(iter(kept)) == wanted, "batches outlive the answers that they came from"
    assert [row for each in kept for row in each.column("value").to_pylist()] == [
        b"%d" % (offset % 10) for offset in wanted
    ]
    version_requests = [each for each in broker.requests if isinstance(each, ApiVersionsRequest)]
    assert len(version_requests) == 2, "one connection to ask, one to fetch"


@pytest.mark.slow
def test_little_is_asked_for_where_the_range_is_small(broker: ScriptedBroker) -> None:
    for _ in range(300):
        broker.append(batch(0, 10))
    ranges = [OffsetRange(PLACE, 0, 5), OffsetRange(PLACE, 5, 3000), OffsetRange(PLACE, 7, 9)]
    told = rules(broker.bootstrap, max_partition_fetch_bytes=str(8 << 20))
    for each in ranges:
        assert sum(found.num_rows for found in read_range(each, told, SCHEMA)) == each.size
    assert asked_bytes(broker) == [1 << 20, 8 << 20, 1 << 20]


@pytest.mark.slow
def test_what_is_asked_for_is_what_is_left_of_a_range(broker: ScriptedBroker) -> None:
    """Of a log that goes on behind the range a broker would send as much as is asked for."""
    for _ in range(600):
        broker.append(batch(0, 1000))
    most = 1 << 20
    told = rules(broker.bootstrap, max_partition_fetch_bytes=str(most))
    size = sum(map(len, broker.batches)) / 600_000  # bytes of an offset
    ranges = [OffsetRange(PLACE, 0, 150_000), OffsetRange(PLACE, 200_000, 210_000)]
    assert sum(each.num_rows for each in read_ranges(ranges, told, SCHEMA)) == 160_000
    rest = 150_000 - most / size
    around = 128 << 10
    assert asked_bytes(broker) == [
        most,
        pytest.approx(rest * size * 1.25 + around, rel=0.05),
        pytest.approx(10_000 * size * 1.25 + around, rel=0.05),
    ]


def asked_bytes(broker: ScriptedBroker) -> list[int]:
    return [
        each.topics[0].partitions[0].partition_max_bytes
        for each in broker.requests
        if isinstance(each, FetchRequest)
    ]


def test_a_range_that_was_left_halfway_does_not_answer_the_next(broker: ScriptedBroker) -> None:
    for _ in range(4):
        broker.append(batch(0, 10))
    with RangeReader(rules(broker.bootstrap)) as reading:
        first = reading.read(OffsetRange(PLACE, 0, 40), SCHEMA)
        next(first)
        first.close()
        assert offsets(reading.read(OffsetRange(PLACE, 20, 22), SCHEMA)) == [20, 21]


def test_a_batch_that_grows_when_decompressed_is_handed_over_in_pieces(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "ARROW_BATCH_BYTES", 1000)
    broker.append(batch(0, 1000, Codec.GZIP))
    found = list(read_range(OffsetRange(PLACE, 0, 1000), rules(broker.bootstrap), SCHEMA))
    assert len(found) > 5
    assert offsets(iter(found)) == list(range(1000))
    assert all(each.schema == SCHEMA for each in found)


def test_offsets_that_are_gone(broker: ScriptedBroker) -> None:
    broker.append(batch(0, 10))
    lost = OffsetRange(PLACE, 40, 50)
    with pytest.raises(DataLossError, match=r"\[40, 50\) of t-0"):
        list(read_range(lost, rules(broker.bootstrap), SCHEMA))
    assert list(read_range(lost, rules(broker.bootstrap, lenient=True), SCHEMA)) == []


def test_a_range_that_does_not_fill_is_not_waited_for_for_ever(broker: ScriptedBroker) -> None:
    broker.append(batch(0, 10))
    with pytest.raises(TimeoutError, match=r"offset 10 of t-0 .*pollTimeoutMs"):
        list(read_range(OffsetRange(PLACE, 0, 11), rules(broker.bootstrap), SCHEMA))


@pytest.mark.parametrize("waits", [False, True])
def test_a_broker_that_restarts_after_the_ranges_were_planned(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    broker.append(batch(0, 10))
    with socket.socket() as gate:
        gate.bind(("127.0.0.1", 0))

        def start(_: float) -> None:
            gate.listen()
            monkeypatch.undo()
            broker._start(lambda: broker._serve(gate.accept()[0]))

        monkeypatch.setattr(reader.time, "sleep", start)
        away = rules(f"127.0.0.1:{gate.getsockname()[1]}")
        found = read_range(
            OffsetRange(PLACE, 0, 10),
            replace(away, poll_timeout_ms=60_000, waits_for_brokers=waits),
            SCHEMA,
        )
        if waits:
            assert offsets(found) == list(range(10))
        else:
            with pytest.raises(ConnectionFailedError):
                offsets(found)


def test_a_damaged_batch_is_an_error_unless_checks_are_off(broker: ScriptedBroker) -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-2] ^= 1
    broker.batches.append(bytes(damaged))
    whole = OffsetRange(PLACE, 0, 3)
    with pytest.raises(CorruptLogError):
        list(read_range(whole, rules(broker.bootstrap), SCHEMA))
    unchecked = rules(broker.bootstrap, check_crcs="false")
    assert offsets(read_range(whole, unchecked, SCHEMA)) == [0, 1, 2]


def test_aborted_records_are_left_out() -> None:
    marker = build_marker_batch(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=5,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=4,
    )
    transaction = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
    data = batch(0, 2, **transaction) + batch(2, 2) + marker + batch(5, 2, **transaction)
    fetched = Fetched(
        topic_partition=PLACE,
        data=memoryview(data),
        fetch_offset=0,
        next_offset=7,
        high_watermark=7,
        last_stable_offset=7,
        log_start_offset=0,
        aborted_transactions=[AbortedTransaction(producer_id=5, first_offset=0)],
    )
    found = reader._decode(fetched, OffsetRange(PLACE, 0, 7), rules(), SCHEMA)
    assert offsets(found) == [2, 3, 5, 6]
