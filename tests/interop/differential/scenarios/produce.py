"""Produce: batches right and wrong, acks, idempotent sequences, compression, addressing."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

from tests.interop.differential.batches import BASE_TIMESTAMP, Batch, Record, batch, old_message
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def read_back(s: Session, topic: str, partition: int = 0) -> None:
    """Record what lies in the log now, as a Fetch answer."""
    s.call(
        "Fetch",
        11,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[
            {
                "topic": topic,
                "partitions": [
                    {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 10_000_000}
                ],
            }
        ],
    )


def await_end(s: Session, topic: str, end: int) -> None:
    """Wait until consumers see ``end`` records: nothing says when, after acks=0."""
    part = {"partition_index": 0, "timestamp": -1}
    s.until(
        lambda answer: answer["topics"][0]["partitions"][0]["offset"] == end,
        "ListOffsets",
        5,
        replica_id=-1,
        topics=[{"name": topic, "partitions": [part]}],
    )


@scenario(versions="Produce")
def one_batch(s: Session, version: int) -> None:
    topic = s.topic()
    s.produce(batch("a", "b"), topic=topic, version=version)
    s.produce(batch("c"), topic=topic, version=version)
    read_back(s, topic)


@scenario(versions="Produce")
def unknown_topic(s: Session, version: int) -> None:
    s.produce(batch("a"), topic=s.name("absent"), version=version)


@scenario(versions="Produce")
def unknown_partition(s: Session, version: int) -> None:
    s.produce(batch("a"), topic=s.topic(), partition=7, version=version)


@scenario(versions="Produce")
def corrupt_batch(s: Session, version: int) -> None:
    s.produce(batch("a", crc=1), topic=s.topic(), version=version)


@scenario(versions="Produce")
def wrong_count(s: Session, version: int) -> None:
    s.produce(batch("a", count=2), topic=s.topic(), version=version)


@scenario(versions="Produce")
def acks_zero(s: Session, version: int) -> None:
    topic = s.topic()
    fields = s.produce_fields([(topic, 0, batch("a"))], version=version, acks=0)
    s.main.post("Produce", version, **fields)
    s.main.expect_unanswered()
    await_end(s, topic, 1)
    read_back(s, topic)


@scenario(versions=[3, 9, 13])
def acks_zero_with_an_error(s: Session, version: int) -> None:
    fields = s.produce_fields([(s.topic(), 5, batch("a"))], version=version, acks=0)
    s.main.post("Produce", version, **fields)
    s.main.expect_unanswered()


@scenario(cases={"corrupt": batch("a", crc=1), "two_batches": batch("a") * 2})
def acks_zero_with_a_bad_batch(s: Session, records: bytes | None) -> None:
    topic = s.topic()
    fields = s.produce_fields([(topic, 0, records)], version=9, acks=0)
    s.main.post("Produce", 9, **fields)
    s.main.expect_unanswered()
    read_back(s, topic)


@scenario(versions=[3, 9, 13], cases={"one": 1, "two": 2, "minus_two": -2, "many": 32767})
def acks_value(s: Session, acks: int, version: int) -> None:
    topic = s.topic()
    s.produce(batch("a"), topic=topic, version=version, acks=acks)
    read_back(s, topic)


@scenario(versions=[0, 1, 2, 14])
def version_not_served(s: Session, version: int) -> None:
    """Kafka advertises 0 to 2 and refuses them."""
    topic = s.topic()
    body = b"\xff\xff\x00\x00\x03\xe8\x00\x00\x00\x00" if version < 3 else b"\0" * 20
    header = b"\0\0" + version.to_bytes(2, "big") + b"\0\0\0\7\0\1x"
    s.main.post_raw("Produce", 3, header + body)
    s.main.expect_unanswered()
    read_back(s, topic)


FLAWED: dict[str, Callable[[], bytes | None]] = {
    "no_bytes": lambda: b"",
    "no_records": lambda: Batch(records=()).encode(),
    "no_records_but_a_delta": lambda: Batch(records=(), last_offset_delta=3).encode(),
    "two_batches": lambda: batch("a") + batch("b"),
    "cut_off_header": lambda: batch("a")[:40],
    "cut_off_payload": lambda: batch("a")[:-3],
    "cut_off_second_batch": lambda: batch("a") + batch("b")[:-3],
    "garbage_behind": lambda: batch("a") + b"garbage",
    "zeros_behind": lambda: batch("a") + bytes(100),
    "only_length_and_offset": lambda: batch("a")[:12],
    "seventeen_bytes": lambda: batch("a")[:17],
    "length_zero": lambda: batch("a", length=0),
    "length_negative": lambda: batch("a", length=-5),
    "length_too_small_for_a_header": lambda: batch("a", length=20),
    "length_one_less": lambda: batch("a", length=49 + 11),
    "length_huge": lambda: batch("a", length=2**31 - 1),
    "magic_0": lambda: old_message(0),
    "magic_1": lambda: old_message(1),
    "magic_0_in_a_batch": lambda: batch("a", magic=0),
    "magic_1_in_a_batch": lambda: batch("a", magic=1),
    "magic_3": lambda: batch("a", magic=3),
    "magic_negative": lambda: batch("a", magic=-1),
    "wrong_crc": lambda: batch("a", crc=0xDEADBEEF),
    "flipped_payload_bit": lambda: batch("abc")[:-2] + b"\x01\x00",
    "base_offset_1": lambda: batch("a", base_offset=1),
    "base_offset_negative": lambda: batch("a", base_offset=-1),
    "base_offset_large": lambda: batch("a", base_offset=1 << 40),
    "leader_epoch_set": lambda: batch("a", leader_epoch=17),
    "count_larger": lambda: batch("a", "b", count=3),
    "count_smaller": lambda: batch("a", "b", count=1),
    "count_zero": lambda: batch("a", count=0),
    "count_negative": lambda: batch("a", count=-1),
    "last_delta_larger": lambda: batch("a", "b", last_offset_delta=2),
    "last_delta_smaller": lambda: batch("a", "b", last_offset_delta=0),
    "last_delta_negative": lambda: batch("a", last_offset_delta=-1),
    "both_larger": lambda: batch("a", last_offset_delta=1, count=2),
    "control": lambda: Batch(
        records=[Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")], attributes=0x20
    ).encode(),
    "control_of_a_transaction": lambda: Batch(
        records=[Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")],
        attributes=0x30,
        producer_id=77_000_001,
        producer_epoch=0,
    ).encode(),
    "log_append_time_bit": lambda: batch("a", attributes=0x08),
    "unused_attribute_bits": lambda: batch("a", attributes=0x4000),
    "delete_horizon_bit": lambda: batch("a", attributes=0x40),
    "codec_5": lambda: batch("a", attributes=5),
    "codec_7": lambda: batch("a", attributes=7),
    "gzip_bit_on_plain_payload": lambda: batch("a", attributes=1),
    "transactional_without_id": lambda: batch(
        "a", attributes=0x10, producer_id=77_000_002, producer_epoch=0, base_sequence=0
    ),
    "payload_garbage": lambda: Batch(payload=b"\xff" * 30).encode(),
    "payload_empty_count_1": lambda: Batch(payload=b"").encode(),
    "record_length_negative": lambda: Batch(payload=b"\x01" + b"\0" * 6).encode(),
    "record_length_too_long": lambda: Batch(payload=b"\x7e" + b"\0" * 6).encode(),
    "record_deltas_repeat": lambda: Batch(
        records=[Record(offset_delta=0), Record(offset_delta=0)]
    ).encode(),
    "record_deltas_backwards": lambda: Batch(
        records=[Record(offset_delta=1), Record(offset_delta=0)]
    ).encode(),
    "record_deltas_with_a_gap": lambda: Batch(
        records=[Record(offset_delta=0), Record(offset_delta=5)]
    ).encode(),
    "bytes_behind_the_records": lambda: Batch(trailing=b"tail").encode(),
    "negative_header_count": lambda: Batch(payload=b"\x0e\0\0\0\x01\x02a\x01").encode(),
    "null_header_key": lambda: Batch(payload=b"\x12\0\0\0\x01\x02a\x02\x01\x01").encode(),
    "null_key_and_value": lambda: Batch(records=[Record(value=None)]).encode(),
    "empty_key_and_value": lambda: Batch(records=[Record(key=b"", value=b"")]).encode(),
    "headers": lambda: Batch(
        records=[Record(headers=[(b"k", b"v"), (b"k", None), (b"", b"")])]
    ).encode(),
    "no_timestamp": lambda: batch("a", base_timestamp=-1),
    "max_timestamp_too_small": lambda: batch("a", "b", max_timestamp=BASE_TIMESTAMP - 5),
    "max_timestamp_too_large": lambda: batch("a", "b", max_timestamp=BASE_TIMESTAMP + 5000),
    "max_timestamp_minus_one": lambda: batch("a", max_timestamp=-1),
    "record_timestamps_back_and_forth": lambda: Batch(
        records=[Record(timestamp_delta=each) for each in (5, -7, 12, 3)]
    ).encode(),
    "timestamp_in_the_year_2000": lambda: batch("a", base_timestamp=946_684_800_000),
    "timestamp_in_the_year_2100": lambda: batch("a", base_timestamp=4_102_444_800_000),
    "timestamp_negative": lambda: batch("a", base_timestamp=-1000),
    "large_record": lambda: Batch(records=[Record(b"x" * 900_000)]).encode(),
    "many_records": lambda: batch(*["r"] * 3000),
}


@scenario(cases=FLAWED)
def batch_of_one_kind(s: Session, make: Callable[[], bytes | None]) -> None:
    topic = s.topic()
    s.produce(make(), topic=topic, version=9)
    read_back(s, topic)


@scenario(
    cases=[
        "two_batches",
        "magic_1",
        "magic_3",
        "count_larger",
        "control",
        "length_negative",
        "base_offset_1",
        "transactional_without_id",
    ],
    versions=[3, 7, 8, 13],
)
def flawed_batch_by_version(s: Session, kind: str, version: int) -> None:
    s.produce(FLAWED[kind](), topic=s.topic(), version=version)


@scenario(cases=["control", "log_append_time_bit", "record_deltas_repeat", "count_larger"])
def flawed_compressed_batch(s: Session, kind: str) -> None:
    build: dict[str, Batch] = {
        "control": Batch(attributes=0x20, codec="gzip"),
        "log_append_time_bit": Batch(attributes=8, codec="gzip"),
        "record_deltas_repeat": Batch(
            records=[Record(offset_delta=0), Record(offset_delta=0)], codec="gzip"
        ),
        "count_larger": Batch(count=2, last_offset_delta=1, codec="gzip"),
    }
    topic = s.topic()
    s.produce(build[kind].encode(), topic=topic)
    read_back(s, topic)


@scenario(cases=["gzip", "snappy", "lz4", "zstd"], versions=[3, 6, 7, 9, 13])
def compressed(s: Session, codec: str, version: int) -> None:
    topic = s.topic()
    made = Batch(records=[Record(b"value " * 20) for _ in range(20)], codec=codec).encode()
    s.produce(made, topic=topic, version=version)
    read_back(s, topic)


@scenario(cases=["gzip", "snappy", "lz4", "zstd"])
def compressed_without_records(s: Session, codec: str) -> None:
    s.produce(Batch(records=(), codec=codec).encode(), topic=s.topic())


@scenario(cases=["gzip", "snappy", "lz4", "zstd"])
def codec_bit_on_garbage(s: Session, codec: str) -> None:
    number = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]
    topic = s.topic()
    s.produce(Batch(payload=b"no such stream", attributes=number).encode(), topic=topic)


@scenario(cases=["uncompressed", "producer"])
def topic_compression(s: Session, kind: str) -> None:
    topic = s.topic(configs={"compression.type": kind})
    s.produce(Batch(codec="gzip").encode(), topic=topic)
    s.produce(batch("a"), topic=topic)
    s.call(
        "ListOffsets",
        5,
        replica_id=-1,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    )


@scenario(versions="Produce")
def too_large_for_the_topic(s: Session, version: int) -> None:
    topic = s.topic(configs={"max.message.bytes": "1000"})
    s.produce(batch("x" * 1000), topic=topic, version=version)
    s.produce(batch("x" * 500), topic=topic, version=version)


@scenario(cases={"exactly": 0, "one_more": 1})
def largest_batch(s: Session, excess: int) -> None:
    topic = s.topic(configs={"max.message.bytes": "2000"})
    fixed = len(batch("x" * 1000)) - 1000
    s.produce(batch("x" * (2000 - fixed + excess)), topic=topic)


@scenario
def too_large_for_the_broker(s: Session) -> None:
    s.produce(batch("x" * 1_100_000), topic=s.topic())


@scenario
def larger_than_a_segment(s: Session) -> None:
    topic = s.topic(configs={"segment.bytes": "1048576", "max.message.bytes": "3000000"})
    payload = random.Random(1).randbytes(1_200_000)
    s.produce(Batch(records=[Record(payload)]).encode(), topic=topic)


@scenario(cases=["CreateTime", "LogAppendTime"], versions=[3, 13])
def timestamp_type(s: Session, kind: str, version: int) -> None:
    topic = s.topic(configs={"message.timestamp.type": kind})
    s.produce(batch("a", "b"), topic=topic, version=version)
    read_back(s, topic)


@scenario(cases=["none", "gzip"])
def log_append_time_rewrites_the_header(s: Session, codec: str) -> None:
    topic = s.topic(configs={"message.timestamp.type": "LogAppendTime"})
    made = Batch(
        records=[Record(timestamp_delta=each) for each in (0, 50)],
        codec=None if codec == "none" else codec,
    )
    s.produce(made.encode(), topic=topic)
    read_back(s, topic)


@scenario(cases={"before": -1, "after": 1})
def timestamp_outside_the_limits(s: Session, sign: int) -> None:
    configs = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}
    topic = s.topic(configs=configs)
    year_ms = 31_536_000_000
    base = BASE_TIMESTAMP + (0 if sign < 0 else 60 * year_ms)
    s.produce(batch("a", "b", base_timestamp=base), topic=topic, version=9)
    s.produce(batch("a", "b", base_timestamp=base), topic=topic, version=5)


@scenario(versions=[3, 8, 13])
def compacted_topic_without_key(s: Session, version: int) -> None:
    topic = s.topic(configs={"cleanup.policy": "compact"})
    s.produce(batch("a"), topic=topic, version=version)
    mixed = Batch(records=[Record(key=b"k"), Record(), Record(key=b"l"), Record()])
    s.produce(mixed.encode(), topic=topic, version=version)
    s.produce(Batch(records=[Record(key=b"k", value=None)]).encode(), topic=topic, version=version)


@scenario(cases=["compact,delete", "delete,compact"])
def compacted_and_deleted_topic_without_key(s: Session, policy: str) -> None:
    s.produce(batch("a"), topic=s.topic(configs={"cleanup.policy": policy}))


def _idempotent(
    sequence: int, count: int = 1, *, pid: int = 77_100_000, epoch: int = 0, **more: object
) -> bytes:
    return batch(
        *["r"] * count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **more
    )


SEQUENCES: dict[str, list[tuple[int, int]]] = {
    "in_order": [(0, 3), (3, 2), (5, 1)],
    "starts_at_5": [(5, 1), (6, 1)],
    "gap": [(0, 1), (2, 1)],
    "gap_then_right": [(0, 1), (2, 1), (1, 1)],
    "duplicate": [(0, 3), (0, 3)],
    "duplicate_of_five_ago": [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (0, 1)],
    "duplicate_of_six_ago": [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (0, 1)],
    "duplicate_with_fewer_records": [(0, 3), (0, 2)],
    "duplicate_with_more_records": [(0, 3), (0, 4)],
    "overlap": [(0, 3), (2, 3)],
    "inside": [(0, 5), (1, 2)],
    "zero_again": [(0, 1), (1, 1), (0, 2)],
    "wraps": [(2**31 - 2, 2), (0, 1)],
    "wraps_inside_a_batch": [(2**31 - 2, 4), (2, 1)],
    "negative": [(-2, 1)],
}


@scenario(cases=SEQUENCES)
def sequences(s: Session, steps: list[tuple[int, int]]) -> None:
    s.normaliser.literal_producer_ids.add(77_100_000)
    topic = s.topic()
    for sequence, count in steps:
        s.produce(_idempotent(sequence, count), topic=topic)
    read_back(s, topic)


@scenario(versions="Produce")
def idempotent_by_version(s: Session, version: int) -> None:
    s.normaliser.literal_producer_ids.add(77_100_000)
    topic = s.topic()
    for sequence in (0, 1, 1, 0, 5):
        s.produce(_idempotent(sequence), topic=topic, version=version)


EPOCHS: dict[str, list[tuple[int, int]]] = {
    "higher_from_zero": [(0, 0), (1, 0)],
    "higher_not_from_zero": [(0, 0), (1, 3)],
    "lower": [(2, 0), (1, 1)],
    "lower_duplicate": [(1, 0), (2, 0), (1, 0)],
    "first_epoch_7": [(7, 0), (7, 1)],
    "max_epoch": [(32767, 0), (32767, 1)],
    "negative_epoch": [(-1, 0)],
}


@scenario(cases=EPOCHS)
def producer_epochs(s: Session, steps: list[tuple[int, int]]) -> None:
    s.normaliser.literal_producer_ids.add(77_100_000)
    topic = s.topic()
    for epoch, sequence in steps:
        s.produce(_idempotent(sequence, epoch=epoch), topic=topic)
    read_back(s, topic)


@scenario(
    cases={
        "id_without_sequence": (5_000_000, 0, -1),
        "id_without_epoch": (5_000_000, -1, 0),
        "sequence_without_id": (-1, -1, 0),
        "epoch_without_id": (-1, 0, -1),
        "negative_id": (-5, 0, 0),
    }
)
def half_an_identity(s: Session, fields: tuple[int, int, int]) -> None:
    s.normaliser.literal_producer_ids.update({5_000_000, -5})
    pid, epoch, sequence = fields
    topic = s.topic()
    s.produce(_idempotent(sequence, pid=pid, epoch=epoch), topic=topic)
    read_back(s, topic)


@scenario
def idempotent_with_an_id_from_the_broker(s: Session) -> None:
    made = s.quiet("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=60_000)
    topic = s.topic()
    for sequence in (0, 1, 1):
        s.produce(_idempotent(sequence, pid=made["producer_id"]), topic=topic)
    read_back(s, topic)


@scenario
def sequences_are_per_partition(s: Session) -> None:
    topic = s.topic(partitions=2)
    s.produce(_idempotent(0), topic=topic, partition=0)
    s.produce(_idempotent(4), topic=topic, partition=1)
    s.produce(_idempotent(1), topic=topic, partition=0)
    s.produce(_idempotent(0), topic=topic, partition=1)


@scenario
def sequence_survives_delete_records(s: Session) -> None:
    topic = s.topic()
    s.produce(_idempotent(0), topic=topic)
    s.quiet(
        "DeleteRecords",
        1,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}],
        timeout_ms=5000,
    )
    s.produce(_idempotent(0), topic=topic)
    s.produce(_idempotent(1), topic=topic)
    s.produce(_idempotent(5), topic=topic)


@scenario(versions=[3, 9, 13])
def several_topics_and_partitions(s: Session, version: int) -> None:
    one, two = s.topic("one", 2), s.topic("two")
    fields = s.produce_fields(
        [
            (one, 0, batch("a")),
            (one, 1, batch("b", crc=3)),
            (two, 0, batch("c")),
            (two, 3, batch("d")),
        ],
        version=version,
    )
    s.call("Produce", version, **fields)


@scenario(versions=[3, 9, 13])
def same_partition_twice(s: Session, version: int) -> None:
    topic = s.topic()
    fields = s.produce_fields([(topic, 0, batch("a")), (topic, 0, batch("b"))], version=version)
    s.call("Produce", version, **fields)


@scenario(versions=[3, 9, 13])
def nothing_to_produce(s: Session, version: int) -> None:
    s.call("Produce", version, acks=-1, timeout_ms=1000, topic_data=[])


@scenario(versions=[3, 9, 13])
def topic_without_partitions(s: Session, version: int) -> None:
    topic = s.topic()
    named = s.topic_ref(topic, by_id=version >= 13)
    s.call(
        "Produce", version, acks=-1, timeout_ms=1000, topic_data=[named | {"partition_data": []}]
    )


@scenario(cases={"empty": "", "dot": ".", "slash": "a/b", "too_long": "x" * 250, "space": "a b"})
def illegal_topic_name(s: Session, name: str) -> None:
    s.produce(batch("a"), topic=name, version=9)


@scenario(cases=["zero", "random"])
def unknown_topic_id(s: Session, kind: str) -> None:
    topic_id = "0" * 32 if kind == "zero" else os.urandom(16).hex()
    s.call(
        "Produce",
        13,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            {"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch("a")}]}
        ],
    )


@scenario(versions=[9, 13])
def deleted_topic(s: Session, version: int) -> None:
    topic = s.topic()
    s.quiet("DeleteTopics", 5, topic_names=[topic], timeout_ms=10_000)
    s.await_no_topic(topic)
    s.produce(batch("a"), topic=topic, version=version)


@scenario
def internal_topic(s: Session) -> None:
    """The offsets topic takes no records from ordinary clients."""
    s.produce(batch("a"), topic="__consumer_offsets", version=9)


@scenario(cases={"negative": -1, "min": -(2**31), "max": 2**31 - 1})
def odd_partition(s: Session, partition: int) -> None:
    s.produce(batch("a"), topic=s.topic(), partition=partition)


@scenario(cases={"zero": 0, "negative": -1})
def odd_timeout(s: Session, timeout_ms: int) -> None:
    fields = s.produce_fields([(s.topic(), 0, batch("a"))], version=9) | {"timeout_ms": timeout_ms}
    s.call("Produce", 9, **fields)


@scenario(versions=[3, 9, 13])
def pipelined_requests_are_answered_in_order(s: Session, version: int) -> None:
    topic = s.topic()
    for value in ("a", "b", "c"):
        fields = s.produce_fields([(topic, 0, batch(value))], version=version)
        s.main.post("Produce", version, **fields)
    s.main.post("ApiVersions", 0)
    for _ in range(3):
        s.main.receive()


@scenario(versions=[3, 9, 12, 13], cases={"plain": 0, "idempotent": 1, "transactional": 2})
def with_a_transactional_id(s: Session, kind: int, version: int) -> None:
    """A transactional id nobody has begun a transaction with, and batches of three kinds."""
    s.normaliser.literal_producer_ids.add(77_100_000)
    topic = s.topic()
    records = [batch("a"), _idempotent(0), _idempotent(0, attributes=0x10)][kind]
    s.produce(records, topic=topic, version=version, transactional_id=s.name("txn"))


@scenario
def min_insync_replicas_above_the_replication_factor(s: Session) -> None:
    topic = s.topic(configs={"min.insync.replicas": "3"})
    s.produce(batch("a"), topic=topic, acks=-1)
    s.produce(batch("a"), topic=topic, acks=1)
