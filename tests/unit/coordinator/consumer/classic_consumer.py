"""A consumer of the classic protocol with a cooperative assignor, one step for each call."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.unit.coordinator.consumer.consumer_scene import ConsumerScene

from millstream.coordinator.group.consumer.migration import parse_assignment, parse_subscription
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse


def encoded(owned: dict[str, list[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic=name, partitions=parts) for name, parts in owned.items()]


@dataclass
class ClassicConsumer:
    """See the module."""

    scene: ConsumerScene
    names: list[str] = field(default_factory=lambda: ["t"])
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    owned: dict[str, list[int]] = field(default_factory=dict)
    join: Deferred[JoinGroupResponse] | None = None
    sync: Deferred[SyncGroupResponse] | None = None
    has_to_join: bool = False
    divided: dict[str, int] | None = None
    """The topics that it has divided last, as the leader, with their numbers of partitions."""

    def step(self) -> None:
        """Go on with the rebalance, or send a heartbeat."""
        if self.join is None and self.sync is None:
            if self.generation < 0 or self.has_to_join or self._topics_have_changed():
                self._send_join()
            else:
                self._heartbeat()
        if self.join is not None and self.join.done:
            self._take_join()
        if self.sync is not None and self.sync.done:
            self._take_sync()

    def disconnect(self) -> None:
        """Lose the answers to what was sent."""
        if self.join is not None or self.sync is not None:
            self.join = self.sync = None
            self.has_to_join = True

    def _topics_have_changed(self) -> bool:
        return self.divided is not None and self.divided != self._counts(list(self.divided))

    def _counts(self, names: list[str]) -> dict[str, int]:
        topics = ((name, self.scene.topics.topic(name)) for name in names)
        return {name: 0 if found is None else found.partition_count for name, found in topics}

    def _heartbeat(self) -> None:
        try:
            error = self.scene.heartbeat(self.member_id, self.generation, self.instance_id)
        except KafkaError as refused:
            error = refused.error.code
        self._rejoin(error)

    def _rejoin(self, error: int) -> None:
        if error == ErrorCode.REBALANCE_IN_PROGRESS.code:
            self._send_join()
        elif error == ErrorCode.ILLEGAL_GENERATION.code:
            self.owned = {}
            self._send_join()
        elif error:
            self.owned, self.member_id, self.generation, self.divided = {}, "", -1, None

    def protocols(self) -> dict[str, bytes]:
        subscription = ConsumerProtocolSubscription(
            topics=self.names, owned_partitions=encoded(self.owned), generation_id=self.generation
        )
        return {"cooperative-sticky": b"\x00\x02" + subscription.encode_body(2)}

    def _send_join(self) -> None:
        self.has_to_join = False
        self.join = self.scene.join(
            self.member_id,
            instance_id=self.instance_id,
            protocols=self.protocols(),
            rebalance_timeout_ms=20_000,
        )

    def _take_join(self) -> None:
        assert self.join is not None
        response, self.join = self.join.result(), None
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED.code:
            self.member_id = response.member_id
            self._send_join()
            return
        if response.error_code:
            self._rejoin(response.error_code)
            return
        self.member_id, self.generation = response.member_id, response.generation_id
        assignments = {}
        self.divided = None
        if response.leader == self.member_id:
            assignments = self._assign(
                {member.member_id: bytes(member.metadata) for member in response.members}
            )
        try:
            self.sync = self.scene.sync(
                self.member_id,
                assignments,
                generation_id=self.generation,
                instance_id=self.instance_id,
            )
        except KafkaError as refused:
            self._rejoin(refused.error.code)

    def _assign(self, metadata: dict[str, bytes]) -> dict[str, bytes]:
        """Round robin by the order of members; what another member has is given to nobody until
        that member has joined again without it.
        """
        said = {member: parse_subscription(text) for member, text in metadata.items()}
        self.divided = self._counts(
            sorted({name for each in said.values() for name in each.topics})
        )
        owners: dict[tuple[str, int], set[str]] = {}
        for member, subscription in said.items():
            for topic in subscription.owned_partitions:
                for partition in topic.partitions:
                    owners.setdefault((topic.topic, partition), set()).add(member)
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in said}
        for name, count in self.divided.items():
            subscribers = sorted(member for member, each in said.items() if name in each.topics)
            for partition in range(count):
                chosen = subscribers[partition % len(subscribers)]
                if owners.get((name, partition), set()) <= {chosen}:
                    shares[chosen].setdefault(name, []).append(partition)
        return {
            member: b"\x00\x00"
            + ConsumerProtocolAssignment(assigned_partitions=encoded(share)).encode_body(0)
            for member, share in shares.items()
        }

    def _take_sync(self) -> None:
        assert self.sync is not None
        try:
            response = self.sync.result()
        except KafkaError as refused:
            self.sync = None
            self._rejoin(refused.error.code)
            return
        self.sync = None
        if response.error_code:
            self._rejoin(response.error_code)
            return
        assignment = parse_assignment(bytes(response.assignment))
        owned = {each.topic: sorted(each.partitions) for each in assignment.assigned_partitions}
        had_more = any(set(parts) - set(owned.get(name, [])) for name, parts in self.owned.items())
        self.owned = owned
        if had_more:
            self._send_join()  # it has given partitions back
