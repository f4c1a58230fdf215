"""A blocking connection for what comes before and after a measurement: topics and offsets."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from types import TracebackType

from bench import wire
from bench.peers.subject import Node

TOPIC_ALREADY_EXISTS = 36
READY_TIMEOUT_S = 300.0
RETRY_S = 0.002


class BrokerAnswerError(Exception):
    """A broker answered a request of the set-up with an error code, or with wrong offsets."""


def connect_when_up(node: Node, *, timeout_s: float = READY_TIMEOUT_S) -> Admin:
    """Connect to a node that is starting: every 2 ms, until it accepts or has ended."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return Admin(node.host, node.port)
        except ConnectionError:
            node.check_alive()
            if time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)


class Admin:
    """One connection to one broker; every method sends a request and waits for its answer."""

    def __init__(self, host: str, port: int, *, timeout_s: float = 120.0) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, request: bytes) -> wire.Reader:
        """Send one frame and return its answer, past the correlation id."""
        self._socket.sendall(request)
        (size,) = struct.unpack(">i", self._receive(4))
        reader = wire.Reader(self._receive(size))
        reader.take("i")
        return reader

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise BrokerAnswerError("the broker closed the connection")
            data += part
        return bytes(data)

    def create_topic(
        self, topic: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and return once every partition has a leader that answers.

        A broker that has only now started may refuse for a while, so the request is repeated.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        request = wire.create_topic_request(topic, partitions, settings or {})
        while True:
            reader = self.send(request)
            reader.take("ii")
            reader.string()
            (error,) = reader.take("h")
            if error in (0, TOPIC_ALREADY_EXISTS):
                break
            if time.monotonic() > deadline:
                raise BrokerAnswerError(f"CreateTopics of {topic}: error {error}")
            time.sleep(RETRY_S)
        self.wait_for_offsets(topic, [0] * partitions)

    def wait_for_offsets(self, topic: str, wanted: list[int]) -> None:
        """Return once every partition has a leader and ends at the wanted offset."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (found := self.offsets(topic, len(wanted))) != wanted:
            if time.monotonic() > deadline:
                raise BrokerAnswerError(f"the partitions of {topic} end at {found}")
            time.sleep(RETRY_S)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        reader = self.send(wire.delete_topic_request(topic))
        reader.take("ii")
        reader.string()
        (error,) = reader.take("h")
        if error:
            raise BrokerAnswerError(f"DeleteTopics of {topic}: error {error}")

    def offsets(
        self, topic: str, partitions: int, timestamp: int = wire.LATEST
    ) -> list[int] | None:
        """Return an offset per partition, or None as long as one of them has an error."""
        found = self.led_offsets(topic, partitions, timestamp)
        return [found[each] for each in sorted(found)] if len(found) == partitions else None

    def led_offsets(
        self, topic: str, partitions: int, timestamp: int = wire.LATEST
    ) -> dict[int, int]:
        """Return an offset for each partition that answers without an error: the broker leads it.

        The latest one is the high watermark, which every in-sync replica has reached.
        """
        reader = self.send(wire.list_offsets_request(topic, partitions, timestamp))
        reader.take("i")
        reader.string()
        (count,) = reader.take("i")
        answers = [reader.take("ihqq") for _ in range(count)]
        return {partition: offset for partition, error, _, offset in answers if not error}

    def topic_id(self, topic: str) -> bytes:
        """Return the 16 bytes of a topic's id."""
        reader = self.send(wire.metadata_request(topic))
        reader.skip_tags()
        reader.take("i")
        for _ in range(reader.varint() - 1):
            reader.take("i")
            reader.compact_string()
            reader.take("i")
            reader.compact_string()
            reader.skip_tags()
        reader.compact_string()
        reader.take("i")
        if reader.varint() != 2:
            raise BrokerAnswerError(f"Metadata did not answer for {topic} alone")
        (error,) = reader.take("h")
        if error:
            raise BrokerAnswerError(f"Metadata of {topic}: error {error}")
        reader.compact_string()
        return reader.raw(16)

    def produce(
        self, topic: str, batch: bytes, *, first: int = 0, partitions: int = 1, acks: int = -1
    ) -> None:
        """Produce one batch to each of `partitions` partitions, beginning at `first`."""
        request = wire.partitioned_produce_request(topic, partitions, batch, acks=acks, first=first)
        reader = self.send(request)
        reader.skip_tags()
        reader.varint()
        reader.compact_string()
        for _ in range(reader.varint() - 1):
            partition, error = reader.take("ih")
            if error:
                raise BrokerAnswerError(f"Produce to {topic}-{partition}: error {error}")
            reader.take("qqq")
            reader.raw(2)  # no record errors, no message
            reader.skip_tags()

    def fetch(self, topic_id: bytes, *, offset: int = 0, max_bytes: int = 1 << 20) -> int:
        """Fetch once from partition 0 and return the number of bytes of records."""
        reader = self.send(wire.fetch_request(topic_id, 0, offset=offset, max_bytes=max_bytes))
        # The constants of `wire` count the size prefix and the correlation id.
        (error,) = struct.unpack_from(">h", reader.data, wire.FETCH_PARTITION_ERROR_AT - 4)
        if error:
            raise BrokerAnswerError(f"Fetch: error {error}")
        reader.at = wire.FETCH_RECORDS_LENGTH_AT - 4
        return reader.varint() - 1
