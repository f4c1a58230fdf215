"""Records of ``__share_group_state``.

::

    key                                        value
    0  ShareSnapshot: group, topic id, index   epochs, start offset, times, all state batches
    1  ShareUpdate: group, topic id, index     snapshot and leader epoch, what has changed

Each begins with an int16: before a key its type, before a value its version. A ShareSnapshot
without a value deletes the share partition's state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from millstream.coordinator.result import CoordinatorRecord, split_type
from millstream.coordinator.share.persisted_state import PersistedState
from millstream.model.errors import ProtocolError
from millstream.protocol.message import Message
from millstream.protocol.messages import share_group_state_records as stored
from millstream.protocol.messages.share_group_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from millstream.share.state import SharePartitionKey, StateBatch

SHARE_SNAPSHOT: Final = 0
SHARE_UPDATE: Final = 1

_VALUE_VERSION: Final = 0

V = TypeVar("V", bound=Message)


def snapshot_record(key: SharePartitionKey, state: PersistedState) -> CoordinatorRecord:
    """Return the record of all of a share partition's state."""
    return CoordinatorRecord(
        SHARE_SNAPSHOT,
        _snapshot_key(key),
        _VALUE_VERSION,
        ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.create_timestamp_ms,
            write_timestamp=state.write_timestamp_ms,
            state_batches=_stored(state.state_batches),
        ),
    )


def update_record(
    key: SharePartitionKey,
    *,
    snapshot_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    state_batches: Iterable[StateBatch],
) -> CoordinatorRecord:
    """Return the record of what has changed since the snapshot."""
    return CoordinatorRecord(
        SHARE_UPDATE,
        ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
        _VALUE_VERSION,
        ShareUpdateValue(
            snapshot_epoch=snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=_stored(state_batches),
        ),
    )


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    """Return the record that deletes a share partition's state."""
    return CoordinatorRecord(SHARE_SNAPSHOT, _snapshot_key(key))


def decode_record(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Decode a stored record; None for a type that means nothing here.

    Raises ProtocolError if the bytes are not a valid key or value.
    """
    key_type, key_body = split_type(key)
    if key_type == SHARE_SNAPSHOT:
        snapshot_key = ShareSnapshotKey.decode_body(0, key_body)
        if value is None:
            return CoordinatorRecord(key_type, snapshot_key)
        version, snapshot = _decode_value(ShareSnapshotValue, value)
        return CoordinatorRecord(key_type, snapshot_key, version, snapshot)
    if key_type == SHARE_UPDATE:
        update_key = ShareUpdateKey.decode_body(0, key_body)
        if value is None:
            return None  # nobody writes these
        version, update = _decode_value(ShareUpdateValue, value)
        return CoordinatorRecord(key_type, update_key, version, update)
    return None


def batches_of(stored_batches: Iterable[stored.StateBatch]) -> tuple[StateBatch, ...]:
    """Return the state batches of a record."""
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in stored_batches
    )


def key_of(key: ShareSnapshotKey | ShareUpdateKey) -> SharePartitionKey:
    """Return the share partition of a record."""
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


def _snapshot_key(key: SharePartitionKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)


def _stored(batches: Iterable[StateBatch]) -> list[stored.StateBatch]:
    return [
        stored.StateBatch(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.delivery_state,
            delivery_count=each.delivery_count,
        )
        for each in batches
    ]


def _decode_value(schema: type[V], value: bytes) -> tuple[int, V]:
    version, body = split_type(value)
    if version not in schema.VERSIONS:
        raise ProtocolError(f"{schema.__name__} has no version {version}")
    return version, schema.decode_body(version, body)
