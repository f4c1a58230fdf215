"""Producers and their transactions: one test for each answer of each operation."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction_scene import ID, WALL_START_MS, Scene, error_of

from millstream.coordinator.result import Result
from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
from millstream.coordinator.transaction.listing import TransactionFilter
from millstream.coordinator.transaction.records import transaction_record
from millstream.coordinator.transaction.settings import TransactionSettings
from millstream.coordinator.transaction.states import PREVIOUS, TransactionState
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT

FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
BAD_STATE = ErrorCode.INVALID_TXN_STATE
BAD_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING
NONE = ErrorCode.NONE


def at_epoch(scene: Scene, epoch: int) -> ProducerIdAndEpoch:
    """Give the producer an epoch, as if it had ended that many transactions."""
    scene.init()
    jumped = scene.of().with_epoch(epoch, timeout_ms=60_000, now_ms=scene.now.wall_ms)
    scene.carry_out(Result(records=[transaction_record(ID, jumped, 2)]))
    return ProducerIdAndEpoch(jumped.producer_id, epoch)


def in_state(scene: Scene, state: TransactionState, version: int = 2) -> ProducerIdAndEpoch:
    """Bring the id into a state; return what its producer knows it is then."""
    producer = scene.init()
    if state is EMPTY:
        return producer
    scene.add(producer, {"t": {0, 1}}, client_version=version if version == 2 else 0)
    if state is ONGOING:
        return producer
    scene.holds_markers = state in (PREPARE_COMMIT, PREPARE_ABORT)
    commit = state in (PREPARE_COMMIT, COMPLETE_COMMIT)
    return scene.end(producer, commit=commit, version=version)


def before(producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer.producer_id, producer.epoch - 1)


# InitProducerId


def test_a_new_id_gets_a_producer_id_and_epoch_0_and_the_next_epoch_each_time() -> None:
    scene = Scene()
    first = scene.init()
    assert first == ProducerIdAndEpoch(101, 0)
    assert scene.init() == ProducerIdAndEpoch(101, 1)
    assert scene.state is EMPTY
    assert error_of(lambda: scene.add(first)) is FENCED


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_must_be_positive_and_at_most_the_largest_allowed(timeout_ms: int) -> None:
    scene = Scene()
    error = error_of(lambda: scene.init(timeout_ms=timeout_ms))
    assert error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not scene.log


def test_the_empty_id_is_refused_by_every_operation() -> None:
    scene = Scene()
    producer = ProducerIdAndEpoch(101, 0)
    for operation in (
        lambda: scene.init(""),
        lambda: scene.add(producer, None, ""),
        lambda: scene.verify(producer, {"t": {0}}, ""),
        lambda: scene.end(producer, ""),
        lambda: scene.coordinator.describe_transaction(""),
    ):
        assert error_of(operation) is ErrorCode.INVALID_REQUEST


def test_a_producer_that_names_itself_gets_the_next_epoch_and_its_retry_the_same() -> None:
    scene = Scene()
    producer = scene.init()
    given = scene.init(named=producer)
    assert given == ProducerIdAndEpoch(101, 1)
    assert scene.init(named=producer) == given, "the retry of a request that was served"
    assert scene.init(named=producer) == given
    assert scene.init(named=given) == ProducerIdAndEpoch(101, 2)
    assert error_of(lambda: scene.init(named=producer)) is FENCED


def test_a_producer_that_was_replaced_is_fenced() -> None:
    scene = Scene()
    zombie = scene.init()
    scene.init()
    assert error_of(lambda: scene.init(named=zombie)) is FENCED
    assert error_of(lambda: scene.init(named=ProducerIdAndEpoch(999, 0))) is FENCED


def test_a_producer_that_was_replaced_stays_out_after_an_end_of_version_1() -> None:
    scene = Scene()
    zombie = scene.init()
    producer = scene.init()
    for commit in (True, False):
        scene.add(producer, client_version=0)
        scene.end(producer, commit=commit, version=1)
        scene.move()
        assert error_of(lambda: scene.init(named=zombie)) is FENCED


def test_the_retry_of_an_init_after_an_end_of_version_2_survives_a_move() -> None:
    scene = Scene()
    producer = in_state(scene, ONGOING)
    ended = scene.end(producer)
    scene.move()
    assert scene.init(named=producer) == ended


def test_epochs_used_up_bring_a_new_producer_id() -> None:
    scene = Scene()
    last = at_epoch(scene, 32_766)
    assert scene.init() == ProducerIdAndEpoch(102, 0)
    scene = Scene()
    last = at_epoch(scene, 32_766)
    given = scene.init(named=last)
    assert given == ProducerIdAndEpoch(102, 0)
    assert scene.of().previous_producer_id == last.producer_id
    assert scene.init(named=last) == given, "its producer has not heard of the new id"
    assert scene.init(named=last) == given
    early = ProducerIdAndEpoch(last.producer_id, 5)
    assert error_of(lambda: scene.init(named=early)) is FENCED


@pytest.mark.parametrize(("level", "client_version"), [(1, 0), (2, 2)])
def test_an_init_during_a_transaction_aborts_it_and_fences_its_producer(
    level: int, client_version: int
) -> None:
    scene = Scene()
    scene.cluster.transaction_version = level
    producer = in_state(scene, ONGOING, version=level)
    scene.holds_markers = True
    assert error_of(scene.init) is CONCURRENT
    assert scene.state is PREPARE_ABORT
    assert (scene.of().producer_epoch, scene.of().client_version) == (1, client_version)
    assert error_of(scene.init) is CONCURRENT, "markers are being written"
    assert error_of(lambda: scene.end(producer, version=1)) is FENCED
    assert error_of(lambda: scene.add(producer)) is FENCED
    scene.deliver()
    assert scene.state is COMPLETE_ABORT
    assert {each[1:] for each in scene.leaders.written} == {(101, 1, False)}
    assert error_of(lambda: scene.add(producer)) is FENCED
    assert scene.init() == ProducerIdAndEpoch(101, 2)
    for version in (1, 2):
        for commit in (False, True):
            assert error_of(
                lambda v=version, c=commit: scene.end(producer, commit=c, version=v)
            ) is (FENCED)
    assert error_of(lambda: scene.init(named=producer)) is FENCED


def test_until_its_successor_is_served_a_fenced_producer_may_give_its_transaction_up() -> None:
    """As in Kafka, where the fence of version 2 is the abort itself. It gets an epoch that the
    successor's next request replaces, and it can never commit.
    """
    scene = Scene()
    producer = in_state(scene, ONGOING, version=2)
    scene.holds_markers = True
    assert error_of(scene.init) is CONCURRENT
    assert error_of(lambda: scene.end(producer)) is CONCURRENT
    assert error_of(lambda: scene.end(producer, commit=False)) is CONCURRENT
    scene.deliver()
    assert error_of(lambda: scene.end(producer)) is BAD_STATE
    given_up = scene.end(producer, commit=False)
    assert given_up == ProducerIdAndEpoch(101, 1)
    scene.add(given_up)
    assert error_of(scene.init) is CONCURRENT
    scene.deliver()
    assert scene.init() == ProducerIdAndEpoch(101, 3)
    for zombie in (producer, given_up):
        assert error_of(lambda z=zombie: scene.add(z)) is FENCED
        assert error_of(lambda z=zombie: scene.end(z, commit=False)) is FENCED


@pytest.mark.parametrize(("level", "given"), [(1, (102, 0)), (2, (102, 1))])
def test_a_fence_at_the_last_epoch_does_not_run_over(level: int, given: tuple[int, int]) -> None:
    scene = Scene()
    scene.cluster.transaction_version = level
    producer = at_epoch(scene, 32_766)
    scene.add(producer)
    scene.holds_markers = True
    assert error_of(scene.init) is CONCURRENT
    assert (scene.of().producer_id, scene.of().producer_epoch) == (101, 32_767)
    scene.deliver()
    assert scene.init() == ProducerIdAndEpoch(*given)
    assert scene.of().state is EMPTY
    assert error_of(lambda: scene.add(producer)) in (FENCED, BAD_ID)


def test_a_producer_that_was_fenced_at_the_last_epoch_by_version_1_stays_out() -> None:
    scene = Scene()
    scene.cluster.transaction_version = 1
    producer = at_epoch(scene, 32_766)
    scene.add(producer)
    scene.advance(60_000)
    scene.abort_timed_out()
    assert (scene.state, scene.of().producer_epoch) == (COMPLETE_ABORT, 32_767)
    for _ in range(2):
        assert error_of(lambda: scene.init(named=producer)) is FENCED
        assert error_of(lambda: scene.end(producer, commit=False)) is FENCED
        assert error_of(lambda: scene.end(producer)) is FENCED
        scene.move()
    assert scene.init() == ProducerIdAndEpoch(102, 0)


def test_a_fence_with_the_last_epoch_in_an_older_log_lets_nobody_back() -> None:
    """Kafka before 4.3 stored such a fence of version 2 without a next producer id."""
    scene = Scene()
    producer = at_epoch(scene, 32_766)
    scene.add(producer)
    fenced = scene.of().prepared(commit=False, now_ms=scene.now.wall_ms, client_version=2)
    done = fenced.completed(scene.now.wall_ms)
    records = [transaction_record(ID, each, 2) for each in (fenced, done)]
    scene.carry_out(Result(records=records))
    assert error_of(lambda: scene.init(named=producer)) is FENCED
    assert error_of(lambda: scene.end(producer, commit=False)) is FENCED
    assert scene.init() == ProducerIdAndEpoch(102, 0)


def test_a_transaction_at_the_last_epoch_times_out_into_a_new_producer_id() -> None:
    scene = Scene()
    producer = at_epoch(scene, 32_766)
    scene.add(producer)
    scene.advance(60_000)
    scene.abort_timed_out(ids_are_there=False)
    assert scene.state is ONGOING, "it needs an id that could not be had"
    scene.abort_timed_out()
    assert scene.state is COMPLETE_ABORT
    assert (scene.of().producer_id, scene.of().producer_epoch) == (102, 0)
    assert {each[1:] for each in scene.leaders.written} == {(101, 32_767, False)}
    assert error_of(lambda: scene.add(producer)) is BAD_ID
    assert error_of(lambda: scene.end(producer)) is BAD_STATE
    assert scene.end(producer, commit=False) == ProducerIdAndEpoch(102, 0)


def test_an_id_that_comes_late_aborts_no_transaction_that_began_meanwhile() -> None:
    scene = Scene()
    producer = at_epoch(scene, 32_766)
    scene.add(producer)
    scene.advance(60_000)
    result = scene.coordinator.abort_timed_out(scene.now)
    assert (result.response, result.records) == ([ID], [])
    scene.end(producer, version=1)
    scene.add(producer)
    assert scene.state is ONGOING
    scene.carry_out(scene.coordinator.abort_exhausted(ID, 999, scene.now))
    assert scene.state is ONGOING
    scene.advance(60_000)
    scene.carry_out(scene.coordinator.abort_exhausted(ID, 999, scene.now))
    assert (scene.state, scene.of().producer_id) == (COMPLETE_ABORT, 999)


# AddPartitionsToTxn


def test_partitions_begin_a_transaction_and_join_it() -> None:
    scene = Scene()
    producer = scene.init()
    scene.now_ms = 500
    scene.add(producer, {"t": {0}})
    scene.now_ms = 900
    scene.add(producer, {"t": {1}, "u": {3}})
    assert scene.state is ONGOING
    assert scene.of().partitions == {"t": {0, 1}, "u": {3}}
    assert scene.of().start_ms == WALL_START_MS + 500
    written = len(scene.log)
    scene.add(producer, {"t": {1}})
    assert len(scene.log) == written, "they are in it already"


@pytest.mark.parametrize("state", [COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_next_transaction_begins_with_its_own_partitions(state: TransactionState) -> None:
    scene = Scene()
    producer = in_state(scene, state)
    scene.now_ms = 10
    scene.add(producer, {"t": {3}})
    assert scene.of().partitions == {"t": {3}}
    assert scene.of().start_ms == WALL_START_MS + 10


def test_only_the_present_producer_adds_partitions_and_not_while_one_ends() -> None:
    scene = Scene()
    assert error_of(lambda: scene.add(ProducerIdAndEpoch(101, 0))) is BAD_ID
    producer = scene.init()
    assert error_of(lambda: scene.add(ProducerIdAndEpoch(5, 0))) is BAD_ID
    assert error_of(lambda: scene.add(ProducerIdAndEpoch(101, 1))) is FENCED
    scene.add(producer)
    scene.holds_markers = True
    ended = scene.end(producer)
    assert error_of(lambda: scene.add(ended)) is CONCURRENT
    assert error_of(lambda: scene.verify(ended, {"t": {0}})) is CONCURRENT


def test_verification_says_of_each_partition_whether_it_is_in_the_transaction() -> None:
    scene = Scene()
    producer = in_state(scene, ONGOING)
    assert scene.verify(producer, {"t": {1, 2}, "u": {0}}) == {
        "t": {1: NONE, 2: ErrorCode.TRANSACTION_ABORTABLE},
        "u": {0: ErrorCode.TRANSACTION_ABORTABLE},
    }
    assert error_of(lambda: scene.verify(before(producer), {"t": {1}})) is FENCED
    asked = {
        index: scene.coordinator.has_partition(ID, producer, TopicPartition("t", index))
        for index in range(4)
    }
    assert asked == {index: index in scene.of().partitions["t"] for index in range(4)}
    assert asked[1]
    one = TopicPartition("t", 1)
    assert not scene.coordinator.has_partition(ID, before(producer), one)
    assert not scene.coordinator.has_partition("other", producer, one)
    scene.holds_markers = True
    ended = scene.end(producer)
    assert not scene.coordinator.has_partition(ID, ended, one), "it is being ended"
    scene.deliver()
    assert scene.verify(ended, {"t": {0}}) == {"t": {0: ErrorCode.TRANSACTION_ABORTABLE}}


def test_a_transaction_over_1000_partitions_and_one_that_no_record_holds() -> None:
    scene = Scene(TransactionSettings(max_record_bytes=20_000))
    scene.topic("wide", 10_000)
    producer = scene.init()
    scene.add(producer, {"wide": set(range(1_000))})
    before_it = scene.of()
    error = error_of(lambda: scene.add(producer, {"wide": set(range(10_000))}))
    assert error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert scene.of() == before_it
    scene.end(producer)
    assert scene.state is COMPLETE_COMMIT
    assert len(scene.leaders.written) == 1_000


# EndTxn

TABLE_1 = [
    (EMPTY, BAD_STATE, BAD_STATE),
    (PREPARE_COMMIT, CONCURRENT, CONCURRENT),
    (PREPARE_ABORT, CONCURRENT, CONCURRENT),
    (COMPLETE_COMMIT, NONE, BAD_STATE),
    (COMPLETE_ABORT, BAD_STATE, NONE),
    (ONGOING, NONE, NONE),
]


@pytest.mark.parametrize(("state", "on_commit", "on_abort"), TABLE_1)
@pytest.mark.parametrize("commit", [True, False])
def test_the_table_of_version_1(
    state: TransactionState, on_commit: ErrorCode, on_abort: ErrorCode, commit: bool
) -> None:
    scene = Scene()
    producer = in_state(scene, state, version=1)
    written = len(scene.log)
    expected = on_commit if commit else on_abort
    assert error_of(lambda: scene.end(producer, commit=commit, version=1)) is expected
    assert scene.of().producer_epoch == 0
    is_prepared = state in (PREPARE_COMMIT, PREPARE_ABORT)
    assert is_prepared or len(scene.log) == (written + 2 if state is ONGOING else written)
    other = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    assert error_of(lambda: scene.end(other, commit=commit, version=1)) is FENCED


TABLE_2 = [
    # state, commit again and now, abort again and now; None: an end that bumps the epoch
    (ONGOING, (FENCED, None), (FENCED, None)),
    (PREPARE_COMMIT, (CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT)),
    (PREPARE_ABORT, (CONCURRENT, CONCURRENT), (CONCURRENT, CONCURRENT)),
    (COMPLETE_COMMIT, (NONE, BAD_STATE), (BAD_STATE, None)),
    (COMPLETE_ABORT, (BAD_STATE, BAD_STATE), (NONE, None)),
    (EMPTY, (FENCED, BAD_STATE), (FENCED, None)),
]


@pytest.mark.parametrize(("state", "on_commit", "on_abort"), TABLE_2)
@pytest.mark.parametrize("is_retry", [True, False])
@pytest.mark.parametrize("commit", [True, False])
def test_the_table_of_version_2(
    state: TransactionState,
    on_commit: tuple[ErrorCode | None, ...],
    on_abort: tuple[ErrorCode | None, ...],
    is_retry: bool,
    commit: bool,
) -> None:
    scene = Scene()
    producer = in_state(scene, state)
    scene.holds_markers = False
    asks = before(producer) if is_retry else producer
    expected = (on_commit if commit else on_abort)[0 if is_retry else 1]
    if expected is None:
        after = scene.end(asks, commit=commit)
        assert after == ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
        assert scene.state is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)
    elif expected is NONE:
        assert scene.end(asks, commit=commit) == producer
    else:
        assert error_of(lambda: scene.end(asks, commit=commit)) is expected


def test_an_end_for_an_unknown_id_or_another_producer_is_refused() -> None:
    scene = Scene()
    stranger = ProducerIdAndEpoch(7, 0)
    for version in (1, 2):
        assert error_of(lambda v=version: scene.end(stranger, version=v)) is BAD_ID
    scene.init()
    for version in (1, 2):
        assert error_of(lambda v=version: scene.end(stranger, version=v)) is BAD_ID


def test_an_end_at_the_last_epoch_gives_a_new_producer_id_which_retries_hear_too() -> None:
    scene = Scene()
    producer = at_epoch(scene, 32_766)
    scene.add(producer)
    scene.holds_markers = True
    after = scene.end(producer)
    assert after == ProducerIdAndEpoch(102, 0)
    assert (scene.of().producer_id, scene.of().producer_epoch) == (101, 32_767)
    assert error_of(lambda: scene.end(producer)) is CONCURRENT
    scene.move()
    scene.deliver()
    assert scene.state is COMPLETE_COMMIT
    assert scene.end(producer) == after
    assert error_of(lambda: scene.end(producer, commit=False)) is BAD_STATE
    assert scene.init(named=producer) == after
    scene.add(after)
    assert scene.end(after) == ProducerIdAndEpoch(102, 1)


def test_a_producer_of_version_1_beside_version_2() -> None:
    scene = Scene()
    old, new = scene.init("old"), scene.init("new")
    for _ in range(2):
        scene.add(old, None, "old", client_version=0)
        scene.add(new, None, "new")
        assert scene.end(old, "old", version=1) == old
        new = scene.end(new, "new")
    assert new.epoch == 2


def test_without_tagged_fields_in_the_log_no_epoch_is_bumped() -> None:
    scene = Scene()
    scene.cluster.transaction_version = 0
    producer = in_state(scene, ONGOING)
    # A producer that were told an epoch would begin its sequences again, and in an epoch that is
    # the same these are duplicates.
    nobody = ProducerIdAndEpoch(-1, -1)
    assert scene.end(producer) == nobody
    assert scene.end(producer) == nobody, "a retry"
    assert scene.log[-1][1] is not None
    assert scene.log[-1][1][:2] == b"\x00\x00", "version 0 of the value"


# Time


@pytest.mark.parametrize("level", [1, 2])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(level: int) -> None:
    scene = Scene()
    scene.cluster.transaction_version = level
    producer = scene.init(timeout_ms=5_000)
    scene.now_ms = 1_000
    scene.add(producer)
    scene.advance(4_999)
    scene.abort_timed_out()
    assert scene.state is ONGOING
    scene.advance(1)
    scene.abort_timed_out()
    assert scene.state is COMPLETE_ABORT
    assert scene.of().producer_epoch == 1
    assert error_of(lambda: scene.add(producer)) is FENCED
    assert error_of(lambda: scene.end(producer, version=1)) is FENCED
    refusal = FENCED if level == 1 else BAD_STATE
    assert error_of(lambda: scene.end(producer)) is refusal, "what it had is aborted"
    if level == 2:
        assert scene.end(producer, commit=False) == ProducerIdAndEpoch(101, 1)


def test_partitions_added_later_give_no_more_time_and_the_next_transaction_has_its_own() -> None:
    scene = Scene()
    producer = scene.init(timeout_ms=5_000)
    scene.add(producer, {"t": {0}})
    scene.advance(4_000)
    scene.add(producer, {"t": {1}})
    producer = scene.end(producer)
    scene.add(producer)
    scene.advance(4_000)
    scene.abort_timed_out()
    assert scene.state is ONGOING
    scene.advance(1_000)
    scene.abort_timed_out()
    assert scene.state is COMPLETE_ABORT


def test_a_coordinator_that_was_loaded_knows_since_when_transactions_run() -> None:
    scene = Scene()
    producer = scene.init(timeout_ms=5_000)
    scene.add(producer)
    scene.advance(3_000)
    scene.move()
    scene.advance(1_999)
    scene.abort_timed_out()
    assert scene.state is ONGOING
    scene.advance(1)
    scene.abort_timed_out()
    assert scene.state is COMPLETE_ABORT


def test_time_in_which_nobody_was_listened_to_does_not_count() -> None:
    scene = Scene()
    producer = scene.init(timeout_ms=5_000)
    scene.add(producer)
    scene.coordinator.postpone(10_000)
    scene.advance(14_000)
    scene.abort_timed_out()
    assert scene.state is ONGOING


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT, ONGOING, PREPARE_COMMIT])
def test_unused_ids_expire_and_no_others(state: TransactionState) -> None:
    scene = Scene(TransactionSettings(id_expiration_ms=1_000))
    producer = in_state(scene, state)
    scene.now_ms = 999
    scene.carry_out(scene.coordinator.expire_ids(scene.now))
    assert len(scene.coordinator.transactions) == 1
    scene.now_ms = 1_000
    scene.carry_out(scene.coordinator.expire_ids(scene.now))
    assert len(scene.coordinator.transactions) == (1 if state in (ONGOING, PREPARE_COMMIT) else 0)
    if not scene.coordinator.transactions:
        assert scene.log[-1][1] is None
        assert not scene.replayed().transactions
        assert error_of(lambda: scene.add(producer)) is BAD_ID
        assert scene.init() == ProducerIdAndEpoch(102, 0)


# Administration


def listed(scene: Scene, **fields: object) -> set[str]:
    wanted = TransactionFilter(**fields)  # type: ignore[arg-type]
    response = scene.coordinator.list_transactions(wanted, scene.now).response
    assert response is not None
    return {each.transactional_id for each in response}


def test_transactions_are_listed_by_state_producer_and_duration() -> None:
    scene = Scene()
    first = scene.init("first")
    scene.add(first, None, "first")
    scene.advance(2_000)
    second = scene.init("second")
    scene.add(second, None, "second")
    scene.end(second, "second")
    assert listed(scene) == {"first", "second"}
    assert listed(scene, states=frozenset({"Ongoing"})) == {"first"}
    assert listed(scene, states=frozenset({"CompleteCommit", "x"})) == {"second"}
    assert listed(scene, states=frozenset({"ongoing"})) == set()
    assert listed(scene, producer_ids=frozenset({second.producer_id})) == {"second"}
    assert listed(scene, longer_than_ms=1_999) == {"first"}
    assert listed(scene, longer_than_ms=2_000) == set()


def test_a_description_names_the_partitions_that_have_no_marker_yet() -> None:
    scene = Scene()
    error = error_of(lambda: scene.coordinator.describe_transaction(ID))
    assert error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    producer = scene.init()
    scene.add(producer, {"t": {2, 0}, "u": {1}})
    scene.cluster.leaders["u", 1] = -1
    described = scene.coordinator.describe_transaction(ID).response
    assert described is not None
    assert described.transaction_state == "Ongoing"
    assert described.transaction_timeout_ms == 60_000
    assert described.transaction_start_time_ms == WALL_START_MS
    assert (described.producer_id, described.producer_epoch) == (101, 0)
    assert [(each.topic, each.partitions) for each in described.topics] == [
        ("t", [0, 2]),
        ("u", [1]),
    ]
    scene.end(producer)
    described = scene.coordinator.describe_transaction(ID).response
    assert described is not None
    assert described.transaction_state == "PrepareCommit"
    assert [(each.topic, each.partitions) for each in described.topics] == [("u", [1])]


# The log


def test_the_table_of_transitions_is_kafkas() -> None:
    ended = {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}
    fence = TransactionState.PREPARE_EPOCH_FENCE
    assert {
        EMPTY: ended,
        ONGOING: {ONGOING, *ended},
        PREPARE_COMMIT: {ONGOING},
        PREPARE_ABORT: {ONGOING, fence, *ended},
        COMPLETE_COMMIT: {PREPARE_COMMIT},
        COMPLETE_ABORT: {PREPARE_ABORT},
        TransactionState.DEAD: ended,
        fence: {ONGOING},
    } == PREVIOUS
    assert [state.text for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_records_as_kafka_writes_them() -> None:
    scene = Scene()
    producer = scene.init("tx")
    scene.add(producer, {"t": {1}}, "tx")
    scene.end(producer, "tx")
    time = WALL_START_MS.to_bytes(8, "big")
    assert {key for key, _ in scene.log} == {b"\x00\x00\x00\x02tx"}
    empty, ongoing, prepared, complete = (value for _, value in scene.log)
    pid = (101).to_bytes(8, "big")
    timeout = (60_000).to_bytes(4, "big")
    tag_0 = b"\x00\x08" + pid
    assert empty == (
        b"\x00\x01"
        + pid
        + b"\x00\x00"
        + timeout
        + b"\x00"
        + b"\x00"
        + time
        + b"\xff" * 8
        + b"\x01"
        + tag_0
    )
    partitions = b"\x02" + b"\x02t" + b"\x02\x00\x00\x00\x01" + b"\x00"
    version_tag = b"\x02\x02\x00\x02"
    assert ongoing == (
        b"\x00\x01"
        + pid
        + b"\x00\x00"
        + timeout
        + b"\x01"
        + partitions
        + time
        + time
        + b"\x02"
        + tag_0
        + version_tag
    )
    assert prepared == (
        b"\x00\x01"
        + pid
        + b"\x00\x01"
        + timeout
        + b"\x02"
        + partitions
        + time
        + time
        + b"\x02"
        + tag_0
        + version_tag
    )
    assert complete == (
        b"\x00\x01"
        + pid
        + b"\x00\x01"
        + timeout
        + b"\x04"
        + b"\x01"
        + time
        + time
        + b"\x02"
        + tag_0
        + version_tag
    )


def test_each_new_producer_id_is_told_to_the_retries_of_the_one_before_alone() -> None:
    scene = Scene()
    first = at_epoch(scene, 32_766)
    scene.add(first)
    scene.end(first)
    second = at_epoch(scene, 32_766)
    assert second.producer_id == 102
    scene.add(second)
    after = scene.end(second)
    assert after == ProducerIdAndEpoch(103, 0)
    assert scene.end(second) == after
    assert error_of(lambda: scene.end(first)) is BAD_ID
    assert error_of(lambda: scene.init(named=first)) is FENCED
