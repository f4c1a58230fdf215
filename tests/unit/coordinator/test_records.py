"""Records of ``__consumer_offsets`` as Kafka writes them."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.scene import Scene

from millstream.coordinator.group.classic_group import group_from_record
from millstream.coordinator.group.record_types import decode_record
from millstream.coordinator.group.records import (
    offset_commit_record,
    offset_tombstone,
)
from millstream.model.errors import ProtocolError
from millstream.model.topic import TopicId
from millstream.protocol.messages.coordinator_records import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


def offset_value(**fields: object) -> OffsetCommitValue:
    values = {"offset": 5, "leader_epoch": 2, "metadata": "m", "commit_timestamp": 9, **fields}
    return OffsetCommitValue(**values)  # type: ignore[arg-type]


KEY = OffsetCommitKey(group="g", topic="t", partition=3)


def test_an_offset_is_written_as_key_1_and_value_4_with_the_topic_id() -> None:
    topic_id = TopicId(bytes(range(16)))
    key, value = offset_commit_record(KEY, offset_value(topic_id=topic_id)).encode()
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert value == bytes.fromhex(
        "0004 0000000000000005 00000002 02 6d 0000000000000009 01 00 10"
    ) + bytes(range(16))


def test_an_offset_with_its_own_expiry_is_written_as_value_1() -> None:
    _, value = offset_commit_record(KEY, offset_value(expire_timestamp=11)).encode()
    assert value == bytes.fromhex("0001 0000000000000005 0001 6d 0000000000000009 000000000000000b")


def test_a_tombstone_has_no_value() -> None:
    key, value = offset_tombstone("g", "t", 3).encode()
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert value is None


def test_a_group_is_written_as_key_2_and_value_3() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    key, value = scene.log[-1]
    assert key == bytes.fromhex("0002 0001 67")
    assert value is not None
    assert value[:2] == b"\x00\x03"
    stored = GroupMetadataValue.decode_body(3, value[2:])
    assert (stored.protocol_type, stored.generation, stored.protocol, stored.leader) == (
        "consumer",
        1,
        "range",
        member,
    )
    assert stored.members[0].client_host == "/127.0.0.1"
    assert (stored.members[0].session_timeout, stored.members[0].rebalance_timeout) == (
        10_000,
        60_000,
    )


def test_older_values_are_read() -> None:
    legacy_key = bytes.fromhex("0000 0001 67 0001 74 00000003")
    value_0 = bytes.fromhex("0000 0000000000000005 0000 0000000000000009")
    record = decode_record(legacy_key, value_0)
    assert record is not None
    assert record.key == KEY
    assert record.value == OffsetCommitValue(offset=5, metadata="", commit_timestamp=9)


def test_keys_of_other_protocols_are_left_alone() -> None:
    assert decode_record(bytes.fromhex("0063 0001 67"), b"whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x01\x00", b""),
        (bytes.fromhex("0001 0001 67 0001 74 00000003"), b"\x00\x09"),
        (bytes.fromhex("0001 0001 67 0001 74 00000003"), b"\x00\x04\x00"),
    ],
)
def test_damaged_records_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_record(key, value)


def test_a_stored_member_without_rebalance_timeout_gets_its_session_timeout() -> None:
    scene = Scene()
    scene.stable_group(1)
    record = decode_record(*scene.log[-1])
    assert record is not None
    assert isinstance(record.value, GroupMetadataValue)
    record.value.members[0].rebalance_timeout = -1
    group = group_from_record("g", record.value)
    assert group.rebalance_timeout_ms() == 10_000
