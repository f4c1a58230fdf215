"""Whatever producers, leaders and crashes do: the log says what memory says, epochs only grow, and
each decided transaction ends in every partition as it was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.coordinator.transaction_scene import Scene

from millstream.coordinator.result import Result
from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
from millstream.coordinator.transaction.records import transaction_record
from millstream.coordinator.transaction.states import PREPARED, PREVIOUS, TransactionState
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.coordinator_records import (
    TransactionLogKey,
    TransactionLogValue,
)

R = TypeVar("R")

IDS = ["a", "b"]
EPOCHS = st.sampled_from([0, 0, 0, -1, 1])
"""How far from its own epoch a producer's request is: a retry, a zombie."""


COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


def _producer(stored: TransactionLogValue) -> tuple[int, int]:
    return stored.producer_id, stored.producer_epoch


class TransactionMachine(RuleBasedStateMachine):
    """Two transactional ids over four partitions on two brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.scene.topic("t", 4, (1, 2))
        self.scene.holds_markers = True
        self.producers = dict.fromkeys(IDS, ProducerIdAndEpoch(-1, -1))

    @staticmethod
    def _try(operation: Callable[[], R]) -> R | None:
        try:
            return operation()
        except KafkaError:
            return None

    @rule(key=st.sampled_from(IDS), names=st.booleans(), off=EPOCHS)
    def init(self, key: str, names: bool, off: int) -> None:
        known = self.producers[key]
        named = ProducerIdAndEpoch(known.producer_id, known.epoch + off) if names else None
        given = self._try(lambda: self.scene.init(key, named=named, timeout_ms=20_000))
        if given is not None:
            self.producers[key] = given

    @rule(
        key=st.sampled_from(IDS),
        off=EPOCHS,
        partitions=st.sets(st.integers(0, 3), min_size=1),
        version=st.sampled_from([0, 2]),
    )
    def add(self, key: str, off: int, partitions: set[int], version: int) -> None:
        known = self.producers[key]
        producer = ProducerIdAndEpoch(known.producer_id, known.epoch + off)
        self._try(lambda: self.scene.add(producer, {"t": partitions}, key, client_version=version))

    @rule(
        key=st.sampled_from(IDS),
        off=EPOCHS,
        commit=st.booleans(),
        version=st.sampled_from([1, 2, 2]),
        hears=st.booleans(),
    )
    def end(self, key: str, off: int, commit: bool, version: int, hears: bool) -> None:
        known = self.producers[key]
        producer = ProducerIdAndEpoch(known.producer_id, known.epoch + off)
        after = self._try(lambda: self.scene.end(producer, key, commit=commit, version=version))
        if after is not None and hears and off == 0:
            self.producers[key] = after

    @rule(error=st.sampled_from([ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE]))
    def brokers_away(self, error: ErrorCode) -> None:
        self.scene.fail_sent(error)

    @rule()
    def brokers_answer(self) -> None:
        self.scene.deliver()

    @rule()
    def not_leader(self) -> None:
        self.scene.leaders.errors["t", 0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.scene.sent:
            request = self.scene.sent.pop(0)
            answer = self.scene.leaders.answer(request.request)  # type: ignore[arg-type]
            self.scene.carry_out(request.event(answer, self.scene.now))
        self.scene.leaders.errors.clear()

    @rule(index=st.integers(0, 3), leader=st.sampled_from([-1, 1, 2]))
    def leader_moves(self, index: int, leader: int) -> None:
        self.scene.cluster.leaders["t", index] = leader

    @rule(milliseconds=st.sampled_from([10, 1_000, 30_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.scene.advance(milliseconds)

    @rule()
    def timed_out(self) -> None:
        self.scene.abort_timed_out()

    @rule()
    def coordinator_moves(self) -> None:
        self.scene.move()

    @rule(epoch=st.sampled_from([32_765, 32_766]))
    def epochs_run_out(self, epoch: int) -> None:
        """Skip most epochs of a producer, as if it had ended that many transactions."""
        for key in IDS:
            transaction = self.scene.coordinator.transactions.get(key)
            if transaction is None or transaction.state is not TransactionState.EMPTY:
                continue
            if transaction.producer_epoch >= epoch:
                continue
            jumped = transaction.with_epoch(
                epoch, timeout_ms=transaction.timeout_ms, now_ms=self.scene.now.wall_ms
            )
            self.scene.carry_out(Result(records=[transaction_record(key, jumped, 2)]))
            self.producers[key] = ProducerIdAndEpoch(transaction.producer_id, epoch)

    @invariant()
    def the_log_says_what_memory_says(self) -> None:
        rebuilt = self.scene.replayed()
        assert dict(rebuilt.transactions) == dict(self.scene.coordinator.transactions)

    @invariant()
    def transitions_are_in_the_table(self) -> None:
        before: dict[str, TransactionLogValue] = {}
        for transactional_id, stored in self._history():
            state = TransactionState(stored.transaction_status)
            older = before.get(transactional_id)
            if older is None:
                assert state is TransactionState.EMPTY
            else:
                assert TransactionState(older.transaction_status) in PREVIOUS[state]
                assert _producer(older) <= _producer(stored), "epochs never go back"
            before[transactional_id] = stored

    @invariant()
    def markers_say_what_was_decided(self) -> None:
        decided = {
            (*_producer(stored), stored.transaction_status == TransactionState.PREPARE_COMMIT)
            for _, stored in self._history()
            if TransactionState(stored.transaction_status) in PREPARED
        }
        for _, producer_id, epoch, is_commit in self.scene.leaders.written:
            assert (producer_id, epoch, is_commit) in decided

    @invariant()
    def nothing_completes_without_its_markers(self) -> None:
        written = {(part, *rest) for part, *rest in self.scene.leaders.written}
        prepared: dict[str, TransactionLogValue] = {}
        for transactional_id, stored in self._history():
            state = TransactionState(stored.transaction_status)
            if state in PREPARED:
                prepared[transactional_id] = stored
            elif state in COMPLETE:
                decided = prepared.pop(transactional_id)
                for topic in decided.transaction_partitions or ():
                    for index in topic.partition_ids:
                        marker = (
                            TopicPartition(topic.topic, index),
                            *_producer(decided),
                            state is TransactionState.COMPLETE_COMMIT,
                        )
                        assert marker in written

    def _history(self) -> Iterator[tuple[str, TransactionLogValue]]:
        for key, value in self.scene.log:
            record = self.scene.coordinator.decode(key, value)
            assert record is not None
            assert isinstance(record.key, TransactionLogKey)
            assert isinstance(record.value, TransactionLogValue)
            yield record.key.transactional_id, record.value

    def teardown(self) -> None:
        """With leaders for everything and time, every decided transaction completes."""
        self.scene.topic("t", 4, (1, 2))
        self.scene.holds_markers = False
        self.scene.deliver()
        self.scene.advance(20_000)
        for key in IDS:
            transaction = self.scene.coordinator.transactions.get(key)
            assert transaction is None or transaction.state not in PREPARED


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
