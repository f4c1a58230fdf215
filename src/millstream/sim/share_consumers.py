"""Members of a share group (KIP-932) in a simulation.

Each member fetches from the leaders of the partitions that it was assigned, and accepts, releases
or rejects what it has acquired, or says nothing until the lock has ended. Members die without a
word and others begin. What must not be (:func:`check_deliveries`):

* a record is delivered again after its acceptance or rejection was acknowledged,
* the delivery count of a record goes beyond the limit,
* a record that was never delivered, and that the group has passed over.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages import share_acknowledge as acknowledging
from millstream.protocol.messages import share_fetch as fetching
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from millstream.runtime.pauses import pause
from millstream.sim.clients import Client, run_client

GROUP: Final = "share group"
LOCK_MS: Final = 1_500
DELIVERY_LIMIT: Final = 5
HEARTBEAT_MS: Final = 300
SETTINGS: Final = {
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "2500",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
}
"""What brokers are told, so that sessions and locks are short."""
_ACCEPT, _RELEASE, _REJECT = 1, 2, 3
_JOIN, _LEAVE = 0, -1
_HEARTBEAT_VERSION: Final = 1
_FETCH_VERSION: Final = 1
_ACKNOWLEDGE_VERSION: Final = 1
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
_SESSION_OVER: Final = frozenset(
    {ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH}
)
_EXPECTED: Final = (
    _FENCED
    | _SESSION_OVER
    | {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_RECORD_STATE,
    }
)
"""What members may be answered; anything else is a fault of a broker."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record that a member was given; ``asked`` and ``at`` in milliseconds that all share."""

    member: str
    partition: int
    offset: int
    count: int
    asked: float


@dataclass
class ShareHistory:
    """What the members of a share group were given, and what of it they settled."""

    deliveries: list[Delivery] = field(default_factory=list)
    settled: dict[tuple[int, int], float] = field(default_factory=dict)
    """When the acceptance or rejection of a record was acknowledged, by partition and offset."""
    accepted: set[tuple[int, int]] = field(default_factory=set)
    rejected: set[tuple[int, int]] = field(default_factory=set)
    """Which of both it was."""
    tried_to_accept: set[tuple[int, int]] = field(default_factory=set)
    """Records whose acceptance was sent, whatever came of it."""
    delivery_limit: int = DELIVERY_LIMIT
    unknown_fetches: int = 0
    """Fetches whose answer was lost, with what they acquired."""


class ShareMember:
    """One member after the other under one name; it reads ``topic``."""

    def __init__(self, client: Client, name: str, topic: str, history: ShareHistory) -> None:
        self._client = client
        self.name = name
        self._topic = topic
        self._topic_id: TopicId | None = None
        self._history = history
        self._incarnation = 0
        self._epoch = _JOIN
        self._coordinator: BrokerId | None = None
        self._says_all = True
        """The answer to its last heartbeat is not known: it asks for everything."""
        self._assigned: set[int] = set()
        self._session_epochs: dict[BrokerId, int] = {}
        self._in_session: dict[BrokerId, set[int]] = defaultdict(set)
        self.is_steady = False
        """True while it is to stay, and to accept what it is given."""
        self.seen: Counter[str] = Counter()

    def start(self) -> None:
        """Go on until the client is stopped."""
        run_client(self._client, self._run())

    @property
    def _member_id(self) -> str:
        # Kafka takes the id of a member of a share session for a UUID.
        number = sum(map(ord, self.name)) << 16 | self._incarnation
        return _uuid_text(number)

    async def _run(self) -> None:
        client, chance = self._client, self._client.chance
        while not client.stopped:
            await pause(client.clock, HEARTBEAT_MS * (0.2 + 0.6 * chance.random()))
            try:
                if not self.is_steady and chance.random() < 0.02:
                    await self._die()
                await self._heartbeat()
                for index in sorted(self._assigned):
                    await self._consume(index)
            except KafkaError as error:
                self._failed(error)

    async def _die(self) -> None:
        self.seen["share members that died"] += 1
        await pause(self._client.clock, 1_000 * self._client.chance.random())
        self._incarnation += 1
        self._forget()

    def _failed(self, error: KafkaError) -> None:
        self._says_all = True
        if error.error in _FENCED:
            self.seen["share members fenced"] += 1
            self._forget()
        elif error.error not in _EXPECTED:
            self._client.problems.append(f"{self.name} was answered {error.error.name}")
        self._coordinator = None

    def _forget(self) -> None:
        self._epoch = _JOIN
        self._says_all = True
        self._assigned.clear()
        self._session_epochs.clear()
        self._in_session.clear()

    # --- the group -----------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        client = self._client
        if self._topic_id is None:
            await self._find_topic()
        if self._coordinator is None:
            question = FindCoordinatorRequest(coordinator_keys=[GROUP])
            answer = await client.ask(client.any_broker(), question, lane=self.name)
            assert isinstance(answer, FindCoordinatorResponse)
            check_answer(answer.coordinators[0].error_code)
            self._coordinator = BrokerId(answer.coordinators[0].node_id)
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=[self._topic] if self._says_all else None,
        )
        response = await client.ask(self._coordinator, request, _HEARTBEAT_VERSION, lane=self.name)
        assert isinstance(response, ShareGroupHeartbeatResponse)
        check_answer(response.error_code)
        self._says_all = False
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._assigned = {
                index for each in response.assignment.topic_partitions for index in each.partitions
            }

    async def _find_topic(self) -> None:
        client = self._client
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False
        )
        response = await client.ask(client.any_broker(), request, lane=self.name)
        assert isinstance(response, MetadataResponse)
        check_answer(response.topics[0].error_code)
        self._topic_id = response.topics[0].topic_id

    # --- records -------------------------------------------------------------------------------

    async def _consume(self, index: int) -> None:
        """Fetch once from the leader of a partition, and say what becomes of what was acquired."""
        client = self._client
        partition_key = (self._topic, index)
        leader = await client.leader_of(partition_key)
        asked = client.clock.monotonic_ms()
        try:
            acquired = await self._fetch(leader, index)
        except KafkaError as error:
            self._session_epochs.pop(leader, None)
            self._in_session.pop(leader, None)
            if error.error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION):
                self._history.unknown_fetches += 1
            await client.look_again(partition_key)
            if error.error not in _EXPECTED:
                raise
            return
        for each in acquired:
            for offset in range(each.first_offset, each.last_offset + 1):
                self._history.deliveries.append(
                    Delivery(self._member_id, index, offset, each.delivery_count, asked)
                )
        if acquired:
            # Held for long, the lock ends, and so may the membership.
            longest = (0.0, 0.01) if self.is_steady else (0.0, 0.1, 0.5, 1.2)
            await pause(client.clock, LOCK_MS * client.chance.choice(longest))
            await self._acknowledge(leader, index, acquired)

    async def _fetch(self, leader: BrokerId, index: int) -> list[fetching.AcquiredRecords]:
        assert self._topic_id is not None
        epoch = self._session_epochs.get(leader, 0)
        is_new = index not in self._in_session[leader]
        topics = [
            fetching.FetchTopic(
                topic_id=self._topic_id,
                partitions=[
                    fetching.FetchPartition(partition_index=index, acknowledgement_batches=[])
                ],
            )
        ]
        request = fetching.ShareFetchRequest(
            group_id=GROUP,
            member_id=self._member_id,
            share_session_epoch=epoch,
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=1 << 16,
            max_records=self._client.chance.choice((1, 3, 100)),
            batch_size=100,
            topics=topics if is_new or epoch == 0 else [],
            forgotten_topics_data=[],
        )
        response = await self._client.ask(leader, request, _FETCH_VERSION, lane=self.name)
        assert isinstance(response, fetching.ShareFetchResponse)
        check_answer(response.error_code)
        self._session_epochs[leader] = epoch + 1
        self._in_session[leader].add(index)
        acquired: list[fetching.AcquiredRecords] = []
        for topic in response.responses:
            for partition in topic.partitions:
                if partition.partition_index == index:
                    check_answer(partition.error_code)
                    acquired += partition.acquired_records
                elif partition.acquired_records:
                    self._note_others(partition)
        return acquired

    def _note_others(self, partition: fetching.PartitionData) -> None:
        """Records of another partition of the session: they are held until their lock ends."""
        now_ms = self._client.clock.monotonic_ms()
        for each in partition.acquired_records:
            for offset in range(each.first_offset, each.last_offset + 1):
                self._history.deliveries.append(
                    Delivery(
                        self._member_id,
                        partition.partition_index,
                        offset,
                        each.delivery_count,
                        now_ms - LOCK_MS,
                    )
                )

    async def _acknowledge(
        self, leader: BrokerId, index: int, acquired: Sequence[fetching.AcquiredRecords]
    ) -> None:
        chance = self._client.chance
        kinds = (_ACCEPT,) * 7 + (_RELEASE, _RELEASE, _REJECT)
        decided: dict[int, int] = {}
        for each in acquired:
            for offset in range(each.first_offset, each.last_offset + 1):
                if self.is_steady:
                    decided[offset] = _ACCEPT
                elif chance.random() < 0.9:
                    decided[offset] = chance.choice(kinds)
        history = self._history
        history.tried_to_accept |= {
            (index, each) for each, kind in decided.items() if kind == _ACCEPT
        }
        batches = [
            acknowledging.AcknowledgementBatch(
                first_offset=offset, last_offset=offset, acknowledge_types=[kind]
            )
            for offset, kind in decided.items()
        ]
        if not batches:
            return
        assert self._topic_id is not None
        epoch = self._session_epochs[leader]
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self._member_id,
            share_session_epoch=epoch,
            topics=[
                acknowledging.AcknowledgeTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        acknowledging.AcknowledgePartition(
                            partition_index=index, acknowledgement_batches=batches
                        )
                    ],
                )
            ],
        )
        try:
            response = await self._client.ask(leader, request, _ACKNOWLEDGE_VERSION, lane=self.name)
            assert isinstance(response, acknowledging.ShareAcknowledgeResponse)
            check_answer(response.error_code)
        except KafkaError:
            self._session_epochs.pop(leader, None)
            self._in_session.pop(leader, None)
            raise
        self._session_epochs[leader] = epoch + 1
        error = ErrorCode.of(response.responses[0].partitions[0].error_code)
        if error is ErrorCode.INVALID_REQUEST:
            # Kafka's word for offsets behind the last that this leadership has handed out: the
            # records are of an earlier leadership of the same broker.
            self.seen["share acknowledgements to a later leadership"] += 1
            return
        check_answer(error.code)
        now_ms = self._client.clock.monotonic_ms()
        for offset, kind in decided.items():
            self.seen["share records acknowledged"] += 1
            if kind != _RELEASE:
                history.settled[index, offset] = now_ms
                (history.accepted if kind == _ACCEPT else history.rejected).add((index, offset))


def check_deliveries(history: ShareHistory) -> list[str]:
    """Return what must not be of what the members were given."""
    problems = []
    for each in history.deliveries:
        settled_ms = history.settled.get((each.partition, each.offset))
        if settled_ms is not None and each.asked > settled_ms:
            problems.append(
                f"{each.member} was given {each.offset} of partition {each.partition} at "
                f"{each.asked:.0f} ms; it was settled at {settled_ms:.0f} ms"
            )
        if each.count > history.delivery_limit:
            problems.append(f"{each} is beyond the limit of {history.delivery_limit} deliveries")
    return problems


def check_nothing_passed_over(
    history: ShareHistory, offsets: Mapping[int, Iterable[int]]
) -> list[str]:
    """Return the records that no member was ever given, of what the partitions hold; the group has
    got to the end of all of them. A record whose deliveries were all lost on their way may be
    among them.
    """
    given = {(each.partition, each.offset) for each in history.deliveries}
    if history.unknown_fetches >= history.delivery_limit:
        return []
    return [
        f"{offset} of partition {index} was never given to anybody"
        for index, present in offsets.items()
        for offset in present
        if (index, offset) not in given
    ]


def check_answer(error_code: int) -> None:
    """Raise the KafkaError of an answer that refuses."""
    if error_code:
        raise KafkaError(ErrorCode.of(error_code))


def _uuid_text(number: int) -> str:
    """Return a UUID in Kafka's 22 characters."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode((1 << 120 | number).to_bytes(16, "big")).decode().rstrip("=")
