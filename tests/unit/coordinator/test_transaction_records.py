from __future__ import annotations

from millstream.coordinator.transaction.metadata import TransactionMetadata
from millstream.coordinator.transaction.records import (
    decode_record,
    transaction_from,
    transaction_record,
)
from millstream.coordinator.transaction.states import TransactionState
from millstream.protocol.messages.coordinator_records import TransactionLogValue


def test_a_record_means_what_is_read_in_it() -> None:
    empty = TransactionMetadata(
        producer_id=7,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TransactionState.EMPTY,
        last_update_ms=5,
        previous_producer_id=6,
    )
    running = empty.with_partitions({"t": frozenset({2, 1})}, now_ms=6, client_version=2)
    prepared = running.prepared(commit=True, now_ms=7, client_version=2, next_producer_id=9)
    for state in (empty, running, prepared, prepared.completed(8)):
        record = transaction_record("tx", state, 2)
        assert record.meaning is state
        decoded = decode_record(*record.encode())
        assert decoded is not None
        assert decoded.meaning is None, "replay reads it"
        assert isinstance(decoded.value, TransactionLogValue)
        assert transaction_from(decoded.value) == state
        assert transaction_record("tx", state, 0).meaning is None, "it leaves something out"
