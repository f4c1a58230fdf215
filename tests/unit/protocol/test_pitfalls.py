"""Where implementations of the wire protocol go wrong: byte for byte, one test each."""

from __future__ import annotations

import pytest

from millstream.model.topic import TopicId
from millstream.protocol.api import ApiKey
from millstream.protocol.codec import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from millstream.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from millstream.protocol.messages.coordinator_records import OffsetCommitValue
from millstream.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from millstream.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.protocol.messages.offset_delete import OffsetDeleteRequest
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from millstream.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from millstream.protocol.outgoing import MERGE_BELOW_BYTES


def unhex(data: str) -> bytes:
    return bytes.fromhex(data)


def test_the_response_header_of_api_versions_is_v0_in_every_version() -> None:
    response = ApiVersionsResponse(
        error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    for version in ApiVersionsResponse.VERSIONS:
        framed = encode_response(ApiKey.API_VERSIONS, version, 7, response).join()
        assert framed[4:8] == unhex("00000007")
        assert framed[8:] == response.encode_body(version)
        assert decode_response(ApiKey.API_VERSIONS, version, framed[4:]) == (7, response)


def test_an_unsupported_api_versions_is_answered_in_the_layout_of_v0() -> None:
    response = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    framed = encode_response(ApiKey.API_VERSIONS, 0, 1, response).join()
    assert framed == unhex("00000010 00000001 0023 00000001 0012 0000 0004")


def test_the_finalized_features_epoch_of_api_versions_is_minus_one_and_then_unsaid() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    assert response.finalized_features_epoch == -1
    assert response.encode_body(3) == unhex("0000 01 00000000 00")
    response.supported_features = [
        SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
    ]
    assert response.encode_body(3) == (
        unhex("0000 01 00000000 01 00 14 02 0e") + b"kraft.version" + unhex("0000 0001 00")
    )


def test_the_client_id_keeps_its_two_byte_length_in_header_v2() -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    framed = encode_request(request, 3, 5, "kcat").join()
    assert framed == unhex("00000014 0012 0003 00000005 0004 6b636174 00 02 61 02 31 00")
    header = decode_request_header(memoryview(framed)[4:])
    assert header.client_id == "kcat"
    assert decode_request(header, memoryview(framed)[4:]) == request


def test_a_null_client_id_is_minus_one() -> None:
    framed = encode_request(MetadataRequest(topics=None), 1, 5, None).join()
    assert framed == unhex("0000000e 0003 0001 00000005 ffff ffffffff")


def test_the_response_header_of_flexible_versions_has_a_tag_buffer() -> None:
    old = encode_response(ApiKey.METADATA, 8, 1, MetadataResponse(brokers=[], topics=[])).join()
    new = encode_response(ApiKey.METADATA, 9, 1, MetadataResponse(brokers=[], topics=[])).join()
    assert old[4:12] == unhex("00000001 00000000")
    assert new[4:13] == unhex("00000001 00 00000000")


def test_unknown_tags_in_the_response_header_are_skipped() -> None:
    body = encode_response(ApiKey.METADATA, 9, 1, MetadataResponse(brokers=[], topics=[])).join()
    tagged = body[4:8] + unhex("01 09 02 abcd") + body[9:]
    assert decode_response(ApiKey.METADATA, 9, tagged)[0] == 1


def test_sasl_handshake_and_offset_delete_are_never_flexible() -> None:
    assert SaslHandshakeRequest(mechanism="PLAIN").encode_body(1) == unhex("0005 504c41494e")
    response = SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"])
    framed = encode_response(ApiKey.SASL_HANDSHAKE, 1, 9, response).join()
    assert framed == unhex("00000011 00000009 0021 00000001 0005 504c41494e")
    assert OffsetDeleteRequest(group_id="g", topics=[]).encode_body(0) == unhex("0001 67 00000000")


def test_a_nullable_struct_has_an_int8_in_front_though_the_version_is_flexible() -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=None)
    assert request.encode_body(0) == unhex("02 02 61 00 000007d0 ff 00")
    request.cursor = Cursor(topic_name="a", partition_index=3)
    assert request.encode_body(0) == unhex("02 02 61 00 000007d0 01 02 61 00000003 00 00")
    assert DescribeTopicPartitionsRequest.decode_body(0, request.encode_body(0)) == request


def test_the_assignment_of_a_heartbeat_is_null_or_a_struct_behind_one() -> None:
    topic = TopicPartitions(topic_id=TopicId(b"x" * 16), partitions=[1])
    response = ConsumerGroupHeartbeatResponse(
        error_code=0,
        error_message=None,
        member_id="m",
        member_epoch=2,
        heartbeat_interval_ms=5000,
        assignment=Assignment(topic_partitions=[topic]),
    )
    start = "00000000 0000 00 02 6d 00000002 00001388"
    body = unhex(start) + unhex("01 02") + b"x" * 16 + unhex("02 00000001 00 00 00")
    assert response.encode_body(0) == body
    response.assignment = None
    assert response.encode_body(0) == unhex(start + "ff 00")


def test_tagged_fields_are_written_only_when_not_default_and_in_order() -> None:
    def response(**tagged: LeaderIdAndEpoch) -> FetchResponse:
        data = PartitionData(
            partition_index=0,
            error_code=6,
            high_watermark=-1,
            aborted_transactions=None,
            records=None,
            **tagged,
        )
        topic = FetchableTopicResponse(topic_id=TopicId(b"x" * 16), partitions=[data])
        return FetchResponse(responses=[topic])

    partition = "00000000 0006 ffffffffffffffff ffffffffffffffff ffffffffffffffff 00 ffffffff 00"
    plain = response().encode_body(16)
    assert plain.endswith(unhex(partition + "00 00 00"))
    led = response(current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=7))
    led.node_endpoints = [NodeEndpoint(node_id=2, host="h", port=9092)]
    assert led.encode_body(16).endswith(
        unhex(partition + "01 01 09 00000002 00000007 00  00  01 00 0d 02 00000002 02 68 00002384")
        + unhex("00 00")
    )
    assert FetchResponse.decode_body(16, led.encode_body(16)) == led


def test_unknown_tagged_fields_are_skipped_wherever_they_stand() -> None:
    request = MetadataRequest(topics=None)
    body = request.encode_body(12)
    assert body.endswith(b"\x00")
    assert MetadataRequest.decode_body(12, body[:-1] + unhex("02 05 00 8001 03 aabbcc")) == request


def test_fetch_by_id_has_no_names_and_fetch_by_name_no_ids() -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = FetchTopic(topic="logs", topic_id=TopicId(b"i" * 16), partitions=[partition])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
    assert b"logs" in request.encode_body(12)
    assert b"i" * 16 not in request.encode_body(12)
    assert b"logs" not in request.encode_body(13)
    assert b"i" * 16 in request.encode_body(13)


def test_the_replica_id_of_fetch_moves_into_a_tagged_struct_at_v15() -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    assert request.encode_body(14).startswith(unhex("ffffffff 00000000"))
    assert request.encode_body(15).startswith(unhex("00000000 00000000 7fffffff"))


def test_old_metadata_requests_ask_for_all_topics_with_an_empty_list_and_new_ones_with_null() -> (
    None
):
    assert MetadataRequest.decode_body(0, unhex("00000000")).topics == []
    assert MetadataRequest.decode_body(1, unhex("ffffffff")).topics is None
    assert MetadataRequest.decode_body(1, unhex("00000000")).topics == []


def test_metadata_auto_creates_below_v4_and_says_so_above() -> None:
    assert MetadataRequest.decode_body(3, unhex("ffffffff")).allow_auto_topic_creation
    assert not MetadataRequest.decode_body(4, unhex("ffffffff 00")).allow_auto_topic_creation


def test_authorized_operations_that_were_not_asked_for_are_the_smallest_int32() -> None:
    response = MetadataResponse(brokers=[], topics=[])
    assert response.cluster_authorized_operations == -2147483648


def test_the_topic_id_of_a_committed_offset_is_tagged_in_the_value_v4() -> None:
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=9)
    fixed = unhex("0000000000000005 ffffffff 01 0000000000000009")
    assert value.encode_body(4) == fixed + b"\x00"
    value.topic_id = TopicId(b"t" * 16)
    assert value.encode_body(4) == fixed + unhex("01 00 10") + b"t" * 16
    assert value.encode_body(3) == unhex("0000000000000005 ffffffff 0000 0000000000000009")


def test_the_consumer_protocol_is_never_flexible() -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[], user_data=None)
    for version in ConsumerProtocolAssignment.VERSIONS:
        assert assignment.encode_body(version) == unhex("00000000 ffffffff")


def produce(records: bytes | memoryview) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[partition])
    return ProduceRequest(acks=1, timeout_ms=0, topic_data=[topic])


def test_records_are_decoded_as_a_view_of_the_frame() -> None:
    frame = bytearray(encode_request(produce(b"r" * 5000), 9, 0, "c").join()[4:])
    view = memoryview(frame)
    request = decode_request(decode_request_header(view), view)
    assert isinstance(request, ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records == b"r" * 5000
    frame[frame.index(b"r")] = ord("R")
    assert records[0] == ord("R")


def test_bytes_that_are_no_records_are_copied_out_of_the_frame() -> None:
    frame = bytearray(unhex("00000000 00000003 616263"))
    assignment = ConsumerProtocolAssignment.decode_body(0, frame)
    frame[-1] = 0
    assert assignment.user_data == b"abc"


class FileSlice:
    """Stands for records in a file."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.position = 0

    def __len__(self) -> int:
        return self.size

    def fileno(self) -> int:
        return -1

    def read(self) -> bytes:
        return bytes(self.size)


def fetched(*records: FileSlice | bytes | None) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=9,
            aborted_transactions=None,
            records=piece,
        )
        for index, piece in enumerate(records)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_leave_by_reference_and_everything_between_in_one_piece(version: int) -> None:
    first, second = FileSlice(3000), FileSlice(70)
    outgoing = encode_response(ApiKey.FETCH, version, 1, fetched(first, None, second))
    assert len(outgoing.pieces) == (5 if version == 12 else 4)
    assert outgoing.pieces[1] is first
    assert outgoing.pieces[3] is second
    in_memory = encode_response(
        ApiKey.FETCH, version, 1, fetched(first.read(), None, second.read())
    ).join()
    joined = b"".join(p.read() if isinstance(p, FileSlice) else p for p in outgoing.pieces)  # type: ignore[arg-type]
    assert joined == in_memory
    assert outgoing.size == len(joined) == int.from_bytes(joined[:4], "big") + 4


def test_small_records_in_memory_are_copied_and_large_ones_are_not() -> None:
    large = b"x" * MERGE_BELOW_BYTES
    small = large[:-1]
    assert len(encode_response(ApiKey.FETCH, 4, 1, fetched(small)).pieces) == 1
    outgoing = encode_response(ApiKey.FETCH, 4, 1, fetched(large))
    assert outgoing.pieces[1] is large
    empty = encode_response(ApiKey.FETCH, 4, 1, fetched(b"", FileSlice(0)))
    assert len(empty.pieces) == 1
