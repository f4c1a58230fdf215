"""A group coordinator with a hand clock and a list for a log, driven as the runtime drives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.coordinator import GroupCoordinator
from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.modern.topics import FixedTopics
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.result import Instant, Result
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from millstream.protocol.messages.heartbeat import HeartbeatRequest
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from millstream.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

R = TypeVar("R")

GROUP = "g"
WALL_START_MS = 1_700_000_000_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=3_000)


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata."""
    return b"\x00\x00" + ConsumerProtocolSubscription(topics=list(topics)).encode_body(0)


def error_of(operation: Callable[[], int]) -> int:
    """Return the error code that an operation answers or raises."""
    try:
        return operation()
    except KafkaError as error:
        return error.error.code


class Scene:
    """One shard; its default group is ``g``. ``log`` is what was written, key and value."""

    def __init__(
        self, settings: GroupSettings = SETTINGS, topics: FixedTopics | None = None
    ) -> None:
        self.settings = settings
        self.topics = FixedTopics() if topics is None else topics
        self.coordinator = GroupCoordinator(settings, self.topics)
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.new_ids = 0

    @property
    def group(self) -> ClassicGroup:
        group = self.coordinator.groups.classic(GROUP)
        assert group is not None
        return group

    @property
    def state(self) -> str:
        return self.group.state.value

    @property
    def now(self) -> Instant:
        return Instant(WALL_START_MS + self.now_ms, float(self.now_ms))

    # What the runtime does

    def carry_out(self, result: Result[R]) -> Result[R]:
        """Write, apply and answer."""
        for record in result.records:
            key, value = record.encode()
            stored = self.coordinator.decode(key, value)
            assert stored is not None
            assert (stored.key, stored.value is None) == (record.key, record.value is None)
            if result.replay:
                self.coordinator.replay(stored, record_offset=len(self.log))
            self.log.append((key, value))
        for answer in result.answers:
            answer.send()
        for task in result.tasks:
            self.carry_out(task.event(task.work(), self.now))
        return result

    def advance(self, milliseconds: int) -> None:
        """Let time pass, stopping at every deadline."""
        end_ms = self.now_ms + milliseconds
        while True:
            next_ms = self.coordinator.next_deadline_ms
            if next_ms is None or next_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, int(next_ms))
            self.carry_out(self.coordinator.expire(self.now))
        self.now_ms = end_ms

    def loaded(self, settings: GroupSettings | None = None) -> Scene:
        """Return the scene after a restart: memory is gone, the log is there."""
        restarted = type(self)(settings or self.settings, self.topics)
        restarted.now_ms = self.now_ms
        restarted.new_ids = self.new_ids
        restarted.log = list(self.log)
        for offset, (key, value) in enumerate(self.log):
            record = restarted.coordinator.decode(key, value)
            if record is not None:
                restarted.coordinator.replay(record, record_offset=offset)
        restarted.carry_out(restarted.coordinator.on_loaded(restarted.now))
        return restarted

    # Requests

    def join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        client_id: str = "c",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
    ) -> Deferred[JoinGroupResponse]:
        reply: Deferred[JoinGroupResponse] = Deferred()
        self.new_ids += 1
        if protocols is None:
            protocols = {"range": subscription("t")}
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
        )
        caller = Caller(client_id, "/127.0.0.1", version)
        self.carry_out(
            self.coordinator.join_group(request, caller, f"id{self.new_ids}", reply, self.now)
        )
        return reply

    def join_new(self, **options: object) -> tuple[str, Deferred[JoinGroupResponse]]:
        """Join as a new dynamic member, with the round trip for the id."""
        first = self.join(**options).result()  # type: ignore[arg-type]
        assert first.error_code == 79
        return first.member_id, self.join(first.member_id, **options)  # type: ignore[arg-type]

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation_id: int | None = None,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = None,
    ) -> Deferred[SyncGroupResponse]:
        reply: Deferred[SyncGroupResponse] = Deferred()
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.group.generation_id if generation_id is None else generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=key, assignment=value)
                for key, value in (assignments or {}).items()
            ],
        )
        self.carry_out(self.coordinator.sync_group(request, reply, self.now))
        return reply

    def heartbeat(
        self, member_id: str, generation_id: int | None = None, instance_id: str | None = None
    ) -> int:
        """Return the error code."""
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.group.generation_id if generation_id is None else generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        result = self.carry_out(self.coordinator.heartbeat(request, self.now))
        assert result.response is not None
        return result.response.error_code

    def leave(self, *members: tuple[str, str | None]) -> LeaveGroupResponse:
        request = LeaveGroupRequest(
            group_id=GROUP,
            members=[
                MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                for member_id, instance_id in members
            ],
        )
        result = self.carry_out(self.coordinator.leave_group(request, self.now))
        assert result.response is not None
        return result.response

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation_id: int = -1,
        instance_id: str | None = None,
        version: int = 9,
        metadata: str | None = "",
        retention_ms: int = -1,
        topic_id: TopicId = ZERO_TOPIC_ID,
        group_id: str = GROUP,
    ) -> OffsetCommitResponse:
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=3,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        result = self.carry_out(self.coordinator.commit_offsets(request, version, self.now))
        assert result.response is not None
        return result.response

    def fetch(
        self,
        topics: dict[str, list[int]] | None,
        *,
        require_stable: bool = False,
        topic_id: TopicId = ZERO_TOPIC_ID,
        group_id: str = GROUP,
    ) -> OffsetFetchResponseGroup:
        wanted = None
        if topics is not None:
            wanted = [
                OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=partitions)
                for name, partitions in topics.items()
            ]
        request = OffsetFetchRequestGroup(group_id=group_id, topics=wanted)
        result = self.coordinator.fetch_offsets(request, require_stable=require_stable)
        assert result.response is not None
        return result.response

    def offsets(self, group_id: str = GROUP) -> dict[tuple[str, int], int]:
        """Return everything the group committed."""
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in self.fetch(None, group_id=group_id).topics
            for partition in topic.partitions
        }

    def delete_offsets(self, topics: dict[str, list[int]]) -> OffsetDeleteResponse:
        request = OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=index) for index in partitions
                    ],
                )
                for name, partitions in topics.items()
            ],
        )
        result = self.carry_out(self.coordinator.delete_offsets(request))
        assert result.response is not None
        return result.response

    # Errors

    def heartbeat_error(
        self, member_id: str, generation_id: int | None = None, instance_id: str | None = None
    ) -> int:
        return error_of(lambda: self.heartbeat(member_id, generation_id, instance_id))

    def sync_error(self, member_id: str, **options: object) -> int:
        if self.coordinator.groups.get(GROUP) is None:
            options.setdefault("generation_id", 1)
        return error_of(lambda: self.sync(member_id, **options).result().error_code)  # type: ignore[arg-type]

    def commit_error(self, offsets: dict[tuple[str, int], int], **options: object) -> int:
        return error_of(
            lambda: self.commit(offsets, **options).topics[0].partitions[0].error_code  # type: ignore[arg-type]
        )

    # Stories

    def stable_group(self, size: int = 2, **options: object) -> list[str]:
        """Bring a new group of dynamic members to STABLE; the first one leads."""
        joined = [self.join_new(**options) for _ in range(size)]
        self.advance(self.settings.initial_rebalance_delay_ms * 2)
        assert self.state == "CompletingRebalance"
        members = [member_id for member_id, _ in joined]
        replies = [self.sync(member_id) for member_id in members[1:]]
        replies.append(
            self.sync(members[0], {member_id: member_id.encode() for member_id in members})
        )
        assert all(reply.result().error_code == 0 for reply in replies)
        assert self.state == "Stable"
        return members
