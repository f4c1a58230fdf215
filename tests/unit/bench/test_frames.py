"""The hand-built frames of the load are what Kafka's schema says, byte for byte."""

from __future__ import annotations

import pytest
from bench import wire
from bench.batches import batch_near, batch_of_exactly, batch_of_records
from bench.load.raw import FETCH_BATCH_BYTES, fetch_batch

from millstream.model.topic import TopicId
from millstream.protocol.codec import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_response,
)
from millstream.protocol.message import Request
from millstream.protocol.messages.create_topics import CreateTopicsRequest
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest
from millstream.protocol.messages.fetch import FetchRequest, FetchResponse
from millstream.protocol.messages.list_offsets import ListOffsetsRequest
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.produce import ProduceRequest, ProduceResponse
from millstream.records.batch import iter_batches

TOPIC_BYTES = bytes(range(16))


def decoded(frame: bytes) -> Request:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    view = memoryview(frame)[4:]
    return decode_request(decode_request_header(view), view)


@pytest.mark.slow
@pytest.mark.parametrize("total_bytes", [200, 8_253, 16_384, 17_000, 110_000, 930_000])
def test_a_batch_has_exactly_the_wanted_size_and_a_valid_crc(total_bytes: int) -> None:
    made = batch_of_exactly(total_bytes=total_bytes, record_bytes=100)

    (batch,) = iter_batches(made.data)

    assert len(made.data) == total_bytes
    assert batch.is_valid
    assert batch.count == made.records


def test_every_size_can_be_reached() -> None:
    wanted = range(1_100, 1_300)
    made = [batch_of_exactly(total_bytes=size, record_bytes=100) for size in wanted]
    assert [len(batch.data) for batch in made] == list(wanted)


def test_a_near_batch_stays_within_its_size() -> None:
    made = batch_near(total_bytes=17_000, record_bytes=1_000)
    one_more = batch_of_records(record_bytes=1_000, count=made.records + 1)

    assert len(made.data) <= 17_000 < len(one_more.data)


def test_fetch_sizes_are_whole_batches() -> None:
    assert len(fetch_batch().data) == FETCH_BATCH_BYTES
    assert (1 << 16) % FETCH_BATCH_BYTES == 0


def test_produce_request() -> None:
    batch = batch_of_records(record_bytes=100, count=3).data

    request = decoded(wire.produce_request("some-topic", 7, batch, acks=-1))

    assert isinstance(request, ProduceRequest)
    assert (request.acks, request.transactional_id) == (-1, None)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index) == ("some-topic", 7)
    assert bytes(partition.records or b"") == batch


def test_produce_response_and_where_its_error_stands() -> None:
    frame = bytearray(wire.produce_response("some-topic"))
    _, response = decode_response(wire.PRODUCE, wire.PRODUCE_VERSION, bytes(frame[4:]))
    assert isinstance(response, ProduceResponse)
    again = encode_response(wire.PRODUCE, wire.PRODUCE_VERSION, 1, response)
    assert again.join() == bytes(frame)

    frame[wire.produce_error_at("some-topic") + 1] = 6

    _, response = decode_response(wire.PRODUCE, wire.PRODUCE_VERSION, bytes(frame[4:]))
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == 6


def test_fetch_request() -> None:
    request = decoded(wire.fetch_request(TOPIC_BYTES, 3, offset=99, max_bytes=1 << 16))

    assert isinstance(request, FetchRequest)
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert request.max_bytes == 1 << 16
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert TopicId(topic.topic_id) == TopicId(TOPIC_BYTES)
    assert (partition.partition, partition.fetch_offset) == (3, 99)
    assert partition.partition_max_bytes == 1 << 16


@pytest.mark.parametrize("records_bytes", [FETCH_BATCH_BYTES, 1 << 16, 1 << 20])
def test_fetch_response_and_where_its_fields_stand(records_bytes: int) -> None:
    tail = bytes(wire.FETCH_TAIL_BYTES)
    frame = bytearray(wire.fetch_response_head(records_bytes) + bytes(records_bytes) + tail)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert wire.Reader(bytes(frame), wire.FETCH_RECORDS_LENGTH_AT).varint() == records_bytes + 1

    frame[wire.FETCH_ERROR_AT + 1] = 70
    frame[wire.FETCH_PARTITION_ERROR_AT + 1] = 1

    _, response = decode_response(wire.FETCH, wire.FETCH_VERSION, bytes(frame[4:]))
    assert isinstance(response, FetchResponse)
    assert response.error_code == 70
    assert response.responses[0].partitions[0].error_code == 1


def test_requests_of_the_set_up() -> None:
    create = decoded(wire.create_topic_request("t", 4, {"flush.messages": "1"}))
    assert isinstance(create, CreateTopicsRequest)
    assert (create.topics[0].name, create.topics[0].num_partitions) == ("t", 4)
    assert create.topics[0].configs[0].value == "1"

    delete = decoded(wire.delete_topic_request("t"))
    assert isinstance(delete, DeleteTopicsRequest)
    assert delete.topic_names == ["t"]

    offsets = decoded(wire.list_offsets_request("t", 2, wire.LATEST))
    assert isinstance(offsets, ListOffsetsRequest)
    assert [each.partition_index for each in offsets.topics[0].partitions] == [0, 1]

    metadata = decoded(wire.metadata_request("t"))
    assert isinstance(metadata, MetadataRequest)
    assert [topic.name for topic in metadata.topics or []] == ["t"]
