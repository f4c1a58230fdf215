"""The persister: whom it asks, what shares a request, in which order, what is tried again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from tests.unit.runtime.coordinator_site import HandClock

from millstream.config.topic import TopicConfig
from millstream.coordinator.group.partitioner import group_partition
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.topic import SHARE_GROUP_STATE_TOPIC, TopicId
from millstream.protocol.message import Request, Response
from millstream.protocol.messages import read_share_group_state as reading
from millstream.protocol.messages import write_share_group_state as writing
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.share import persister as module
from millstream.runtime.share.persister import SharePersister
from millstream.share.state import SharePartitionKey, ShareState, ShareStateUpdate, StateBatch

T = TypeVar("T")
TOPIC = TopicId(bytes(range(16)))
BROKERS = (BrokerId(1), BrokerId(2), BrokerId(3))
UPDATE = ShareStateUpdate(state_epoch=0, leader_epoch=3, start_offset=10)


@dataclass
class Sent:
    broker: BrokerId
    request: Request
    reply: Deferred[Response] = field(default_factory=Deferred)

    @property
    def partitions(self) -> list[int]:
        assert isinstance(
            self.request, writing.WriteShareGroupStateRequest | reading.ReadShareGroupStateRequest
        )
        return [each.partition for topic in self.request.topics for each in topic.partitions]

    def answer(self, code: ErrorCode = ErrorCode.NONE, **errors: ErrorCode) -> None:
        """Answer every partition with ``code``, those named ``p3`` with errors of their own."""
        self.reply.complete(
            writing.WriteShareGroupStateResponse(
                results=[
                    writing.WriteStateResult(
                        topic_id=TOPIC,
                        partitions=[
                            writing.PartitionResult(
                                partition=each, error_code=errors.get(f"p{each}", code).code
                            )
                            for each in self.partitions
                        ],
                    )
                ]
            )
        )


class Site:
    """A persister before a network that answers when a test says so."""

    def __init__(self, *, created: bool = True) -> None:
        self.clock = HandClock()
        self.metadata = MetadataCache("cluster")
        self.metadata.brokers = {broker: BrokerNode(broker, ()) for broker in BROKERS}
        self.sent: list[Sent] = []
        self.creation: Deferred[TopicImage] = Deferred()
        self.creations = 0
        if created:
            self.lead(BROKERS)
        self.persister = SharePersister(
            clock=self.clock,
            metadata=self.metadata,
            ensure_topic=self._ensure,
            send_request=self._send,
        )

    def lead(self, leaders: tuple[BrokerId, ...]) -> TopicImage:
        image = TopicImage(
            SHARE_GROUP_STATE_TOPIC,
            TopicId(bytes(15) + b"\x01"),
            tuple(PartitionState((each,), each, 0, (each,)) for each in leaders),
            TopicConfig(),
        )
        self.metadata.update(image)
        return image

    def _ensure(self, name: str) -> Deferred[TopicImage]:
        assert name == SHARE_GROUP_STATE_TOPIC
        self.creations += 1
        return self.creation

    def _send(self, broker: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        assert timeout_ms > 0
        self.sent.append(Sent(broker, request))
        return self.sent[-1].reply

    def leader_of(self, key: SharePartitionKey) -> BrokerId:
        return BROKERS[group_partition(key.coordinator_key, len(BROKERS))]

    def keys(
        self, count: int, *, group: str = "g", broker: BrokerId = BROKERS[0]
    ) -> list[SharePartitionKey]:
        """Return keys of one coordinator."""
        found = []
        partition = 0
        while len(found) < count:
            key = SharePartitionKey(group, TOPIC, partition)
            if self.leader_of(key) == broker:
                found.append(key)
            partition += 1
        return found


def error_of(reply: Deferred[T]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        reply.result()
    return raised.value.error


def test_an_operation_goes_to_the_leader_of_the_keys_partition() -> None:
    site = Site()
    for broker in BROKERS:
        (key,) = site.keys(1, broker=broker)
        site.persister.write(key, UPDATE)
        site.clock.settle()
        assert site.sent[-1].broker == broker


def test_what_is_asked_for_in_one_pass_of_the_loop_shares_a_request() -> None:
    site = Site()
    keys = site.keys(3)
    replies = [site.persister.write(key, UPDATE) for key in keys]
    site.clock.settle()
    (sent,) = site.sent
    assert sent.partitions == [key.partition for key in keys]
    sent.answer(**{f"p{keys[1].partition}": ErrorCode.FENCED_STATE_EPOCH})
    assert replies[0].result() is None
    assert error_of(replies[1]) is ErrorCode.FENCED_STATE_EPOCH
    assert replies[2].result() is None


def test_what_is_asked_for_by_who_was_answered_waits_for_its_turn() -> None:
    """The answer lets a lane go on at once; a send that was scheduled finds it busy again."""
    site = Site()
    first, second, third = site.keys(3)
    site.persister.write(first, UPDATE).on_done(lambda _: replies.append(ask(second)))
    replies: list[Deferred[None]] = []

    def ask(key: SharePartitionKey) -> Deferred[None]:
        # Before what the persister has scheduled, and after its answer has been handled.
        site.clock.call_soon(lambda: replies.append(site.persister.write(third, UPDATE)))
        return site.persister.write(key, UPDATE)

    site.clock.settle()
    site.sent[0].answer()
    site.clock.settle()
    assert [each.partitions for each in site.sent[1:]] == [[second.partition]]
    site.sent[1].answer()
    site.clock.settle()
    assert [each.partitions for each in site.sent[2:]] == [[third.partition]]
    site.sent[2].answer()
    assert [each.done for each in replies] == [True, True]


def test_groups_and_kinds_have_requests_of_their_own() -> None:
    site = Site()
    (first,), (second,) = site.keys(1), site.keys(1, group="other")
    site.persister.write(first, UPDATE)
    site.persister.write(second, UPDATE)
    site.persister.read(site.keys(2)[1], leader_epoch=1)
    site.clock.settle()
    assert len(site.sent) == 3


def test_what_comes_while_a_request_is_on_its_way_shares_the_next() -> None:
    site = Site()
    keys = site.keys(4)
    site.persister.write(keys[0], UPDATE)
    site.clock.settle()
    for key in keys[1:]:
        site.persister.write(key, UPDATE)
        site.clock.settle()
    assert len(site.sent) == 1
    site.sent[0].answer()
    site.clock.settle()
    assert [sent.partitions for sent in site.sent[1:]] == [[key.partition for key in keys[1:]]]


def test_a_request_speaks_of_so_many_share_partitions_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_PARTITIONS", 2)
    site = Site()
    replies = [site.persister.write(key, UPDATE) for key in site.keys(5)]
    for _ in range(3):
        site.clock.settle()
        site.sent[-1].answer()
    assert [len(sent.partitions) for sent in site.sent] == [2, 2, 1]
    assert all(reply.result() is None for reply in replies)


def test_operations_on_one_share_partition_keep_their_order_over_a_retry() -> None:
    site = Site()
    (key,) = site.keys(1)
    first = site.persister.write(key, UPDATE)
    second = site.persister.write(key, UPDATE._replace(start_offset=20))
    site.clock.settle()
    assert len(site.sent) == 1
    site.sent[0].reply.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    site.clock.advance(200)
    assert len(site.sent) == 2
    offsets = []
    for sent in site.sent[1:]:
        assert isinstance(sent.request, writing.WriteShareGroupStateRequest)
        offsets.append(sent.request.topics[0].partitions[0].start_offset)
    assert offsets == [10]
    site.sent[1].answer()
    assert first.result() is None
    assert not second.done
    site.clock.settle()
    site.sent[2].answer()
    assert second.result() is None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_an_error_that_may_pass_is_tried_again_at_the_new_coordinator(code: ErrorCode) -> None:
    site = Site()
    (key,) = site.keys(1)
    reply = site.persister.write(key, UPDATE)
    site.clock.settle()
    site.sent[0].answer(code)
    assert not reply.done
    site.lead((BROKERS[2],) * 3)
    site.clock.advance(1_000)
    assert site.sent[1].broker == BROKERS[2]
    site.sent[1].answer()
    assert reply.result() is None


@pytest.mark.parametrize(
    ("failure", "heard"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_an_operation_is_given_up_after_so_many_attempts(
    failure: ErrorCode, heard: ErrorCode
) -> None:
    site = Site()
    (key,) = site.keys(1)
    reply = site.persister.write(key, UPDATE)
    site.clock.settle()
    while not reply.done:
        site.sent[-1].reply.fail(KafkaError(failure))
        site.clock.advance(10_000)
    assert len(site.sent) == module.MAX_ATTEMPTS
    assert error_of(reply) is heard
    assert site.clock.timers_running == 0


def test_the_topic_is_created_at_the_first_use() -> None:
    site = Site(created=False)
    key = SharePartitionKey("g", TOPIC, 0)
    reply = site.persister.write(key, UPDATE)
    site.clock.settle()
    assert site.creations == 1
    assert not site.sent
    site.creation.complete(site.lead(BROKERS))
    site.clock.settle()
    site.sent[0].answer()
    assert reply.result() is None


def test_a_topic_that_cannot_be_created_is_no_coordinator() -> None:
    site = Site(created=False)
    site.creation.fail(KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "one broker"))
    reply = site.persister.write(SharePartitionKey("g", TOPIC, 0), UPDATE)
    site.clock.advance(60_000)
    assert error_of(reply) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert site.creations == module.MAX_ATTEMPTS


def test_an_unreachable_leader_is_waited_for() -> None:
    site = Site()
    (key,) = site.keys(1)
    site.metadata.missing.add(BROKERS[0])
    reply = site.persister.write(key, UPDATE)
    site.clock.advance(250)
    assert not site.sent
    site.metadata.missing.clear()
    site.clock.advance(1_000)
    site.sent[0].answer()
    assert reply.result() is None


def test_a_read_returns_the_state() -> None:
    site = Site()
    (key,) = site.keys(1)
    reply = site.persister.read(key, leader_epoch=4)
    site.clock.settle()
    site.sent[0].reply.complete(
        reading.ReadShareGroupStateResponse(
            results=[
                reading.ReadStateResult(
                    topic_id=TOPIC,
                    partitions=[
                        reading.PartitionResult(
                            partition=key.partition,
                            error_code=0,
                            state_epoch=5,
                            start_offset=100,
                            state_batches=[
                                reading.StateBatch(
                                    first_offset=100,
                                    last_offset=110,
                                    delivery_state=2,
                                    delivery_count=1,
                                )
                            ],
                        )
                    ],
                )
            ]
        )
    )
    assert reply.result() == ShareState(5, 100, (StateBatch(100, 110, 2, 1),))


def test_an_answer_that_leaves_out_a_share_partition_is_an_error() -> None:
    site = Site()
    (key,) = site.keys(1)
    reply = site.persister.write(key, UPDATE)
    site.clock.settle()
    site.sent[0].reply.complete(writing.WriteShareGroupStateResponse(results=[]))
    assert error_of(reply) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_request_that_fails_in_any_way_does_not_hold_up_what_follows() -> None:
    site = Site()
    (key,) = site.keys(1)
    first, second = site.persister.write(key, UPDATE), site.persister.write(key, UPDATE)
    site.clock.settle()
    site.sent[0].reply.fail(RuntimeError("a fault in the coordinator of this broker"))
    site.clock.settle()
    assert error_of(first) is ErrorCode.UNKNOWN_SERVER_ERROR
    site.sent[1].answer()
    assert second.result() is None


def test_stopping_fails_everything_that_waits() -> None:
    site = Site()
    keys = site.keys(2)
    replies = [site.persister.write(key, UPDATE) for key in (*keys, keys[0])]
    site.clock.settle()
    site.persister.stop()
    site.sent[0].answer()
    assert {error_of(reply) for reply in replies} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert error_of(site.persister.delete(keys[0])) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert site.clock.timers_running == 0
