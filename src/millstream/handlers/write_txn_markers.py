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

from collections.abc import Sequence

from millstream.coordinator.result import MarkerCodes, TransactionEnd, TransactionProducer
from millstream.handlers.request import Answer, RequestContext
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from millstream.runtime.coordinators.marker_writes import write_markers
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> Deferred[Answer]:
    """Write every marker into every partition, then answer for all of them."""
    answered: Deferred[Answer] = Deferred()

    def written(codes: Sequence[MarkerCodes]) -> None:
        answered.complete(_response(request, codes))

    write_markers(
        services.clock,
        services.partitions,
        services.group_runtime,
        [(_end(marker), _partitions(marker)) for marker in request.markers],
        services.config.current.request_timeout_ms,
        written,
    )
    return answered


def failed(
    context: RequestContext, request: WriteTxnMarkersRequest, error: KafkaError
) -> WriteTxnMarkersResponse:
    """Refuse every partition."""
    code = error.error.code
    return _response(
        request,
        [
            {topic: dict.fromkeys(indexes, code) for topic, indexes in _partitions(marker).items()}
            for marker in request.markers
        ],
    )


def _end(marker: WritableTxnMarker) -> TransactionEnd:
    return TransactionEnd(
        TransactionProducer(marker.producer_id, marker.producer_epoch),
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )


def _partitions(marker: WritableTxnMarker) -> dict[str, list[int]]:
    partitions: dict[str, list[int]] = {}
    for topic in marker.topics:
        partitions.setdefault(topic.name, []).extend(topic.partition_indexes)
    return partitions


def _response(
    request: WriteTxnMarkersRequest, codes: Sequence[MarkerCodes]
) -> WriteTxnMarkersResponse:
    """Answer for each partition as it was asked for."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=by_topic[topic.name][index]
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker, by_topic in zip(request.markers, codes, strict=True)
        ]
    )
