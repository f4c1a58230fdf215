"""Requests of transactional producers, over real logs; markers arrive in the partitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.handlers.transaction_broker import (
    ID,
    TransactionBroker,
    codes_of,
    transaction,
)

from millstream.config.topic import TopicConfig
from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
from millstream.coordinator.transaction.records import decode_record, transaction_from
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER
from millstream.model.topic import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from millstream.protocol.messages.coordinator_records import TransactionLogValue
from millstream.records.batch import iter_batches
from millstream.records.control import ControlType, MarkerBatch, parse_marker
from millstream.records.record import iter_records
from millstream.runtime.coordinators import marker_writes
from millstream.runtime.coordinators.coordinator_writes import LINGER_MS
from millstream.runtime.coordinators.transaction_coordinator_runtime import MetadataView
from millstream.runtime.replicas.partition import Partition

NONE = ErrorCode.NONE.code
FENCED = ErrorCode.PRODUCER_FENCED.code
BAD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH.code
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS.code
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED.code
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE.code


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TransactionBroker]:
    made = TransactionBroker(tmp_path)
    made.create("t", 4)
    made.find()
    yield made
    made.close()


def write(broker: TransactionBroker, producer: tuple[int, int], index: int) -> None:
    """Append a batch to the transaction, as a verified Produce would."""
    sequences = broker.partitions.get("t", index).log.producers.active()
    first = 0
    for each in sequences:
        if (each.producer_id, each.producer_epoch) == producer:
            first = each.last_sequence + 1
    broker.fill(
        "t",
        b"value",
        index=index,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=first,
        is_transactional=True,
    )


def markers(broker: TransactionBroker, topic: str, index: int) -> list[tuple[int, int, bool, int]]:
    """Return producer id, epoch, whether it is a commit, and coordinator epoch of each marker."""
    log = broker.partitions.get(topic, index).log
    read = log.reader.read(
        0, max_bytes=1 << 20, upper_bound_offset=log.log_end_offset, min_one_batch=True
    )
    found = []
    if read.records is not None:
        for batch in iter_batches(read.records.read()):
            marker = parse_marker(batch) if batch.is_control else None
            if marker is not None:
                is_commit = marker.control_type is ControlType.COMMIT
                found.append(
                    (batch.producer_id, batch.producer_epoch, is_commit, marker.coordinator_epoch)
                )
    return found


def test_the_first_question_for_a_coordinator_creates_its_topic(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path, {"transaction.state.log.num.partitions": "7"})
    assert broker.init()[0] == ErrorCode.NOT_COORDINATOR.code
    (found,) = broker.find().coordinators
    assert (found.error_code, found.node_id) == (NONE, 1)
    image = broker.metadata.topic(TRANSACTION_STATE_TOPIC)
    assert image is not None
    assert len(image.partitions) == 7
    assert image.config.value("cleanup.policy") == ("compact",)
    assert image.config.value("compression.type") == "uncompressed"
    assert broker.init() == (NONE, 0, 0)
    broker.close()


def test_what_is_not_committed_yet_is_not_said_at_once(broker: TransactionBroker) -> None:
    producer = broker.init()[1:]
    runtime = broker.services.transaction_runtime()
    assert broker.add(3, producer, {"t": [0]}) == {("t", 0): NONE}

    def is_known(index: int, epoch: int = producer[1]) -> bool:
        named = ProducerIdAndEpoch(producer[0], epoch)
        return runtime.has_partition(ID, named, TopicPartition("t", index))

    assert is_known(0)
    assert not is_known(1)
    assert not is_known(0, epoch=producer[1] + 1)
    state = broker.partitions.get(TRANSACTION_STATE_TOPIC, runtime.partition_for(ID))
    runtime.add_partitions(
        ID, ProducerIdAndEpoch(*producer), {"t": frozenset({1})}, client_version=0
    )
    assert not is_known(1), "its record is not in the log yet"
    assert not is_known(0), "an answer may rest on what is not committed"
    broker.clock.settle()
    assert is_known(1)
    state.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert not is_known(1), "another broker may say otherwise by now"


def test_a_coordinator_that_is_not_here_says_nothing(broker: TransactionBroker) -> None:
    runtime = broker.services.transaction_runtime()
    asked = ProducerIdAndEpoch(0, 0)
    assert not runtime.has_partition("never seen", asked, TopicPartition("t", 0))


def test_partitions_are_told_apart_by_who_leads_them(broker: TransactionBroker) -> None:
    view = MetadataView(broker.metadata, BrokerId(1))
    assert view.leaders_of("t", {0, 3}) == {1: {0, 3}}
    assert view.leaders_of("t", {0, 4, 9}) == {1: {0}, None: {4, 9}}
    assert view.leaders_of("absent", {2}) == {None: {2}}
    image = broker.metadata.topic("t")
    assert image is not None
    states = list(image.partitions)
    states[1] = replace(states[1], leader=NO_LEADER)
    states[2] = replace(states[2], leader=BrokerId(5))  # which is not alive
    broker.metadata.update(replace(image, partitions=tuple(states)))
    assert view.leaders_of("t", {0, 1, 2, 3}) == {1: {0, 3}, NO_LEADER: {1, 2}}
    assert view.leaders_of("t", {1, 2}) == {NO_LEADER: {1, 2}}


def test_a_transaction_of_version_1(broker: TransactionBroker) -> None:
    producer = broker.init()[1:]
    assert broker.add(3, producer, {"t": [0, 2]}) == {("t", 0): NONE, ("t", 2): NONE}
    write(broker, producer, 0)
    assert broker.partitions.get("t", 0).log.last_stable_offset == 0
    assert broker.described().transaction_state == "Ongoing"
    assert broker.end(4, producer)[0] == NONE
    assert markers(broker, "t", 0) == [(0, 0, True, 0)]
    assert markers(broker, "t", 1) == []
    assert markers(broker, "t", 2) == [(0, 0, True, 0)]
    assert broker.partitions.get("t", 0).log.last_stable_offset == 2
    assert broker.described().transaction_state == "CompleteCommit"
    assert broker.end(4, producer)[0] == NONE, "a retry"


def written_states(broker: TransactionBroker, transactional_id: str = ID) -> list[list[str]]:
    """Return the states in the coordinator's log, batch by batch, of the partition of an id."""
    index = broker.services.transaction_runtime().partition_for(transactional_id)
    log = broker.partitions.get(TRANSACTION_STATE_TOPIC, index).log
    read = log.reader.read(
        0, max_bytes=1 << 20, upper_bound_offset=log.log_end_offset, min_one_batch=True
    )
    assert read.records is not None
    found = []
    for batch in iter_batches(read.records.read()):
        states = []
        for record in iter_records(batch):
            assert record.key is not None
            decoded = decode_record(record.key, record.value)
            assert decoded is not None
            assert isinstance(decoded.value, TransactionLogValue)
            states.append(transaction_from(decoded.value).state.name)
        found.append(states)
    return found


BEGUN = [["EMPTY"], ["ONGOING"], ["PREPARE_COMMIT"]]


def test_the_end_of_a_transaction_shares_the_batch_of_the_next_one(
    broker: TransactionBroker,
) -> None:
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    write(broker, producer, 0)
    assert broker.end(3, producer)[0] == NONE
    assert markers(broker, "t", 0) == [(0, 0, True, 0)], "committed readers wait for nothing"
    assert written_states(broker) == BEGUN
    assert broker.add(3, producer, {"t": [1]}) == {("t", 1): NONE}
    assert written_states(broker) == [*BEGUN, ["COMPLETE_COMMIT", "ONGOING"]]
    broker.clock.advance(100)
    assert len(written_states(broker)) == 4


def test_the_end_is_stored_soon_where_no_transaction_follows(broker: TransactionBroker) -> None:
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    broker.end(3, producer)
    broker.clock.advance(int(LINGER_MS) - 1)
    assert written_states(broker) == BEGUN
    broker.clock.advance(1)
    assert written_states(broker) == [*BEGUN, ["COMPLETE_COMMIT"]]


def test_whoever_hears_of_the_end_hears_what_is_stored(broker: TransactionBroker) -> None:
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    broker.end(3, producer)
    assert written_states(broker) == BEGUN
    assert broker.described().transaction_state == "CompleteCommit"
    assert written_states(broker) == [*BEGUN, ["COMPLETE_COMMIT"]]


def test_a_marker_that_fails_as_nobody_foresaw_is_written_later(
    broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0, 1]})
    wanted = broker.partitions.get("t", 1)
    original = marker_writes.append_marker

    def fails(partition: Partition, batch: MarkerBatch, *, transaction_version: int) -> object:
        if partition is wanted:
            raise ValueError("there is a bug")
        return original(partition, batch, transaction_version=transaction_version)

    monkeypatch.setattr(marker_writes, "append_marker", fails)
    broker.end(3, producer)
    assert (markers(broker, "t", 0), markers(broker, "t", 1)) == ([(0, 0, True, 0)], [])
    assert "there is a bug" in caplog.text
    monkeypatch.undo()
    broker.clock.advance(1_000)
    assert markers(broker, "t", 1) == [(0, 0, True, 0)]
    assert markers(broker, "t", 0) == [(0, 0, True, 0)], "that one is there"


def test_a_clean_stop_stores_the_end(broker: TransactionBroker) -> None:
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    write(broker, producer, 0)
    broker.end(3, producer)
    assert written_states(broker) == BEGUN
    settled = broker.services.transaction_runtime().settle()
    assert not settled.done, "it waits until that is committed"
    broker.clock.settle()
    settled.result()
    assert written_states(broker) == [*BEGUN, ["COMPLETE_COMMIT"]]
    broker.services.transactions.stop()
    broker.services.transactions.start()
    broker.clock.advance(100)
    assert markers(broker, "t", 0) == [(0, 0, True, 0)], "no marker is written again"


def test_a_stop_does_not_mind_a_coordinator_that_cannot_write(broker: TransactionBroker) -> None:
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    broker.end(3, producer)
    runtime = broker.services.transaction_runtime()
    state = broker.partitions.get(TRANSACTION_STATE_TOPIC, runtime.partition_for(ID))
    state.fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    runtime.settle().result()


def test_an_end_that_is_lost_is_found_out_again(broker: TransactionBroker) -> None:
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    write(broker, producer, 0)
    broker.end(3, producer)
    assert written_states(broker) == BEGUN
    broker.services.transactions.stop()
    broker.services.transactions.start()
    broker.clock.advance(100)
    assert written_states(broker) == [*BEGUN, ["COMPLETE_COMMIT"]]
    assert markers(broker, "t", 0) == [(0, 0, True, 0)] * 2, "which harms nobody"
    assert broker.partitions.get("t", 0).log.last_stable_offset == 3


def test_the_end_of_another_transaction_holds_no_verification_up(
    broker: TransactionBroker,
) -> None:
    runtime = broker.services.transaction_runtime()
    index = runtime.partition_for(ID)
    other = next(
        each for each in map("id {}".format, range(100)) if runtime.partition_for(each) == index
    )
    running = ProducerIdAndEpoch(*broker.init(transactional_id=other)[1:])
    runtime.add_partitions(other, running, {"t": frozenset({1})}, client_version=0)
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    broker.end(3, producer)
    assert written_states(broker)[-1] == ["PREPARE_COMMIT"]
    assert runtime.has_partition(other, running, TopicPartition("t", 1))
    assert not runtime.has_partition(ID, ProducerIdAndEpoch(*producer), TopicPartition("t", 0))


def test_ends_that_no_single_batch_holds_hold_no_verification_up(
    broker: TransactionBroker,
) -> None:
    runtime = broker.services.transaction_runtime()
    index = runtime.partition_for(ID)
    state = broker.partitions.get(TRANSACTION_STATE_TOPIC, index)
    state.set_config(TopicConfig({"max.message.bytes": "700"}))
    long_ids = (f"{number} {'x' * 300}" for number in range(100))
    ended = [each for each in long_ids if runtime.partition_for(each) == index][:3]
    producer = ProducerIdAndEpoch(*broker.init()[1:])
    producers = {
        each: ProducerIdAndEpoch(*broker.init(transactional_id=each)[1:]) for each in ended
    }
    for each, own in {**producers, ID: producer}.items():
        runtime.add_partitions(each, own, {"t": frozenset({1})}, client_version=0)
        broker.clock.settle()
    for each, own in producers.items():
        runtime.end_transaction(each, own, commit=True, bumps_epoch=False)
    broker.clock.settle()
    written = len(written_states(broker))
    assert runtime.has_partition(ID, producer, TopicPartition("t", 1))
    broker.clock.advance(int(LINGER_MS))
    # The markers of two were written by one request.
    assert written_states(broker)[written:] == [["COMPLETE_COMMIT"]] * 2


def test_transactions_of_version_2(broker: TransactionBroker) -> None:
    producer = broker.init()[1:]
    for epoch, commit in enumerate((True, False, True)):
        assert producer == (0, epoch)
        answer = broker.add_all([transaction(producer, {"t": [1]})])
        assert codes_of(answer.results_by_transaction[0].topic_results) == {("t", 1): NONE}
        write(broker, producer, 1)
        ended = broker.end(5, producer, commit=commit)
        assert ended == (NONE, 0, epoch + 1)
        assert broker.end(5, producer, commit=commit) == ended, "a retry"
        producer = ended[1:]
    assert markers(broker, "t", 1) == [(0, 1, True, 0), (0, 2, False, 0), (0, 3, True, 0)]


def test_one_partition_that_does_not_exist_keeps_the_others_out(
    broker: TransactionBroker,
) -> None:
    producer = broker.init()[1:]
    codes = broker.add(3, producer, {"t": [0, 9], "missing": [1]})
    assert codes == {("t", 0): NOT_ATTEMPTED, ("t", 9): UNKNOWN, ("missing", 1): UNKNOWN}
    assert broker.described().topics == []


@pytest.mark.parametrize(
    ("versions", "code"), [(range(2), BAD_EPOCH), (range(2, 4), FENCED)], ids=["old", "new"]
)
def test_a_fenced_producer_hears_what_its_version_knows(
    broker: TransactionBroker, versions: range, code: int
) -> None:
    zombie = broker.init()[1:]
    broker.init()
    for version in versions:
        assert broker.add(version, zombie, {"t": [0]}) == {("t", 0): code}
        assert broker.add_offsets(version, zombie) == code
        assert broker.end(version, zombie)[0] == code
    assert broker.init(3, named=zombie)[0] == BAD_EPOCH
    assert broker.init(4, named=zombie)[0] == FENCED


def test_brokers_verify_and_add_for_several_transactions_at_once(
    broker: TransactionBroker,
) -> None:
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    answer = broker.add_all(
        [
            transaction(producer, {"t": [0, 1]}, verify_only=True),
            transaction((5, 0), {"t": [0]}, "other"),
        ]
    )
    assert answer.error_code == NONE
    codes = {
        each.transactional_id: codes_of(each.topic_results)
        for each in answer.results_by_transaction
    }
    assert codes == {
        ID: {("t", 0): NONE, ("t", 1): ABORTABLE},
        "other": {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING.code},
    }


@pytest.mark.parametrize("version", range(5))
def test_the_offsets_of_a_group_join_a_transaction(broker: TransactionBroker, version: int) -> None:
    producer = broker.init()[1:]
    assert broker.add_offsets(version, producer) == NONE
    image = broker.metadata.topic(GROUP_METADATA_TOPIC)
    assert image is not None
    index = group_partition("g", len(image.partitions))
    (topic,) = broker.described().topics
    assert (topic.topic, topic.partitions) == (GROUP_METADATA_TOPIC, [index])
    assert broker.end(3, producer)[0] == NONE
    assert markers(broker, GROUP_METADATA_TOPIC, index) == [(0, 0, True, 0)]


def test_a_timeout_above_the_largest_is_refused(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path, {"transaction.max.timeout.ms": "1000"})
    broker.find()
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT.code
    assert broker.init(timeout_ms=1_001) == (code, -1, -1)
    assert broker.init(timeout_ms=1_000)[0] == NONE
    broker.close()


def test_a_transaction_that_takes_too_long_is_aborted_at_the_next_look(tmp_path: Path) -> None:
    broker = TransactionBroker(
        tmp_path, {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "3000"}
    )
    broker.create("t", 1)
    broker.find()
    producer = broker.init(timeout_ms=1_000)[1:]
    broker.add(3, producer, {"t": [0]})
    write(broker, producer, 0)
    broker.clock.advance(2_900)
    assert broker.described().transaction_state == "Ongoing"
    broker.clock.advance(200)
    assert broker.described().transaction_state == "CompleteAbort"
    assert markers(broker, "t", 0) == [(0, 1, False, 0)]
    assert broker.end(3, producer)[0] == FENCED
    broker.close()


def test_a_transaction_at_the_last_epoch_times_out_into_another_producer_id(tmp_path: Path) -> None:
    broker = TransactionBroker(
        tmp_path, {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "3000"}
    )
    broker.create("t", 1)
    broker.find()
    producer_id = broker.init(timeout_ms=1_000)[1]
    broker.jump(32_766)
    broker.add(3, (producer_id, 32_766), {"t": [0]})
    broker.clock.advance(3_100)
    described = broker.described()
    assert described.transaction_state == "CompleteAbort"
    assert (described.producer_id, described.producer_epoch) == (producer_id + 1, 0)
    assert broker.init()[1:] == (producer_id + 1, 1)
    broker.close()


def test_an_id_that_nobody_uses_expires(tmp_path: Path) -> None:
    broker = TransactionBroker(
        tmp_path,
        {
            "transactional.id.expiration.ms": "5000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
        },
    )
    broker.find()
    producer = broker.init()[1:]
    broker.clock.advance(4_500)
    assert broker.described().transaction_state == "Empty"
    broker.clock.advance(1_500)
    assert broker.described().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.code
    assert broker.end(3, producer)[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING.code
    broker.close()


def test_a_coordinator_that_is_started_again_goes_on_where_it_was(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    broker.create("t", 1)
    broker.find()
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    write(broker, producer, 0)
    broker.services.transactions.stop()
    assert broker.described().transaction_state == "Ongoing", "loaded again"
    broker.offload.held = True
    broker.services.transactions.stop()
    assert broker.end(3, producer)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code
    broker.offload.held = False
    broker.offload.release()
    assert broker.end(3, producer)[0] == NONE
    assert broker.described().transaction_state == "CompleteCommit"
    broker.close()


def test_markers_of_a_decided_transaction_are_written_after_a_restart(tmp_path: Path) -> None:
    broker = TransactionBroker(tmp_path)
    broker.create("t", 1)
    broker.find()
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    write(broker, producer, 0)
    image = broker.metadata.remove("t")
    assert image is not None
    assert broker.end(3, producer)[0] == NONE
    assert broker.described().transaction_state == "PrepareCommit"
    assert broker.init()[0] == CONCURRENT
    broker.services.transactions.stop()
    broker.metadata.update(image)
    broker.described()
    broker.clock.settle()
    assert broker.described().transaction_state == "CompleteCommit"
    assert markers(broker, "t", 0) == [(0, 0, True, 0)]
    broker.close()


def test_descriptions_have_an_error_for_each_id(broker: TransactionBroker) -> None:
    assert broker.described("nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.code
    assert broker.described("").error_code == ErrorCode.INVALID_REQUEST.code
    broker.init()
    described = broker.described()
    assert (described.transaction_state, described.transaction_start_time_ms) == ("Empty", -1)


def test_ids_are_listed_by_every_filter(broker: TransactionBroker) -> None:
    names = [f"{kind}-{number}" for kind in ("pay", "ship") for number in range(5)]
    for name in names:
        assert broker.init(transactional_id=name)[0] == NONE
    producer = broker.init()[1:]
    broker.add(3, producer, {"t": [0]})
    broker.clock.advance(5_000)

    def listed(version: int = 2, **filters: object) -> list[str]:
        answer = broker.list_all(version, **filters)
        assert answer.error_code == NONE
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert listed(0) == sorted([*names, ID])
    assert listed(state_filters=["Ongoing"]) == [ID]
    assert listed(1, duration_filter=4_999, state_filters=["Ongoing"]) == [ID]
    assert listed(1, duration_filter=5_000, state_filters=["Ongoing"]) == []
    assert listed(producer_id_filters=[producer[0]]) == [ID]
    assert listed(transactional_id_pattern="pay-[0-2]") == ["pay-0", "pay-1", "pay-2"]
    assert listed(transactional_id_pattern="pay") == [], "the whole id has to match"
    assert listed(transactional_id_pattern="") == sorted([*names, ID])
    answer = broker.list_all(state_filters=["Empty", "Nonsense", "empty"])
    assert sorted(answer.unknown_state_filters) == ["Nonsense", "empty"]
    assert len(answer.transaction_states) == len(names)


@pytest.mark.parametrize("pattern", ["(", "a" * 5_000, "(?=a)", "((a{100}){100}){100}"])
def test_an_expression_that_re2_does_not_take_is_refused(
    broker: TransactionBroker, pattern: str
) -> None:
    answer = broker.list_all(transactional_id_pattern=pattern)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION.code
    assert not answer.transaction_states


def test_a_list_is_refused_while_a_coordinator_loads(broker: TransactionBroker) -> None:
    broker.init()
    broker.services.transactions.stop()
    broker.offload.held = True
    broker.services.transactions.start()
    assert broker.list_all().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code
    broker.offload.held = False
    broker.offload.release()
    assert [each.transactional_id for each in broker.list_all().transaction_states] == [ID]
