"""One fetch of many partitions: it is read in slices, between which the loop serves others."""

from __future__ import annotations

import pytest
from tests.memory_files import MemoryFile
from tests.unit.runtime.replica_site import ClusterSite

from millstream.handlers.fetch import handle
from millstream.handlers.request import ConnectionInfo, RequestContext
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicId
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Response
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from millstream.runtime.replicas import delayed_fetch
from millstream.runtime.replicas.fetch_reader import FetchReader
from millstream.runtime.replicas.fetch_sessions import PartitionFetch
from millstream.storage.segment import Segment

COUNT = 12
SLICE = 5


def topic_id(number: int) -> TopicId:
    return TopicId(f"topic-{number}".encode().ljust(16, b".")[:16])


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> ClusterSite:
    monkeypatch.setattr(delayed_fetch, "SLICE", SLICE)
    made = ClusterSite()
    for number in range(COUNT):
        made.create(f"topic-{number}")
    made.settle()
    return made


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that were looked for, in order."""
    found: list[str] = []
    find = FetchReader.find

    def counted(self: FetchReader, fetch: PartitionFetch) -> object:
        partition = find(self, fetch)
        found.append(partition.topic_partition.topic)
        return partition

    monkeypatch.setattr(FetchReader, "find", counted)
    return found


def request(count: int = COUNT, max_wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic_id=topic_id(number),
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                ],
            )
            for number in range(count)
        ],
    )


def answered(reply: Deferred[Response]) -> FetchResponse:
    response = reply.result()
    assert isinstance(response, FetchResponse)
    return response


def test_others_are_served_between_the_slices_of_a_large_fetch(
    site: ClusterSite, looked_at: list[str]
) -> None:
    reply = site[1].ask(ApiKey.FETCH, 16, request())
    assert (len(looked_at), reply.done) == (SLICE, False)
    assert site[1].produce(acks=1, topic="topic-11").error is ErrorCode.NONE
    site.clock.run_once()
    assert (len(looked_at), reply.done) == (2 * SLICE, False)
    site.clock.run_once()
    assert looked_at == [f"topic-{number}" for number in range(COUNT)]
    assert len(answered(reply).responses) == COUNT


def test_a_fetch_of_one_slice_is_answered_at_once(site: ClusterSite, looked_at: list[str]) -> None:
    assert len(answered(site[1].ask(ApiKey.FETCH, 16, request(SLICE))).responses) == SLICE
    assert len(looked_at) == SLICE


def test_a_large_fetch_waits_at_all_of_its_partitions(site: ClusterSite) -> None:
    reply = site[1].ask(ApiKey.FETCH, 16, request(max_wait_ms=5_000))
    site.settle()
    assert not reply.done
    site[1].produce(topic="topic-11")
    site.advance(1_000)
    (last,) = (each for each in answered(reply).responses if each.topic_id == topic_id(11))
    assert last.partitions[0].records


def test_what_is_committed_while_later_slices_are_read_wakes_the_fetch(
    site: ClusterSite, looked_at: list[str]
) -> None:
    reply = site[1].ask(ApiKey.FETCH, 16, request(max_wait_ms=5_000))
    assert len(looked_at) == SLICE
    first = site[1].partitions.get("topic-0", 0)
    assert site[1].produce(acks=1, topic="topic-0").error is ErrorCode.NONE
    first.commit(1, first.log.size)
    assert first.high_watermark == 1
    site.settle()
    assert answered(reply).responses[0].partitions[0].records
    assert not first.fetch_waiters


def test_a_large_fetch_leaves_nobody_waiting_behind(site: ClusterSite) -> None:
    site[1].produce(topic="topic-0")
    site.advance(1_000)
    timers = site.clock.timers_running
    reply = site[1].ask(ApiKey.FETCH, 16, request(max_wait_ms=5_000))
    site.settle()
    assert reply.done
    assert not any(partition.fetch_waiters for partition in site[1].partitions)
    assert site.clock.timers_running == timers


def test_a_large_fetch_whose_peer_goes_is_read_no_further(
    site: ClusterSite, looked_at: list[str]
) -> None:
    connection = ConnectionInfo(99, "PLAINTEXT", "h", 0)
    context = RequestContext(connection, ApiKey.FETCH, 16, 0, "client")
    reply = handle(site[1].services, context, request())
    assert not isinstance(reply, Response | None)
    outcome = spawn(reply)
    assert connection.abandon is not None
    connection.abandon()
    site.settle()
    assert (len(looked_at), outcome.done) == (SLICE, False)


@pytest.mark.parametrize("count", [1, COUNT])
def test_a_fetch_that_waits_leaves_with_its_peer(site: ClusterSite, count: int) -> None:
    timers = site.clock.timers_running
    connection = ConnectionInfo(99, "PLAINTEXT", "h", 0)
    context = RequestContext(connection, ApiKey.FETCH, 16, 0, "client")
    reply = handle(site[1].services, context, request(count, max_wait_ms=5_000))
    assert not isinstance(reply, Response | None)
    outcome = spawn(reply)
    site.settle()
    assert any(partition.fetch_waiters for partition in site[1].partitions)
    assert connection.abandon is not None
    connection.abandon()
    assert not any(partition.fetch_waiters for partition in site[1].partitions)
    assert site.clock.timers_running == timers
    site.settle()
    assert not outcome.done


@pytest.mark.parametrize("count", [1, COUNT])
def test_a_fetch_whose_peer_goes_while_the_disk_is_read_waits_for_nothing(
    site: ClusterSite, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for number in range(count):
        site[1].produce(topic=f"topic-{number}")
    site.advance(1_000)
    monkeypatch.setattr(MemoryFile, "is_cached", lambda self, position, size: False)
    monkeypatch.setattr(Segment, "hinted_position", lambda self, offset: None)
    site[1].offload.held = True
    connection = ConnectionInfo(99, "PLAINTEXT", "h", 0)
    context = RequestContext(connection, ApiKey.FETCH, 16, 0, "client")
    asked = request(count, max_wait_ms=5_000)
    asked.min_bytes = 1 << 20
    reply = handle(site[1].services, context, asked)
    assert not isinstance(reply, Response | None)
    spawn(reply)
    site.settle()
    assert connection.abandon is not None
    assert site[1].offload._waiting
    connection.abandon()
    monkeypatch.setattr(MemoryFile, "is_cached", lambda self, position, size: True)
    site[1].offload.held = False
    site[1].offload.release()
    site.settle()
    assert not any(partition.fetch_waiters for partition in site[1].partitions)


@pytest.mark.parametrize("of_request", [True, False])
def test_a_negative_limit_refuses_one_partition(site: ClusterSite, of_request: bool) -> None:
    """That of a request is the first partition's; the others find one of nothing."""
    for topic in ("topic-0", "topic-2"):
        site[1].produce(topic=topic)
    site.advance(1_000)
    asked = request(4)
    if of_request:
        asked.max_bytes = -1
    else:
        asked.topics[0].partitions[0].partition_max_bytes = -1
    answer = answered(site[1].ask(ApiKey.FETCH, 16, asked))
    parts = [topic.partitions[0] for topic in answer.responses]
    assert [ErrorCode.of(each.error_code) for each in parts] == [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert [bool(each.records) for each in parts] == [False, False, True, False]
