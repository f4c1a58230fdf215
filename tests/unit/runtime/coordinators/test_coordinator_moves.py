"""Groups on a replicated topic: their coordinator moves with the leadership of its partition."""

from __future__ import annotations

import itertools

import pytest
from tests.unit.runtime.replica_site import ClusterSite, TwinBroker

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import GROUP_METADATA_TOPIC
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from millstream.runtime.coordinators.coordinator_runtime import GroupCoordinatorRuntime

_ids = itertools.count()


@pytest.fixture
def site() -> ClusterSite:
    site = ClusterSite(min_isr=2)
    for broker in site.brokers.values():
        coordinate(site, broker)
    site.create(GROUP_METADATA_TOPIC)
    site.settle()
    return site


class Groups(GroupCoordinatorRuntime):
    """The coordinator of one broker, for a test to ask."""


def coordinate(site: ClusterSite, broker: TwinBroker) -> None:
    groups = Groups(
        broker.config.current,
        clock=site.clock,
        offload=broker.offload,
        partitions=broker.partitions,
        metadata=broker.metadata,
        new_id=lambda: f"id-{next(_ids)}",
    )
    groups.start()
    broker.on_topic_changed = lambda image: groups.topic_changed(image, created=False)
    broker.services.group_runtime = lambda: groups


def commit(broker: TwinBroker, offset: int) -> Deferred[OffsetCommitResponse]:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
    return broker.services.groups.commit_offsets(request, 9)


def committed(broker: TwinBroker) -> int:
    wanted = OffsetFetchRequestGroup(group_id="g", topics=None)
    found = broker.services.groups.fetch_offsets(wanted, require_stable=False).result()
    return found.topics[0].partitions[0].committed_offset


def code(outcome: Deferred[OffsetCommitResponse]) -> ErrorCode:
    return ErrorCode.of(outcome.result().topics[0].partitions[0].error_code)


def refusal(outcome: Deferred[OffsetCommitResponse]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        outcome.result()
    return caught.value.error


def test_a_commit_waits_for_the_replicas(site: ClusterSite) -> None:
    outcome = commit(site[1], 7)
    site.clock.turn()
    assert not outcome.done
    site.advance(100)
    assert code(outcome) is ErrorCode.NONE


def test_the_next_leader_knows_what_was_committed(site: ClusterSite) -> None:
    commit(site[1], 7)
    site.advance(100)
    site.create(GROUP_METADATA_TOPIC, leader=2, epoch=1)
    site.advance(2_000)
    assert committed(site[2]) == 7
    assert refusal(commit(site[1], 8)) is ErrorCode.NOT_COORDINATOR


def test_a_commit_on_its_way_is_refused_when_the_partition_moves(site: ClusterSite) -> None:
    site.cut_off(1)
    outcome = commit(site[1], 7)
    site.settle()
    site.create(GROUP_METADATA_TOPIC, leader=2, epoch=1)
    assert refusal(outcome) is ErrorCode.NOT_COORDINATOR


def test_while_records_are_loaded_the_client_asks_again(site: ClusterSite) -> None:
    commit(site[1], 7)
    site.advance(1_000)
    site[2].offload.held = True
    site.create(GROUP_METADATA_TOPIC, leader=2, epoch=1)
    site.settle()
    assert refusal(commit(site[2], 8)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    site[2].offload.held = False
    site[2].offload.let_go()
    site.advance(2_000)
    assert committed(site[2]) == 7


def test_with_too_few_replicas_there_is_no_coordinator(site: ClusterSite) -> None:
    site.controller.refusal = ErrorCode.NETWORK_EXCEPTION
    site.cut_off(1)
    outcome = commit(site[1], 7)
    site.advance(6_000)
    assert refusal(outcome) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_was_loaded_and_is_not_committed_is_waited_for_no_longer_than_a_commit(
    site: ClusterSite,
) -> None:
    commit(site[1], 7)
    site.advance(100)
    site.cut_off(2)
    site.create(GROUP_METADATA_TOPIC, leader=2, epoch=1)
    site.advance(100)
    assert site[2].partitions.get(GROUP_METADATA_TOPIC, 0).high_watermark == 0
    outcome = commit(site[2], 8)
    site.advance(1_000)
    assert not outcome.done
    site.advance(10_000)
    assert refusal(outcome) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    site.heal()
    site.advance(5_000)
    assert committed(site[2]) == 8
