"""Groups on a replicated topic: their coordinator moves with the leadership of its partition."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.coordinator.scene import subscription
from tests.unit.runtime.coordinator_site import send_nothing
from tests.unit.runtime.replica_site import IDS, ClusterSite, TwinBroker

from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.result import TransactionEnd, TransactionProducer
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.metadata_store import SessionEvent
from millstream.model.topic import GROUP_METADATA_TOPIC, TopicId
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millstream.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_delete import OffsetDeleteRequest
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from millstream.protocol.messages.sync_group import SyncGroupRequest
from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime
from millstream.runtime.metadata.metadata_cache import TopicImage

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
        send_request=send_nothing,
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


def refusal(outcome: Deferred[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        outcome.result()
    return caught.value.error


def test_a_commit_waits_for_the_replicas(site: ClusterSite) -> None:
    outcome = commit(site[1], 7)
    site.clock.run_once()
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
    site[2].offload.release()
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


# Too few replicas in sync


def shrink_to_one(site: ClusterSite) -> None:
    """Take the followers out of the ISR of the coordinator's partition, as a controller does."""
    show(site, isr=(1,), partition_epoch=1)


def grow_again(site: ClusterSite) -> None:
    show(site, isr=(1, 2, 3), partition_epoch=2)


def show(site: ClusterSite, *, isr: tuple[int, ...], partition_epoch: int) -> None:
    image = site[1].metadata.topic(GROUP_METADATA_TOPIC)
    assert image is not None
    members = tuple(BrokerId(each) for each in isr)
    state = PartitionState(IDS, BrokerId(1), 0, members, partition_epoch)
    site[1].partitions.topic_changed(replace(image, partitions=(state,)), created=False)


def count_loads(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.getMessage().startswith("loaded the coord") for record in caplog.records)


def test_under_min_isr_commits_are_refused_and_the_state_is_kept(
    site: ClusterSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    commit(site[1], 7)
    site.advance(100)
    site.cut_off(1)
    site.controller.refusal = ErrorCode.NETWORK_EXCEPTION
    shrink_to_one(site)
    site[1].offload.held = True  # whoever loads does not get any further
    end = site[1].partitions.get(GROUP_METADATA_TOPIC, 0).log.log_end_offset
    for offset in range(8, 12):
        assert refusal(commit(site[1], offset)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        site.settle()
        assert committed(site[1]) == 7
    assert site[1].partitions.get(GROUP_METADATA_TOPIC, 0).log.log_end_offset == end
    site.heal()
    grow_again(site)
    outcome = commit(site[1], 12)
    site.advance(500)
    assert code(outcome) is ErrorCode.NONE
    assert committed(site[1]) == 12
    assert count_loads(caplog) == 0


def test_records_that_meet_min_isr_on_their_way_are_written_when_it_is_reached_again(
    site: ClusterSite, caplog: pytest.LogCaptureFixture
) -> None:
    """The ISR may shrink between the plan and the append at the end of the pass of the loop."""
    caplog.set_level("INFO")
    site.controller.refusal = ErrorCode.NETWORK_EXCEPTION
    outcome = commit(site[1], 7)
    shrink_to_one(site)
    site.settle()
    assert refusal(outcome) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refusal(commit(site[1], 8)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    grow_again(site)
    site.advance(2_000)
    assert committed(site[1]) == 7
    outcome = commit(site[1], 9)
    site.advance(500)
    assert code(outcome) is ErrorCode.NONE
    assert committed(site[1]) == 9
    assert count_loads(caplog) == 0


def test_a_round_that_meets_min_isr_is_written_in_order_when_it_is_reached_again(
    site: ClusterSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    site.controller.refusal = ErrorCode.NETWORK_EXCEPTION
    end = TransactionEnd(TransactionProducer(7, 0), True, 0, 0)
    before = commit(site[1], 7)
    marked = site[1].services.groups.end_transaction(0, end)
    after = commit(site[1], 8)
    shrink_to_one(site)
    site.settle()
    for outcome in (before, marked, after):
        assert refusal(outcome) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert site[1].partitions.get(GROUP_METADATA_TOPIC, 0).log_end_offset == 0
    grow_again(site)
    site.advance(2_000)
    assert committed(site[1]) == 8
    log = site[1].partitions.get(GROUP_METADATA_TOPIC, 0).log
    assert log.log_end_offset == 3
    outcome = commit(site[1], 9)
    site.advance(500)
    assert code(outcome) is ErrorCode.NONE
    assert count_loads(caplog) == 0


def test_a_round_waits_once_for_the_replicas(site: ClusterSite) -> None:
    site.cut_off(1)
    end = TransactionEnd(TransactionProducer(7, 0), True, 0, 0)
    outcomes: list[Deferred[Any]] = [
        commit(site[1], 7),
        site[1].services.groups.end_transaction(0, end),
    ]
    outcomes.append(commit(site[1], 8))
    site.settle()
    assert site[1].partitions.get(GROUP_METADATA_TOPIC, 0).log_end_offset == 3
    assert not any(outcome.done for outcome in outcomes)
    site.heal()
    site.advance(2_000)
    assert all(outcome.done for outcome in outcomes)
    assert committed(site[1]) == 8


def test_under_min_isr_members_are_heard_and_nobody_expires(site: ClusterSite) -> None:
    member_id = member_of(site)
    site.cut_off(1)
    shrink_to_one(site)
    assert error_of(heartbeat(site, member_id)) is ErrorCode.NONE
    assert error_of(join(site)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    site.advance(60_000)
    assert error_of(heartbeat(site, member_id)) is ErrorCode.NONE, "nobody could have written that"
    site.heal()
    grow_again(site)
    site.advance(1_000)
    assert error_of(heartbeat(site, member_id)) is ErrorCode.NONE
    site.advance(80_000)
    assert error_of(heartbeat(site, member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_topic_deleted_under_min_isr_takes_its_offsets_along_later(site: ClusterSite) -> None:
    commit(site[1], 7)
    site.advance(100)
    site.controller.refusal = ErrorCode.NETWORK_EXCEPTION
    shrink_to_one(site)
    image = TopicImage("t", TopicId(bytes(16)), (), site.config)
    site[1].services.groups.topic_deleted(image)
    site.advance(2_000)
    assert committed(site[1]) == 7
    grow_again(site)
    site.advance(2_000)
    wanted = OffsetFetchRequestGroup(group_id="g", topics=None)
    found = site[1].services.groups.fetch_offsets(wanted, require_stable=False).result()
    assert found.topics == []


# The lease of the leader


def lease(site: ClusterSite, milliseconds: float) -> None:
    """Tell how long broker 1's session surely lives on; nobody is told when that is over."""
    replicas = site[1].partitions.replicas
    assert replicas is not None
    until_ms = site.clock.monotonic_ms() + milliseconds
    replicas.context.lease_ms = lambda: until_ms - site.clock.monotonic_ms()


def member_of(site: ClusterSite) -> str:
    """Make a stable group of one member on broker 1; return the member's id."""
    joined = join(site)
    site.advance(4_000)
    member_id = joined.result().member_id
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[])
    synced = site[1].services.groups.sync_group(request)
    site.advance(100)
    assert synced.result().error_code == 0
    return member_id


def join(site: ClusterSite) -> Deferred[JoinGroupResponse]:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
    )
    return site[1].services.groups.join_group(request, Caller("c", "/h", 3))


def heartbeat(site: ClusterSite, member_id: str) -> Deferred[HeartbeatResponse]:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    return site[1].services.groups.heartbeat(request)


def error_of(outcome: Deferred[Any]) -> ErrorCode:
    try:
        response = outcome.result()
    except KafkaError as error:
        return error.error
    return ErrorCode.of(getattr(response, "error_code", 0))


def questions(site: ClusterSite, member_id: str) -> dict[str, Deferred[Any]]:
    """Ask broker 1 everything that a coordinator answers for its partition."""
    groups = site[1].services.groups
    wanted = OffsetFetchRequestGroup(group_id="g", topics=None)
    asked: dict[str, Deferred[Any]] = {
        "offset fetch": groups.fetch_offsets(wanted, require_stable=True),
        "offset commit": commit(site[1], 9),
        "offset delete": groups.delete_offsets(OffsetDeleteRequest(group_id="g", topics=[])),
        "join": join(site),
        "sync": groups.sync_group(
            SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[])
        ),
        "heartbeat": heartbeat(site, member_id),
        "a refused heartbeat": heartbeat(site, "nobody"),
        "leave": groups.leave_group(
            LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
        ),
        "describe": groups.describe_group("g", 6),
        "delete": groups.delete_group("g"),
    }
    asked |= dict(zip(["list"], groups.list_groups(states=[], types=[]), strict=True))
    return asked


def test_without_the_lease_a_coordinator_answers_nothing(site: ClusterSite) -> None:
    """Another broker may coordinate by now, and take commits that this one does not know."""
    member_id = member_of(site)
    lease(site, 1_000)
    assert error_of(heartbeat(site, member_id)) is ErrorCode.NONE
    site.advance(1_000)
    for name, outcome in questions(site, member_id).items():
        assert outcome.done, name
        assert error_of(outcome) is ErrorCode.NOT_COORDINATOR, name
    lease(site, 1_000)
    assert error_of(heartbeat(site, member_id)) is ErrorCode.NONE, "nothing was changed meanwhile"


def test_an_answer_that_waits_for_a_commit_needs_the_lease_when_it_leaves(
    site: ClusterSite,
) -> None:
    lease(site, 1_000)
    site.cut_off(1)
    outcome = commit(site[1], 7)
    wanted = OffsetFetchRequestGroup(group_id="g", topics=None)
    asked = site[1].services.groups.fetch_offsets(wanted, require_stable=True)
    site.advance(1_000)
    site.heal()
    site.advance(2_000)
    assert site[1].partitions.get(GROUP_METADATA_TOPIC, 0).high_watermark == 1
    assert error_of(outcome) is error_of(asked) is ErrorCode.NOT_COORDINATOR
    lease(site, 1_000)
    assert committed(site[1]) == 7


def test_without_the_lease_nobody_expires_and_no_generation_begins(site: ClusterSite) -> None:
    member_id = member_of(site)
    lease(site, 1_000)
    site.advance(9_000)
    assert error_of(heartbeat(site, member_id)) is ErrorCode.NOT_COORDINATOR
    site.advance(60_000)
    lease(site, 1e9)
    assert error_of(heartbeat(site, member_id)) is ErrorCode.NONE
    site.advance(12_000)
    assert error_of(heartbeat(site, member_id)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_is_sent_away_when_the_lease_ends(site: ClusterSite) -> None:
    joined = join(site)
    lease(site, 1_000)
    site.advance(999)
    assert not joined.done
    site.advance(1_000)
    assert error_of(joined) is ErrorCode.NOT_COORDINATOR
    site.advance(60_000)
    lease(site, 1e9)
    again = join(site)
    assert not again.done, "no generation has begun meanwhile"
    site.advance(10_000)
    response = again.result()
    assert (response.generation_id, response.leader) == (1, response.member_id)
    assert [each.member_id for each in response.members] == [response.member_id]


def test_an_expired_session_ends_the_coordinator_until_the_controller_says_more(
    site: ClusterSite,
) -> None:
    commit(site[1], 7)
    site.advance(100)
    replicas = site[1].partitions.replicas
    assert replicas is not None
    replicas.context.session_changed(SessionEvent.EXPIRED)
    assert refusal(commit(site[1], 8)) is ErrorCode.NOT_COORDINATOR
    show(site, isr=(1, 2, 3), partition_epoch=1)
    assert committed(site[1]) == 7
