"""Topics that are deleted and created again under a transactional producer."""

from __future__ import annotations

import pytest
from tests.unit.client.core.producer.test_transactions import TOPIC, Program, program

from millstream.client.errors import AbortableTransactionError, TransactionAbortedError
from millstream.protocol.messages.produce import ProduceRequest

SOON_MS = 1_000

levels = pytest.mark.parametrize("level", [1, 2])


def story(program: Program, value: bytes) -> None:
    program.control.begin()
    program.send(value)
    program.commit()


@levels
@pytest.mark.parametrize("is_known", [True, False])
def test_between_transactions_the_new_topic_is_written_to(level: int, is_known: bool) -> None:
    writer = program(level)
    story(writer, b"0")
    story(writer, b"1")
    writer.cluster.create_topic(TOPIC, 3)
    if is_known:
        writer.loop.run(writer.core.metadata.request_update())
    began = writer.loop.now_ms()
    story(writer, b"2")
    story(writer, b"3")
    assert writer.loop.now_ms() - began < SOON_MS
    assert writer.cluster.committed(TOPIC) == [b"2", b"3"]


@levels
def test_a_transaction_whose_records_went_with_the_topic_is_aborted(level: int) -> None:
    writer = program(level)
    story(writer, b"0")
    writer.control.begin()
    gone = writer.send(b"1")
    assert writer.settled(gone) is None
    writer.cluster.create_topic(TOPIC, 3)
    writer.loop.run(writer.core.metadata.request_update())
    began = writer.loop.now_ms()
    with pytest.raises(AbortableTransactionError, match="created again"):
        writer.send(b"2")
    with pytest.raises(AbortableTransactionError, match="created again"):
        writer.commit()
    writer.abort()
    story(writer, b"3")
    assert writer.loop.now_ms() - began < SOON_MS
    assert writer.cluster.committed(TOPIC) == [b"3"]


def test_a_commit_that_waits_for_the_old_topic_fails() -> None:
    """In version 1 batches are sent by name, and so may reach the new topic unnoticed."""
    writer = program(2)
    writer.control.begin()
    assert writer.settled(writer.send(b"0")) is None
    writer.cluster.brokers[1].stop()
    late = writer.send(b"1")
    committing = writer.control.commit()
    writer.loop.advance(100)
    writer.cluster.create_topic(TOPIC, 3)
    writer.cluster.brokers[1].start()
    with pytest.raises(AbortableTransactionError, match="created again"):
        writer.loop.run(committing, 5_000)
    assert isinstance(late._batch.error, AbortableTransactionError | TransactionAbortedError)
    writer.abort()
    story(writer, b"2")
    assert writer.cluster.committed(TOPIC) == [b"2"]


@levels
def test_an_abort_does_not_wait_for_the_old_topic(level: int) -> None:
    writer = program(level)
    writer.control.begin()
    assert writer.settled(writer.send(b"0")) is None
    writer.cluster.brokers[1].stop()
    writer.send(b"1")
    aborting = writer.control.abort()
    writer.loop.advance(100)
    writer.cluster.create_topic(TOPIC, 3)
    writer.cluster.brokers[1].start()
    writer.loop.run(aborting, 5_000)
    story(writer, b"2")
    assert writer.cluster.committed(TOPIC) == [b"2"]


@levels
def test_what_the_old_topic_acknowledges_late_is_not_committed(level: int) -> None:
    """The first batch of a transaction is in the old log, and nothing was acknowledged before."""
    writer = program(level, brokers=2)
    writer.loop.run(writer.core.network.ready(2))  # metadata must not wait behind the batch
    writer.control.begin()
    writer.cluster.after = lambda broker, connection, request: (
        500.0 if isinstance(request, ProduceRequest) else 0.0
    )
    gone = writer.send(b"0")
    writer.loop.advance(100)
    assert writer.cluster.topics[TOPIC].partitions[0].end_offset == 1
    writer.cluster.create_topic(TOPIC, 3)
    writer.loop.run(writer.core.metadata.request_update())
    assert writer.settled(gone) is None, "the old topic has it"
    with pytest.raises(AbortableTransactionError, match="created again"):
        writer.commit()
    writer.abort()
    story(writer, b"1")
    assert writer.cluster.committed(TOPIC) == [b"1"]


@levels
def test_a_first_batch_that_is_sent_again_goes_to_the_new_topic(level: int) -> None:
    writer = program(level)
    writer.control.begin()
    writer.cluster.brokers[1].stop()
    writer.send(b"0")
    writer.loop.advance(100)
    writer.cluster.create_topic(TOPIC, 3)
    writer.cluster.brokers[1].start()
    writer.commit()
    assert writer.cluster.committed(TOPIC) == [b"0"]
