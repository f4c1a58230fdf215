"""A broker with share partitions; their states are kept by a twin of the share coordinator."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from tests.unit.handlers.admin_broker import AdminBroker

from millstream.config.offset_reset import OffsetReset
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicId
from millstream.net.peer import Peer
from millstream.protocol.message import Request, Response
from millstream.protocol.messages import share_acknowledge, share_fetch
from millstream.records.batch import Batch
from millstream.runtime.share.dead_letter_topics import DeadLetterTopics
from millstream.runtime.share.persister import SharePersister
from millstream.runtime.share.share_partitions import SharePartitions
from millstream.runtime.share.share_settings import ShareGroupSettings
from millstream.server.dispatch import DispatchSession
from millstream.share.state import (
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)

MAX_RECORDS = 500
Acks = list[tuple[int, int, list[int]]]


class CoordinatorTwin:
    """What a persister is asked, answered at once, or when ``release`` is called while held."""

    def __init__(self) -> None:
        self.start_offsets: dict[SharePartitionKey, int] = {}
        self.rows: dict[SharePartitionKey, dict[int, tuple[int, int]]] = {}
        self.reads: list[tuple[SharePartitionKey, int]] = []
        self.updates: list[ShareStateUpdate] = []
        self.refusal: KafkaError | None = None
        self.is_held = False
        self._held: deque[tuple[Deferred[object], SharePartitionKey, ShareStateUpdate | None]] = (
            deque()
        )

    def read(self, key: SharePartitionKey, *, leader_epoch: int) -> Deferred[ShareState]:
        self.reads.append((key, leader_epoch))
        return cast("Deferred[ShareState]", self._begin(key, None))

    def write(self, key: SharePartitionKey, update: ShareStateUpdate) -> Deferred[None]:
        self.updates.append(update)
        return cast("Deferred[None]", self._begin(key, update))

    def release(self) -> None:
        held, self._held = self._held, deque()
        for each in held:
            self._end(*each)

    def _begin(self, key: SharePartitionKey, update: ShareStateUpdate | None) -> Deferred[object]:
        reply: Deferred[object] = Deferred()
        if self.is_held:
            self._held.append((reply, key, update))
        else:
            self._end(reply, key, update)
        return reply

    def _end(
        self, reply: Deferred[object], key: SharePartitionKey, update: ShareStateUpdate | None
    ) -> None:
        if self.refusal is not None:
            reply.fail(self.refusal)
            return
        if update is None:
            start = self.start_offsets.get(key, -1)
            rows = self.rows.get(key, {})
            batches = (StateBatch(o, o, *row) for o, row in sorted(rows.items()) if o >= start)
            reply.complete(ShareState(1, start, tuple(batches)))
            return
        self.start_offsets[key] = update.start_offset
        rows = self.rows.setdefault(key, {})
        for first, last, state, count in update.state_batches:
            rows |= dict.fromkeys(range(first, last + 1), (state, count))
        reply.complete(None)


@dataclass
class Got:
    """What a fetch brought of one partition."""

    error: int = 0
    acknowledge_error: int = 0
    acquired: list[tuple[int, int, int]] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    leader: tuple[int, int] = (0, 0)


class ShareBroker(AdminBroker):
    """One broker over a directory."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, settings)
        self.coordinator = CoordinatorTwin()
        self.group = ShareGroupSettings(offset_reset=OffsetReset.EARLIEST)
        self.max_sessions = 10
        self.send = self.requests.send
        self.shares = SharePartitions(
            clock=self.clock,
            partitions=self.partitions,
            persister=cast("SharePersister", self.coordinator),
            settings_of=lambda _: self.group,
            dead_letters=DeadLetterTopics(
                clock=self.clock,
                offload=self.offload,
                metadata=self.metadata,
                config=self.config,
                broker_id=BrokerId(1),
                send_request=self._send,
            ),
            max_sessions=lambda: self.max_sessions,
        )
        self.services.share_partitions = lambda: self.shares
        self._connections = itertools.count(100)

    def _send(self, broker: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        return self.send(broker, request, timeout_ms)

    def close(self) -> None:
        self.shares.stop()
        super().close()

    def topic(self, name: str = "t", partitions: int = 1, **configs: str) -> TopicId:
        return self.create(name, partitions, **configs).topic_id

    def records(self, *counts: int, topic: str = "t", index: int = 0, **producer: int) -> None:
        """Append one batch of each number of records."""
        for count in counts:
            self.fill(topic, *[b"v" * 10] * count, index=index, **producer)

    def consumer(self, member: str, *topics: TopicId, group: str = "g") -> Consumer:
        return Consumer(self, group, member, topics)

    def connection(self) -> DispatchSession:
        number = next(self._connections)
        return self.dispatcher.open_session(Peer(number, "PLAINTEXT", "10.0.0.7", 4242))


class Consumer:
    """A share consumer that fetches partition 0 of some topics, or those that are named."""

    def __init__(
        self, broker: ShareBroker, group: str | None, member: str, topics: tuple[TopicId, ...]
    ) -> None:
        self.broker = broker
        self.group = group
        self.member = member
        self.connection = broker.connection()
        self.epoch = 0
        self.added = [(topic, 0) for topic in topics]
        self.topic_id = topics[0] if topics else None

    def start(
        self,
        *,
        epoch: int | None = None,
        acks: Acks | None = None,
        forget: list[tuple[TopicId, int]] | None = None,
        version: int = 2,
        **params: int | bool,
    ) -> Deferred[share_fetch.ShareFetchResponse]:
        """Send the next fetch of the session."""
        named: dict[TopicId, dict[int, Acks]] = {}
        for topic, index in self.added:
            named.setdefault(topic, {})[index] = []
        if acks is not None:
            assert self.topic_id is not None
            named.setdefault(self.topic_id, {})[0] = acks
        request = share_fetch.ShareFetchRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                share_fetch.FetchTopic(
                    topic_id=topic,
                    partitions=[
                        share_fetch.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                share_fetch.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in batches
                            ],
                        )
                        for index, batches in partitions.items()
                    ],
                )
                for topic, partitions in named.items()
            ],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic, partitions=[index])
                for topic, index in forget or []
            ],
            **{  # type: ignore[arg-type]
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_records": MAX_RECORDS,
                "batch_size": MAX_RECORDS,
                **params,
            },
        )
        answer = self.broker.start(request, version, session=self.connection)
        if epoch is None:
            self.epoch += 1
            self.added = []
        return cast("Deferred[share_fetch.ShareFetchResponse]", answer)

    def respond(self, **params: object) -> share_fetch.ShareFetchResponse:
        return self.start(**params).result()  # type: ignore[arg-type]

    def fetch(self, **params: object) -> dict[tuple[TopicId, int], Got]:
        """Fetch what is there; by topic and partition."""
        return got(self.respond(**params))

    def one(self, **params: object) -> Got:
        """Fetch, and return what comes of one partition."""
        found = self.fetch(**params)
        if not found:
            return Got()
        (only,) = found.values()
        return only

    def acknowledge(
        self,
        *acks: tuple[int, int, list[int]],
        epoch: int | None = None,
        renew: bool = False,
        version: int = 2,
        index: int = 0,
    ) -> Deferred[share_acknowledge.ShareAcknowledgeResponse]:
        assert self.topic_id is not None
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in acks
                            ],
                        )
                    ],
                )
            ],
        )
        if epoch is None:
            self.epoch += 1
        answer = self.broker.start(request, version, session=self.connection)
        return cast("Deferred[share_acknowledge.ShareAcknowledgeResponse]", answer)

    def acknowledged(self, *acks: tuple[int, int, list[int]], **params: object) -> int:
        """Acknowledge; return the error of the request or of its one partition."""
        response = self.acknowledge(*acks, **params).result()  # type: ignore[arg-type]
        if response.error_code or not response.responses:
            return response.error_code
        return response.responses[0].partitions[0].error_code


def got(response: share_fetch.ShareFetchResponse) -> dict[tuple[TopicId, int], Got]:
    assert response.error_code == 0, response
    return {
        (topic.topic_id, each.partition_index): Got(
            each.error_code,
            each.acknowledge_error_code,
            [
                (one.first_offset, one.last_offset, one.delivery_count)
                for one in each.acquired_records
            ],
            base_offsets(bytes(each.records or b"")),  # type: ignore[arg-type]
            (each.current_leader.leader_id, each.current_leader.leader_epoch),
        )
        for topic in response.responses
        for each in topic.partitions
    }


def base_offsets(records: bytes) -> list[int]:
    """Return the base offset of every batch, all of which are whole."""
    bases, position = [], 0
    while position < len(records):
        batch = Batch(memoryview(records)[position:])
        assert batch.is_valid
        bases.append(batch.base_offset)
        position += batch.size
    assert position == len(records)
    return bases
