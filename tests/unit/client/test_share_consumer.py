"""The blocking share consumer over real sockets."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker
from tests.unit.client.share_script import LOCK_MS, ShareScript

from millstream.client import AcknowledgeType, Producer, ShareConsumer, TopicPartition
from millstream.client.core.consumer.errors import WakeupError
from millstream.client.core.share.errors import AcknowledgeFailedError
from millstream.client.errors import ClosedError
from millstream.model.errors import ConfigError, ErrorCode

COUNT = 20


@pytest.fixture
def script() -> Iterator[ShareScript]:
    with ScriptedBroker() as broker:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send_values([b"%d" % number for number in range(COUNT)], TOPIC)
        yield ShareScript(broker)


def consumer_of(script: ShareScript, **settings: object) -> ShareConsumer[bytes, bytes]:
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(
        bootstrap_servers=script.broker.bootstrap, group_id="g", **settings
    )
    consumer.subscribe(TOPIC)
    return consumer


def test_polls_accept_what_earlier_ones_returned(script: ShareScript) -> None:
    with consumer_of(script, max_poll_records=8) as consumer:
        seen = [record.offset for _ in range(3) for record in consumer.poll(60)]
        assert seen == list(range(COUNT))
        assert consumer.acquisition_lock_timeout_ms == LOCK_MS
        assert consumer.subscription() == {TOPIC}
        consumer.commit()
        assert script.types == dict.fromkeys(range(COUNT), 1)
    assert (script.closed, script.left) == (1, 1)


def test_a_loop_that_is_left_accepts_what_it_has_worked_on(script: ShareScript) -> None:
    with consumer_of(script) as consumer:
        for record in consumer:
            if record.offset == 5:
                break
    assert script.types == dict.fromkeys(range(5), 1)


def test_a_loop_that_goes_on_later_misses_nothing(script: ShareScript) -> None:
    seen: list[int] = []
    with consumer_of(script) as consumer:
        for stop in (5, 11, COUNT - 1):
            for record in consumer:
                seen.append(record.offset)
                if record.offset == stop:
                    break
        consumer.commit()
    assert seen == list(range(COUNT))
    assert script.types == dict.fromkeys(range(COUNT), 1)


def test_a_commit_inside_a_loop_accepts_what_was_yielded(script: ShareScript) -> None:
    seen: list[int] = []
    with consumer_of(script) as consumer:
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 3:
                consumer.commit()
                assert script.types == dict.fromkeys(range(4), 1)
            if record.offset == COUNT - 1:
                break
    assert seen == list(range(COUNT))


def test_records_are_acknowledged_one_by_one(script: ShareScript) -> None:
    told: list[tuple[int, Exception | None]] = []
    with consumer_of(script, share_acknowledgement_mode="explicit") as consumer:
        consumer.set_acknowledgement_callback(
            lambda offsets, error: told.append((len(offsets[TopicPartition(TOPIC, 0)]), error))
        )
        for record in consumer.poll(60):
            reject = record.offset % 2
            consumer.acknowledge(
                record, AcknowledgeType.REJECT if reject else AcknowledgeType.ACCEPT
            )
        consumer.commit()
        assert told == [(COUNT, None)]
    assert script.types == {offset: 3 if offset % 2 else 1 for offset in range(COUNT)}


def test_acknowledging_needs_the_explicit_mode(script: ShareScript) -> None:
    with consumer_of(script) as consumer:
        (record, *_) = consumer.poll(60)
        with pytest.raises(ConfigError, match="explicit"):
            consumer.acknowledge(record)


def test_a_commit_that_is_refused_raises_and_tells(script: ShareScript) -> None:
    told: list[Exception | None] = []
    with consumer_of(script) as consumer:
        consumer.set_acknowledgement_callback(lambda _, error: told.append(error))
        consumer.poll(60)
        script.refuse_with = ErrorCode.INVALID_RECORD_STATE.code
        with pytest.raises(AcknowledgeFailedError) as caught:
            consumer.commit()
        assert list(caught.value.errors) == [TopicPartition(TOPIC, 0)]
        assert told == [caught.value.errors[TopicPartition(TOPIC, 0)]]
        consumer.commit()


def test_a_callback_that_fails_is_raised_and_close_ends_all_the_same(script: ShareScript) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("callback")

    consumer = consumer_of(script)
    consumer.set_acknowledgement_callback(fail)
    consumer.poll(60)
    with pytest.raises(RuntimeError, match="callback"):
        consumer.commit()
    consumer.close()
    assert script.left == 1


def test_a_waiting_poll_is_woken(script: ShareScript) -> None:
    with consumer_of(script) as consumer:
        consumer.poll(60)
        consumer.commit()
        threading.Timer(0.1, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(3_600)
    consumer.wakeup()
    with pytest.raises(ClosedError):
        consumer.poll(1)


def test_unsubscribing_gives_up_what_is_acquired(script: ShareScript) -> None:
    with consumer_of(script) as consumer:
        assert len(consumer.poll(60)) == COUNT
        consumer.subscribe([])
        assert (script.closed, script.left, script.types) == (1, 1, {})
        consumer.subscribe(TOPIC)
        assert len(consumer.poll(60)) == COUNT


def drop(holder: list[ShareConsumer[bytes, bytes]]) -> None:
    holder.clear()
    gc.collect()


def test_one_that_nobody_holds_any_more_leaves_its_group(script: ShareScript) -> None:
    consumer = consumer_of(script)
    consumer.poll(60)
    thread = consumer._loop._thread
    holder = [consumer]
    del consumer
    with pytest.warns(ResourceWarning):
        drop(holder)
    thread.join(60)
    assert not thread.is_alive()
    assert (script.closed, script.left) == (1, 1)
