"""What a share group gives up goes to its dead-letter topic, and is archived then (KIP-1191)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.share_broker import Consumer, ShareBroker

from millstream.config.offset_reset import OffsetReset
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.topic import TopicId
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.produce import ProduceRequest
from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    Batch,
    iter_batches,
)
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.records.compression import Codec
from millstream.records.crc32c import checksum
from millstream.records.record import Record, iter_records
from millstream.runtime.share.share_settings import ShareGroupSettings
from millstream.share.rules import ShareRules
from millstream.share.state import SharePartitionKey, StateBatch
from millstream.sim.dead_letters import GivenUpLog
from millstream.storage.file_slice import FileSlice

ACCEPT, RELEASE, REJECT = 1, 2, 3
ARCHIVING, ARCHIVED = 3, 4
DLQ = "dlq.t"


class Site(ShareBroker):
    """A broker with topic t, whose group g has a dead-letter topic."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, settings)
        self.set()
        self.id = self.topic("t")
        self.key = SharePartitionKey("g", self.id, 0)

    def set(self, topic: str = DLQ, *, copies: bool = False, limit: int = 5) -> None:
        self.group = ShareGroupSettings(
            ShareRules(delivery_count_limit=limit, has_dead_letters=bool(topic)),
            offset_reset=OffsetReset.EARLIEST,
            dead_letter_topic=topic,
            dead_letters_copy_record=copies,
        )

    def dead_letter_topic(self, partitions: int = 1, **configs: str) -> TopicId:
        configs = {"errors_deadletterqueue_group_enable": "true", **configs}
        return self.topic(DLQ, partitions, **configs)

    def dead_letters(self, index: int = 0) -> list[Record]:
        read = self.partitions.get(DLQ, index).read(
            0, max_bytes=1 << 30, isolation=0, min_one_batch=True
        )
        if read.records is None:
            return []
        return [each for batch in iter_batches(read.records.read()) for each in iter_records(batch)]

    def damaged(self, count: int) -> None:
        """Append a batch whose records cannot be decompressed."""
        builder = BatchBuilder(BatchOptions(codec=Codec.ZSTD))
        for _ in range(count):
            builder.append(self.clock.now_ms(), None, b"x" * 100)
        data = bytearray(builder.build())
        data[HEADER_SIZE:] = b"\xff" * (len(data) - HEADER_SIZE)
        crc = checksum(memoryview(data)[ATTRIBUTES_POSITION:])
        data[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
        self.partitions.get("t", 0).append(Batch(memoryview(data)), self.clock.now_ms())
        self.clock.settle()

    def rejected(self, *offsets: int) -> Consumer:
        """Fetch everything, and reject some of it."""
        consumer = self.consumer("m", self.id)
        assert consumer.one().error == 0
        acks = [(each, each, [REJECT]) for each in offsets]
        assert consumer.acknowledged(*acks) == 0
        self.clock.settle()
        return consumer

    def states(self) -> dict[int, tuple[int, int]]:
        return self.coordinator.rows.get(self.key, {})

    @property
    def start_offset(self) -> int:
        machine = self.shares.find_or_load(self.key).machine
        assert machine is not None
        return machine.start_offset


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    broker = Site(tmp_path)
    yield broker
    broker.close()


def headers(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def test_a_rejected_record_has_a_dead_letter_that_says_which_and_why(site: Site) -> None:
    site.dead_letter_topic()
    site.records(3)
    site.rejected(0, 1)
    first, second = site.dead_letters()
    assert headers(first) == {
        "__dlq.errors.topic": "t",
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "0",
        "__dlq.errors.group": "g",
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": "Offset rejected by client.",
    }
    assert headers(second)["__dlq.errors.offset"] == "1"
    assert (first.key, first.value) == (None, None)
    assert site.states() == {0: (ARCHIVED, 1), 1: (ARCHIVED, 1)}
    assert site.start_offset == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_copy_has_key_and_value_of_its_record(site: Site, codec: Codec) -> None:
    site.dead_letter_topic()
    site.set(copies=True)
    site.fill("t", b"a", b"b", b"c", codec=codec)
    site.fill("t", b"d")
    site.rejected(1, 3)
    assert [each.value for each in site.dead_letters()] == [b"b", b"d"]


def test_a_copy_comes_out_of_a_batch_that_is_large_once_decompressed(site: Site) -> None:
    site.dead_letter_topic()
    site.set(copies=True)
    values = [bytes([each]) * 700_000 for each in range(3)]
    site.fill("t", *values, codec=Codec.ZSTD)
    site.rejected(0, 1, 2)
    assert [each.value for each in site.dead_letters()] == values


def test_a_damaged_batch_costs_the_copies_of_its_own_records_alone(site: Site) -> None:
    site.dead_letter_topic()
    site.set(copies=True)
    site.fill("t", b"a")
    site.damaged(2)
    site.fill("t", b"d", b"e")
    site.rejected(0, 1, 2, 3, 4)
    assert [each.value for each in site.dead_letters()] == [b"a", None, None, b"d", b"e"]


def test_a_disk_that_cannot_be_read_costs_the_copies_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.dead_letter_topic()
    site.set(copies=True)
    site.records(2)
    consumer = site.consumer("m", site.id)
    consumer.one()

    def failing(self: FileSlice) -> bytes:
        raise StorageError("/logs", "input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(FileSlice, "read", failing)
        assert consumer.acknowledged((0, 1, [REJECT])) == 0
        site.clock.settle()
    assert [each.value for each in site.dead_letters()] == [None, None]


def test_a_record_that_was_delivered_as_often_as_allowed(site: Site) -> None:
    site.dead_letter_topic()
    site.set(limit=1)
    site.records(1)
    consumer = site.consumer("m", site.id)
    consumer.one()
    assert consumer.acknowledged((0, 0, [RELEASE])) == 0
    site.clock.settle()
    (letter,) = site.dead_letters()
    assert headers(letter)["__dlq.errors.message"] == (
        "Offset delivery count exceeded the threshold."
    )


def test_the_partition_is_that_of_the_record_modulo_their_count(tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        site.dead_letter_topic(partitions=2)
        five = site.topic("five", 5)
        site.records(1, topic="five", index=3)
        consumer = site.consumer("m")
        consumer.topic_id = five
        consumer.added = [(five, 3)]
        consumer.one()
        assert consumer.acknowledged((0, 0, [REJECT]), index=3) == 0
        site.clock.settle()
        assert site.dead_letters(0) == []
        assert headers(site.dead_letters(1)[0])["__dlq.errors.partition"] == "3"
    finally:
        site.close()


def test_without_its_topic_a_group_goes_on_and_the_log_says_what_is_missing(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.records(1)
    with caplog.at_level(logging.WARNING):
        site.rejected(0)
    assert "errors.deadletterqueue.auto.create.topics.enable is false" in caplog.text
    assert site.states() == {0: (ARCHIVED, 1)}


def test_a_topic_that_is_not_meant_for_it_gets_nothing(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.dead_letter_topic(errors_deadletterqueue_group_enable="false")
    site.records(1)
    with caplog.at_level(logging.WARNING):
        site.rejected(0)
    assert "errors.deadletterqueue.group.enable" in caplog.text
    assert site.dead_letters() == []
    assert site.start_offset == 1


def test_a_name_without_the_prefix_gets_nothing(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.topic("other", errors_deadletterqueue_group_enable="true")
    site.set("other")
    site.records(1)
    with caplog.at_level(logging.WARNING):
        site.rejected(0)
    assert "does not begin with 'dlq.'" in caplog.text
    assert site.start_offset == 1


def test_the_topic_is_created_where_that_is_asked_for(tmp_path: Path) -> None:
    site = Site(tmp_path, {"errors.deadletterqueue.auto.create.topics.enable": "true"})
    try:
        site.records(1)
        site.rejected(0)
        assert len(site.dead_letters()) == 1
        image = site.metadata.topic(DLQ)
        assert image is not None
        assert image.config.errors_deadletterqueue_group_enable
        assert image.config.message_timestamp_type == "LogAppendTime"
    finally:
        site.close()


def test_a_leader_that_cannot_take_them_now_is_asked_again(site: Site) -> None:
    site.dead_letter_topic()
    send, refusals = site.send, [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]

    def refusing(broker: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        if isinstance(request, ProduceRequest) and refusals:
            refused: Deferred[Response] = Deferred()
            refused.fail(KafkaError(refusals.pop()))
            return refused
        return send(broker, request, timeout_ms)

    site.send = refusing  # type: ignore[assignment,method-assign]
    site.records(1)
    site.rejected(0)
    site.clock.advance(2_999)
    assert site.dead_letters() == []
    assert site.states() == {0: (ARCHIVING, 1)}
    assert site.start_offset == 0
    site.clock.advance(1)
    assert len(site.dead_letters()) == 1
    assert site.start_offset == 1


def test_a_topic_out_of_reach_holds_up_a_group_once_and_not_for_each_record(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.dead_letter_topic()
    send = site.send

    def refusing(broker: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        if isinstance(request, ProduceRequest):
            refused: Deferred[Response] = Deferred()
            refused.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            return refused
        return send(broker, request, timeout_ms)

    site.send = refusing  # type: ignore[assignment,method-assign]
    site.records(200)
    consumer = site.consumer("m", site.id)
    consumer.one()
    types = [REJECT if each % 2 else ACCEPT for each in range(200)]
    assert consumer.acknowledged((0, 199, types)) == 0
    site.clock.settle()
    assert site.start_offset == 1
    given_up = GivenUpLog()
    with caplog.at_level(logging.WARNING), given_up.listening():
        site.clock.advance(15_000)
    assert site.start_offset == 200
    assert given_up.records == {(0, each) for each in range(1, 200, 2)}
    (line,) = [each for each in caplog.messages if "without a dead letter" in each]
    assert all(f" {each}," in line for each in range(1, 199, 2))


def test_dead_letters_that_are_apart_go_in_one_batch(site: Site) -> None:
    site.dead_letter_topic()
    site.set(copies=True, limit=2)
    send, batches = site.send, []

    def counting(broker: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        if isinstance(request, ProduceRequest):
            batches.append(request)
        return send(broker, request, timeout_ms)

    site.send = counting  # type: ignore[assignment,method-assign]
    site.fill("t", *[b"%d" % each for each in range(10)])
    site.fill("t", *[b"%d" % each for each in range(10, 20)])
    site.rejected(*range(0, 20, 2))
    assert [each.value for each in site.dead_letters()] == [b"%d" % n for n in range(0, 20, 2)]
    assert len(batches) == 1
    assert site.coordinator.updates[-1].state_batches == tuple(
        StateBatch(each, each, ARCHIVED, 1) for each in range(0, 20, 2)
    )


def test_a_leader_that_was_dropped_writes_no_state_behind_its_successor(site: Site) -> None:
    """The last consumer leaves while a dead letter is on its way, and another one comes."""
    site.dead_letter_topic()
    send, held = site.send, list[Callable[[], None]]()

    def holding(broker: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        if not isinstance(request, ProduceRequest):
            return send(broker, request, timeout_ms)
        outcome: Deferred[Response] = Deferred()
        held.append(
            lambda: send(broker, request, timeout_ms).on_done(
                lambda sent: outcome.complete(sent.result())
            )
        )
        return outcome

    site.send = holding  # type: ignore[assignment,method-assign]
    site.records(4)
    first = site.consumer("m", site.id)
    first.one()
    assert first.acknowledged((0, 3, [REJECT, ACCEPT, ACCEPT, ACCEPT])) == 0
    first.one(epoch=-1)
    site.clock.settle()
    assert len(held) == 1
    site.consumer("n", site.id).one()
    site.clock.settle()
    of_first, of_second = held
    of_second()
    site.clock.settle()
    site.records(1)
    assert site.consumer("o", site.id).one().acquired == [(4, 4, 1)]
    before = len(site.coordinator.updates)
    of_first()
    site.clock.settle()
    assert site.coordinator.updates[before:] == []
    assert len(site.dead_letters()) == 2


def test_a_new_leader_writes_what_the_last_one_may_not_have(site: Site) -> None:
    site.dead_letter_topic()
    site.records(3)
    site.coordinator.start_offsets[site.key] = 0
    site.coordinator.rows[site.key] = {0: (ARCHIVING, 1), 1: (ARCHIVING, 5)}
    assert site.consumer("m", site.id).one().acquired == [(2, 2, 1)]
    site.clock.settle()
    assert [headers(each)["__dlq.errors.message"] for each in site.dead_letters()] == [
        "Offset rejected by client.",
        "Offset delivery count exceeded the threshold.",
    ]
    assert site.states()[1] == (ARCHIVED, 5)


def test_a_record_that_is_too_large_for_the_topic_is_not_copied(site: Site) -> None:
    site.dead_letter_topic(max_message_bytes="1000")
    site.set(copies=True)
    site.fill("t", b"x" * 5_000, b"small")
    site.rejected(0, 1)
    assert [each.value for each in site.dead_letters()] == [None, b"small"]


def test_many_dead_letters_go_in_batches_that_the_topic_takes(site: Site) -> None:
    site.dead_letter_topic(max_message_bytes="3000")
    site.set(copies=True)
    site.fill("t", *[b"%06d" % each for each in range(100)])
    site.rejected(*range(100))
    assert [each.value for each in site.dead_letters()] == [b"%06d" % n for n in range(100)]


def test_a_fault_holds_up_no_group(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.dead_letter_topic()

    def broken(broker: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        raise RuntimeError("broken")

    site.send = broken  # type: ignore[assignment,method-assign]
    site.records(1)
    site.rejected(0)
    assert "broken" in caplog.text
    assert site.start_offset == 1


def test_a_consumer_that_leaves_takes_no_dead_letters_with_it(site: Site) -> None:
    """Its records come back as it leaves, and the state is dropped with the last consumer."""
    site.dead_letter_topic()
    site.set(limit=1)
    site.records(3)
    consumer = site.consumer("m", site.id)
    consumer.one()
    site.coordinator.is_held = True
    consumer.one(epoch=-1)
    site.clock.settle()
    assert site.dead_letters() == []
    site.coordinator.release()
    site.coordinator.is_held = False
    site.clock.settle()
    assert len(site.dead_letters()) == 3
    assert site.states() == dict.fromkeys(range(3), (ARCHIVED, 1))
