"""Members of groups in a simulation: they commit offsets that only grow, and ask for them; others
ask any broker for them.

Offsets live in ``__consumer_offsets``, which is replicated like every topic: the coordinator moves
with the leader of a group's partition, and what it was told and has answered must be there still.
"""

from __future__ import annotations

from collections import Counter

from millstream.history.checker import GroupOffset, PartitionKey, Step
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
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

GROUP_PARTITIONS = 2
"""Partitions of ``__consumer_offsets``."""
COMMIT_VERSION = 9
OFFSET_FETCH_VERSION = 8
ASKED_LONG_AGO = 0
"""When an answer was asked for that may be out of date: it is held to what was sent alone."""


class Committer:
    """Commits the offsets 1, 2, 3, … of one group for one partition."""

    def __init__(
        self, client: Client, group: str, partition_key: PartitionKey, *, pause_ms: float
    ) -> None:
        self._client = client
        self.group = group
        self._partition_key = partition_key
        self._pause_ms = pause_ms
        self.coordinator: BrokerId | None = None
        """Whom to ask next, None to find out."""
        self._offset = 0
        self.asks_only = False
        """True while it is to commit nothing."""
        self.last_answered_ms = -1.0
        """When a commit was last acknowledged."""

    def start(self) -> None:
        """Commit until the client is stopped."""
        run_client(self._client, self._run())

    async def _run(self) -> None:
        client = self._client
        while not client.stopped:
            await pause(client.clock, client.chance.expovariate(1 / self._pause_ms))
            try:
                if client.chance.random() < 0.5 and not self.asks_only:
                    await self._commit()
                else:
                    await self._ask()
            except KafkaError:
                self.coordinator = None

    async def _find(self) -> BrokerId:
        if self.coordinator is None:
            request = FindCoordinatorRequest(coordinator_keys=[self.group])
            response = await self._client.ask(self._client.any_broker(), request, lane=self.group)
            assert isinstance(response, FindCoordinatorResponse)
            found = response.coordinators[0]
            _check(found.error_code)
            self.coordinator = BrokerId(found.node_id)
        return self.coordinator

    async def _commit(self) -> None:
        client = self._client
        coordinator = await self._find()
        self._offset += 1
        self._note(self._offset, Step.SENT)
        topic, index = self._partition_key
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=self._offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        offset = self._offset
        response = await client.ask(coordinator, request, COMMIT_VERSION, lane=self.group)
        assert isinstance(response, OffsetCommitResponse)
        _check(response.topics[0].partitions[0].error_code)
        self._note(offset, Step.ACKNOWLEDGED)
        self.last_answered_ms = client.clock.monotonic_ms()

    async def _ask(self) -> None:
        coordinator = await self._find()
        known = len(self._client.history.group_offsets)
        asked_ms = self._client.clock.monotonic_ms()
        offset = await committed_offset(self._client, coordinator, self.group, self._partition_key)
        if self._client.may_be_told_old_news(coordinator, asked_ms):
            known = ASKED_LONG_AGO
        self._note(offset, Step.SEEN, asked=known)

    def _note(self, offset: int, step: Step, asked: int = 0) -> None:
        # All clients write one list: how long it is tells what was before what.
        steps = self._client.history.group_offsets
        steps.append(GroupOffset(self.group, self._partition_key, offset, step, len(steps), asked))


class Asker:
    """Asks one broker after the other what a group has committed, whoever coordinates it: one that
    does not, or may not any more, has to refuse.
    """

    def __init__(
        self, client: Client, group: str, partition_key: PartitionKey, *, pause_ms: float
    ) -> None:
        self._client = client
        self._group = group
        self._partition_key = partition_key
        self._pause_ms = pause_ms
        self.answers: Counter[int] = Counter()
        """How many answers each broker gave."""

    def start(self) -> None:
        """Ask until the client is stopped."""
        for broker in self._client.brokers:
            run_client(self._client, self._run(BrokerId(broker)))

    async def _run(self, broker: BrokerId) -> None:
        client, steps = self._client, self._client.history.group_offsets
        while not client.stopped:
            await pause(client.clock, client.chance.expovariate(1 / self._pause_ms))
            asked, asked_ms = len(steps), client.clock.monotonic_ms()
            try:
                offset = await committed_offset(client, broker, self._group, self._partition_key)
            except KafkaError:
                continue
            self.answers[broker] += 1
            if client.may_be_told_old_news(broker, asked_ms):
                asked = ASKED_LONG_AGO
            steps.append(
                GroupOffset(
                    self._group, self._partition_key, offset, Step.SEEN, len(steps), asked, broker
                )
            )


class OffsetQuestion:
    """Asks whoever coordinates a group what it has committed, until somebody answers."""

    def __init__(self, client: Client, group: str, partition_key: PartitionKey) -> None:
        self._client = client
        self._group = group
        self._partition_key = partition_key
        self.answer = -1
        """-1 until it is there."""

    def start(self) -> None:
        """Begin to ask."""
        run_client(self._client, self._run())

    def is_answered(self) -> bool:
        """True once there is an answer."""
        return self.answer >= 0

    async def _run(self) -> None:
        client = self._client
        request = FindCoordinatorRequest(coordinator_keys=[self._group])
        while not self.is_answered():
            try:
                found = await client.ask(client.any_broker(), request, lane=self._group)
                assert isinstance(found, FindCoordinatorResponse)
                _check(found.coordinators[0].error_code)
                coordinator = BrokerId(found.coordinators[0].node_id)
                self.answer = await committed_offset(
                    client, coordinator, self._group, self._partition_key
                )
            except KafkaError:
                await pause(client.clock, 100)


async def committed_offset(
    client: Client, broker: BrokerId, group: str, partition_key: PartitionKey
) -> int:
    """Return what a broker says that a group has committed, 0 for nothing; KafkaError where it
    refuses.
    """
    topic, index = partition_key
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[index])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])], require_stable=True
    )
    response = await client.ask(broker, request, OFFSET_FETCH_VERSION, lane=group)
    assert isinstance(response, OffsetFetchResponse)
    answered = response.groups[0]
    _check(answered.error_code)
    partition = answered.topics[0].partitions[0]
    _check(partition.error_code)
    return max(0, partition.committed_offset)


def _check(error_code: int) -> None:
    if error_code:
        raise KafkaError(ErrorCode.of(error_code))
