"""Share groups: what is loaded from the records is what wrote them, with reloads in the middle."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from millstream.coordinator.group.coordinator import GroupCoordinator
from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.modern.topics import FixedTopics, TopicMetadata
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.group.share.share_group import ShareGroup
from millstream.coordinator.result import CoordinatorRecord, Instant, Result
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

TOPICS = FixedTopics(
    TopicMetadata(f"t{n}", TopicId(bytes([n]) * 16), partition_count=n) for n in (1, 3)
)
CALLER = Caller("client", "host", 1)
MEMBERS = st.sampled_from(["a", "b", "c"])

steps = st.one_of(
    st.tuples(st.just("join"), MEMBERS, st.sampled_from([["t1"], ["t3"], ["t1", "t3"], ["none"]])),
    st.tuples(st.just("beat"), MEMBERS),
    st.tuples(st.just("leave"), MEMBERS),
    st.tuples(st.just("wait"), st.integers(1, 50_000)),
    st.tuples(st.just("state"), st.booleans()),
    st.tuples(st.just("reload")),
)


def shown(shard: GroupCoordinator) -> object:
    group = shard.groups.get("g")
    if not isinstance(group, ShareGroup):
        return None
    return (
        group.group_epoch,
        group.metadata_hash,
        group.assignment_epoch,
        dict(group.members),
        dict(group.targets),
        group.topic_counts,
        group.state_topics,
    )


@settings(max_examples=examples(150))
@given(st.lists(steps, max_size=30))
def test_a_loaded_group_is_the_one_that_was_written(program: list[tuple[Any, ...]]) -> None:
    shard = GroupCoordinator(GroupSettings(), TOPICS)
    log: list[CoordinatorRecord] = []
    time_ms = 1_000_000
    begun: Any = None
    refusals: set[ErrorCode] = set()

    def take(result: Result[Any]) -> Any:
        for record in result.records:
            decoded = GroupCoordinator.decode(*record.encode())
            assert decoded == record
            if result.replay:
                shard.replay(record, record_offset=len(log))
            log.append(record)
        return result.response

    def loaded() -> GroupCoordinator:
        fresh = GroupCoordinator(GroupSettings(), TOPICS)
        for offset, record in enumerate(log):
            fresh.replay(record, record_offset=offset)
        return fresh

    def beat(member: str, epoch: int, topics: list[str] | None = None) -> None:
        nonlocal begun
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id=member, member_epoch=epoch, subscribed_topic_names=topics
        )
        answer = take(shard.shares.members.heartbeat(request, CALLER, now))
        begun = answer.initialize or begun

    for step in program:
        now = Instant(time_ms, float(time_ms))
        group = shard.groups.get("g")
        members = group.members if isinstance(group, ShareGroup) else {}
        try:
            match step:
                case ("join", member, topics):
                    beat(member, 0, topics)
                case ("beat", member):
                    beat(member, members[member].member_epoch if member in members else 7)
                case ("leave", member):
                    beat(member, -1)
                case ("wait", milliseconds):
                    time_ms += milliseconds
                    take(shard.expire(Instant(time_ms, float(time_ms))))
                case ("state", succeeded) if begun is not None:
                    parts = {each: frozenset(p) for each, p in begun.start_offsets.items()}
                    told = shard.shares.members
                    take((told.initialized if succeeded else told.not_initialized)("g", parts))
                case ("reload",):
                    shard = loaded()
                    shard.on_loaded(now)
        except KafkaError as error:
            refusals.add(error.error)
        assert shown(loaded()) == shown(shard)
    assert refusals <= {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
