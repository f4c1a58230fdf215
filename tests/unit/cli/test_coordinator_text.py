"""Records of the coordinators' topics as words."""

from __future__ import annotations

import json
import struct
from base64 import b64decode

from millstream.cli.coordinator_text import (
    decode_group_record,
    decode_transaction_record,
    decoded_fields,
)
from millstream.coordinator.group.records import offset_commit_record, offset_tombstone
from millstream.coordinator.result import CoordinatorRecord
from millstream.model.topic import TopicId
from millstream.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from millstream.protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)


def test_a_committed_offset() -> None:
    record = offset_commit_record(
        OffsetCommitKey(group="readers", topic="orders", partition=2),
        OffsetCommitValue(
            offset=42,
            leader_epoch=1,
            metadata="m",
            commit_timestamp=5,
            topic_id=TopicId(b"0123456789abcdef"),
        ),
    )
    decoded = decode_group_record(*record.encode())
    assert decoded["type"] == "offset_commit"
    assert decoded["key"] == {"group": "readers", "topic": "orders", "partition": 2}
    value = decoded["value"]
    assert isinstance(value, dict)
    assert (value["offset"], value["topic_id"]) == (42, "MDEyMzQ1Njc4OWFiY2RlZg")
    tombstone = decode_group_record(*offset_tombstone("readers", "orders", 2).encode())
    assert (tombstone["key"], tombstone["value"]) == (decoded["key"], None)


def test_a_group_with_what_its_members_said() -> None:
    subscription = ConsumerProtocolSubscription(topics=["orders"]).encode_body(1)
    assigned = TopicPartition(topic="orders", partitions=[0, 2])
    assignment = ConsumerProtocolAssignment(assigned_partitions=[assigned]).encode_body(1)
    member = MemberMetadata(
        member_id="a", client_id="c", client_host="/h", session_timeout=9,
        subscription=struct.pack(">h", 1) + subscription,
        assignment=struct.pack(">h", 1) + assignment,
    )  # fmt: skip
    value = GroupMetadataValue(
        protocol_type="consumer", generation=3, protocol="range", leader="a", members=[member]
    )
    record = CoordinatorRecord(2, GroupMetadataKey(group="readers"), 3, value)
    decoded = json.loads(json.dumps(decode_group_record(*record.encode())))
    assert decoded["type"] == "group_metadata"
    (shown,) = decoded["value"]["members"]
    assert shown["subscription"]["topics"] == ["orders"]
    assert shown["assignment"]["assigned_partitions"] == [{"topic": "orders", "partitions": [0, 2]}]


def test_a_transaction() -> None:
    value = TransactionLogValue(
        producer_id=7, producer_epoch=1, transaction_timeout_ms=60_000, transaction_status=4,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[1])],
        transaction_last_update_timestamp_ms=5, transaction_start_timestamp_ms=4,
    )  # fmt: skip
    record = CoordinatorRecord(0, TransactionLogKey(transactional_id="mover"), 1, value)
    decoded = decode_transaction_record(*record.encode())
    shown = decoded["value"]
    assert isinstance(shown, dict)
    assert shown["transaction_status"] == "CompleteCommit"
    assert shown["transaction_partitions"] == [{"topic": "orders", "partition_ids": [1]}]
    key, _ = record.encode()
    assert decode_transaction_record(key, None)["value"] is None


def test_a_member_of_the_consumer_protocol() -> None:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=3, previous_member_epoch=2, state=0,
        assigned_partitions=[
            TopicPartitions(topic_id=TopicId(b"0123456789abcdef"), partitions=[1, 2])
        ],
        partitions_pending_revocation=[],
    )  # fmt: skip
    record = CoordinatorRecord(8, key, 0, value)
    decoded = decode_group_record(*record.encode())
    assert decoded["type"] == "consumer_group_current_member_assignment"
    assert decoded["key"] == {"group_id": "g", "member_id": "m"}
    shown = decoded["value"]
    assert isinstance(shown, dict)
    assert shown["assigned_partitions"][0]["topic_id"] == "MDEyMzQ1Njc4OWFiY2RlZg"
    assert decode_group_record(record.encode()[0], None)["value"] is None


def test_types_of_other_protocols_keep_their_bytes() -> None:
    decoded = decode_group_record(struct.pack(">h", 99) + b"body", b"\0\0value")
    assert decoded["type"] == "type 99"
    assert b64decode(str(decoded["key"])) == b"body"
    assert b64decode(str(decoded["value"])) == b"\0\0value"


def test_what_cannot_be_read_says_so() -> None:
    assert "undecodable" in decoded_fields(decode_group_record, None, b"")
    assert "undecodable" in decoded_fields(decode_group_record, b"\0\1\0\x09short", b"")
    assert "undecodable" in decoded_fields(decode_transaction_record, b"\0\0\0\x09short", b"")
