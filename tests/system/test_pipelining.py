"""Requests that are sent without waiting are answered in the order in which they were sent.

Fast answers stand behind slow ones here: produces that wait for their flush, fetches that wait for
records, metadata that waits for nothing.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import (
    FETCH_VERSION,
    LIST_OFFSETS_VERSION,
    PRODUCE_VERSION,
    HungUpError,
    Wire,
    create_topic,
    fetch_request,
    offset_for,
    produce,
    produce_request,
    read_all,
)

from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.fetch import FetchResponse
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.produce import ProduceResponse
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchBuilder
from millstream.records.record import read_records

pytestmark = pytest.mark.system


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.host, broker.port) as connection:
        yield connection


@pytest.fixture
def topic(wire: Wire, new_topic: object) -> str:
    assert callable(new_topic)
    name: str = new_topic()
    create_topic(wire, name, 3)
    return name


def batch(*values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(time.time_ns() // 1_000_000, None, value)
    return builder.build()


def list_offsets(topic: str) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )


def new_topic_request(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic])


def metadata_of(topic: str) -> MetadataRequest:
    wanted = MetadataRequestTopic(name=topic)
    return MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)


def test_mixed_requests_are_answered_in_order(wire: Wire, topic: str) -> None:
    """300 requests in a few large sends: each answer is the next request's, and of its kind."""
    chance = random.Random(11)
    produced = itertools.count()
    created = itertools.count()

    def any_request() -> tuple[Request, int, type[Response]]:
        match chance.randrange(8):
            case 0 | 1 | 2:
                data = batch(b"%d" % next(produced))
                return produce_request(topic, {0: data}), PRODUCE_VERSION, ProduceResponse
            case 3:
                waiting = fetch_request(topic, {1: 0}, max_wait_ms=chance.randint(0, 20))
                return waiting, FETCH_VERSION, FetchResponse
            case 4:
                return list_offsets(topic), LIST_OFFSETS_VERSION, ListOffsetsResponse
            case 5:
                return metadata_of(topic), 9, MetadataResponse
            case 6:
                name = f"{topic}-{next(created)}"
                return new_topic_request(name), 5, CreateTopicsResponse
            case _:
                return ApiVersionsRequest(), 2, ApiVersionsResponse

    asked: list[tuple[int, type[Response]]] = []
    unsent = bytearray()
    for _ in range(300):
        request, version, answer = any_request()
        correlation_id, data = wire.frame(request, version)
        asked.append((correlation_id, answer))
        unsent += data
        if chance.random() < 0.05:
            wire.send_bytes(unsent[:-3])  # a frame in two pieces, too
            del unsent[:-3]
    wire.send_bytes(unsent)
    base_offsets = []
    for correlation_id, answer in asked:
        received, response = wire.receive()
        assert received == correlation_id
        assert isinstance(response, answer)
        if isinstance(response, ProduceResponse):
            (appended,) = response.responses[0].partition_responses
            assert appended.error_code == 0
            base_offsets.append(appended.base_offset)
    assert base_offsets == list(range(len(base_offsets)))
    assert [record.value for record in read_all(wire, topic, 0)] == [
        b"%d" % number for number in range(len(base_offsets))
    ]


def test_a_produce_waits_behind_a_long_poll(wire: Wire, topic: str, broker: BrokerProcess) -> None:
    """A fetch that waits holds back what comes after it on its connection, as in Kafka: a produce
    behind it is not even begun. Another connection's produce wakes it.
    """
    poll = wire.send(fetch_request(topic, {0: 0}, max_wait_ms=25_000), FETCH_VERSION)
    behind = wire.send(produce_request(topic, {0: batch(b"behind")}), PRODUCE_VERSION)
    last = wire.send(ApiVersionsRequest(), 2)
    with Wire(broker.host, broker.port) as other:
        assert offset_for(other, topic, 0, -1).offset == 0
        assert produce(other, topic, 0, batch(b"first")).base_offset == 0
    received, fetched = wire.receive()
    assert received == poll
    assert isinstance(fetched, FetchResponse)
    records = fetched.responses[0].partitions[0].records
    (found,) = iter_batches(memoryview(bytes(records)))  # type: ignore[arg-type]
    assert [record.value for record in read_records(found)] == [b"first"]
    received, produced = wire.receive()
    assert received == behind
    assert isinstance(produced, ProduceResponse)
    assert produced.responses[0].partition_responses[0].base_offset == 1
    assert wire.receive()[0] == last


def test_a_fetch_behind_produces_sees_them(wire: Wire, topic: str) -> None:
    """A fetch is begun when the produces in front of it are committed and answered."""
    for round_ in range(30):
        sent = [
            wire.send(produce_request(topic, {0: batch(b"x", b"y")}), PRODUCE_VERSION)
            for _ in range(5)
        ]
        fetching = wire.send(fetch_request(topic, {0: round_ * 10}), FETCH_VERSION)
        for correlation_id in sent:
            assert wire.receive()[0] == correlation_id
        received, response = wire.receive()
        assert received == fetching
        assert isinstance(response, FetchResponse)
        assert response.responses[0].partitions[0].high_watermark == round_ * 10 + 10


def test_produces_that_want_no_answer_get_none(wire: Wire, topic: str) -> None:
    """acks=0 between others: no answer is owed, and the log has the order of the requests."""
    expected = []
    for number in range(200):
        request = produce_request(topic, {0: batch(b"%d" % number)}, acks=number % 2)
        correlation_id = wire.send(request, PRODUCE_VERSION)
        if number % 2:
            expected.append(correlation_id)
    assert [wire.receive()[0] for _ in expected] == expected
    values = [record.value for record in read_all(wire, topic, 0)]
    assert values == [b"%d" % number for number in range(200)]


def test_a_fault_hangs_up_after_the_answers_that_came_before_it(wire: Wire, topic: str) -> None:
    """A frame that is no request ends the connection; what was asked before it and answered at once
    has arrived.
    """
    asked = [wire.send(ApiVersionsRequest(), 2) for _ in range(3)]
    wire.send_bytes(b"\0\0\0\x08\x7f\xff\0\0\0\0\0\0")
    try:
        answered = [wire.receive()[0] for _ in range(3)]
        assert answered == asked
        with pytest.raises(HungUpError):
            wire.receive()
    except ConnectionResetError:
        # What the broker had not read when it hung up makes the kernel reset the connection.
        pass


def test_many_answers_wait_for_a_slow_reader(wire: Wire, topic: str) -> None:
    """The broker sends no faster than the peer reads, and loses the order for no one."""
    for _ in range(8):
        produce(wire, topic, 0, batch(random.Random(3).randbytes(500_000)))
    fetches = [
        wire.send(fetch_request(topic, {0: number % 8}, max_bytes=1), FETCH_VERSION)
        for number in range(120)
    ]
    time.sleep(0.2)
    for number, correlation_id in enumerate(fetches):
        received, response = wire.receive()
        assert received == correlation_id
        assert isinstance(response, FetchResponse)
        records = response.responses[0].partitions[0].records
        (found,) = iter_batches(memoryview(bytes(records)))  # type: ignore[arg-type]
        found.ensure_valid()
        assert found.base_offset == number % 8


def test_group_requests_wait_for_each_other(wire: Wire, topic: str) -> None:
    """The first question about a group makes its topic; those behind it wait."""
    requests = [
        (FindCoordinatorRequest(key_type=0, coordinator_keys=[f"{topic}-{number}"]), 4)
        for number in range(20)
    ]
    asked = [wire.send(request, version) for request, version in requests]
    asked.append(wire.send(metadata_of(topic), 9))
    for correlation_id in asked[:-1]:
        received, response = wire.receive()
        assert received == correlation_id
        assert isinstance(response, FindCoordinatorResponse)
        assert response.coordinators[0].error_code == 0
    assert wire.receive()[0] == asked[-1]
