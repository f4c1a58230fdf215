"""WriteTxnMarkers (key 27), versions 1 and 2.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        flexible
2        the transaction version, which says how the producer epoch is checked (KIP-890)
=======  ====================================================================================

The transaction coordinator, or an admin client that ends a hanging transaction, has the end of
producers' transactions written into partitions that are led here. Each partition answers for
itself, once its marker is committed as with acks=all, and REQUEST_TIMED_OUT after
``request.timeout.ms``: the marker may be committed yet. In ``__consumer_offsets`` the group
coordinator writes the marker, in order with its other records, and what was committed in the
transaction becomes visible or vanishes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from millstream.coordinator.result import TransactionProducer
from millstream.handlers.request import Answer, RequestContext
from millstream.model.clock import TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import GROUP_METADATA_TOPIC
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from millstream.records.control import MarkerBatch
from millstream.runtime.coordinators.coordinator_writes import TransactionEnd
from millstream.runtime.replicas.committed_appends import append_marker
from millstream.runtime.services import Services

_ELSEWHERE = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What the group coordinator says where the transaction coordinator has to look for a leader."""


def handle(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> Answer | Deferred[Answer]:
    """Write every marker into every partition, then answer for all of them."""
    response = failed(context, request, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    writes = _Writes(services, response)
    now_ms = services.clock.now_ms()
    for marker, result in zip(request.markers, response.markers, strict=True):
        end = TransactionEnd(
            TransactionProducer(marker.producer_id, marker.producer_epoch),
            marker.transaction_result,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        batch = end.marker_batch(now_ms)
        for topic in result.topics:
            for answer in topic.partitions:
                writes.add(answer, _append(services, end, batch, topic.name, answer))
    return writes.begin()


def failed(
    context: RequestContext, request: WriteTxnMarkersRequest, error: KafkaError
) -> WriteTxnMarkersResponse:
    """Refuse every partition."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=error.error.code
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def _append(
    services: Services,
    end: TransactionEnd,
    batch: MarkerBatch,
    topic: str,
    answer: WritableTxnMarkerPartitionResult,
) -> Deferred[Any]:
    """Write one marker into one partition; fails with a KafkaError."""
    index = answer.partition_index
    try:
        partition = services.partitions.get(topic, index)
    except KafkaError as error:
        refused: Deferred[Any] = Deferred()
        refused.fail(error)
        return refused
    if topic == GROUP_METADATA_TOPIC:
        return services.groups.end_transaction(index, end)
    return append_marker(partition, batch, transaction_version=end.transaction_version)


def _code(written: Deferred[Any]) -> int:
    """Return how the write of a marker has ended."""
    try:
        written.result()
    except KafkaError as error:
        code = error.error
        return (ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _ELSEWHERE else code).code
    return 0


class _Writes:
    """The markers of one request, until all of them count or the time is over."""

    def __init__(self, services: Services, response: WriteTxnMarkersResponse) -> None:
        self._services = services
        self._response = response
        self._left = 0
        self._timer: TimerHandle | None = None
        self._answered: Deferred[Answer] = Deferred()

    def add(self, answer: WritableTxnMarkerPartitionResult, written: Deferred[Any]) -> None:
        """Wait for one partition."""
        if written.done:
            answer.error_code = _code(written)
            return
        self._left += 1
        written.on_done(partial(self._settle, answer))

    def begin(self) -> Deferred[Answer]:
        """Answer once every partition has."""
        if self._left:
            timeout_ms = self._services.config.current.request_timeout_ms
            self._timer = self._services.clock.call_later(timeout_ms, self._finish)
        else:
            self._finish()
        return self._answered

    def _settle(self, answer: WritableTxnMarkerPartitionResult, written: Deferred[Any]) -> None:
        self._left -= 1
        if self._answered.done:
            return
        answer.error_code = _code(written)
        if not self._left and self._timer is not None:
            self._timer.cancel()
            self._finish()

    def _finish(self) -> None:
        self._answered.complete(self._response)
