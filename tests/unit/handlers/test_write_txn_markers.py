"""WriteTxnMarkers: one answer for all partitions, once each marker counts or the time is over."""

from __future__ import annotations

from tests.unit.runtime.replica_site import TOPIC, ClusterSite

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Response
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

REQUEST_TIMEOUT_MS = 4_000


def site() -> ClusterSite:
    return ClusterSite(request_timeout_ms=str(REQUEST_TIMEOUT_MS))


def write(
    site: ClusterSite, topics: dict[str, list[int]], *producer_ids: int
) -> Deferred[Response]:
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=0,
                transaction_result=True,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in topics.items()
                ],
                coordinator_epoch=0,
                transaction_version=0,
            )
            for producer_id in producer_ids or (7,)
        ]
    )
    return site[1].ask(ApiKey.WRITE_TXN_MARKERS, 1, request)


def codes(answer: Deferred[Response]) -> dict[tuple[str, int], ErrorCode]:
    response = answer.result()
    assert isinstance(response, WriteTxnMarkersResponse)
    return {
        (topic.name, each.partition_index): ErrorCode.of(each.error_code)
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }


def test_a_request_without_partitions_is_answered_at_once() -> None:
    assert codes(write(site(), {})) == {}


def test_the_answer_waits_until_every_marker_is_committed() -> None:
    cluster = site()
    waiting = write(cluster, {TOPIC: [0], "absent": [0]})
    assert not waiting.done, "one partition is refused, the other one's marker is not committed"
    cluster.settle()
    assert codes(waiting) == {
        (TOPIC, 0): ErrorCode.NONE,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    cluster.advance(2 * REQUEST_TIMEOUT_MS)
    assert codes(waiting)[TOPIC, 0] is ErrorCode.NONE


def test_every_marker_has_its_own_outcome() -> None:
    cluster = site()
    waiting = write(cluster, {TOPIC: [0]}, 7, 8)
    cluster.settle()
    response = waiting.result()
    assert isinstance(response, WriteTxnMarkersResponse)
    outcomes = [
        (each.producer_id, each.topics[0].partitions[0].error_code) for each in response.markers
    ]
    assert outcomes == [(7, 0), (8, 0)]


def test_what_is_not_committed_in_time_is_answered_so_and_once() -> None:
    cluster = site()
    cluster.cut_off(1)
    waiting = write(cluster, {TOPIC: [0], "absent": [0]})
    cluster.advance(REQUEST_TIMEOUT_MS)
    assert codes(waiting) == {
        (TOPIC, 0): ErrorCode.REQUEST_TIMED_OUT,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    cluster.advance(15_000)
    assert cluster[1].partition.high_watermark == 1, "the followers are out of the ISR"
    assert codes(waiting)[TOPIC, 0] is ErrorCode.REQUEST_TIMED_OUT
