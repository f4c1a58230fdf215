"""A coordinator with consumer groups, and consumers that behave as those of Kafka do."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.unit.coordinator.scene import GROUP, SETTINGS, Scene

from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.modern.topics import FixedTopics, TopicMetadata
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.result import TopicChange
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

TIMEOUT_MS = 30_000


def topic(name: str, partitions: int, *racks: str) -> TopicMetadata:
    """Return a topic whose partitions have one replica each, in the racks in turn."""
    by_partition = tuple(
        frozenset({racks[i % len(racks)]}) for i in range(partitions if racks else 0)
    )
    return TopicMetadata(name, TopicId(name.encode().ljust(16, b"-")), partitions, by_partition)


def topics(**counts: int) -> FixedTopics:
    return FixedTopics(topic(name, count) for name, count in counts.items())


class ConsumerScene(Scene):
    """One shard with topics."""

    def __init__(
        self, settings: GroupSettings = SETTINGS, topics: FixedTopics | None = None
    ) -> None:
        super().__init__(settings, topics)

    @property
    def consumers(self) -> ConsumerGroup:
        group = self.coordinator.groups.get(GROUP)
        assert isinstance(group, ConsumerGroup), group
        return group

    def put_topic(self, name: str, partitions: int) -> None:
        """Create a topic, or give it more partitions."""
        created = self.topics.topic(name) is None
        metadata = topic(name, partitions)
        self.topics.put(metadata)
        change = TopicChange(name, metadata.topic_id, deleted=False, created=created)
        self.carry_out(self.coordinator.topic_changed(change, self.now))

    def remove_topic(self, name: str) -> None:
        metadata = self.topics.topic(name)
        assert metadata is not None
        self.topics.remove(name)
        change = TopicChange(name, metadata.topic_id, deleted=True)
        self.carry_out(self.coordinator.topic_changed(change, self.now))

    def beat(
        self,
        member_id: str,
        epoch: int = 0,
        *,
        names: list[str] | None = None,
        regex: str | None = None,
        owned: dict[str, list[int]] | None = None,
        instance_id: str | None = None,
        rack_id: str | None = None,
        assignor: str | None = None,
        timeout_ms: int | None = None,
        version: int = 1,
        client_id: str = "c",
    ) -> ConsumerGroupHeartbeatResponse:
        """Send one heartbeat; epoch 0 joins, with topic ``t`` unless told otherwise."""
        is_joining = epoch == 0
        if is_joining and names is None and regex is None:
            names = ["t"]
        if is_joining and owned is None:
            owned = {}
        if timeout_ms is None:
            timeout_ms = TIMEOUT_MS if is_joining else -1
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rack_id=rack_id,
            rebalance_timeout_ms=timeout_ms,
            subscribed_topic_names=names,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else self._ids(owned),
        )
        return self.send(request, version=version, client_id=client_id)

    def send(
        self, request: ConsumerGroupHeartbeatRequest, *, version: int = 1, client_id: str = "c"
    ) -> ConsumerGroupHeartbeatResponse:
        self.new_ids += 1
        caller = Caller(client_id, "/127.0.0.1", version)
        result = self.carry_out(
            self.coordinator.consumer_group_heartbeat(
                request, caller, f"id{self.new_ids}", self.now
            )
        )
        assert result.response is not None
        return result.response

    def beat_error(self, member_id: str, epoch: int = 0, **options: object) -> ErrorCode:
        try:
            response = self.beat(member_id, epoch, **options)  # type: ignore[arg-type]
        except KafkaError as error:
            return error.error
        return ErrorCode.of(response.error_code)

    def _ids(self, owned: dict[str, list[int]]) -> list[TopicPartitions]:
        return [
            TopicPartitions(topic_id=topic(name, 1).topic_id, partitions=partitions)
            for name, partitions in owned.items()
        ]

    def assigned(self, response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """Return the assignment of an answer by the names of topics."""
        if response.assignment is None:
            return None
        return {
            each.topic_id.rstrip(b"-").decode(): sorted(each.partitions)
            for each in response.assignment.topic_partitions
        }


@dataclass
class Consumer:
    """A consumer that gives back and takes what it is told, one step for each heartbeat."""

    scene: ConsumerScene
    member_id: str
    names: list[str] | None = field(default_factory=lambda: ["t"])
    regex: str | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    epoch: int = 0
    owned: dict[str, list[int]] = field(default_factory=dict)
    says_everything: bool = False
    """True after an answer was lost: the next heartbeat is a full one."""

    def beat(self) -> ErrorCode:
        """Send a heartbeat and do what the answer says; join again when fenced."""
        is_joining = self.epoch == 0
        is_full, self.says_everything = is_joining or self.says_everything, False
        try:
            response = self.scene.beat(
                self.member_id,
                self.epoch,
                names=self.names if is_full else None,
                regex=self.regex if is_full else None,
                owned={} if is_joining else self.owned,
                instance_id=self.instance_id,
                rack_id=self.rack_id,
                timeout_ms=TIMEOUT_MS if is_full else None,
            )
        except KafkaError as error:
            if error.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self.epoch, self.owned = 0, {}
            return error.error
        self.epoch = response.member_epoch
        told = self.scene.assigned(response)
        if told is not None:
            self.owned = told
        return ErrorCode.NONE


def settle(scene: ConsumerScene, *consumers: Consumer, rounds: int = 8) -> None:
    """Let heartbeats pass until nothing changes any more."""
    for _ in range(rounds):
        scene.advance(1_000)
        for consumer in consumers:
            consumer.beat()
