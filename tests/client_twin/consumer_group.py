"""A group of the consumer protocol on the twin cluster (KIP-848): a small model of a coordinator.

It knows one group, assigns evenly, and gives a partition to nobody before the member that had it
has reported that it has given it up, has left, or was removed. What it knows survives a move to
another broker. Kafka: ``GroupMetadataManager``, ``CurrentAssignmentBuilder``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.client_twin.cluster import TwinBroker
from tests.client_twin.loop import TwinLoop
from tests.client_twin.readers import Commit, ReaderCluster

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

Place = tuple[TopicId, int]


@dataclass
class GroupMember:
    """A member as the coordinator knows it."""

    member_id: str
    instance_id: str | None
    epoch: int = 0
    previous_epoch: int = -1
    names: list[str] = field(default_factory=list)
    expression: str = ""
    assigned: set[Place] = field(default_factory=set)
    pending: set[Place] = field(default_factory=set)
    """Given up by the coordinator, and perhaps still owned."""
    rebalance_timeout_ms: int = 0
    seen_ms: float = 0.0
    pending_since_ms: float = 0.0

    @property
    def holds(self) -> set[Place]:
        return self.assigned | self.pending


class ConsumerGroupCluster(ReaderCluster):
    """A twin cluster whose group speaks the consumer protocol."""

    def __init__(self, loop: TwinLoop, broker_ids: Sequence[int] = (1,)) -> None:
        super().__init__(loop, broker_ids)
        self.members: dict[str, GroupMember] = {}
        self.group_epoch = 0
        self.target: dict[str, set[Place]] = {}
        self.interval_ms = 500
        self.session_ms = 6_000
        self.offsets: dict[TopicPartition, int] = {}
        self.heartbeats: list[ConsumerGroupHeartbeatRequest] = []
        self.removed: set[str] = set()
        self._plain_metadata = self.handlers[MetadataRequest]
        self.handlers |= {
            ConsumerGroupHeartbeatRequest: self._consumer_heartbeat,
            OffsetCommitRequest: self._commit_as_member,
            OffsetFetchRequest: self._fetch_as_member,
            MetadataRequest: self._metadata_by_id,
        }

    def place(self, topic_partition: TopicPartition) -> Place:
        return self.topics[topic_partition.topic].topic_id, topic_partition.partition

    def move_coordinator(self, node_id: int) -> None:
        self.coordinator_id = node_id
        for member in self.members.values():
            member.seen_ms = self.loop.now_ms()

    # --- heartbeats ------------------------------------------------------------------------------

    def _consumer_heartbeat(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        self.heartbeats.append(request)
        if broker.node_id != self.coordinator_id:
            return _refused(KafkaError(ErrorCode.NOT_COORDINATOR))
        try:
            return self._beat(request)
        except KafkaError as error:
            return _refused(error)

    def _beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        self.expire()
        if request.member_epoch < 0:
            return self._end_member(request)
        member = self._member(request)
        member.seen_ms = self.loop.now_ms()
        before = (member.names, member.expression)
        if request.subscribed_topic_names is not None:
            member.names = request.subscribed_topic_names
        if request.subscribed_topic_regex is not None:
            member.expression = request.subscribed_topic_regex
        if request.rebalance_timeout_ms >= 0:
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.member_epoch == 0 or before != (member.names, member.expression):
            self.group_epoch += 1
        self.assign()
        assigned = set(member.assigned)
        self._reconcile(member, request)
        full = request.topic_partitions is not None and request.rebalance_timeout_ms >= 0
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=_assignment(member.assigned)
            if full or assigned != member.assigned
            else None,
        )

    def _member(self, request: ConsumerGroupHeartbeatRequest) -> GroupMember:
        member = self.members.get(request.member_id)
        if member is None and request.instance_id is not None:
            old = next(
                (m for m in self.members.values() if m.instance_id == request.instance_id), None
            )
            if old is not None:
                if request.member_epoch != 0:
                    raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
                if old.epoch != -2:
                    raise KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID)
                del self.members[old.member_id]
                self.target[request.member_id] = self.target.pop(old.member_id, set())
                old.member_id, old.epoch = request.member_id, 0
                member = self.members[request.member_id] = old
                return member
        if member is None:
            if request.member_epoch != 0:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if request.topic_partitions != [] or request.rebalance_timeout_ms < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "a member joins with everything")
            member = GroupMember(request.member_id, request.instance_id)
            self.members[member.member_id] = member
            self.removed.discard(member.member_id)
        elif request.member_epoch == 0:
            member.epoch, member.previous_epoch = 0, -1
        elif request.member_epoch != member.epoch:
            owned = _places(request.topic_partitions or [])
            again = request.member_epoch == member.previous_epoch and owned <= member.holds
            if not (again and request.topic_partitions is not None):
                raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH)
        return member

    def _end_member(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        member = self.members.get(request.member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_epoch == -2:
            member.epoch = -2
            member.seen_ms = self.loop.now_ms()
        else:
            self.remove(member.member_id)
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )

    def remove(self, member_id: str) -> None:
        """Remove a member, as when its session ends."""
        del self.members[member_id]
        self.removed.add(member_id)
        self.group_epoch += 1
        self.assign()

    def expire(self) -> None:
        now = self.loop.now_ms()
        for member in list(self.members.values()):
            silent = now - member.seen_ms > self.session_ms
            late = member.pending and now - member.pending_since_ms > member.rebalance_timeout_ms
            if silent or late:
                self.remove(member.member_id)

    # --- assignment ------------------------------------------------------------------------------

    def assign(self) -> None:
        """Set the target: evenly over the subscribed members, moving as little as possible."""
        wanted = {each.member_id: self._subscribed(each) for each in self.members.values()}
        places = sorted(set().union(*wanted.values())) if wanted else []
        target: dict[str, set[Place]] = {member_id: set() for member_id in self.members}
        most = -(-len(places) // max(len(target), 1))
        rest = []
        for place in places:
            owner = next((m for m in self.target if place in self.target[m]), None)
            if owner in target and place in wanted[owner] and len(target[owner]) < most:
                target[owner].add(place)
            else:
                rest.append(place)
        for place in rest:
            able = [member_id for member_id in target if place in wanted[member_id]]
            target[min(able, key=lambda m: (len(target[m]), m))].add(place)
        while True:
            few = min(target, key=lambda m: (len(target[m]), m), default=None)
            many = max(target, key=lambda m: (len(target[m]), m), default=None)
            if few is None or many is None or len(target[many]) - len(target[few]) < 2:
                break
            moved = next((p for p in sorted(target[many]) if p in wanted[few]), None)
            if moved is None:
                break
            target[many].discard(moved)
            target[few].add(moved)
        if target != self.target:
            self.target = target
            self.group_epoch += 1

    def _subscribed(self, member: GroupMember) -> set[Place]:
        return {
            (topic.topic_id, number)
            for topic in self.topics.values()
            for number in range(len(topic.partitions))
            if topic.name in member.names
            or (member.expression and re.fullmatch(member.expression, topic.name))
        }

    def _reconcile(self, member: GroupMember, request: ConsumerGroupHeartbeatRequest) -> None:
        owned = None
        if request.topic_partitions is not None:
            owned = _places(request.topic_partitions)
        if member.pending and (owned is None or owned & member.pending):
            return
        member.pending = set()
        target = self.target[member.member_id]
        unwanted = member.assigned - target
        member.assigned &= target
        if unwanted and (owned is None or owned & unwanted or request.member_epoch > 0):
            member.pending = unwanted
            member.pending_since_ms = self.loop.now_ms()
            return
        held = set().union(
            *(each.holds for each in self.members.values() if each is not member), set()
        )
        member.assigned |= target - held
        if member.epoch != self.group_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.group_epoch

    # --- offsets ---------------------------------------------------------------------------------

    def _check(self, broker: TwinBroker, member_id: str | None, epoch: int) -> ErrorCode:
        if broker.node_id != self.coordinator_id:
            return ErrorCode.NOT_COORDINATOR
        self.expire()
        if not member_id and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH

    def _commit_as_member(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, OffsetCommitRequest)
        epoch = request.generation_id_or_member_epoch
        error = self._check(broker, request.member_id, epoch)
        for topic in request.topics:
            for row in topic.partitions:
                place = TopicPartition(topic.name, row.partition_index)
                if error is ErrorCode.NONE and topic.name in self.topics:
                    self.offsets[place] = row.committed_offset
                    self.commits.append(
                        Commit(request.member_id, epoch, place, row.committed_offset)
                    )
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=row.partition_index,
                            error_code=self._or_gone(error, topic.name).code,
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _or_gone(self, error: ErrorCode, topic: str) -> ErrorCode:
        gone = error is ErrorCode.NONE and topic not in self.topics
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else error

    def _fetch_as_member(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, OffsetFetchRequest)
        (group,) = request.groups
        error = self._check(broker, group.member_id, group.member_epoch)
        topics = []
        if error is ErrorCode.NONE:
            topics = [
                OffsetFetchResponseTopics(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartitions(
                            partition_index=number,
                            committed_offset=self.offsets.get(
                                TopicPartition(topic.name, number), -1
                            ),
                            metadata="",
                            error_code=0,
                        )
                        for number in topic.partition_indexes
                    ],
                )
                for topic in group.topics or []
            ]
        row = OffsetFetchResponseGroup(
            group_id=group.group_id, topics=topics, error_code=error.code
        )
        return OffsetFetchResponse(groups=[row])

    def _metadata_by_id(self, broker: TwinBroker, request: Request) -> Response | None:
        """Metadata of topics by id, as brokers answer from version 12 on."""
        assert isinstance(request, MetadataRequest)
        if not request.topics or request.topics[0].name is not None:
            return self._plain_metadata(broker, request)
        found = [self.by_id(each.topic_id) for each in request.topics]
        known = [MetadataRequestTopic(name=topic.name) for topic in found if topic is not None]
        answer = self._plain_metadata(broker, MetadataRequest(topics=known))
        assert isinstance(answer, MetadataResponse)
        return answer


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.error.code,
        error_message=error.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


def _places(rows: Iterable[TopicPartitions]) -> set[Place]:
    return {(row.topic_id, number) for row in rows for number in row.partitions}


def _assignment(places: set[Place]) -> Assignment:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, number in sorted(places):
        topics.setdefault(topic_id, []).append(number)
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in topics.items()
        ]
    )
