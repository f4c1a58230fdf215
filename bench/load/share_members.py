"""Members of a share group that fetch and accept everything of a topic: how long does that take?

Raw requests: each ShareFetch takes up to 500 records and acknowledges those of the one before, as
Java's consumer does; records are thrown away. A member is a thread with a connection of its own.
There is no coordinator of members in it: the state of the group is begun by
InitializeShareGroupState, and a leader does not ask who is a member.
``python -m bench.load.share_members JSON`` prints JSON.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from typing import Final, TypeVar

from millstream.client import Producer
from millstream.model.topic import TopicId
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages import initialize_share_group_state as initialize
from millstream.protocol.messages.find_coordinator import FindCoordinatorRequest
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)

R = TypeVar("R", bound=Response)

MAX_RECORDS: Final = 500
MAX_BYTES: Final = 52_428_800
ACCEPT: Final = 1
PATIENCE_S: Final = 120.0
MEMBER_ID: Final = "bench-member-{}"


class Connection:
    """Requests one after the other."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: Request, version: int, kind: type[R]) -> R:
        outgoing = encode_request(request, version, 1, "bench")
        self._socket.sendall(outgoing.join())
        (size,) = struct.unpack(">i", self._read(4))
        _, response = decode_response(request.API_KEY, version, self._read(size))
        assert isinstance(response, kind)
        return response

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view, position = memoryview(data), 0
        while position < size:
            count = self._socket.recv_into(view[position:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            position += count
        return data


class Member(threading.Thread):
    """Fetches and accepts until the group has accepted everything."""

    def __init__(self, spec: dict[str, object], number: int, done: Done) -> None:
        super().__init__(daemon=True)
        self._connection = Connection(str(spec["host"]), int(str(spec["port"])))
        self._spec = spec
        self._member = MEMBER_ID.format(number)
        self._done = done
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._fetch()
        except Exception as error:  # told by the main thread
            self.error = error
            self._done.over.set()

    def _fetch(self) -> None:
        topic_id = TopicId(bytes.fromhex(str(self._spec["topic_id"])))
        partitions = range(int(str(self._spec["partitions"])))
        acquired: dict[int, list[tuple[int, int]]] = {index: [] for index in partitions}
        epoch = 0
        while not self._done.over.is_set():
            accepted = sum(last - first + 1 for each in acquired.values() for first, last in each)
            request = ShareFetchRequest(
                group_id=str(self._spec["group"]),
                member_id=self._member,
                share_session_epoch=epoch,
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=MAX_BYTES,
                max_records=MAX_RECORDS,
                batch_size=MAX_RECORDS,
                topics=[
                    FetchTopic(
                        topic_id=topic_id,
                        partitions=[
                            FetchPartition(
                                partition_index=index,
                                acknowledgement_batches=[
                                    AcknowledgementBatch(
                                        first_offset=first,
                                        last_offset=last,
                                        acknowledge_types=[ACCEPT],
                                    )
                                    for first, last in ranges
                                ],
                            )
                            for index, ranges in acquired.items()
                            if ranges or not epoch
                        ],
                    )
                ],
                forgotten_topics_data=[],
            )
            response = self._connection.call(request, 1, ShareFetchResponse)
            if response.error_code:
                raise RuntimeError(f"error {response.error_code}: {response.error_message}")
            epoch += 1
            for ranges in acquired.values():
                ranges.clear()
            for topic in response.responses:
                for data in topic.partitions:
                    if data.error_code or data.acknowledge_error_code:
                        raise RuntimeError(
                            f"errors {data.error_code} and {data.acknowledge_error_code}"
                        )
                    acquired[data.partition_index] += [
                        (each.first_offset, each.last_offset) for each in data.acquired_records
                    ]
            self._done.accepted(accepted)


class Done:
    """How much the group has accepted."""

    def __init__(self, wanted: int) -> None:
        self._lock = threading.Lock()
        self._left = wanted
        self.over = threading.Event()

    def accepted(self, count: int) -> None:
        with self._lock:
            self._left -= count
            if self._left <= 0:
                self.over.set()


def fill(spec: dict[str, object]) -> None:
    """Produce the records."""
    value = b"x" * int(str(spec["size"]))
    partitions = int(str(spec["partitions"]))
    bootstrap = f"{spec['host']}:{spec['port']}"
    with Producer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for number in range(int(str(spec["records"]))):
            producer.send(str(spec["topic"]), value, partition=number // 1000 % partitions)


def begin_group(connection: Connection, spec: dict[str, object]) -> None:
    """Set where the group starts, once the topic of states is there."""
    topic_id = TopicId(bytes.fromhex(str(spec["topic_id"])))
    request = initialize.InitializeShareGroupStateRequest(
        group_id=str(spec["group"]),
        topics=[
            initialize.InitializeStateData(
                topic_id=topic_id,
                partitions=[
                    initialize.PartitionData(partition=index, state_epoch=1, start_offset=0)
                    for index in range(int(str(spec["partitions"])))
                ],
            )
        ],
    )
    find = FindCoordinatorRequest(
        key_type=2, coordinator_keys=[f"{spec['group']}:AAAAAAAAAAAAAAAAAAAAAA:0"]
    )
    end_s = time.monotonic() + PATIENCE_S
    while True:
        connection.call(find, 6, Response)
        answer = connection.call(request, 0, initialize.InitializeShareGroupStateResponse)
        errors = {each.error_code for topic in answer.results for each in topic.partitions}
        if errors == {0}:
            return
        if time.monotonic() > end_s:
            raise RuntimeError(f"the group's state cannot be begun: errors {errors}")
        time.sleep(0.2)


def main() -> None:
    spec = json.loads(sys.argv[1])
    connection = Connection(spec["host"], spec["port"])
    fill(spec)
    wanted = MetadataRequest(topics=[MetadataRequestTopic(name=spec["topic"])])
    metadata = connection.call(wanted, 12, MetadataResponse)
    spec["topic_id"] = bytes(metadata.topics[0].topic_id).hex()
    seconds = []
    for number in range(spec["rounds"]):
        spec["group"] = f"group-{number}"
        begin_group(connection, spec)
        done = Done(spec["records"])
        members = [Member(spec, each, done) for each in range(spec["members"])]
        begun = time.perf_counter()
        for member in members:
            member.start()
        if not done.over.wait(PATIENCE_S):
            raise RuntimeError("the group did not come to the end")
        seconds.append(time.perf_counter() - begun)
        for member in members:
            member.join(PATIENCE_S)
            if member.error is not None:
                raise member.error
    json.dump({"seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main()
