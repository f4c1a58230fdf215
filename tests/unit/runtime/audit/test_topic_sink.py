"""The topic of the audit log: batches to leaders, tried again where they are by then."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
from tests.unit.runtime.coordinator_site import HandClock

from millstream.client.partitioner import partition_for_key
from millstream.config.topic import TopicConfig
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.topic import AUDIT_LOG_TOPIC, TopicId
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.write_audit_log import (
    WriteAuditLogRequest,
    WriteAuditLogResponse,
)
from millstream.records.batch import Batch
from millstream.records.record import read_records
from millstream.runtime.audit.topic_sink import DELIVERY_MS, TopicSink
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.security.audit.machine import Destination, Entry

ANN, BOB = b"User:ann", b"User:bob"


@dataclass
class Sent:
    """One request, and what is to be answered to it."""

    broker_id: int
    partition: int
    values: list[bytes]
    answer: Deferred[Response]

    def succeed(self) -> None:
        self.answer.complete(WriteAuditLogResponse())

    def refuse(self, error: ErrorCode) -> None:
        self.answer.complete(WriteAuditLogResponse(error_code=error.code))


class Site:
    def __init__(self, max_bytes: int = 10_000) -> None:
        self.clock = HandClock()
        self.metadata = MetadataCache("c")
        for number in (1, 2):
            endpoint = Endpoint("PLAINTEXT", "h", number)
            self.metadata.brokers[BrokerId(number)] = BrokerNode(BrokerId(number), (endpoint,))
        self.asked: list[Deferred[TopicImage]] = []
        self.sent: list[Sent] = []
        self.lost: list[bytes] = []
        self.rooms = 0
        self.sink = TopicSink(
            clock=self.clock,
            metadata=self.metadata,
            ensure_topic=self._ensure_topic,
            send_request=self._send,
            max_bytes=max_bytes,
            on_room=self._has_room,
            on_lost=lambda entries: self.lost.extend(each.value for each in entries),
        )

    def _has_room(self) -> None:
        self.rooms += 1

    def _ensure_topic(self, name: str) -> Deferred[TopicImage]:
        assert name == AUDIT_LOG_TOPIC
        self.asked.append(Deferred())
        return self.asked[-1]

    def _send(self, broker_id: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        assert isinstance(request, WriteAuditLogRequest)
        assert request.timeout_ms < timeout_ms
        records = read_records(Batch(memoryview(bytearray(request.records))))
        values = [each.value or b"" for each in records]
        answer: Deferred[Response] = Deferred()
        self.sent.append(Sent(broker_id, request.partition_index, values, answer))
        return answer

    def make_topic(self, *leaders: int) -> TopicImage:
        partitions = tuple(
            PartitionState(
                replicas=(BrokerId(leader),),
                isr=(BrokerId(leader),),
                leader=BrokerId(leader),
                leader_epoch=0,
            )
            for leader in leaders
        )
        image = TopicImage(AUDIT_LOG_TOPIC, TopicId(b"a" * 16), partitions, TopicConfig())
        self.metadata.update(image)
        return image

    def add(self, value: bytes, key: bytes = ANN) -> bool:
        added = self.sink.add(
            Entry(Destination.TOPIC, self.clock.now_ms(), key, value, {"produce.denied": 1})
        )
        self.clock.settle()
        return added


def test_the_topic_is_made_at_first_use_and_asked_for_once() -> None:
    site = Site()
    assert not site.asked
    site.add(b"one")
    site.add(b"two")
    assert len(site.asked) == 1
    assert not site.sent
    site.asked[0].complete(site.make_topic(1))
    site.clock.settle()
    (sent,) = site.sent
    assert (sent.broker_id, sent.partition, sent.values) == (1, 0, [b"one", b"two"])
    assert not site.sink.is_empty
    sent.succeed()
    assert site.sink.is_empty
    assert site.rooms == 1


def test_a_topic_that_cannot_be_made_is_asked_for_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = Site()
    with caplog.at_level(logging.WARNING):
        site.add(b"one")
        for number in range(3):
            site.asked[number].fail(KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR))
            site.clock.advance(3_000)
        assert len(site.asked) == 4
        assert len(caplog.records) == 1
        site.asked[3].complete(site.make_topic(1))
        site.clock.settle()
        site.sent[0].succeed()
    assert "again" in caplog.records[1].message


def test_a_topic_that_is_made_and_not_known_here_yet_is_waited_for() -> None:
    site = Site()
    site.add(b"one")
    image = site.make_topic(1)
    site.metadata.remove(AUDIT_LOG_TOPIC)
    site.asked[0].complete(image)
    site.clock.settle()
    assert not site.sent
    site.metadata.update(image)
    site.clock.advance(100)
    assert site.sent[0].values == [b"one"]


def test_the_principal_decides_the_partition_and_its_order_is_kept() -> None:
    site = Site()
    site.make_topic(1, 2, 1, 2, 1)
    at_ann, at_bob = partition_for_key(ANN, 5), partition_for_key(BOB, 5)
    assert at_ann != at_bob
    site.add(b"a1")
    site.add(b"b1", BOB)
    site.add(b"a2")
    site.add(b"a3")
    assert [(each.partition, each.values) for each in site.sent] == [
        (at_ann, [b"a1"]),
        (at_bob, [b"b1"]),
    ]
    site.sent[0].succeed()
    assert site.sent[2].values == [b"a2", b"a3"], "what came meanwhile shares the next request"


def test_a_batch_goes_to_the_leader_there_is_by_then() -> None:
    site = Site()
    site.make_topic(1)
    site.add(b"one")
    site.make_topic(2)
    site.sent[0].refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    site.add(b"two")
    assert len(site.sent) == 1
    site.clock.advance(100)
    assert (site.sent[1].broker_id, site.sent[1].values) == (2, [b"one", b"two"])
    site.sent[1].answer.fail(KafkaError(ErrorCode.NETWORK_EXCEPTION))
    site.clock.advance(10_000)
    assert site.sent[2].values == [b"one", b"two"]
    site.sent[2].succeed()
    assert site.sink.is_empty
    assert not site.lost


def test_a_partition_without_a_leader_holds_no_other_one() -> None:
    site = Site()
    at_ann = partition_for_key(ANN, 2)
    site.make_topic(*[-1 if index == at_ann else 1 for index in range(2)])
    other = next(key for key in (BOB, b"User:cat", b"x") if partition_for_key(key, 2) != at_ann)
    site.add(b"a1")
    site.add(b"o1", other)
    assert [each.values for each in site.sent] == [[b"o1"]]


def test_what_is_tried_too_long_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.make_topic(-1)
    site.add(b"one")
    site.clock.advance(DELIVERY_MS // 2)
    site.add(b"two")
    with caplog.at_level(logging.ERROR):
        site.clock.advance(DELIVERY_MS // 2 + 5_000)
    assert site.lost == [b"one"]
    site.clock.advance(DELIVERY_MS)
    assert site.lost == [b"one", b"two"]
    assert site.sink.is_empty
    assert not site.clock.timers_running


def test_what_no_attempt_will_help_is_lost_at_once() -> None:
    site = Site()
    site.make_topic(1)
    site.add(b"one")
    site.add(b"two")
    site.sent[0].refuse(ErrorCode.MESSAGE_TOO_LARGE)
    assert site.lost == [b"one"]
    assert site.sent[1].values == [b"two"]


def test_a_queue_that_is_full_takes_nothing() -> None:
    site = Site(max_bytes=6)
    site.make_topic(1)
    assert site.add(b"one")
    assert site.add(b"two")
    assert not site.add(b"x")
    site.sent[0].succeed()
    assert site.add(b"x")


def test_a_topic_that_was_deleted_is_made_again() -> None:
    site = Site()
    site.make_topic(1)
    site.add(b"one")
    site.metadata.remove(AUDIT_LOG_TOPIC)
    site.sent[0].refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    site.clock.advance(100)
    assert len(site.asked) == 1
    site.asked[0].complete(site.make_topic(2))
    site.clock.settle()
    assert (site.sent[1].broker_id, site.sent[1].values) == (2, [b"one"])


def test_large_records_are_sent_in_several_batches() -> None:
    site = Site(max_bytes=1_000_000)
    site.make_topic(1)
    site.add(b"first")
    for _ in range(5):
        site.add(b"x" * 100_000)
    sizes = []
    while not site.sink.is_empty:
        sizes.append(sum(map(len, site.sent[-1].values)))
        site.sent[-1].succeed()
    assert sum(sizes) == 500_005
    assert max(sizes) <= 256 * 1024


def test_what_was_not_committed_is_returned_at_the_end() -> None:
    site = Site()
    site.make_topic(1)
    site.add(b"one")
    site.add(b"two")
    assert [each.value for each in site.sink.close()] == [b"one", b"two"]
    site.sent[0].succeed()
    assert len(site.sent) == 1
    assert not site.clock.timers_running
