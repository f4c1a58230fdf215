"""Connections, leaders and trying again, against a broker that does as it is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.client.scripted_broker import TOPIC, CutConnectionError, Interceptor, ScriptedBroker

from millstream.client import cluster as cluster_module
from millstream.client.cluster import Cluster, out_of_reach
from millstream.client.errors import ConnectionFailedError, TimedOutError, UnsupportedVersionError
from millstream.client.fetch import Fetcher, FetchSettings
from millstream.client.metadata import Metadata, Partition, read_metadata
from millstream.client.offsets import EARLIEST, LATEST, end_offsets
from millstream.client.settings import Address, ClientSettings, parse_bootstrap_servers
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.fetch import FetchRequest
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millstream.records.builder import BatchOptions
from millstream.records.record import read_records
from millstream.records.rows import encode_rows

PLACE = TopicPartition(TOPIC, 0)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as started:
        yield started


def cluster_of(bootstrap: str, **settings: int) -> Cluster:
    return Cluster(
        ClientSettings(
            bootstrap_servers=parse_bootstrap_servers(bootstrap),
            **{"retry_backoff_ms": 1, "request_timeout_ms": 5_000, **settings},
        )
    )


def times(count: int, kind: type[Request], answer: Response | None) -> Interceptor:
    """Answer the first ``count`` requests of a kind so; None cuts the connection."""
    left = count

    def intercept(request: Request) -> Response | None:
        nonlocal left
        if not isinstance(request, kind) or not left:
            return None
        left -= 1
        if answer is None:
            raise CutConnectionError
        return answer

    return intercept


def fill(broker: ScriptedBroker, count: int) -> None:
    """Append one batch for each of the first numbers."""
    for number in range(count):
        broker.append(bytes(encode_rows([0], None, [b"%d" % number], options=BatchOptions())))


def read_all(cluster: Cluster, count: int, **settings: int) -> list[bytes | None]:
    fetcher = Fetcher(cluster, {PLACE: 0}, FetchSettings(max_wait_ms=10, **settings))
    values: list[bytes | None] = []
    while len(values) < count:
        for fetched in fetcher.poll():
            for batch in fetched.batches():
                values += [record.value for record in read_records(batch)]
    fetcher.close()
    return values


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with (
        cluster_of(f"127.0.0.1:{port}") as cluster,
        pytest.raises(ConnectionFailedError, match=f"127.0.0.1:{port}: connection refused"),
    ):
        cluster.metadata()


def test_a_peer_that_speaks_another_protocol() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        cluster_of(f"127.0.0.1:{listener.getsockname()[1]}", connect_timeout_ms=200) as cluster,
        pytest.raises(TimedOutError, match=r"no connection to the broker .* in time"),
    ):
        cluster.metadata()


def test_a_second_bootstrap_server_is_asked_when_the_first_is_gone(broker: ScriptedBroker) -> None:
    with cluster_of(f"127.0.0.1:1,{broker.bootstrap}") as cluster:
        assert cluster.topic(TOPIC).name == TOPIC


def test_brokers_that_are_tried_in_vain_are_known_to_who_watches(broker: ScriptedBroker) -> None:
    """As a command does that tells who it waits for, from a thread of its own."""
    assert out_of_reach() is None
    with cluster_of(broker.bootstrap) as cluster:
        assert out_of_reach() is None  # nothing was tried yet
        cluster.metadata()
        assert out_of_reach() == []
        seen: list[list[Address] | None] = []
        with socket.create_server(("127.0.0.1", 0)) as gone:
            away = Address(*gone.getsockname())
        left = 3

        def ask() -> str:
            nonlocal left
            left -= 1
            cluster.retrying(lambda: None)  # a step that succeeds says nothing of the others
            seen.append(out_of_reach())
            cluster._connect(away if left else parse_bootstrap_servers(broker.bootstrap)[0])
            return "done"

        assert cluster.retrying(ask) == "done"
        assert seen == [[], [away], [away]]
        assert out_of_reach() == []
        with cluster_of(str(away)) as other:
            with pytest.raises(ConnectionFailedError):
                other.metadata()
            assert out_of_reach() == other.unreachable() == [away]
        assert out_of_reach() == []
    assert out_of_reach() is None


def test_an_unknown_topic_is_told_at_once(broker: ScriptedBroker) -> None:
    broker.intercept.append(times(99, MetadataRequest, broker.metadata(error=3)))
    with cluster_of(broker.bootstrap) as cluster, pytest.raises(KafkaError) as raised:
        cluster.topic(TOPIC)
    assert raised.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert sum(isinstance(request, MetadataRequest) for request in broker.requests) == 1


def test_partitions_are_found_without_a_look_at_all_others(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load of 200 partitions asks for each of them about fifteen times a batch."""
    count = 200
    looks = 0

    class Counted(tuple[Partition, ...]):
        def __iter__(self) -> Iterator[Partition]:
            nonlocal looks
            for each in tuple.__iter__(self):
                looks += 1
                yield each

    def read(response: MetadataResponse) -> Metadata:
        found = read_metadata(response)
        (first,) = found.topics[TOPIC].partitions
        partitions = Counted(
            replace(first, topic_partition=TopicPartition(TOPIC, number)) for number in range(count)
        )
        return replace(found, topics={TOPIC: replace(found.topics[TOPIC], partitions=partitions)})

    monkeypatch.setattr(cluster_module, "read_metadata", read)
    places = [TopicPartition(TOPIC, number) for number in range(count)]
    with cluster_of(broker.bootstrap) as cluster:
        for _ in range(10):
            assert cluster.by_leader(places) == [(1, places)]
        for place in places:
            assert cluster.partition(place).topic_partition == place
        assert looks <= 3 * count
        with pytest.raises(KafkaError, match="has 200 partitions, no partition 200"):
            cluster.partition(TopicPartition(TOPIC, count))
        cluster.forget()
        count = 3
        assert cluster.by_leader(places[:3]) == [(1, places[:3])]
        with pytest.raises(KafkaError, match="has 3 partitions, no partition 3"):
            cluster.partition(places[3])


def test_a_leader_that_is_being_elected_is_waited_for(broker: ScriptedBroker) -> None:
    broker.intercept.append(times(3, MetadataRequest, broker.metadata(leader=-1)))
    with cluster_of(broker.bootstrap) as cluster:
        assert cluster.partition(PLACE).leader == 1


def test_a_partition_that_does_not_exist(broker: ScriptedBroker) -> None:
    with cluster_of(broker.bootstrap) as cluster, pytest.raises(KafkaError, match="no partition 5"):
        cluster.partition(TopicPartition(TOPIC, 5))


def test_a_connection_that_breaks_is_made_again(broker: ScriptedBroker) -> None:
    with cluster_of(broker.bootstrap) as cluster:
        cluster.topic(TOPIC)
        cluster.forget()
        broker.intercept.append(times(2, MetadataRequest, None))
        assert cluster.topic(TOPIC).name == TOPIC


def test_an_api_that_the_broker_lacks(broker: ScriptedBroker) -> None:
    del broker.versions[2]
    with (
        cluster_of(broker.bootstrap) as cluster,
        pytest.raises(UnsupportedVersionError, match="ListOffsets"),
    ):
        end_offsets(cluster, [PLACE], which=LATEST)


def test_what_lies_there_is_read(broker: ScriptedBroker) -> None:
    with cluster_of(broker.bootstrap) as cluster:
        fill(broker, 20)
        assert read_all(cluster, 20) == [b"%d" % number for number in range(20)]
        assert read_all(cluster, 20, max_partition_bytes=1) == read_all(cluster, 20)
        assert end_offsets(cluster, [PLACE], which=LATEST) == {PLACE: 20}
        assert end_offsets(cluster, [PLACE], which=EARLIEST) == {PLACE: 0}


def test_a_fetch_goes_on_after_cuts_and_changes_of_leader(broker: ScriptedBroker) -> None:
    with cluster_of(broker.bootstrap) as cluster:
        fill(broker, 6)
        broker.intercept.append(times(2, FetchRequest, None))
        broker.intercept.append(times(2, FetchRequest, broker.fetched(6)))
        assert read_all(cluster, 6, max_partition_bytes=1) == [b"%d" % n for n in range(6)]


def test_an_offset_that_is_gone(broker: ScriptedBroker) -> None:
    with cluster_of(broker.bootstrap) as cluster:
        fetcher = Fetcher(cluster, {PLACE: 5})
        with pytest.raises(KafkaError, match="offset 5 of t-0 is not in the log"):
            fetcher.poll()
        fetcher.close()
