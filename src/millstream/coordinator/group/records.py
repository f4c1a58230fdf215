"""Records of ``__consumer_offsets``: groups and committed offsets.

::

    key                                            value
    0, 1  group, topic, partition                  offset, metadata, timestamps (versions 1, 4)
    2     group                                    generation, protocol, leader, members (version 3)

Each begins with an int16: before a key its type, before a value its version. A record without a
value deletes its key. Other kinds of groups have types of their own (``record_types``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from millstream.coordinator.result import CoordinatorRecord
from millstream.protocol.messages.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from millstream.coordinator.group.classic_group import ClassicGroup

OFFSET_COMMIT_KEY_TYPES: Final = (0, 1)
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2

_GROUP_VALUE_VERSION: Final = 3
_OFFSET_VALUE_VERSION: Final = 4
_EXPIRING_OFFSET_VALUE_VERSION: Final = 1


def offset_commit_record(key: OffsetCommitKey, value: OffsetCommitValue) -> CoordinatorRecord:
    """Return the record of a committed offset.

    An offset with its own time of expiry (OffsetCommit below version 5) is written as version 1,
    which alone has that field.
    """
    version = _OFFSET_VALUE_VERSION
    if value.expire_timestamp >= 0:
        version = _EXPIRING_OFFSET_VALUE_VERSION
    return CoordinatorRecord(OFFSET_COMMIT, key, version, value)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Return the tombstone of a committed offset."""
    return CoordinatorRecord(
        OFFSET_COMMIT, OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of a group."""
    return CoordinatorRecord(GROUP_METADATA, GroupMetadataKey(group=group_id))


def new_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record of a new, empty group."""
    return _group_record(
        group.group_id,
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=group.state_timestamp_ms,
            members=[],
        ),
    )


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """Return the record of a generation: its members, their metadata and assignments."""
    members = []
    for member in group.members.values():
        assert group.protocol_name is not None, "members without a protocol are not stored"
        members.append(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[group.protocol_name],
                assignment=assignments[member.member_id],
            )
        )
    return _group_record(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation_id,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=group.state_timestamp_ms,
            members=members,
        ),
    )


def assignments_of(group: ClassicGroup) -> dict[str, bytes]:
    """Return the assignment of each member of the present generation."""
    return {member.member_id: member.assignment for member in group.members.values()}


def _group_record(group_id: str, value: GroupMetadataValue) -> CoordinatorRecord:
    return CoordinatorRecord(
        GROUP_METADATA, GroupMetadataKey(group=group_id), _GROUP_VALUE_VERSION, value
    )
