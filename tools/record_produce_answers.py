"""Ask Apache Kafka what it says to produced batches, right and wrong, and keep the answers.

    python tools/record_produce_answers.py HOST:PORT LOG_DIRECTORY > produce_answers.json

The broker must be a fresh one on this machine: its log files are read to see what it stored.
``tests/unit/records/test_produce_answers.py`` holds the answers, kept beside it, against our own
validation.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from millstream.records.batch import HEADER, HEADER_SIZE
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec, compress
from millstream.records.crc32c import checksum
from millstream.records.record import Record
from millstream.records.varint import encode_varint

HOUR_MS = 3_600_000
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "append": {"message.timestamp.type": "LogAppendTime"},
    "before": {"message.timestamp.before.max.ms": str(HOUR_MS)},
    "small": {"max.message.bytes": "1000"},
    "gzip": {"compression.type": "gzip"},
    "uncompressed": {"compression.type": "uncompressed"},
    "gzipappend": {"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"},
}
FIELDS = [
    "base_offset",
    "length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
]


def patched(data: bytes, **fields: int) -> bytes:
    """Return the batch with these header fields, and a CRC that holds unless ``crc`` is one."""
    values = dict(zip(FIELDS, HEADER.unpack_from(data), strict=True)) | fields
    out = bytearray(HEADER.pack(*values.values()) + data[HEADER_SIZE:])
    if "crc" not in fields:
        struct.pack_into(">I", out, 17, checksum(memoryview(out)[21:]))
    return bytes(out)


def with_payload(payload: bytes, *, count: int, now: int, codec: int = 0, **fields: int) -> bytes:
    """Return a batch of ``count`` records whose payload is these bytes."""
    empty = encode_batch([Record(0, now, None, None)])[:HEADER_SIZE]
    length = HEADER_SIZE + len(payload) - 12
    header = {"length": length, "attributes": codec, "count": count, "last_offset_delta": count - 1}
    return patched(empty + payload, **(header | fields))


def raw_record(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def rest(values: list[int | bytes]) -> bytes:
    return b"".join(v if isinstance(v, bytes) else encode_varint(v) for v in values)


Scenario = tuple[str, str, int, bytes]


def framing(now: int) -> Iterator[Scenario]:
    one = encode_batch([Record(0, now, b"k", b"v" * 40)])
    yield "empty", "plain", 8, b""
    for cut in (1, 11, 12, 16, 17, 26, 30, 60, 61, len(one) - 1):
        yield f"cut at {cut}", "plain", 8, one[:cut]
    for length in (-1, -(2**31), 0, 13, 14, 20, 48, 49, 50, 2**31 - 13, 2**31 - 12, 2**31 - 1):
        yield f"length {length}", "plain", 8, patched(one, length=length)
    yield "length 14 alone", "plain", 8, patched(one, length=14)[:26]
    yield "length 48 alone", "plain", 8, patched(one, length=48)[:60]
    yield "length 49 alone", "plain", 8, patched(one[:61], length=49)
    for tail in (b"x", b"x" * 11, bytes(12), b"\0" * 8 + b"\0\0\0\x64", bytes(17)):
        yield f"tail {tail.hex()}", "plain", 8, one + tail
    for magic in (0, 1, 2, 3, 127, 128, 255):
        tail = b"\0" * 8 + b"\0\0\0\x64" + b"\0" * 4 + bytes((magic,))
        yield f"tail with magic {magic}", "plain", 8, one + tail
    yield "two batches", "plain", 8, one + one
    yield "two batches, second cut", "plain", 8, one + one[:-1]
    yield "two batches, second corrupt", "plain", 8, one + patched(one, crc=1)
    for magic in (0, 1, 3, -1, -128, 127):
        yield f"magic {magic}", "plain", 8, patched(one, magic=magic)
    for magic in (0, 1):
        body = struct.pack(">bb", magic, 0) + (struct.pack(">q", now) if magic else b"")
        body += struct.pack(">ii", -1, 5) + b"hello"
        message = struct.pack(">qiI", 0, 4 + len(body), zlib.crc32(body)) + body
        yield f"a message of magic {magic}", "plain", 8, message


def headers(now: int) -> Iterator[Scenario]:
    three = encode_batch([Record(0, now + i, b"k", b"v") for i in range(3)])
    one = encode_batch([Record(0, now, b"k", b"v")])
    yield "three records", "plain", 8, three
    for epoch in (-1, 0, 7):
        yield f"leader epoch {epoch}", "plain", 8, patched(one, leader_epoch=epoch)
    for base in (1, -1, 2**40):
        yield f"base offset {base}", "plain", 8, patched(one, base_offset=base)
    yield "crc", "plain", 8, patched(one, crc=1)
    yield "crc and base offset", "plain", 8, patched(one, crc=1, base_offset=1)
    yield "crc and control", "plain", 8, patched(one, crc=1, attributes=0x20)
    for attributes in (5, 6, 7, 0x20, 0x30, 0x40, 0x80, 0x100, 0x4000, -0x8000):
        yield f"attributes {attributes:#x}", "plain", 8, patched(one, attributes=attributes)
    for delta, count in (
        (0, 0), (-1, 0), (-1, 1), (0, -1), (-2, -1), (1, 1), (0, 2), (0, 3), (2, 1), (1, 2),
        (2**31 - 2, 2**31 - 1), (2**31 - 1, 2**31 - 1), (-(2**31), -(2**31)),
    ):  # fmt: skip
        bad = patched(one, last_offset_delta=delta, count=count)
        yield f"one record, delta {delta} count {count}", "plain", 8, bad
    for delta, count in ((0, 1), (1, 2), (3, 4), (1, 3), (2, 2), (99, 100)):
        bad = patched(three, last_offset_delta=delta, count=count)
        yield f"three records, delta {delta} count {count}", "plain", 8, bad
    for pid, epoch, sequence in (
        (-1, -1, 0), (-1, -1, 5), (-2, -1, -1), (41, 0, -1), (42, 0, -2), (-1, 3, -1), (-5, 0, 0),
    ):  # fmt: skip
        bad = patched(one, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
        yield f"producer {pid} {epoch} {sequence}", "plain", 8, bad
    big = encode_batch([Record(0, now, b"k", b"v" * 1000)])
    yield "too large", "small", 8, big
    yield "too large, bad crc", "small", 8, patched(big, crc=1)
    yield "too large, control", "small", 8, patched(big, attributes=0x20)
    yield "too large, base offset", "small", 8, patched(big, base_offset=1)


def timestamps(now: int) -> Iterator[Scenario]:
    def at(*stamps: int, codec: int = 0, **fields: int) -> bytes:
        records = [Record(0, stamp, b"k", b"v") for stamp in stamps]
        data = encode_batch(records, BatchOptions(codec=Codec(codec)))
        return patched(data, **fields) if fields else data

    for name, topic in (("create", "plain"), ("append", "append"), ("before", "before")):
        yield f"{name}: none", topic, 8, at(-1)
        yield f"{name}: minus two", topic, 8, at(-2, base_timestamp=-2, max_timestamp=-2)
        yield f"{name}: zero", topic, 8, at(0)
        yield f"{name}: future", topic, 8, at(now + 2 * HOUR_MS)
        yield f"{name}: second of three in the future", topic, 8, at(now, now + 3 * HOUR_MS, now)
        yield f"{name}: second of three old", topic, 8, at(now, now - 2 * HOUR_MS, now + 1)
        yield f"{name}: old, gzip", topic, 8, at(now, now - 2 * HOUR_MS, codec=1)
        yield f"{name}: type set", topic, 8, at(now, now + 5, attributes=8)
        yield f"{name}: type set, none", topic, 8, at(-1, -1, attributes=8)
        yield f"{name}: type set, future", topic, 8, at(now, now + 2 * HOUR_MS, attributes=8)
        yield f"{name}: falling", topic, 8, at(now, now - 5, now - 9)
        for lie in (now + 7, now - 7, now + 2 * HOUR_MS, -1, 0):
            bad = at(now, now + 1, max_timestamp=lie)
            yield f"{name}: max is {lie - now if lie > 0 else lie}", topic, 8, bad
        bad = at(now, now + 1, base_timestamp=now - 100)
        yield f"{name}: base moved", topic, 8, bad
        bad = at(now, now + 1, codec=1, max_timestamp=now + 7)
        yield f"{name}: gzip, max is 7", topic, 8, bad


def record_structure(now: int) -> Iterator[Scenario]:
    def batch(body: bytes, **fields: int) -> bytes:
        return with_payload(body, count=1, now=now, **fields)

    good = raw_record(rest([b"\0", 0, 0, -1, 2, b"ab", 0]))
    yield "structure: good", "plain", 8, batch(good)
    yield "structure: bytes after", "plain", 8, batch(good + b"x")
    yield "structure: second record unannounced", "plain", 8, batch(good + good)
    yield "structure: length short", "plain", 8, batch(encode_varint(7) + good[1:])
    yield "structure: length long", "plain", 8, batch(encode_varint(9) + good[1:])
    yield "structure: length long by two", "plain", 8, batch(encode_varint(9) + good[1:] + b"x")
    yield "structure: length negative", "plain", 8, batch(encode_varint(-1) + good[1:])
    bodies: list[tuple[str, list[int | bytes]]] = [
        ("attributes 1", [b"\1", 0, 0, -1, 2, b"ab", 0]),
        ("attributes 255", [b"\xff", 0, 0, -1, 2, b"ab", 0]),
        ("offset delta 5", [b"\0", 0, 5, -1, 2, b"ab", 0]),
        ("offset delta -5", [b"\0", 0, -5, -1, 2, b"ab", 0]),
        ("key length -5", [b"\0", 0, 0, -5, 2, b"ab", 0]),
        ("key too long", [b"\0", 0, 0, 9, 2, b"ab", 0]),
        ("value length -5", [b"\0", 0, 0, -1, -5, 0]),
        ("value too long", [b"\0", 0, 0, -1, 3, b"ab", 0]),
        ("value cut", [b"\0", 0, 0, -1, 1, b"ab", 0]),
        ("headers -1", [b"\0", 0, 0, -1, 2, b"ab", -1]),
        ("headers missing", [b"\0", 0, 0, -1, 2, b"ab", 1]),
        ("header key null", [b"\0", 0, 0, -1, 2, b"ab", 1, -1, -1]),
        ("header value null", [b"\0", 0, 0, -1, 2, b"ab", 1, 1, b"h", -1]),
        ("header value -2", [b"\0", 0, 0, -1, 2, b"ab", 1, 1, b"h", -2]),
        ("header key not UTF-8", [b"\0", 0, 0, -1, 2, b"ab", 1, 1, b"\xff", 0]),
        ("header empty", [b"\0", 0, 0, -1, 2, b"ab", 1, 0, 0]),
        ("header too long", [b"\0", 0, 0, -1, 2, b"ab", 1, 1, b"h", 4]),
        ("long varint", [b"\0", 0, b"\x80\x80\x80\x80\x00", -1, 2, b"ab", 0]),
        ("six-byte varint", [b"\0", 0, b"\x80\x80\x80\x80\x80\x00", -1, 2, b"ab", 0]),
        ("33-bit varint", [b"\0", 0, b"\x80\x80\x80\x80\x10", -1, 2, b"ab", 0]),
        ("cut after key", [b"\0", 0, 0, -1]),
        ("empty", []),
    ]
    for name, body in bodies:
        yield f"structure: {name}", "plain", 8, batch(raw_record(rest(body)))
        body_gzip = bytes(compress(1, raw_record(rest(body))))
        yield f"structure, gzip: {name}", "plain", 8, batch(body_gzip, codec=1)
    for codec in (1, 2, 3, 4):
        yield f"codec {codec}: garbage", "plain", 8, batch(b"\1\2\3garbage garbage", codec=codec)
        yield f"codec {codec}: nothing", "plain", 8, batch(b"", codec=codec)
        cut = bytes(compress(codec, good * 9))
        cut = with_payload(cut[:-3], count=9, now=now, codec=codec)
        yield f"codec {codec}: cut", "plain", 8, cut
        lie = with_payload(bytes(compress(codec, good * 2)), count=3, now=now, codec=codec)
        yield f"codec {codec}: count 3 of 2", "plain", 8, lie
        lie = with_payload(bytes(compress(codec, good * 3)), count=2, now=now, codec=codec)
        yield f"codec {codec}: count 2 of 3", "plain", 8, lie
        same = with_payload(bytes(compress(codec, good * 3)), count=3, now=now, codec=codec)
        yield f"codec {codec}: offset deltas 0 0 0", "plain", 8, same
    yield "offset deltas 0 0 0", "plain", 8, with_payload(good * 3, count=3, now=now)


def codecs(now: int) -> Iterator[Scenario]:
    records = [Record(i, now + i, b"k%d" % i, b"v" * 50, (("h", b"x"),)) for i in range(3)]
    for codec in Codec:
        data = encode_batch(records, BatchOptions(codec=codec))
        for topic in TOPICS:
            yield f"{codec.name} to {topic}", topic, 8, data
        for version in (3, 6, 7):
            yield f"{codec.name} in version {version}", "plain", version, data
    zstd = encode_batch(records, BatchOptions(codec=Codec.ZSTD))
    yield "zstd in version 6, two batches", "plain", 6, zstd + zstd
    yield "zstd in version 6, bad crc", "plain", 6, patched(zstd, crc=1)
    many = [Record(0, now + i % 5, b"key", b"value %d" % i) for i in range(100)]
    for codec in Codec:
        data = encode_batch(many, BatchOptions(codec=codec))
        yield f"100 records, {codec.name}", "plain", 8, data
        yield f"100 records, {codec.name}, to gzip", "gzip", 8, data
    wrong = patched(encode_batch(many), count=99, last_offset_delta=98)
    yield "99 of 100 records to gzip", "gzip", 8, wrong
    grown = [Record(0, now, b"k", bytes(3000))]
    yield (
        "large in zeros, gzip, to small",
        "small",
        8,
        encode_batch(grown, BatchOptions(codec=Codec.GZIP)),
    )


def keys(now: int) -> Iterator[Scenario]:
    for codec in Codec:
        options = BatchOptions(codec=codec)
        mixed = [Record(0, now, key, b"v") for key in (b"a", None, b"", None)]
        yield f"null keys, {codec.name}", "compacted", 8, encode_batch(mixed, options)
        empty = [Record(0, now, b"", b"v")]
        yield f"empty key, {codec.name}", "compacted", 8, encode_batch(empty, options)
        tombstone = [Record(0, now, b"a", None)]
        yield f"tombstone, {codec.name}", "compacted", 8, encode_batch(tombstone, options)
    both = [Record(0, now, None, b"v"), Record(0, now + 2 * HOUR_MS, b"k", b"v")]
    yield "null key and future", "compacted", 8, encode_batch(both)
    both = [Record(0, now + 2 * HOUR_MS, None, b"v")]
    yield "null key of the future", "compacted", 8, encode_batch(both)


def ask(connection: socket.socket, topic: str, version: int, records: bytes) -> dict[str, object]:
    """Send one Produce request (not flexible: 3 to 8) and read the partition's answer."""
    name = topic.encode()
    body = struct.pack(">hhih", 0, version, 1, 1) + b"c" + struct.pack(">hhi", -1, -1, 30000)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, 0, len(records))
    body += records
    connection.sendall(struct.pack(">i", len(body)) + body)
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
        more = connection.recv(65536)
        if not more:
            return {"closed": True}
        answer += more
    at = 4 + 4 + 4 + 2 + len(name) + 4
    _, error, base_offset, append_time = struct.unpack_from(">ihqq", answer, at)
    at += 22 + (8 if version >= 5 else 0)
    result: dict[str, object] = {
        "error": error,
        "base_offset": base_offset,
        "log_append_time_ms": append_time,
    }
    if version >= 8:
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        indexes = []
        for _ in range(count):
            index, length = struct.unpack_from(">ih", answer, at)
            indexes.append(index)
            at += 6 + max(length, 0)
        (length,) = struct.unpack_from(">h", answer, at)
        result["record_errors"] = indexes
        result["has_message"] = length >= 0
    return result


def main() -> None:
    address, directory = sys.argv[1:]
    host, port = address.split(":")
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(name, 1, 1, topic_configs=c) for name, c in TOPICS.items()])
    time.sleep(2)
    now = int(time.time() * 1000)
    answers = []
    connection = socket.create_connection((host, int(port)))
    for scenarios in (framing, headers, timestamps, record_structure, codecs, keys):
        for name, topic, version, records in scenarios(now):
            log = Path(directory, f"{topic}-0", "0" * 20 + ".log")
            before = log.stat().st_size
            answer = ask(connection, topic, version, records)
            if answer.get("closed"):
                connection = socket.create_connection((host, int(port)))
            stored = log.read_bytes()[before:]
            answers.append(
                {"name": name, "topic": topic, "version": version, "records": records.hex()}
                | answer
                | {"stored": stored.hex()}
            )
    print(f'{{"now_ms": {now}, "topics": {json.dumps(TOPICS)}, "answers": [')
    print(",\n".join(json.dumps(answer) for answer in answers))
    print("]}")


if __name__ == "__main__":
    main()
