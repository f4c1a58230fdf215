"""Records of consumer groups as Apache Kafka 4.3 writes them."""

from __future__ import annotations

from millstream.protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)

OF_KAFKA = (
    bytes.fromhex("0000 08")
    + b"rdkafka"
    + b"\x0b/127.0.0.1"
    + b"\x02\x05read"
    + (bytes.fromhex("01 000493e0 00 01 00 01 00"))
)
"""A member that speaks the consumer protocol: the null of its classic metadata is written, as the
tagged field 0 with a varint 0, for the default is an empty struct.
"""


def member(classic: ClassicMemberMetadata | None) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="rdkafka",
        client_host="/127.0.0.1",
        subscribed_topic_names=["read"],
        subscribed_topic_regex="",
        rebalance_timeout_ms=300_000,
        server_assignor=None,
        classic_member_metadata=classic,
    )


def test_a_member_of_kafka_is_read_and_written_byte_for_byte() -> None:
    decoded = ConsumerGroupMemberMetadataValue.decode_body(0, memoryview(OF_KAFKA))
    assert decoded == member(None)
    assert member(None).encode_body(0) == OF_KAFKA


def test_a_classic_member_has_a_one_in_front_of_its_metadata() -> None:
    classic = member(
        ClassicMemberMetadata(
            session_timeout_ms=45_000,
            supported_protocols=[ClassicProtocol(name="range", metadata=b"\x01")],
        )
    )
    encoded = classic.encode_body(0)
    assert encoded == OF_KAFKA[:-4] + bytes.fromhex("01 00 10 01 0000afc8 02 06") + (
        b"range" + bytes.fromhex("02 01 00 00")
    )
    assert ConsumerGroupMemberMetadataValue.decode_body(0, memoryview(encoded)) == classic


def test_a_member_without_the_field_has_an_empty_struct() -> None:
    decoded = ConsumerGroupMemberMetadataValue.decode_body(0, memoryview(OF_KAFKA[:-4] + b"\0"))
    assert decoded == member(ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=[]))
