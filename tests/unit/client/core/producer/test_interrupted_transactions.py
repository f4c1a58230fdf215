"""Operations of a transaction that nobody waits for any more, by a time-out or Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.client_twin.cluster import TwinBroker
from tests.client_twin.loop import Connection
from tests.unit.client.core.producer.test_transactions import (
    GROUP,
    PLACE,
    TOPIC,
    Program,
    answering,
    both_generations,
    program,
)

from millstream.client.core.consumer.record import OffsetAndMetadata
from millstream.client.core.producer.transactions import TransactionState
from millstream.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFencedError,
    TimedOutError,
    TransactionStateError,
)
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.protocol.message import Request
from millstream.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

MOVED = ErrorCode.NOT_COORDINATOR.code
SOON_MS = 5_000


def story(x: Program, value: bytes) -> None:
    x.control.begin()
    x.send(value)
    x.commit()


def steps(x: Program, count: int, waited: Deferred[Any]) -> bool:
    """Let ``count`` things happen; return True if ``waited`` has ended by then."""
    x.loop.settle()
    for _ in range(count):
        if waited.done:
            return True
        x.loop._fire()
        x.loop.settle()
    return waited.done


# --- an outcome that nobody has heard -------------------------------------------------------------


@both_generations
def test_the_outcome_of_a_commit_that_has_ended_meanwhile_is_told_once(level: int) -> None:
    x = program(level, max_block_ms=1_000)
    x.control.begin()
    x.send(b"a")
    x.loop.run(x.core.flush())
    x.cluster.hooks.append(answering(EndTxnRequest, EndTxnResponse(error_code=MOVED)))  # type: ignore[arg-type]
    with pytest.raises(TimedOutError):
        x.commit()
    x.cluster.hooks.clear()
    x.loop.advance(SOON_MS)
    assert x.cluster.committed(TOPIC) == [b"a"]
    with pytest.raises(TransactionStateError, match=r"commit_transaction\(\) has ended meanwhile"):
        x.abort()
    x.commit()
    with pytest.raises(TransactionStateError, match="no transaction is open"):
        x.commit()
    story(x, b"b")
    assert x.cluster.committed(TOPIC) == [b"a", b"b"]


@both_generations
def test_a_commit_that_has_failed_meanwhile_is_told_and_can_be_aborted(level: int) -> None:
    x = program(level, max_block_ms=1_000)
    x.control.begin()
    x.send(b"a")
    x.loop.run(x.core.flush())
    x.cluster.hooks.append(answering(EndTxnRequest, EndTxnResponse(error_code=MOVED)))  # type: ignore[arg-type]
    with pytest.raises(TimedOutError):
        x.commit()
    refused = EndTxnResponse(error_code=ErrorCode.TRANSACTION_ABORTABLE.code)
    x.cluster.hooks[:] = [answering(EndTxnRequest, refused)]  # type: ignore[list-item]
    x.loop.advance(SOON_MS)
    x.cluster.hooks.clear()
    with pytest.raises(AbortableTransactionError):
        x.commit()
    x.abort()
    story(x, b"b")
    assert x.cluster.committed(TOPIC) == [b"b"]


def test_an_initialization_that_has_ended_meanwhile_is_told() -> None:
    x = program(2)
    y = Program(x.cluster, "y", max_block_ms=1_000)
    y.loop.run(y.core.open_topic(TOPIC))
    busy = InitProducerIdResponse(error_code=MOVED, producer_epoch=-1)
    x.cluster.hooks.append(answering(InitProducerIdRequest, busy))  # type: ignore[arg-type]
    with pytest.raises(TimedOutError):
        y.loop.run(y.control.init())
    x.cluster.hooks.clear()
    y.loop.advance(SOON_MS)
    y.loop.run(y.control.init())
    with pytest.raises(TransactionStateError, match="called before"):
        y.loop.run(y.control.init())
    story(y, b"a")


def test_what_was_prepared_meanwhile_is_not_lost() -> None:
    x = program(2, max_block_ms=1_000)
    x.control.begin()
    x.cluster.brokers[1].stop()
    x.send(b"a")
    with pytest.raises(TimedOutError):
        x.loop.run(x.control.prepare())
    with pytest.raises(TransactionStateError, match=r"prepare_transaction\(\) has not ended"):
        x.commit()
    x.cluster.brokers[1].start()
    x.loop.advance(SOON_MS)
    assert x.state is TransactionState.PREPARED
    prepared = x.loop.run(x.control.prepare())
    assert prepared is not None
    assert prepared.transactional_id == "x"


# --- every await ----------------------------------------------------------------------------------


def _commit(x: Program) -> Deferred[None]:
    return x.control.commit()


def _abort(x: Program) -> Deferred[None]:
    return x.control.abort()


@both_generations
@pytest.mark.parametrize("operation", [_commit, _abort])
@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_wait_may_end_at_every_step(
    level: int, operation: Callable[[Program], Deferred[None]], *, is_flushed: bool
) -> None:
    """The same call again gets the outcome, and the next transaction begins."""
    expected = [b"a"] if operation is _commit else []
    for count in range(100):
        x = program(level)
        x.control.begin()
        x.send(b"a")
        adding = x.control.add_offsets({PLACE: OffsetAndMetadata(7)}, GROUP)
        if is_flushed:
            x.loop.run(adding)
            x.loop.run(x.core.flush())
        waited = operation(x)
        if steps(x, count, waited):
            break
        x.control.interrupted("commit_transaction" if operation is _commit else "abort_transaction")
        x.loop.advance(0 if count % 2 else SOON_MS)
        x.loop.run(operation(x), SOON_MS)
        assert x.state is TransactionState.READY, count
        assert x.cluster.committed(TOPIC) == expected, count
        story(x, b"b")
        assert x.cluster.committed(TOPIC) == [*expected, b"b"], count
    assert 0 < count < 99


@both_generations
@pytest.mark.parametrize("operation", [_commit, _abort])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
def test_what_no_operation_expects_is_fatal_and_never_stuck(
    level: int,
    operation: Callable[[Program], Deferred[None]],
    raised: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(**_: object) -> None:
        raise raised

    x = program(level)
    monkeypatch.setattr(x.control._requests, "end", fail)
    x.control.begin()
    x.send(b"a")
    x.loop.run(x.core.flush())
    with pytest.raises(raised if raised is KeyboardInterrupt else FatalTransactionError):
        x.loop.run(operation(x))
    assert x.state is TransactionState.FATAL_ERROR
    with pytest.raises(FatalTransactionError, match="not known"):
        x.control.begin()
    x.loop.run(x.core.close(SOON_MS))


# --- what is in flight when an abort begins -------------------------------------------------------


def _fenced(broker: TwinBroker, request: Request) -> AddPartitionsToTxnResponse | None:
    if not isinstance(request, AddPartitionsToTxnRequest):
        return None
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=TOPIC,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=0, partition_error_code=ErrorCode.PRODUCER_FENCED.code
                    )
                ],
            )
        ]
    )


def test_a_producer_that_is_found_to_be_fenced_in_an_abort_stays_so() -> None:
    x = program(1)
    x.control.begin()
    x.cluster.hooks.append(_fenced)
    x.send(b"a")
    x.loop.settle()
    aborting = x.control.abort()
    with pytest.raises(ProducerFencedError):
        x.loop.run(aborting)
    assert x.state is TransactionState.FATAL_ERROR


@pytest.mark.parametrize("kind", [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest])
def test_what_may_have_begun_at_the_coordinator_is_ended_there(kind: type[Request]) -> None:
    """Otherwise it times out there later, which fences this producer."""
    x = program(1)
    x.control.begin()
    lost: list[Request] = []

    def after(broker: TwinBroker, connection: Connection, request: Request) -> float | None:
        if isinstance(request, kind) and not lost:
            lost.append(request)
            connection.cut(ConnectionResetError(104, "connection reset"))
            return None
        return 0.0

    x.cluster.after = after
    if kind is AddPartitionsToTxnRequest:
        x.send(b"a")
    else:
        x.control.add_offsets({PLACE: OffsetAndMetadata(7)}, GROUP)
    while not lost:
        x.loop._fire()
        x.loop.settle()
    x.abort()
    assert not x.cluster.transactions["x"].is_open
    story(x, b"b")
    assert x.cluster.committed(TOPIC) == [b"b"]


def test_offsets_that_no_request_can_hold_are_aborted() -> None:
    x = program(2)
    x.control.begin()
    x.send(b"a")
    too_long = OffsetAndMetadata(7, "m" * 40_000)
    with pytest.raises(AbortableTransactionError, match="40000 bytes"):
        x.loop.run(x.control.add_offsets({PLACE: too_long}, GROUP))
    with pytest.raises(AbortableTransactionError):
        x.commit()
    x.abort()
    story(x, b"b")
    assert x.cluster.committed(TOPIC) == [b"b"]
