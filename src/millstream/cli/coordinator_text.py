"""Records of ``__consumer_offsets`` and ``__transaction_state`` as words, for `log dump --decode`.

Key types that no coordinator here knows keep their number and their bytes, in base64.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from millstream.coordinator.group.record_types import decode_record
from millstream.coordinator.result import split_type
from millstream.model.errors import MillstreamError
from millstream.model.topic import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    topic_id_to_text,
)
from millstream.protocol.fields import Buffer
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
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from millstream.protocol.messages.coordinator_records import (
    GroupMetadataValue,
    TransactionLogKey,
    TransactionLogValue,
)
from millstream.protocol.schema import Struct

Fields: TypeAlias = dict[str, object]
Decoder: TypeAlias = Callable[[bytes, bytes | None], Fields]

_GROUP_KEYS: Final = {
    0: "offset_commit",
    1: "offset_commit",
    2: "group_metadata",
    9: "share_group_partition_metadata",
    10: "share_group_member_metadata",
    11: "share_group_metadata",
    12: "share_group_target_assignment_metadata",
    13: "share_group_target_assignment_member",
    14: "share_group_current_member_assignment",
    15: "share_group_state_partition_metadata",
}
_CONSUMER_GROUP: Final[Mapping[int, tuple[str, type[Message], type[Message]]]] = {
    3: (
        "consumer_group_metadata",
        ConsumerGroupMetadataKey,
        ConsumerGroupMetadataValue,
    ),
    4: (
        "consumer_group_partition_metadata",
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupPartitionMetadataValue,
    ),
    5: (
        "consumer_group_member_metadata",
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMemberMetadataValue,
    ),
    6: (
        "consumer_group_target_assignment_metadata",
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
    ),
    7: (
        "consumer_group_target_assignment_member",
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
    ),
    8: (
        "consumer_group_current_member_assignment",
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
    ),
    16: (
        "consumer_group_regular_expression",
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
    ),
}
"""Records of the consumer protocol (KIP-848) by key type."""

_TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def decode_group_record(key: bytes, value: bytes | None) -> Fields:
    """Return what a record of ``__consumer_offsets`` says; a value of None deletes its key."""
    key_type, body = split_type(key)
    if key_type in _CONSUMER_GROUP:
        return _consumer_group_record(key_type, body, value)
    name = _GROUP_KEYS.get(key_type, f"type {key_type}")
    record = decode_record(key, value)
    if record is None:
        return {
            "type": name,
            "key": b64encode(bytes(body)).decode(),
            "value": None if value is None else b64encode(value).decode(),
        }
    decoded: Fields = {"type": name, "key": plain(record.key)}
    if record.value is None:
        return {**decoded, "value": None}
    content = plain(record.value)
    if isinstance(record.value, GroupMetadataValue) and isinstance(content, dict):
        _decode_members(record.value, content)
    return {**decoded, "version": record.value_version, "value": content}


def _consumer_group_record(key_type: int, body: Buffer, value: bytes | None) -> Fields:
    name, key_schema, value_schema = _CONSUMER_GROUP[key_type]
    decoded: Fields = {"type": name, "key": plain(key_schema.decode_body(0, body))}
    if value is None:
        return {**decoded, "value": None}
    version, content = split_type(value)
    newest = value_schema.VERSIONS[-1]
    return {
        **decoded,
        "version": version,
        "value": plain(value_schema.decode_body(min(version, newest), content)),
    }


def _decode_members(value: GroupMetadataValue, content: Fields) -> None:
    """Put words in place of what members of consumer groups sent about themselves."""
    if value.protocol_type != "consumer":
        return
    members = content["members"]
    assert isinstance(members, list)
    for member, shown in zip(value.members, members, strict=True):
        for name, schema in (
            ("subscription", ConsumerProtocolSubscription),
            ("assignment", ConsumerProtocolAssignment),
        ):
            data = bytes(getattr(member, name))
            if len(data) >= 2:
                version, body = split_type(data)
                newest = schema.VERSIONS[-1]
                shown[name] = plain(schema.decode_body(min(version, newest), body))


def decode_transaction_record(key: bytes, value: bytes | None) -> Fields:
    """Return what a record of ``__transaction_state`` says."""
    key_type, body = split_type(key)
    if key_type != 0:
        return {"type": f"type {key_type}", "key": b64encode(bytes(body)).decode()}
    decoded: Fields = {"type": "transaction", "key": plain(TransactionLogKey.decode_body(0, body))}
    if value is None:
        return {**decoded, "value": None}
    version, body = split_type(value)
    version = min(version, TransactionLogValue.VERSIONS[-1])
    content = plain(TransactionLogValue.decode_body(version, body))
    assert isinstance(content, dict)
    status = content["transaction_status"]
    assert isinstance(status, int)
    if 0 <= status < len(_TRANSACTION_STATES):
        content["transaction_status"] = _TRANSACTION_STATES[status]
    return {**decoded, "version": version, "value": content}


DECODERS: Final[Mapping[str, Decoder]] = {
    GROUP_METADATA_TOPIC: decode_group_record,
    TRANSACTION_STATE_TOPIC: decode_transaction_record,
}
"""By the topic whose records they read."""


def decoded_fields(decode: Decoder, key: bytes | None, value: bytes | None) -> Fields:
    """Return what ``decode`` makes of a record, or why it makes nothing of it."""
    if key is None:
        return {"undecodable": "it has no key"}
    try:
        return decode(key, value)
    except MillstreamError as error:
        return {"undecodable": str(error)}


def plain(value: object) -> object:
    """Return a message as JSON can hold it: dictionaries, lists, text; bytes in base64."""
    if isinstance(value, Struct):
        return {
            field.name: topic_id_to_text(getattr(value, field.name))
            if field.name == "topic_id"
            else plain(getattr(value, field.name))
            for field in value.FIELDS
        }
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(bytes(value)).decode()
    return value
