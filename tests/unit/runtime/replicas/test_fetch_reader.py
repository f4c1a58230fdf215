"""What a fetch is refused for: a leadership that is not, and replicas where no brokers speak."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.handlers.admin_broker import AdminBroker
from tests.unit.runtime.replica_site import TOPIC_ID, ClusterSite

from millstream.model.broker import BrokerId
from millstream.model.epoch_end import EpochEndOffset
from millstream.model.errors import ErrorCode
from millstream.protocol.api import ApiKey
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from millstream.runtime.replicas.fetch_reader import FetchAbilities, FetchParams, FetchReader
from millstream.runtime.replicas.fetch_sessions import PartitionFetch
from millstream.runtime.replicas.partition import READ_ALL
from millstream.runtime.replicas.partition_requests import delete_records_before
from millstream.storage.log import Log


@dataclass
class Part:
    """A broker's part in a cluster whose brokers speak on a listener of their own."""

    listener_name: str


def fetch(site: ClusterSite, *, leader_epoch: int = -1, replica_id: int = -1) -> FetchResponse:
    partition = FetchPartition(
        partition=0, fetch_offset=0, current_leader_epoch=leader_epoch, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id),
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )
    response = site[1].ask(ApiKey.FETCH, 16, request).result()
    assert isinstance(response, FetchResponse)
    return response


def test_who_knows_a_newer_leadership_is_not_told_of_this_one() -> None:
    """As Apache Kafka 4.3 answers."""
    site = ClusterSite()
    (data,) = fetch(site, leader_epoch=99).responses[0].partitions
    assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH.code
    assert data.current_leader.leader_id == -1


def test_replicas_fetch_on_the_listener_of_brokers_alone() -> None:
    site = ClusterSite()
    services = site[1].services
    assert fetch(site, replica_id=2).error_code == 0
    site[1].services = replace(services, cluster=cast(Any, Part("BROKERS")))
    assert fetch(site, replica_id=2).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED.code
    assert fetch(site).error_code == 0
    site[1].services = replace(services, cluster=cast(Any, Part("PLAINTEXT")))
    assert fetch(site, replica_id=2).error_code == 0


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_replica_of_old_is_told_nothing_that_its_version_has_no_room_for(
    tmp_path: Path, version: int
) -> None:
    """Where logs part stands in the answer from version 12 on; the connection was closed."""
    broker = AdminBroker(tmp_path)
    broker.create("t")
    partition = FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=1)
    request = FetchRequest(
        replica_id=5,
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    (topic,) = broker.call(request, version, FetchResponse).responses
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER if version < 12 else ErrorCode.NONE
    assert topic.partitions[0].error_code == code.code
    broker.close()


def test_a_follower_that_ends_where_the_log_begins_in_a_forgotten_epoch_begins_anew() -> None:
    """What it holds may have parted from what was deleted here; nobody can tell any more."""
    site = ClusterSite()
    site[1].produce(b"a", b"b", b"c")
    site.advance(2_000)
    site.controller.elect(1)
    site[1].produce(b"d", b"e", b"f")
    site.advance(2_000)
    delete_records_before(site[1].partition, 3)

    def answer(epoch: int, offset: int) -> tuple[int, int]:
        partition = FetchPartition(
            partition=0,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            current_leader_epoch=1,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=2),
            max_wait_ms=0,
            min_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
        )
        response = site[1].ask(ApiKey.FETCH, 16, request).result()
        assert isinstance(response, FetchResponse)
        (data,) = response.responses[0].partitions
        return data.error_code, data.log_start_offset

    assert answer(0, 2) == (1, 3)
    assert answer(0, 3) == (1, 3)
    assert answer(1, 3) == (0, 3)
    assert answer(-1, 3) == (0, 3)


def test_a_consumer_whose_records_are_deleted_is_told_so_wherever_its_log_parted() -> None:
    """It would be told for ever where logs part, and never that it has to begin elsewhere."""
    site = ClusterSite()
    site[1].produce(b"a", b"b", b"c")
    site.controller.elect(1)
    site[1].produce(b"d", b"e", b"f")
    site.advance(2_000)
    site.controller.elect(1)
    site.controller.elect(1)
    site[1].produce(b"g")
    site.advance(2_000)
    delete_records_before(site[1].partition, 4)

    def answer(offset: int) -> tuple[int, int]:
        wanted = FetchPartition(
            partition=0, fetch_offset=offset, last_fetched_epoch=2, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])],
        )
        response = site[1].ask(ApiKey.FETCH, 16, request).result()
        assert isinstance(response, FetchResponse)
        (data,) = response.responses[0].partitions
        return data.error_code, data.diverging_epoch.end_offset

    assert answer(3) == (ErrorCode.OFFSET_OUT_OF_RANGE.code, -1)
    assert answer(4) == (0, 6)


def test_a_second_look_compares_logs_again_only_where_they_may_have_parted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = ClusterSite()
    site[1].produce(b"a", b"b", b"c")
    site.advance(2_000)
    partition = site[1].partition
    compared: list[int] = []
    end_of_epoch = Log.end_offset_for_epoch

    def counted(self: Log, epoch: int) -> EpochEndOffset:
        compared.append(epoch)
        return end_of_epoch(self, epoch)

    monkeypatch.setattr(Log, "end_offset_for_epoch", counted)
    params = FetchParams(READ_ALL, 1 << 20, 1, FetchAbilities())
    params.replica_id = BrokerId(2)
    reader = FetchReader(site[1].partitions, params)
    wanted = FetchPartition(
        partition=0, fetch_offset=3, last_fetched_epoch=0, partition_max_bytes=1 << 20
    )
    fetch = PartitionFetch("", TOPIC_ID, wanted)

    def look() -> PartitionData:
        found = reader.read(
            partition, fetch, max_bytes=1 << 20, min_one_batch=True, wait_for_disk=True
        )
        assert isinstance(found, PartitionData)
        return found

    assert not look().records
    fetch.quiet_at, reader.is_recorded = partition, True
    assert compared == [0]
    site[1].produce(b"d", b"e", b"f")
    assert look().records
    assert compared == [0]
    site.advance(2_000)
    compared.clear()  # the followers of the site have fetched
    delete_records_before(partition, 5)
    found = look()
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE.code
    assert (found.log_start_offset, found.high_watermark) == (5, 6)
    fetch.fetch_offset, fetch.quiet_at = 6, site[2].partition
    assert not look().records
    assert compared == [0]
