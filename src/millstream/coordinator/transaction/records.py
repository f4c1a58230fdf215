"""Records of ``__transaction_state``: one for each transactional id.

::

    key    int16 0, transactional id
    value  int16 version, producer id and epoch, timeout, state, partitions by topic (null while
           Empty), times of the last update and of the start; from version 1 on as tagged fields
           the previous and the next producer id and the client's transaction version

Version 1 is written where the feature ``transaction.version`` is 1 or higher. A record without a
value deletes its key: the transactional id has expired. Kafka: ``TransactionLog``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from millstream.coordinator.result import CoordinatorRecord, split_type
from millstream.coordinator.transaction.metadata import (
    NO_PARTITIONS,
    Partitions,
    TransactionMetadata,
)
from millstream.coordinator.transaction.states import TransactionState
from millstream.model.errors import ProtocolError
from millstream.protocol.messages.coordinator_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

TRANSACTION: Final = 0
"""The type of the key."""
_LONGEST_KEPT: Final = 256
"""Characters of an id whose key is kept."""
FIRST_LEVEL_WITH_TAGS: Final = 1
"""The level of ``transaction.version`` from which on version 1 of the value is written."""


def transaction_record(
    transactional_id: str, transaction: TransactionMetadata, level: int
) -> CoordinatorRecord:
    """Return the record of a state; ``level`` is that of ``transaction.version``."""
    partitions = None
    if transaction.state is not TransactionState.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=sorted(indexes))
            for topic, indexes in transaction.partitions.items()
        ]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    is_short = len(transactional_id) <= _LONGEST_KEPT
    key, encoded = _kept_key(transactional_id) if is_short else _key(transactional_id)
    if level < FIRST_LEVEL_WITH_TAGS:
        return CoordinatorRecord(TRANSACTION, key, 0, value, encoded_key=encoded)
    value.previous_producer_id = transaction.previous_producer_id
    value.next_producer_id = transaction.next_producer_id
    value.client_transaction_version = transaction.client_version
    # Only this version holds all that there is to the state.
    return CoordinatorRecord(TRANSACTION, key, 1, value, transaction, encoded)


def _key(transactional_id: str) -> tuple[TransactionLogKey, bytes]:
    """Return the key of an id, and its bytes with the type."""
    key = TransactionLogKey(transactional_id=transactional_id)
    return key, CoordinatorRecord(TRANSACTION, key).encode()[0]


# Each transaction of an id needs it several times.
_kept_key = lru_cache(maxsize=1024)(_key)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that deletes a transactional id."""
    return CoordinatorRecord(TRANSACTION, TransactionLogKey(transactional_id=transactional_id))


def decode_record(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """Decode a stored record; None if its key is of another type.

    Raises ProtocolError if the bytes are not a valid key or value.
    """
    key_type, key_body = split_type(key)
    if key_type != TRANSACTION:
        return None
    decoded = TransactionLogKey.decode_body(0, key_body)
    if value is None:
        return CoordinatorRecord(TRANSACTION, decoded)
    version, body = split_type(value)
    if version not in TransactionLogValue.VERSIONS:
        raise ProtocolError(f"TransactionLogValue has no version {version}")
    return CoordinatorRecord(
        TRANSACTION, decoded, version, TransactionLogValue.decode_body(version, body)
    )


def transaction_from(value: TransactionLogValue) -> TransactionMetadata:
    """Return the state that a record holds; ProtocolError for a state that is never stored."""
    status = value.transaction_status
    if not 0 <= status <= TransactionState.COMPLETE_ABORT:
        raise ProtocolError(f"no transaction is stored in state {status}")
    return TransactionMetadata(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(status),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=value.transaction_start_timestamp_ms,
        partitions=_partitions(value.transaction_partitions),
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _partitions(stored: list[PartitionsSchema] | None) -> Partitions:
    if not stored:
        return NO_PARTITIONS
    partitions: dict[str, frozenset[int]] = {}
    for each in stored:
        indexes = frozenset(each.partition_ids)
        partitions[each.topic] = partitions.get(each.topic, frozenset()) | indexes
    return partitions
