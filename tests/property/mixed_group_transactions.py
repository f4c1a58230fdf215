"""Offsets that are committed in transactions, and the markers that end these: for random walks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.unit.handlers.group_calls import Calls
from tests.unit.runtime.transaction_site import HandCoordinator

from millstream.model.errors import ErrorCode
from millstream.model.topic import GROUP_METADATA_TOPIC
from millstream.protocol.message import Request
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

FIRST_PRODUCER: Final = 100
ANSWERS: Final = (
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NOT_COORDINATOR,
)
FAILURES: Final = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE)


class GroupTransactions:
    """A producer for each client of a group. ``coordinator`` keeps what it is asked until it is let
    answer; ``ask`` sends a request.
    """

    def __init__(
        self,
        calls: Calls,
        coordinator: HandCoordinator,
        group_id: str,
        ask: Callable[[Request, int], None],
    ) -> None:
        self._calls = calls
        self._coordinator = coordinator
        self._group_id = group_id
        self._ask = ask
        self._epochs: dict[int, int] = {}

    def commit(
        self,
        who: int,
        how: int,
        version: int,
        *,
        topic: str,
        generation_id: int,
        member_id: str,
        instance_id: str | None,
    ) -> None:
        """Commit two offsets, at times in the epoch before."""
        request = TxnOffsetCommitRequest(
            transactional_id=f"of {who}",
            group_id=self._group_id,
            producer_id=FIRST_PRODUCER + who,
            producer_epoch=max(self._epochs.get(who, 0) - (how == 13), 0),
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=how, committed_metadata="m"
                        )
                        for index in (0, how % 3)
                    ],
                )
            ],
        )
        self._ask(request, version)
        if how % 3:
            self.answer_all()

    def verified(self, how: int) -> None:
        """Let the coordinator answer the oldest question, or be out of reach."""
        if not self._coordinator.asked:
            return
        if how % 4:
            self._coordinator.answer(ANSWERS[how % len(ANSWERS)])
        else:
            self._coordinator.fail(FAILURES[how % 3 % len(FAILURES)])
        self._calls.site.clock.settle()

    def answer_all(self) -> None:
        """Let the coordinator say yes to whatever it was asked."""
        while self._coordinator.asked:
            self._coordinator.answer()
            self._calls.site.clock.settle()

    def end(self, who: int, how: int) -> None:
        """Commit or abort; with version 2 the epoch is one higher from then on."""
        epoch, version = self._epochs.get(who, 0), (0, 2)[how // 2 % 2]
        if version:
            epoch = self._epochs[who] = epoch + 1
        partition = self._calls.site.groups.partition_for(self._group_id)
        marker = WritableTxnMarker(
            producer_id=FIRST_PRODUCER + who,
            producer_epoch=epoch - (how == 11),
            transaction_result=bool(how % 2),
            coordinator_epoch=0 if how % 7 else 1,
            transaction_version=version,
            topics=[
                WritableTxnMarkerTopic(name=GROUP_METADATA_TOPIC, partition_indexes=[partition])
            ],
        )
        self._ask(WriteTxnMarkersRequest(markers=[marker]), 2)
