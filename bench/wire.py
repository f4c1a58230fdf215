"""The few requests the load sends, built by hand so that no broker's own code measures itself.

Produce 10 and Fetch 16 are what librdkafka 2.x sends to a broker of today; the requests of the
set-up use old versions that are short to write and that both brokers serve. All integers are big
endian; "compact" lengths are unsigned varints of length + 1 (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
CREATE_TOPICS, DELETE_TOPICS = 19, 20
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 10, 16, 12
LIST_OFFSETS_VERSION, CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION = 1, 2, 1

CLIENT_ID = b"bench"
NO_TAGS = b"\x00"
LATEST, EARLIEST = -1, -2

# Fetch response up to the length of the records: size, correlation id, tags, throttle, error,
# session, one topic, its id, one partition, index, error, three offsets, aborted, read replica.
FETCH_ERROR_AT = 4 + 4 + 1 + 4
FETCH_PARTITION_ERROR_AT = FETCH_ERROR_AT + 2 + 4 + 1 + 16 + 1 + 4
FETCH_RECORDS_LENGTH_AT = FETCH_PARTITION_ERROR_AT + 2 + 24 + 1 + 4
FETCH_HEAD_BYTES = FETCH_RECORDS_LENGTH_AT + 5
# Tags of the partition, of the topic and of the response follow the records.
FETCH_TAIL_BYTES = 3


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag_varint(value: int) -> bytes:
    return unsigned_varint(value << 1 if value >= 0 else ((-value) << 1) - 1)


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def compact_string(text: str) -> bytes:
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def frame(api_key: int, version: int, body: bytes, *, flexible: bool) -> bytes:
    """Put size and request header (version 1, or 2 when `flexible`) before a body."""
    header = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    if flexible:
        header += NO_TAGS
    return struct.pack(">i", len(header) + len(body)) + header + body


def partitioned_produce_request(
    topic: str, partitions: int, batch: bytes, *, acks: int, first: int = 0
) -> bytes:
    """Produce the same batch to `partitions` partitions beginning at `first`."""
    one = unsigned_varint(len(batch) + 1) + batch + NO_TAGS
    data = b"".join(struct.pack(">i", first + index) + one for index in range(partitions))
    body = b"".join(
        (
            b"\x00",  # no transactional id
            struct.pack(">hi", acks, 30_000),
            unsigned_varint(2),
            compact_string(topic),
            unsigned_varint(partitions + 1),
            data,
            NO_TAGS,
            NO_TAGS,
        )
    )
    return frame(PRODUCE, PRODUCE_VERSION, body, flexible=True)


def produce_request(topic: str, partition: int, batch: bytes, *, acks: int) -> bytes:
    return partitioned_produce_request(topic, 1, batch, acks=acks, first=partition)


def produce_error_at(topic: str) -> int:
    """Where the partition's error code stands in the answer to `produce_request`."""
    return 4 + 4 + 1 + 1 + len(compact_string(topic)) + 1 + 4


def produce_response(topic: str) -> bytes:
    """Return a success for partition 0 with its size prefix, for the loop that only receives."""
    partition = struct.pack(">ihqqq", 0, 0, 0, -1, 0) + b"\x01\x00" + NO_TAGS
    topics = b"\x02" + compact_string(topic) + b"\x02" + partition + NO_TAGS
    body = struct.pack(">i", 1) + NO_TAGS + topics + struct.pack(">i", 0) + NO_TAGS
    return struct.pack(">i", len(body)) + body


def fetch_request(topic_id: bytes, partition: int, *, offset: int, max_bytes: int) -> bytes:
    """Fetch from one partition outside any session; `max_bytes` holds per request and partition."""
    body = b"".join(
        (
            struct.pack(">iiibii", 500, 1, max_bytes, 0, 0, -1),
            b"\x02",
            topic_id,
            b"\x02",
            struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes),
            NO_TAGS,
            NO_TAGS,
            b"\x01",  # nothing forgotten
            b"\x01",  # empty rack id
            NO_TAGS,
        )
    )
    return frame(FETCH, FETCH_VERSION, body, flexible=True)


def fetch_response_head(records_bytes: int) -> bytes:
    """Return a fetch response up to its records, for the loop that only sends a file."""
    length = unsigned_varint(records_bytes + 1)
    after_size = b"".join(
        (
            struct.pack(">i", 1) + NO_TAGS,
            struct.pack(">ihi", 0, 0, 0),
            b"\x02" + bytes(16),
            b"\x02" + struct.pack(">ihqqq", 0, 0, 0, 0, 0),
            b"\x00" + struct.pack(">i", -1),
            length,
        )
    )
    size = len(after_size) + records_bytes + FETCH_TAIL_BYTES
    return struct.pack(">i", size) + after_size


def create_topic_request(
    topic: str, partitions: int, settings: Mapping[str, str], *, replicas: int = 1
) -> bytes:
    configs = b"".join(string(name) + string(value) for name, value in settings.items())
    body = b"".join(
        (
            struct.pack(">i", 1),
            string(topic),
            struct.pack(">ihi", partitions, replicas, 0),
            struct.pack(">i", len(settings)),
            configs,
            struct.pack(">ib", 60_000, 0),
        )
    )
    return frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, body, flexible=False)


def delete_topic_request(topic: str) -> bytes:
    body = struct.pack(">i", 1) + string(topic) + struct.pack(">i", 60_000)
    return frame(DELETE_TOPICS, DELETE_TOPICS_VERSION, body, flexible=False)


def list_offsets_request(topic: str, partitions: int, timestamp: int) -> bytes:
    entries = b"".join(struct.pack(">iq", index, timestamp) for index in range(partitions))
    head = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", partitions)
    return frame(LIST_OFFSETS, LIST_OFFSETS_VERSION, head + entries, flexible=False)


def metadata_request(topic: str) -> bytes:
    body = b"\x02" + bytes(16) + compact_string(topic) + NO_TAGS + b"\x00\x00" + NO_TAGS
    return frame(METADATA, METADATA_VERSION, body, flexible=True)


@dataclass(slots=True)
class Reader:
    """A cursor over one response without its size prefix."""

    data: bytes
    at: int = 0

    def take(self, layout: str) -> tuple[int, ...]:
        """Read fixed fields, `struct` notation without the byte order."""
        fields: tuple[int, ...] = struct.unpack_from(">" + layout, self.data, self.at)
        self.at += struct.calcsize(">" + layout)
        return fields

    def raw(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str | None:
        (size,) = self.take("h")
        return None if size < 0 else self.raw(size).decode()

    def compact_string(self) -> str | None:
        size = self.varint() - 1
        return None if size < 0 else self.raw(size).decode()

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.raw(self.varint())
