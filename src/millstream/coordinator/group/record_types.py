"""Every type of record in ``__consumer_offsets`` that this coordinator uses.

A stored key begins with an int16, its type; a stored value with an int16, its version. Types that
are not named here are ignored (Kafka: ``GroupCoordinatorRecordSerde``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from millstream.coordinator.group.consumer import records as consumer
from millstream.coordinator.group.records import GROUP_METADATA, OFFSET_COMMIT_KEY_TYPES
from millstream.coordinator.group.share import records as share
from millstream.coordinator.result import CoordinatorRecord, split_type
from millstream.model.errors import ProtocolError
from millstream.protocol.message import Message
from millstream.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from millstream.protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from millstream.protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)


class RecordType(NamedTuple):
    """The messages of a type of records."""

    key: type[Message]
    value: type[Message]


CONSUMER_GROUP_TYPES: Final[Mapping[int, RecordType]] = MappingProxyType(
    {
        consumer.METADATA: RecordType(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        consumer.PARTITION_METADATA: RecordType(
            ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue
        ),
        consumer.MEMBER_METADATA: RecordType(
            ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue
        ),
        consumer.TARGET_METADATA: RecordType(
            ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
        ),
        consumer.TARGET_MEMBER: RecordType(
            ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue
        ),
        consumer.CURRENT_ASSIGNMENT: RecordType(
            ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue
        ),
        consumer.REGULAR_EXPRESSION: RecordType(
            ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue
        ),
    }
)

SHARE_GROUP_TYPES: Final[Mapping[int, RecordType]] = MappingProxyType(
    {
        share.MEMBER_METADATA: RecordType(
            ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue
        ),
        share.METADATA: RecordType(ShareGroupMetadataKey, ShareGroupMetadataValue),
        share.TARGET_METADATA: RecordType(
            ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue
        ),
        share.TARGET_MEMBER: RecordType(
            ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue
        ),
        share.CURRENT_ASSIGNMENT: RecordType(
            ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue
        ),
        share.STATE_PARTITIONS: RecordType(
            ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue
        ),
    }
)

RECORD_TYPES: Final[Mapping[int, RecordType]] = MappingProxyType(
    {
        **{
            key_type: RecordType(OffsetCommitKey, OffsetCommitValue)
            for key_type in OFFSET_COMMIT_KEY_TYPES
        },
        GROUP_METADATA: RecordType(GroupMetadataKey, GroupMetadataValue),
        **CONSUMER_GROUP_TYPES,
        **SHARE_GROUP_TYPES,
    }
)


def decode_record(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Decode a stored record; None if this coordinator does not use its type.

    Raises ProtocolError if the bytes are not a valid key or value.
    """
    key_type, key_body = split_type(key)
    known = RECORD_TYPES.get(key_type)
    if known is None:
        return None
    decoded_key = known.key.decode_body(0, key_body)
    if value is None:
        return CoordinatorRecord(key_type, decoded_key)
    version, body = split_type(value)
    if version not in known.value.VERSIONS:
        raise ProtocolError(f"{known.value.__name__} has no version {version}")
    return CoordinatorRecord(key_type, decoded_key, version, known.value.decode_body(version, body))
