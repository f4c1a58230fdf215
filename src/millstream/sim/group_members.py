"""Members of a consumer group (KIP-848) in a simulation.

Each member owns what the coordinator has assigned to it and commits, for each partition that it
owns, the next number after what it found committed there. Members join, leave, die without a word
and sleep beyond their session; one that sleeps goes on to commit what it owned, as a process does
that was paused. If two members ever own a partition at once, and both are believed, then a number
is acknowledged twice or a committed offset goes back: :func:`check_ownership` and
:mod:`millstream.history.checker` look for that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.history.checker import GroupOffset, PartitionKey, Step
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from millstream.runtime.pauses import pause
from millstream.sim.clients import Client, run_client

GROUP: Final = "consumer group"
SESSION_MS: Final = 2_500
HEARTBEAT_MS: Final = 300
SETTINGS: Final = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
}
"""What brokers are told, so that sessions are short."""
_COMMIT_VERSION: Final = 9
_FETCH_VERSION: Final = 9
_JOIN, _LEAVE = 0, -1
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_EXPECTED: Final = _FENCED | {
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
"""What members may be answered; anything else is a fault of the coordinator."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that was acknowledged."""

    member: str
    partition: PartitionKey
    offset: int


class GroupMember:
    """One member after the other under one name; the topic is ``topic``."""

    def __init__(self, client: Client, name: str, topic: str, commits: list[Commit]) -> None:
        self._client = client
        self.name = name
        self._topic = topic
        self._topic_id: TopicId | None = None
        self._commits = commits
        """All acknowledged commits, of all members."""
        self._incarnation = 0
        self._epoch = 0
        self._coordinator: BrokerId | None = None
        self.owned: dict[int, int] = {}
        """What it owns, and the number it committed last there."""
        self._reported: set[int] | None = None
        self._says_all = True
        """The answer to its last heartbeat is not known: it asks for everything."""
        self.is_steady = False
        """True while it is to stay."""
        self.is_member = False
        self.seen: Counter[str] = Counter()

    def start(self) -> None:
        """Go on until the client is stopped."""
        run_client(self._client, self._run())

    @property
    def _member_id(self) -> str:
        return f"{self.name}-{self._incarnation}"

    async def _run(self) -> None:
        client, chance = self._client, self._client.chance
        while not client.stopped:
            await pause(client.clock, HEARTBEAT_MS * (0.2 + 0.6 * chance.random()))
            try:
                if not self.is_steady and chance.random() < 0.02:
                    await self._go_away()
                await self._heartbeat()
                await self._work()
            except KafkaError as error:
                self._failed(error)

    def _failed(self, error: KafkaError) -> None:
        self._says_all = True
        if error.error in _FENCED:
            self.seen["members fenced"] += 1
            self._forget()
        elif error.error not in _EXPECTED:
            self._client.problems.append(f"{self._member_id} was answered {error.error.name}")
        if error.error is not ErrorCode.STALE_MEMBER_EPOCH:
            self._coordinator = None

    def _forget(self) -> None:
        """Begin anew: nothing is owned any more."""
        self._epoch = _JOIN
        self._reported = None
        self.owned.clear()
        self.is_member = False

    async def _go_away(self) -> None:
        """Leave, die, or sleep for longer than the session lasts."""
        client, chance = self._client, self._client.chance
        way = chance.choice(("leave", "die", "sleep"))
        self.seen[f"members that {way}"] += 1
        if way == "sleep":
            await pause(client.clock, SESSION_MS * (0.5 + 2 * chance.random()))
            await self._work()  # before it hears that it was fenced
            return
        if way == "leave" and self.is_member:
            await self._ask_heartbeat(_LEAVE)
        await pause(client.clock, 2_000 * chance.random())
        self._forget()
        self._incarnation += 1

    async def _heartbeat(self) -> None:
        if self._topic_id is None:
            await self._find_topic()
        response = await self._ask_heartbeat(self._epoch)
        self._epoch = response.member_epoch
        self.is_member = True
        if response.assignment is not None:
            assigned = {
                index for each in response.assignment.topic_partitions for index in each.partitions
            }
            await self._reconcile(assigned)

    async def _ask_heartbeat(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        says_all = epoch == _JOIN or (self._says_all and epoch != _LEAVE)
        owned = set(self.owned)
        reports = says_all or owned != self._reported
        assert self._topic_id is not None
        partitions = [TopicPartitions(topic_id=self._topic_id, partitions=sorted(owned))]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=4_000 if says_all else -1,
            subscribed_topic_names=[self._topic] if says_all else None,
            topic_partitions=(partitions if owned else []) if reports else None,
        )
        response = await self._ask(request, 1)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        _check(response.error_code)
        self._reported = owned
        self._says_all = False
        return response

    async def _reconcile(self, assigned: set[int]) -> None:
        client = self._client
        if set(self.owned) - assigned:
            await self._work()  # commits what it is about to give up
            await pause(client.clock, 200 * client.chance.random())
            for index in set(self.owned) - assigned:
                del self.owned[index]
        for index in sorted(assigned - set(self.owned)):
            self.owned[index] = await self._committed(index)

    async def _work(self) -> None:
        """Commit the next number of each partition that is owned."""
        for index in sorted(self.owned):
            if self._client.chance.random() < 0.6:
                await self._commit(index)

    async def _commit(self, index: int) -> None:
        offset = self.owned[index] + 1
        partition_key = (self._topic, index)
        self._note(partition_key, offset, Step.SENT)
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[partition])],
        )
        # Whatever comes of it, this number is used up.
        self.owned[index] = offset
        response = await self._ask(request, _COMMIT_VERSION)
        assert isinstance(response, OffsetCommitResponse)
        _check(response.topics[0].partitions[0].error_code)
        self._commits.append(Commit(self._member_id, partition_key, offset))
        self._note(partition_key, offset, Step.ACKNOWLEDGED)
        self.seen["commits of members"] += 1

    async def _committed(self, index: int) -> int:
        asked = len(self._client.history.group_offsets)
        wanted = OffsetFetchRequestTopics(name=self._topic, partition_indexes=[index])
        group = OffsetFetchRequestGroup(
            group_id=GROUP, member_id=self._member_id, member_epoch=self._epoch, topics=[wanted]
        )
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        asked_ms = self._client.clock.monotonic_ms()
        response = await self._ask(request, _FETCH_VERSION)
        assert isinstance(response, OffsetFetchResponse)
        coordinator = self._coordinator
        if coordinator is None or self._client.may_be_told_old_news(coordinator, asked_ms):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        answered = response.groups[0]
        _check(answered.error_code)
        partition = answered.topics[0].partitions[0]
        _check(partition.error_code)
        offset = max(0, partition.committed_offset)
        self._note((self._topic, index), offset, Step.SEEN, asked)
        return offset

    def _note(self, partition: PartitionKey, offset: int, step: Step, asked: int = 0) -> None:
        steps = self._client.history.group_offsets
        steps.append(GroupOffset(GROUP, partition, offset, step, len(steps), asked))

    async def _ask(
        self,
        request: ConsumerGroupHeartbeatRequest | OffsetCommitRequest | OffsetFetchRequest,
        version: int,
    ) -> object:
        client = self._client
        if self._coordinator is None:
            question = FindCoordinatorRequest(coordinator_keys=[GROUP])
            answer = await client.ask(client.any_broker(), question, lane=self.name)
            assert isinstance(answer, FindCoordinatorResponse)
            _check(answer.coordinators[0].error_code)
            self._coordinator = BrokerId(answer.coordinators[0].node_id)
        return await client.ask(self._coordinator, request, version, lane=self.name)

    async def _find_topic(self) -> None:
        client = self._client
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False
        )
        response = await client.ask(client.any_broker(), request, lane=self.name)
        assert isinstance(response, MetadataResponse)
        _check(response.topics[0].error_code)
        self._topic_id = response.topics[0].topic_id


def check_ownership(commits: Sequence[Commit]) -> list[str]:
    """Return where two members were believed to own a partition at once."""
    by_number: dict[tuple[PartitionKey, int], list[str]] = defaultdict(list)
    for each in commits:
        by_number[each.partition, each.offset].append(each.member)
    return [
        f"{' and '.join(members)} both committed {offset} for {partition}"
        for (partition, offset), members in by_number.items()
        if len(members) > 1
    ]


def unassigned(members: Sequence[GroupMember], partition_count: int) -> list[str]:
    """Return what keeps a quiet group from being whole: each partition has one owner."""
    owners: dict[int, list[str]] = defaultdict(list)
    for member in members:
        for index in member.owned:
            owners[index].append(member.name)
    found = [f"{each.name} is no member" for each in members if not each.is_member]
    found += [
        f"partition {index} is owned by {owners[index] or 'nobody'}"
        for index in range(partition_count)
        if len(owners[index]) != 1
    ]
    return found


def _check(error_code: int) -> None:
    if error_code:
        raise KafkaError(ErrorCode.of(error_code))
