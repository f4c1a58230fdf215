"""One group of a broker with real logs, its clients of both protocols, and its topics: what a
random walk may do with them (``test_mixed_groups``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.property.mixed_group_metadata import assignment, subscription
from tests.property.mixed_group_transactions import GroupTransactions
from tests.unit.handlers.group_calls import Calls
from tests.unit.runtime.transaction_site import HandCoordinator

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.model.topic import TRANSACTION_STATE_TOPIC, TopicId
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest
from millstream.protocol.messages.describe_groups import DescribeGroupsRequest
from millstream.protocol.messages.heartbeat import HeartbeatRequest
from millstream.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from millstream.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from millstream.protocol.messages.list_groups import ListGroupsRequest
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from millstream.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from millstream.protocol.schema import Struct

GROUP: Final = "g"
CLIENTS: Final = 6
TOPICS: Final = ("t", "u", "v")
INSTANCES: Final = (None, None, None, None, "i4", "i5")
WRONG: Final = ErrorCode.UNKNOWN_SERVER_ERROR.code


def topic_id(name: str, life: int) -> TopicId:
    return TopicId(f"{name}{life}".encode().ljust(16, b"-"))


@dataclass
class Client:
    """One client: what it was told, by either protocol."""

    instance_id: str | None
    member_id: str = ""
    generation_id: int = -1
    protocol_name: str | None = None
    members: list[str] = field(default_factory=list)
    """The members that it divides partitions among, as the leader."""
    epoch: int = 0
    epoch_before: int = 0
    assigned: list[TopicPartitions] = field(default_factory=list)

    def take_join(self, response: JoinGroupResponse) -> None:
        if response.member_id:
            self.member_id = response.member_id
        if response.error_code == 0:
            self.generation_id = response.generation_id
            self.protocol_name = response.protocol_name
            is_leader = response.leader == response.member_id
            self.members = [each.member_id for each in response.members] if is_leader else []
        elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID.code:
            self.member_id = ""

    def take_beat(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code == 0:
            self.epoch_before, self.epoch = self.epoch, max(response.member_epoch, 0)
            self.member_id = response.member_id or self.member_id
            if response.assignment is not None:
                self.assigned = response.assignment.topic_partitions
        elif response.error_code != ErrorCode.UNRELEASED_INSTANCE_ID.code:
            self.epoch = 0


class World:
    """A broker's group coordinator, the clients, and the topics."""

    def __init__(self, directory: Path) -> None:
        self.coordinator = HandCoordinator()
        self.calls = Calls(
            directory,
            ask_coordinator=self.coordinator.send,
            settings={
                "group.initial.rebalance.delay.ms": "500",
                "group.consumer.max.size": "5",
                "group.max.size": "5",
                "group.min.session.timeout.ms": "1000",
                "offsets.retention.minutes": "60",
                "offsets.retention.check.interval.ms": "60000",
            },
            topic_settings={"flush.policy": "ack"},
        )
        self.clients = [Client(instance_id) for instance_id in INSTANCES]
        self.partitions: dict[str, int] = {}
        self.lives = dict.fromkeys(TOPICS, 0)
        self.waiting: list[tuple[str, Deferred[Response]]] = []
        self.calls.site.create(TRANSACTION_STATE_TOPIC, 1, TopicId(b"s" * 16))
        self.transactions = GroupTransactions(self.calls, self.coordinator, GROUP, self.ask)
        self.grow("t")
        self.grow("u")

    def close(self) -> None:
        self.release()
        self.calls.site.close()

    def release(self) -> None:
        """Let what was written be committed, and what was asked of transactions be answered."""
        self.transactions.answer_all()
        self.calls.site.offload.held = False
        self.calls.site.offload.release()
        self.calls.site.clock.settle()

    # Requests

    def ask(
        self, request: Request, version: int, take: Callable[[Any], None] | None = None
    ) -> None:
        """Send a request; its answer, now or later, is looked at, and taken."""
        text = f"{type(request).__name__} {version}: {request}"
        reply = self.calls.start(request, version)

        def answered(done: Deferred[Response]) -> None:
            response = done.result()
            assert WRONG not in set(codes_of(response)), text
            if take is not None:
                take(response)

        reply.on_done(answered)
        self.waiting = [each for each in self.waiting if not each[1].done]
        if not reply.done:
            self.waiting.append((text, reply))

    def join(self, who: int, how: int, version: int) -> None:
        client = self.clients[who]
        owned = {"t": [0, 1, -3, 99], "none": [5]} if how % 3 == 0 else {"t": [who % 2]}
        text = subscription(["t", "u"], owned, how % 4, client.generation_id)
        protocols = (
            {"range": text},
            {"cooperative-sticky": text, "range": text},
            {"range": text, "cooperative-sticky": text},
            {"cooperative-sticky": text},
            {"range": b""},
            {"range": text, "mine": b"\xff\xff"},
            {"range": text[:-3]},
            {},
        )[how % 8]
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=(6_000, 20_000)[how % 2],
            rebalance_timeout_ms=(5_000, 0, 30_000)[how % 3],
            member_id=client.member_id,
            group_instance_id=client.instance_id if version >= 5 else None,
            protocol_type="connect" if how == 15 else "consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
        )
        self.ask(request, version, client.take_join)

    def sync(self, who: int, how: int, version: int) -> None:
        client = self.clients[who]
        parts = (
            assignment([who % 2], None),
            assignment([0, 7], b"mine"),
            b"",
            b"\x00\x01\xff",
        )[how % 4]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=client.generation_id - (how == 9),
            member_id=client.member_id,
            group_instance_id=client.instance_id if version >= 3 else None,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name=(client.protocol_name or "range") if version >= 5 else None,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=parts)
                for member in [*client.members, *(["nobody"] if how % 5 == 0 else [])]
            ],
        )
        self.ask(request, version, lambda answer: _expect(answer, SyncGroupResponse))

    def heartbeat(self, who: int, how: int, version: int) -> None:
        client = self.clients[who]
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=client.generation_id + (0, 0, 0, 1)[how % 4],
            member_id=client.member_id if how % 5 else "",
            group_instance_id=client.instance_id if version >= 3 else None,
        )
        self.ask(request, version)

    def leave(self, who: int, how: int, version: int) -> None:
        others = {who, how % CLIENTS} if how % 2 else {who}
        request = LeaveGroupRequest(group_id=GROUP)
        if version < 3:
            request.member_id = self.clients[who].member_id
        else:
            request.members = [
                MemberIdentity(
                    member_id=self.clients[each].member_id if how % 3 else "",
                    group_instance_id=self.clients[each].instance_id,
                )
                for each in sorted(others)
            ]
        self.ask(request, version)

    def beat(self, who: int, how: int, version: int) -> None:
        """Join, say everything, say nothing new, or say what was so before."""
        client = self.clients[who]
        says_all = client.epoch == 0 or how % 4 == 0
        epoch = client.epoch_before if how == 7 else client.epoch
        owned = client.assigned if how % 3 else client.assigned[:1]
        regex = (None, None, None, "t|u.*", "x+", "(")[how % 6] if version else None
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=client.member_id or (f"m{who}" if version else ""),
            member_epoch=epoch,
            instance_id=client.instance_id,
            rack_id="r2" if how == 5 else None,
            rebalance_timeout_ms=(3_000, 30_000)[how % 2] if says_all else -1,
            subscribed_topic_names=[["t"], ["t", "u", "v"], []][how % 3] if says_all else None,
            subscribed_topic_regex=regex,
            server_assignor=(None, "uniform", "range")[how % 3],
            topic_partitions=[] if epoch == 0 else owned if how % 5 else None,
        )
        self.ask(request, version, client.take_beat)

    def beat_away(self, who: int, how: int, version: int) -> None:
        client = self.clients[who]
        epoch = -2 if client.instance_id is not None and how % 2 else -1
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=client.member_id or "nobody",
            member_epoch=epoch,
            instance_id=client.instance_id,
        )
        client.epoch, client.assigned = 0, []
        self.ask(request, version)

    def commit(self, who: int, how: int, version: int) -> None:
        client = self.clients[who]
        epoch = (client.generation_id, client.epoch, -1, client.epoch_before)[how % 4]
        name = TOPICS[how % 3]
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=epoch,
            member_id=client.member_id if how % 5 else "",
            group_instance_id=client.instance_id if version >= 7 else None,
            topics=[
                OffsetCommitRequestTopic(
                    name=name if version < 10 else "",
                    topic_id=topic_id(name, self.lives[name]),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=how, committed_metadata=None
                        )
                        for index in (0, how % 3)
                    ],
                )
            ],
        )
        self.ask(request, version)

    def fetch(self, who: int, how: int, version: int) -> None:
        client, name = self.clients[who], TOPICS[how % 3]
        is_stable = how % 2 == 0 and version >= 7
        if version < 8:
            topic = OffsetFetchRequestTopic(name=name, partition_indexes=[0, 1])
            topics = [topic] if how % 5 or version < 2 else None
            request = OffsetFetchRequest(group_id=GROUP, topics=topics, require_stable=is_stable)
            self.ask(request, version)
            return
        wanted = [
            OffsetFetchRequestTopics(
                name=name, topic_id=topic_id(name, self.lives[name]), partition_indexes=[0, 1]
            )
        ]
        group = OffsetFetchRequestGroup(
            group_id=GROUP,
            member_id=client.member_id if how % 2 else None,
            member_epoch=(client.epoch, client.generation_id)[how // 2 % 2] if how % 2 else -1,
            topics=wanted if how % 5 else None,
        )
        self.ask(OffsetFetchRequest(groups=[group], require_stable=is_stable), version)

    def commit_in_transaction(self, who: int, how: int, version: int) -> None:
        """Commit as a member of either protocol, as one of another epoch, or as nobody."""
        client = self.clients[who]
        epoch = (client.generation_id, client.epoch, -1, client.epoch_before)[how % 4]
        knows_members = version >= 3
        self.transactions.commit(
            who,
            how,
            version,
            topic=TOPICS[how % 3],
            generation_id=epoch if knows_members else -1,
            member_id=client.member_id if knows_members and how % 5 else "",
            instance_id=client.instance_id if knows_members else None,
        )

    def look(self, who: int, how: int, version: int) -> None:
        """Describe, list, delete."""
        match how % 6:
            case 0 | 1:
                self.ask(DescribeGroupsRequest(groups=[GROUP]), version)
            case 2:
                self.ask(_describe(), 1)
            case 3:
                self.ask(ListGroupsRequest(), 5)
            case 4:
                self.ask(DeleteGroupsRequest(groups_names=[GROUP]), 2)
            case _:
                topic = OffsetDeleteRequestTopic(
                    name=TOPICS[who % 3],
                    partitions=[OffsetDeleteRequestPartition(partition_index=0)],
                )
                self.ask(OffsetDeleteRequest(group_id=GROUP, topics=[topic]), 0)

    # What happens besides

    def grow(self, name: str) -> None:
        """Create a topic, or give it one partition more."""
        count = self.partitions.get(name, 0)
        self.partitions[name] = count + 1
        image = self.calls.site.create(name, count + 1, topic_id(name, self.lives[name]))
        self.calls.site.groups.topic_changed(image, created=not count)

    def remove(self, name: str) -> None:
        if self.partitions.pop(name, None) is None:
            return
        self.lives[name] += 1
        image = self.calls.site.metadata.remove(name)
        assert image is not None
        self.calls.site.partitions.topic_deleted(image)
        self.calls.site.groups.topic_deleted(image)

    def set_times(self, how: int) -> None:
        """Set the times of the group, or take them back."""
        texts = {
            "consumer.session.timeout.ms": ("45000", "60000")[how % 2],
            "consumer.heartbeat.interval.ms": ("5000", "15000")[how // 2 % 2],
        }
        self.calls.site.metadata.group_configs = {GROUP: texts} if how % 3 else {}

    def reload(self, *, committed: bool = True) -> None:
        """Stop to coordinate, then read everything from the log, also what is not committed yet."""
        if committed:
            self.release()
        self.calls.site.groups.stop()
        self.calls.site.groups.start()
        self.wait(0)

    def wait(self, milliseconds: int) -> None:
        self.calls.site.clock.advance(milliseconds)

    def swap(self, who: int) -> None:
        """A client forgets who it was, as one that is started again, or takes another's id."""
        client = self.clients[who]
        client.epoch, client.generation_id, client.assigned, client.members = 0, -1, [], []
        other = self.clients[(who + 1) % 4]
        is_dynamic = client.instance_id is None
        client.member_id = other.member_id if is_dynamic and client.member_id else ""

    def rebalance(self, who: int, how: int) -> None:
        """Some clients do what well-behaved ones of the classic protocol do, until they have an
        assignment or another protocol came between.
        """
        clients = [(who + each) % CLIENTS for each in range(1 + how % 4)]
        for _ in range(2):
            for each in clients:
                self.join(each, (0, 2, 10, 18)[how % 4], 9)
        self.wait(600)
        for each in clients:
            self.sync(each, 4, 5)
        self.heartbeat(who, 4, 4)

    def step(self, kind: str, who: int, how: int) -> None:
        match kind:
            case "join":
                self.join(who, how, (0, 2, 3, 4, 5, 7, 9)[how % 7])
            case "sync":
                self.sync(who, how, (1, 3, 5)[how % 3])
            case "heartbeat":
                self.heartbeat(who, how, (1, 4)[how % 2])
            case "leave":
                self.leave(who, how, (1, 4, 5)[how % 3])
            case "beat":
                self.beat(who, how, 0 if how == 11 else 1)
            case "beat away":
                self.beat_away(who, how, 1)
            case "commit":
                self.commit(who, how, (6, 8, 9, 10)[how % 4])
            case "fetch":
                self.fetch(who, how, (1, 5, 7, 8, 9, 10)[how % 6])
            case "commit in transaction":
                self.commit_in_transaction(who, how, (0, 2, 3, 5)[how % 4])
            case "verified":
                self.transactions.verified(how)
            case "end transaction":
                self.transactions.end(who, how)
            case "times":
                self.set_times(how)
            case "delete":
                self.ask(DeleteGroupsRequest(groups_names=[GROUP, "other"]), 2)
            case "look":
                self.look(who, how, (0, 5, 6)[how % 3])
            case "topic":
                if how % 4:
                    self.grow(TOPICS[how % 3])
                else:
                    self.remove(TOPICS[who % 3])
            case "wait":
                self.wait((100, 600, 3_100, 7_000, 31_000, 46_000, 3_700_000)[how % 7])
            case "rebalance":
                self.rebalance(who, how)
            case "downgrade":
                for each in range(CLIENTS):
                    if self.clients[each].epoch:
                        self.beat_away(each, 2 * how, 1)
            case "hold":
                self.calls.site.offload.held = True
            case "release":
                self.release()
            case "swap":
                self.swap(who)
            case "reload":
                self.reload(committed=how % 2 == 0)


def _describe() -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)


def _expect(answer: object, kind: type[object]) -> None:
    assert isinstance(answer, kind)


def codes_of(message: object) -> Iterator[int]:
    """Yield every error code in an answer."""
    if isinstance(message, list):
        for each in message:
            yield from codes_of(each)
    elif isinstance(message, Struct):
        for each in message.FIELDS:
            value = getattr(message, each.name)
            if each.name == "error_code":
                yield value
            else:
                yield from codes_of(value)
