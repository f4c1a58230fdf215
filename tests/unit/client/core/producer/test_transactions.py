"""Transactions of the producer's core, in both generations, on a scripted loop and brokers."""

from __future__ import annotations

import contextlib

import pytest
from tests.client_twin.cluster import TwinBroker
from tests.client_twin.loop import Connection, TwinLoop
from tests.client_twin.transactions import TransactionalCluster

from millstream.client.core.admin.core import AdminCore
from millstream.client.core.consumer.record import GroupMetadata, OffsetAndMetadata
from millstream.client.core.producer.batch import Delivery
from millstream.client.core.producer.core import ProducerCore, complete_settings
from millstream.client.core.producer.transaction_control import TransactionControl
from millstream.client.core.producer.transactions import TransactionState
from millstream.client.core.settings import AdminSettings, ProducerSettings, read_settings
from millstream.client.errors import (
    AbortableTransactionError,
    BrokerError,
    FatalTransactionError,
    ProducerFencedError,
    TimedOutError,
    TransactionAbortedError,
    TransactionStateError,
)
from millstream.model.deferred import Deferred
from millstream.model.errors import ConfigError, ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
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
from millstream.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TOPIC = "t"
PLACE = TopicPartition("in", 0)
GROUP = GroupMetadata("g", 3, "m")

both_generations = pytest.mark.parametrize("level", [1, 2])


class Program:
    """A transactional program: its producer, on a cluster that several may share."""

    def __init__(self, cluster: TransactionalCluster, name: str = "x", **more: object) -> None:
        self.cluster = cluster
        self.loop: TwinLoop = cluster.loop
        given: dict[str, object] = {"linger_ms": 0, "transactional_id": name, **more}
        read = read_settings(ProducerSettings, {"bootstrap.servers": cluster.bootstrap}, given)
        settings = complete_settings(read, set(given))
        self.core = ProducerCore(self.loop, settings, contextlib.nullcontext())

    @property
    def control(self) -> TransactionControl:
        return self.core.transactional()

    @property
    def state(self) -> TransactionState:
        return self.control.manager.state

    def init(self) -> None:
        self.loop.run(self.core.open_topic(TOPIC))
        self.loop.run(self.control.init())

    def send(self, value: bytes, partition: int = 0) -> Delivery:
        accumulator = self.core.accumulator
        if accumulator.refusal is not None:
            raise accumulator.refusal()
        queue = self.core.plan(accumulator.topic(TOPIC), None, value, partition)
        appended = accumulator.append(queue, 1, None, value, (), None)
        assert appended is not None
        return Delivery(*appended)

    def offsets(self, offset: int, group: GroupMetadata = GROUP) -> None:
        self.loop.run(self.control.add_offsets({PLACE: OffsetAndMetadata(offset)}, group))

    def commit(self) -> None:
        self.loop.run(self.control.commit())

    def abort(self) -> None:
        self.loop.run(self.control.abort())

    def settled(self, delivery: Delivery) -> Exception | None:
        """The error of a record, once it has an outcome."""
        self.loop.run(self.core.flush())
        return delivery._batch.error_of(delivery._index)


def program(level: int = 2, brokers: int = 1, partitions: int = 3, **more: object) -> Program:
    cluster = TransactionalCluster(TwinLoop(0), range(1, brokers + 1), level)
    cluster.create_topic(TOPIC, partitions)
    made = Program(cluster, **more)
    made.init()
    return made


def versions(cluster: TransactionalCluster, kind: type[Request]) -> set[int]:
    """Record in which versions a kind of request is sent from now on."""
    seen: set[int] = set()

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if isinstance(request, kind):
            assert broker.last_header is not None
            seen.add(broker.last_header.version)
        return None

    cluster.hooks.append(hook)
    return seen


def answering(kind: type[Request], answer: Response, times: int = 1_000_000) -> object:
    left = [times]

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, kind) or not left[0]:
            return None
        left[0] -= 1
        return answer

    return hook


def refuse_batches(cluster: TransactionalCluster, error: ErrorCode, times: int = 1) -> None:
    left = [times]

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, ProduceRequest) or not left[0]:
            return None
        left[0] -= 1
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=row.index, error_code=error.code, base_offset=-1
                        )
                        for row in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    cluster.hooks.append(hook)


def refused_offsets(error: ErrorCode) -> TxnOffsetCommitResponse:
    row = TxnOffsetCommitResponsePartition(partition_index=PLACE.partition, error_code=error.code)
    return TxnOffsetCommitResponse(
        topics=[TxnOffsetCommitResponseTopic(name=PLACE.topic, partitions=[row])]
    )


# --- what becomes visible -------------------------------------------------------------------------


@both_generations
def test_a_commit_makes_all_of_a_transaction_visible_and_an_abort_nothing(level: int) -> None:
    x = program(level)
    for number in range(6):
        x.control.begin()
        x.send(b"%d" % number, 0)
        x.send(b"%d" % number, 2)
        x.offsets(10 + number)
        x.commit() if number % 2 == 0 else x.abort()
    assert x.cluster.committed(TOPIC, 0) == [b"0", b"2", b"4"]
    assert x.cluster.committed(TOPIC, 2) == [b"0", b"2", b"4"]
    assert x.cluster.committed_offsets == {("g", PLACE): 14}
    assert x.state is TransactionState.READY


def test_the_second_generation_adds_partitions_with_produce_and_raises_the_epoch() -> None:
    x = program(2)
    produced = versions(x.cluster, ProduceRequest)
    ended = versions(x.cluster, EndTxnRequest)
    committed = versions(x.cluster, TxnOffsetCommitRequest)
    for _ in range(3):
        x.control.begin()
        x.send(b"a")
        x.offsets(1)
        x.commit()
    assert x.cluster.transactions["x"].epoch == 3
    assert x.control.manager.epoch == 3
    assert min(produced) >= 12
    assert (ended, committed) == ({5}, {5})
    assert not x.cluster.asked(AddPartitionsToTxnRequest)
    assert not x.cluster.asked(AddOffsetsToTxnRequest)


def test_the_first_generation_adds_each_partition_once_and_keeps_the_epoch() -> None:
    x = program(1)
    produced = versions(x.cluster, ProduceRequest)
    added = versions(x.cluster, AddPartitionsToTxnRequest)
    ended = versions(x.cluster, EndTxnRequest)
    committed = versions(x.cluster, TxnOffsetCommitRequest)
    for number in range(2):
        x.control.begin()
        x.send(b"a", 0)
        x.send(b"b", 1)
        x.loop.run(x.core.flush())
        x.send(b"c", 0)
        x.send(b"d", 2)
        x.offsets(number)
        x.commit()
    assert x.control.manager.epoch == 0
    assert max(produced) <= 11
    assert (added, ended, committed) == ({3}, {4}, {4})
    rows = [
        (topic.name, index)
        for request in x.cluster.asked(AddPartitionsToTxnRequest)
        if isinstance(request, AddPartitionsToTxnRequest)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]
    assert sorted(rows) == sorted([(TOPIC, each) for each in (0, 1, 2)] * 2)


@both_generations
def test_an_empty_transaction_asks_nothing(level: int) -> None:
    x = program(level)
    for end in (x.commit, x.abort):
        x.control.begin()
        end()
    assert not x.cluster.asked(EndTxnRequest)


@both_generations
def test_a_commit_waits_for_every_batch(level: int) -> None:
    x = program(level)
    x.control.begin()
    x.cluster.after = lambda broker, connection, request: (
        5_000.0 if isinstance(request, ProduceRequest) else 0.0
    )
    delivery = x.send(b"slow")
    running = x.control.commit()
    x.loop.advance(4_000)
    assert not delivery.done()
    assert not x.cluster.asked(EndTxnRequest)
    x.loop.run(running)
    assert delivery.done()
    assert x.cluster.committed(TOPIC) == [b"slow"]


@both_generations
def test_records_that_were_not_sent_are_dropped_by_an_abort(level: int) -> None:
    x = program(level, linger_ms=60_000)
    x.control.begin()
    dropped = x.send(b"never")
    x.abort()
    assert isinstance(x.settled(dropped), TransactionAbortedError)
    assert not x.cluster.asked(ProduceRequest)
    x.control.begin()
    x.send(b"next")
    x.commit()
    assert x.cluster.committed(TOPIC) == [b"next"]


# --- what is not permitted ------------------------------------------------------------------------


def test_calls_out_of_order_are_refused() -> None:
    cluster = TransactionalCluster(TwinLoop(0))
    cluster.create_topic(TOPIC, 1)
    x = Program(cluster)
    with pytest.raises(TransactionStateError, match="init_transactions"):
        x.control.begin()
    x.init()
    with pytest.raises(TransactionStateError, match="called before"):
        x.loop.run(x.control.init())
    with pytest.raises(TransactionStateError, match="begin_transaction"):
        x.send(b"")
    for call in (x.commit, x.abort, lambda: x.offsets(1)):
        with pytest.raises(TransactionStateError, match="begin_transaction"):
            call()
    x.control.begin()
    with pytest.raises(TransactionStateError, match="a transaction is open"):
        x.control.begin()
    x.send(b"a")
    running = x.control.commit()
    with pytest.raises(TransactionStateError, match="commit"):
        x.send(b"")
    x.loop.run(running)


def test_a_producer_without_an_id_has_no_transactions() -> None:
    cluster = TransactionalCluster(TwinLoop(0))
    settings = read_settings(ProducerSettings, {"bootstrap.servers": cluster.bootstrap})
    core = ProducerCore(cluster.loop, complete_settings(settings, set()), contextlib.nullcontext())
    with pytest.raises(TransactionStateError, match=r"transactional\.id"):
        core.transactional()


@pytest.mark.parametrize(
    "given", [{"acks": 1}, {"enable_idempotence": False}, {"retries": 0}, {"transactional_id": ""}]
)
def test_settings_that_exclude_transactions(given: dict[str, object]) -> None:
    given = {"transactional_id": "x", **given}
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        complete_settings(
            read_settings(ProducerSettings, {"bootstrap.servers": "a:1"}, given), set(given)
        )


# --- fencing --------------------------------------------------------------------------------------


@both_generations
def test_a_successor_fences_its_predecessor_and_aborts_what_it_left(level: int) -> None:
    old = program(level)
    old.control.begin()
    old.send(b"old")
    old.loop.run(old.core.flush())
    new = Program(old.cluster)
    new.init()
    new.control.begin()
    new.send(b"new")
    with pytest.raises(ProducerFencedError):
        old.commit()
    with pytest.raises(ProducerFencedError):
        old.control.begin()
    with pytest.raises(ProducerFencedError):
        old.send(b"")
    with pytest.raises(ProducerFencedError):
        old.abort()
    new.commit()
    assert new.cluster.committed(TOPIC) == [b"new"]


@both_generations
def test_a_fenced_leader_is_abortable_and_the_coordinator_decides(level: int) -> None:
    old = program(level)
    old.control.begin()
    old.send(b"1")
    old.loop.run(old.core.flush())
    Program(old.cluster).init()
    old.send(b"2")
    with pytest.raises((AbortableTransactionError, ProducerFencedError)):
        old.commit()
    with pytest.raises(ProducerFencedError):
        old.abort()
    assert old.state is TransactionState.FATAL_ERROR
    assert old.cluster.committed(TOPIC) == []


# --- errors ---------------------------------------------------------------------------------------


@both_generations
def test_a_lost_batch_has_to_be_aborted_and_then_work_goes_on(level: int) -> None:
    x = program(level)
    x.control.begin()
    x.send(b"a", 0)
    x.loop.run(x.core.flush())
    refuse_batches(x.cluster, ErrorCode.INVALID_RECORD)
    lost = x.send(b"b", 0)
    after = x.send(b"c", 1)
    assert isinstance(x.settled(lost), BrokerError)
    with pytest.raises(AbortableTransactionError, match="INVALID_RECORD"):
        x.send(b"d")
    with pytest.raises(AbortableTransactionError):
        x.commit()
    with pytest.raises(AbortableTransactionError):
        x.control.begin()
    x.abort()
    assert x.settled(after) is None or isinstance(x.settled(after), Exception)
    epoch = x.control.manager.epoch
    assert epoch >= 1, "the next transaction must not continue sequences with a gap"
    for number in range(2):
        x.control.begin()
        x.send(b"%d" % number, 0)
        x.commit()
    assert x.cluster.committed(TOPIC, 0) == [b"0", b"1"]
    assert x.cluster.committed(TOPIC, 1) == []


@both_generations
def test_records_expire_and_the_transaction_with_them(level: int) -> None:
    x = program(level, request_timeout_ms=1_000, delivery_timeout_ms=3_000)
    x.control.begin()
    refuse_batches(x.cluster, ErrorCode.NOT_ENOUGH_REPLICAS, 1_000_000)
    x.send(b"late")
    with pytest.raises(AbortableTransactionError, match="not delivered within"):
        x.commit()
    x.cluster.hooks.clear()
    x.abort()
    x.control.begin()
    x.send(b"next")
    x.commit()
    assert x.cluster.committed(TOPIC) == [b"next"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AbortableTransactionError),
        (ErrorCode.TRANSACTION_ABORTABLE, AbortableTransactionError),
        (ErrorCode.UNKNOWN_PRODUCER_ID, AbortableTransactionError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, FatalTransactionError),
        (ErrorCode.INVALID_TXN_STATE, FatalTransactionError),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, FatalTransactionError),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
    ],
)
def test_what_refused_partitions_mean(error: ErrorCode, kind: type[Exception]) -> None:
    x = program(1)
    rows = [
        AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=error.code),
        AddPartitionsToTxnPartitionResult(
            partition_index=1, partition_error_code=ErrorCode.OPERATION_NOT_ATTEMPTED.code
        ),
    ]
    answer = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=rows)
        ]
    )
    x.cluster.hooks.append(answering(AddPartitionsToTxnRequest, answer, 1))  # type: ignore[arg-type]
    x.control.begin()
    x.send(b"", 0)
    x.send(b"", 1)
    with pytest.raises(kind, match=error.name):
        x.commit()
    if kind is AbortableTransactionError:
        x.abort()
        x.control.begin()
        x.send(b"next", 0)
        x.commit()
        assert x.cluster.committed(TOPIC) == [b"next"]
    else:
        with pytest.raises(kind):
            x.abort()


@both_generations
@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_temporary_errors_are_retried(level: int, error: ErrorCode) -> None:
    cluster = TransactionalCluster(TwinLoop(0), (1,), level)
    cluster.create_topic(TOPIC, 1)
    busy = {
        InitProducerIdRequest: InitProducerIdResponse(error_code=error.code, producer_epoch=-1),
        EndTxnRequest: EndTxnResponse(error_code=error.code),
        AddPartitionsToTxnRequest: AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=TOPIC,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=0, partition_error_code=error.code
                        )
                    ],
                )
            ]
        ),
        TxnOffsetCommitRequest: refused_offsets(error),
    }
    for kind, answer in busy.items():
        cluster.hooks.append(answering(kind, answer, 3))  # type: ignore[arg-type]
    x = Program(cluster)
    x.init()
    x.control.begin()
    x.send(b"a")
    x.offsets(7)
    x.commit()
    assert cluster.committed(TOPIC) == [b"a"]
    assert cluster.committed_offsets == {("g", PLACE): 7}


def test_a_busy_transaction_is_retried_by_produce() -> None:
    x = program(2)
    refuse_batches(x.cluster, ErrorCode.CONCURRENT_TRANSACTIONS, 4)
    x.control.begin()
    x.send(b"a")
    x.commit()
    assert x.cluster.committed(TOPIC) == [b"a"]


@both_generations
def test_the_coordinator_moves_in_the_middle_of_each_step(level: int) -> None:
    x = program(level, brokers=3)
    for number in range(9):
        x.cluster.transaction_coordinator_id = number % 3 + 1
        x.control.begin()
        x.send(b"%d" % number, number % 3)
        x.cluster.transaction_coordinator_id = (number + 1) % 3 + 1
        x.offsets(number)
        x.cluster.coordinator_id = number % 3 + 1
        running: Deferred[None] = x.control.commit()
        x.cluster.transaction_coordinator_id = (number + 2) % 3 + 1
        x.loop.run(running)
    for partition in range(3):
        expected = [b"%d" % number for number in range(9) if number % 3 == partition]
        assert x.cluster.committed(TOPIC, partition) == expected
    assert x.cluster.committed_offsets == {("g", PLACE): 8}


@both_generations
def test_an_answer_that_is_lost_is_asked_for_again(level: int) -> None:
    x = program(level)
    lost = [2]

    def after(broker: TwinBroker, connection: Connection, request: Request) -> float | None:
        if isinstance(request, EndTxnRequest) and lost[0]:
            lost[0] -= 1
            connection.cut()
            return None
        return 0.0

    x.cluster.after = after
    for number in range(2):
        x.control.begin()
        x.send(b"%d" % number)
        x.commit()
    assert x.cluster.committed(TOPIC) == [b"0", b"1"]


@both_generations
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorCode.ILLEGAL_GENERATION, AbortableTransactionError),
        (ErrorCode.UNKNOWN_MEMBER_ID, AbortableTransactionError),
        (ErrorCode.FENCED_INSTANCE_ID, AbortableTransactionError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AbortableTransactionError),
        (ErrorCode.TRANSACTION_ABORTABLE, AbortableTransactionError),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, FatalTransactionError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
    ],
)
def test_what_refused_offsets_mean(level: int, error: ErrorCode, kind: type[Exception]) -> None:
    x = program(level)
    x.cluster.hooks.append(
        answering(TxnOffsetCommitRequest, refused_offsets(error), 1)  # type: ignore[arg-type]
    )
    x.control.begin()
    x.send(b"a")
    with pytest.raises(kind, match=error.name):
        x.offsets(1)
    with pytest.raises(kind):
        x.commit()
    if kind is AbortableTransactionError:
        x.abort()
        x.control.begin()
        x.offsets(2)
        x.commit()
        assert x.cluster.committed_offsets == {("g", PLACE): 2}
        assert x.cluster.committed(TOPIC) == []


def test_a_consumer_of_an_earlier_generation_does_not_commit() -> None:
    x = program(2)
    x.cluster.generations["g"] = (4, "m")
    x.control.begin()
    with pytest.raises(AbortableTransactionError, match="ILLEGAL_GENERATION"):
        x.offsets(1, GroupMetadata("g", 3, "m"))
    x.abort()
    x.control.begin()
    x.offsets(1, GroupMetadata("g", 4, "m"))
    x.commit()


# --- waiting --------------------------------------------------------------------------------------


@both_generations
def test_a_wait_that_is_over_is_continued_by_the_same_call(level: int) -> None:
    x = program(level, max_block_ms=1_000)
    x.control.begin()
    x.send(b"a")
    x.loop.run(x.core.flush())
    busy = answering(EndTxnRequest, EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR.code))
    x.cluster.hooks.append(busy)  # type: ignore[arg-type]
    with pytest.raises(TimedOutError, match=r"commit_transaction \(max\.block\.ms\)"):
        x.commit()
    with pytest.raises(TransactionStateError, match="commit"):
        x.abort()
    x.cluster.hooks.clear()
    x.commit()
    assert x.cluster.committed(TOPIC) == [b"a"]
    assert x.state is TransactionState.READY


@both_generations
def test_a_producer_that_is_closed_aborts(level: int) -> None:
    x = program(level, linger_ms=60_000)
    x.control.begin()
    x.send(b"a", 0)
    x.loop.run(x.core.flush())
    x.send(b"b", 0)
    x.loop.run(x.core.close(10_000))
    assert not x.cluster.transactions["x"].is_open
    assert x.cluster.committed(TOPIC) == []


def test_an_upgrade_of_the_cluster_takes_effect_with_the_next_transaction() -> None:
    x = program(1, brokers=1)
    x.control.begin()
    x.send(b"1")
    x.commit()
    x.cluster.level = 2
    x.cluster.brokers[1].stop()
    x.cluster.brokers[1].start()
    x.loop.advance(5_000)
    x.control.begin()
    x.send(b"2")
    x.commit()
    x.control.begin()
    x.send(b"3")
    x.commit()
    assert x.control.manager.is_v2
    assert x.cluster.committed(TOPIC) == [b"1", b"2", b"3"]


@both_generations
@pytest.mark.parametrize("seed", range(15))
def test_batches_are_retried_in_a_transaction_over_bad_connections(level: int, seed: int) -> None:
    """Connections break, answers are lost: what is committed is there once and in order."""
    cluster = TransactionalCluster(TwinLoop(seed), (1, 2, 3), level)
    cluster.create_topic(TOPIC, 3)
    x = Program(cluster, max_block_ms=500_000, retry_backoff_ms=5)
    x.init()
    chance = x.loop.chance

    def after(broker: TwinBroker, connection: Connection, request: Request) -> float | None:
        roll = chance.random()
        if roll < 0.08:
            connection.cut()
            return None
        return chance.choice([0.0, 1.0, 10.0])

    cluster.after = after
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for number in range(25):
        x.control.begin()
        sent: list[tuple[int, bytes]] = []
        for index in range(chance.randrange(1, 12)):
            partition, value = chance.randrange(3), b"%d.%d" % (number, index)
            x.send(value, partition)
            sent.append((partition, value))
            if chance.random() < 0.3:
                x.loop.advance(chance.choice([1, 5, 20]))
        if chance.random() < 0.3:
            x.abort()
        else:
            x.commit()
            for partition, value in sent:
                expected[partition].append(value)
    for partition, values in expected.items():
        assert cluster.committed(TOPIC, partition) == values


# --- transactions that another process ends -------------------------------------------------------


@both_generations
@pytest.mark.parametrize("committed", [True, False])
def test_a_prepared_transaction_is_ended_by_another_process(level: int, committed: bool) -> None:
    x = program(level, linger_ms=60_000)
    x.control.begin()
    x.send(b"a")
    prepared = x.loop.run(x.control.prepare())
    assert prepared is not None
    with pytest.raises(TransactionStateError, match="prepared"):
        x.send(b"b")
    x.loop.run(x.core.close(10_000))
    assert x.cluster.transactions["x"].is_open, "the end is left to another process"
    settings = read_settings(AdminSettings, {"bootstrap.servers": x.cluster.bootstrap})
    admin = AdminCore(x.loop, settings)
    for _ in range(2):
        x.loop.run(admin.end_transactions([prepared], committed=committed)).get_all()
    assert x.cluster.committed(TOPIC) == ([b"a"] if committed else [])
    Program(x.cluster).init()
    late = x.loop.run(admin.end_transactions([prepared], committed=committed))
    assert late.errors[prepared].error is ErrorCode.PRODUCER_FENCED


def test_nothing_is_prepared_when_nothing_was_sent() -> None:
    x = program(2)
    x.control.begin()
    assert x.loop.run(x.control.prepare()) is None
    x.control.begin()
    x.send(b"a")
    x.commit()
    assert x.cluster.committed(TOPIC) == [b"a"]
