"""Clients above their quotas: what they are answered, and for how long they are muted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.handlers.request import ConnectionInfo, RequestContext
from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode
from millstream.net.peer import Peer
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.security.authorizer import Authorizer
from millstream.server import quota_gate

EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED.code


class Site(AdminBroker):
    """A broker whose one connection says when it is muted."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, settings)
        self.muted: list[float] = []
        self.session = self.dispatcher.open_session(
            Peer(1, "PLAINTEXT", "10.0.0.7", 4242, mute=self.muted.append)
        )

    def limit(self, name: str, rate: float | None, client_id: str = "tester") -> None:
        value = None if rate is None else {name: str(rate)}
        self.controller.change_entities(EntityKind.CLIENT, lambda _: {client_id: value}).result()

    def ask(self, request: object, version: int, response: type) -> object:
        answer = self.start(request, version, session=self.session).result()  # type: ignore[arg-type]
        assert isinstance(answer, response)
        return answer

    def produce(self, size: int) -> ProduceResponse:
        builder = BatchBuilder(BatchOptions())
        builder.append(self.clock.now_ms(), None, b"x" * size)
        data = PartitionProduceData(index=0, records=bytes(builder.build()))
        request = ProduceRequest(
            acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])]
        )
        answer = self.ask(request, 9, ProduceResponse)
        assert isinstance(answer, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
        return answer

    def fetch(self, offset: int = 0, *, session: tuple[int, int] = (0, -1)) -> FetchResponse:
        session_id, epoch = session
        topics = []
        if epoch <= 0:
            partition = FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, log_start_offset=-1
            )
            topics = [FetchTopic(topic="t", partitions=[partition])]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
            replica_state=ReplicaState(),
        )
        answer = self.ask(request, 11, FetchResponse)
        assert isinstance(answer, FetchResponse)
        return answer


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    made.create("t")
    yield made
    made.close()


def records_size(response: FetchResponse) -> int:
    return sum(
        len(partition.records or b"")
        for topic in response.responses
        for partition in topic.partitions
    )


def test_a_producer_above_its_quota_is_told_and_muted(site: Site) -> None:
    site.limit("producer_byte_rate", 1_000)
    assert site.produce(2_000).throttle_time_ms == 0
    assert site.muted == []
    answer = site.produce(20_000)
    # 22,250 bytes or so within 10 s are 1,250 a second above the quota.
    assert 12_000 < answer.throttle_time_ms < 13_000
    assert site.muted == [answer.throttle_time_ms]
    site.clock.advance(30_000)
    assert site.produce(2_000).throttle_time_ms == 0


def test_without_a_quota_no_gate_is_in_the_way(site: Site) -> None:
    assert site.services.quotas is None
    site.limit("producer_byte_rate", 10)
    assert site.services.quotas is not None
    assert site.produce(1_000).throttle_time_ms > 0
    site.limit("producer_byte_rate", None)
    assert site.services.quotas is None
    assert site.produce(100_000).throttle_time_ms == 0
    assert len(site.muted) == 1


def test_a_quota_of_another_client_is_not_ours(site: Site) -> None:
    site.limit("producer_byte_rate", 1, client_id="another")
    assert site.produce(10_000).throttle_time_ms == 0


def test_a_consumer_above_its_quota_gets_nothing_and_waits(site: Site) -> None:
    for _ in range(6):
        site.fill("t", b"x" * 1_000)
    site.limit("consumer_byte_rate", 500)
    first = site.fetch()
    assert records_size(first) > 0
    assert first.throttle_time_ms == 0
    # No more than 10 s of its quota at once, or one batch.
    assert records_size(first) <= 5_000
    second = site.fetch()
    assert second.throttle_time_ms > 0
    assert (second.responses, second.session_id) == ([], 0)
    assert site.muted == [second.throttle_time_ms]
    site.clock.advance(second.throttle_time_ms + 11_000)
    assert records_size(site.fetch()) > 0


def test_a_session_goes_on_after_an_answer_without_records(site: Site) -> None:
    site.fill("t", b"x" * 1_000)
    opened = site.fetch(session=(0, 0))
    assert opened.session_id
    site.fill("t", b"y" * 3_000)
    site.limit("consumer_byte_rate", 100)
    held = site.fetch(session=(opened.session_id, 1))
    assert held.throttle_time_ms > 0
    assert (held.session_id, held.responses) == (opened.session_id, [])
    site.limit("consumer_byte_rate", None)
    assert records_size(site.fetch(session=(opened.session_id, 2))) > 3_000


class InCluster:
    """A cluster whose brokers use one listener among themselves."""

    listener_name = "REPLICATION"


def fetch_as_follower(site: Site) -> FetchResponse:
    request = FetchRequest(
        replica_id=2,
        max_wait_ms=0,
        min_bytes=0,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=0,
                        partition_max_bytes=1 << 20,
                        log_start_offset=-1,
                    )
                ],
            )
        ],
        replica_state=ReplicaState(),
    )
    answer = site.ask(request, 11, FetchResponse)
    assert isinstance(answer, FetchResponse)
    return answer


@pytest.fixture
def quota_below_a_fetch(site: Site) -> Site:
    site.fill("t", b"x" * 10_000)
    value = {"consumer_byte_rate": "1", "request_percentage": "0.000001"}
    site.controller.change_entities(EntityKind.CLIENT, lambda _: {"tester": value}).result()
    return site


def between_brokers(site: Site) -> None:
    site.services.cluster = cast("Any", InCluster())
    site.session = site.dispatcher.open_session(
        Peer(2, InCluster.listener_name, "10.0.0.8", 4242, mute=site.muted.append)
    )


def fetch_much(
    site: Site, *, min_bytes: int = 0, max_bytes: int = 1 << 20, replica_id: int = -1
) -> FetchResponse:
    """Fetch all there is of ``t``, as far as it goes, and wait long for less than told."""
    partition = FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, log_start_offset=-1
    )
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=60_000,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic="t", partitions=[partition])],
        replica_state=ReplicaState(),
    )
    answer = site.ask(request, 11, FetchResponse)
    assert isinstance(answer, FetchResponse)
    return answer


@pytest.fixture
def six_batches(site: Site) -> Site:
    """A topic of six batches, of which a consumer may be given two at once."""
    for _ in range(6):
        site.fill("t", b"x" * 1_000)
    site.limit("consumer_byte_rate", 250)
    return site


def test_a_consumer_is_given_no_more_at_once_than_its_quota_lets_through(
    six_batches: Site,
) -> None:
    answer = fetch_much(six_batches)
    assert 2_000 <= records_size(answer) <= 2_500  # ten windows of a second
    assert answer.throttle_time_ms == 0


def test_a_consumer_asks_for_less_than_its_quota_and_gets_that(six_batches: Site) -> None:
    assert 1_000 <= records_size(fetch_much(six_batches, max_bytes=1_200)) <= 1_200


def test_a_consumer_does_not_wait_for_more_than_its_quota_lets_through(six_batches: Site) -> None:
    assert records_size(fetch_much(six_batches, min_bytes=5_000)) >= 2_000  # answered at once


@pytest.mark.parametrize(
    ("replica_id", "in_state", "in_cluster", "is_limited"),
    [
        (-1, -1, False, True),
        (-1, -1, True, True),
        (2, -1, False, True),  # there are no followers without a cluster
        (-1, 2, False, True),
        (0, -1, True, False),
        (-1, 0, True, False),
    ],
)
def test_what_a_fetch_may_ask_for(
    six_batches: Site, replica_id: int, in_state: int, in_cluster: bool, is_limited: bool
) -> None:
    site = six_batches
    if in_cluster:
        between_brokers(site)
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=9_000,
        max_bytes=10_000,
        replica_state=ReplicaState(replica_id=in_state),
        topics=[],
    )
    context = RequestContext(ConnectionInfo(1, "PLAINTEXT", "h", 1), ApiKey.FETCH, 17, 7, "tester")
    assert site.services.quotas is not None
    seen: list[FetchRequest] = []
    quota_gate._limited_fetch(site.services.quotas, lambda _, __, asked: seen.append(asked))(
        site.services, context, request
    )
    assert [(each.min_bytes, each.max_bytes) for each in seen] == [
        (2_500, 2_500) if is_limited else (9_000, 10_000)
    ]


def test_followers_are_exempt(quota_below_a_fetch: Site) -> None:
    site = quota_below_a_fetch
    between_brokers(site)
    assert fetch_as_follower(site).throttle_time_ms == 0
    assert site.muted == []


def test_a_client_that_says_it_is_a_follower_is_not_exempt(quota_below_a_fetch: Site) -> None:
    site = quota_below_a_fetch
    answer = fetch_as_follower(site)
    assert answer.throttle_time_ms > 0
    assert records_size(answer) == 0
    assert site.muted[-1] == answer.throttle_time_ms


def test_nor_is_one_of_a_cluster_on_the_listener_of_clients(quota_below_a_fetch: Site) -> None:
    site = quota_below_a_fetch
    between_brokers(site)
    site.session = site.dispatcher.open_session(
        Peer(3, "PLAINTEXT", "10.0.0.7", 4242, mute=site.muted.append)
    )
    answer = fetch_as_follower(site)
    assert answer.throttle_time_ms > 0
    assert records_size(answer) == 0
    assert site.muted[-1] == answer.throttle_time_ms


def test_a_follower_without_cluster_action_is_not_exempt(quota_below_a_fetch: Site) -> None:
    site = quota_below_a_fetch
    site.services.authorizer = Authorizer()
    between_brokers(site)
    answer = fetch_as_follower(site)
    assert answer.throttle_time_ms > 0
    assert records_size(answer) == 0
    epochs = OffsetForLeaderEpochRequest(replica_id=2, topics=[])
    response = site.ask(epochs, 4, OffsetForLeaderEpochResponse)
    assert isinstance(response, OffsetForLeaderEpochResponse)
    assert response.throttle_time_ms > 0


def test_a_consumer_that_asks_for_the_end_of_an_epoch_is_not_exempt(
    quota_below_a_fetch: Site,
) -> None:
    between_brokers(quota_below_a_fetch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[])
    response = quota_below_a_fetch.ask(request, 4, OffsetForLeaderEpochResponse)
    assert isinstance(response, OffsetForLeaderEpochResponse)
    assert response.throttle_time_ms > 0


@pytest.mark.parametrize("limit", [5e-324, math.nan, math.inf])
@pytest.mark.parametrize("name", ["producer_byte_rate", "consumer_byte_rate", "request_percentage"])
def test_a_strange_quota_does_not_keep_the_broker_from_answering(
    site: Site, name: str, limit: float
) -> None:
    site.limit(name, limit)
    produced = site.produce(1_000)
    fetched = site.fetch()
    if math.isfinite(limit):
        assert max(produced.throttle_time_ms, fetched.throttle_time_ms) > 0
    else:
        assert (produced.throttle_time_ms, fetched.throttle_time_ms) == (0, 0)
        assert records_size(fetched) > 1_000


def test_a_strange_quota_of_changes_does_not_keep_the_controller_from_answering(
    site: Site,
) -> None:
    site.limit("controller_mutation_rate", 5e-324)
    site.ask(creations(1), 7, CreateTopicsResponse)
    answer = site.ask(creations(1), 7, CreateTopicsResponse)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == EXCEEDED
    assert answer.throttle_time_ms > 0


def test_topics_that_are_made_by_asking_for_them_are_changes_too(site: Site) -> None:
    site.limit("controller_mutation_rate", 0.01)
    names = [f"made-{number}" for number in range(5)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    answer = site.ask(request, 12, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    assert {each.error_code for each in answer.topics} == {
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
    }
    assert [site.metadata.topic(name) is not None for name in names] == [True, *[False] * 4]


def test_time_is_limited_for_every_api(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed = [0]

    def tick() -> int:
        elapsed[0] += 50_000_000  # each request takes 50 ms
        return elapsed[0]

    monkeypatch.setattr(quota_gate, "perf_counter_ns", tick)
    site.limit("request_percentage", 1)
    throttles = []
    for _ in range(4):
        answer = site.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        assert isinstance(answer, MetadataResponse)
        throttles.append(answer.throttle_time_ms)
    assert throttles[:2] == [0, 0]
    assert throttles[2:] == [1_000, 1_000], "nobody waits longer than a window"
    assert site.muted == [1_000, 1_000]


def test_a_request_that_is_refused_is_usage_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    elapsed = [0]

    def tick() -> int:
        elapsed[0] += 50_000_000
        return elapsed[0]

    monkeypatch.setattr(quota_gate, "perf_counter_ns", tick)
    site.limit("request_percentage", 1)
    request = HeartbeatRequest(group_id="nobody's", generation_id=1, member_id="m")
    answers = [site.ask(request, 4, HeartbeatResponse) for _ in range(4)]
    assert all(isinstance(each, HeartbeatResponse) and each.error_code for each in answers)
    throttles = [getattr(each, "throttle_time_ms", None) for each in answers]
    assert throttles == [0, 0, 1_000, 1_000]
    assert site.muted == [1_000, 1_000]


def creations(*counts: int, version: int = 7) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=f"new-{version}-{i}",
                num_partitions=count,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for i, count in enumerate(counts)
        ],
        timeout_ms=1_000,
        validate_only=False,
    )


def test_changes_of_the_controller_are_refused_above_the_quota(site: Site) -> None:
    site.limit("controller_mutation_rate", 1)
    answer = site.ask(creations(12, 3), 7, CreateTopicsResponse)
    assert isinstance(answer, CreateTopicsResponse)
    # A burst of 11 partitions may be used at once, and what begins within it is carried out.
    assert {each.name: each.error_code for each in answer.topics} == {
        "new-7-0": 0,
        "new-7-1": EXCEEDED,
    }
    assert answer.throttle_time_ms == 1_000
    assert site.muted == [1_000]
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)],
        timeout_ms=1_000,
        validate_only=False,
    )
    grown = site.ask(more, 3, CreatePartitionsResponse)
    assert isinstance(grown, CreatePartitionsResponse)
    assert grown.results[0].error_code == EXCEEDED
    gone = site.ask(
        DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5, DeleteTopicsResponse
    )
    assert isinstance(gone, DeleteTopicsResponse)
    assert gone.responses[0].error_code == EXCEEDED
    site.clock.advance(2_000)
    gone = site.ask(
        DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000), 5, DeleteTopicsResponse
    )
    assert isinstance(gone, DeleteTopicsResponse)
    assert gone.responses[0].error_code == 0


def test_older_versions_do_not_know_of_refusals_and_wait(site: Site) -> None:
    site.limit("controller_mutation_rate", 1)
    answer = site.ask(creations(12, 3, version=5), 5, CreateTopicsResponse)
    assert isinstance(answer, CreateTopicsResponse)
    assert [each.error_code for each in answer.topics] == [0, 0]
    assert answer.throttle_time_ms == 4_000
    assert site.muted == [4_000]


def test_defaults_of_the_settings(tmp_path: Path) -> None:
    site = Site(tmp_path, {"quota.producer.default": "1000"})
    site.create("t")
    assert site.produce(20_000).throttle_time_ms > 0
    site.limit("producer_byte_rate", 1_000_000)
    assert site.produce(20_000).throttle_time_ms == 0
    site.close()


def test_the_default_of_consumers_is_not_that_of_producers(tmp_path: Path) -> None:
    site = Site(tmp_path, {"quota.consumer.default": "100"})
    site.create("t")
    assert site.produce(20_000).throttle_time_ms == 0
    assert site.fetch().throttle_time_ms > 0
    site.limit("consumer_byte_rate", 1_000_000)
    assert records_size(site.fetch()) > 20_000
    site.close()


def test_quotas_that_are_stored_hold_from_the_start(tmp_path: Path) -> None:
    first = AdminBroker(tmp_path)
    first.controller.change_entities(
        EntityKind.USER, lambda _: {"ANONYMOUS": {"producer_byte_rate": "1000"}}
    ).result()
    first.close()
    site = Site(tmp_path)
    site.create("t")
    assert site.produce(20_000).throttle_time_ms > 0
    site.close()
