"""Transactional batches wait for their verification, and no answer lets one into a transaction that
it was not given for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.runtime.transaction_site import ID, NAME, TOPIC, VERSION_2, TransactionSite

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Response
from millstream.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.builder import BatchBuilder, BatchOptions


@pytest.fixture
def site(tmp_path: Path) -> Iterator[TransactionSite]:
    site = TransactionSite(tmp_path)
    yield site
    site.close()


def test_the_first_batch_waits_for_the_coordinator_and_the_next_one_does_not(
    site: TransactionSite,
) -> None:
    first = site.produce(b"a")
    assert first.waits
    request = site.coordinator.answer()
    (transaction,) = request.transactions
    assert (transaction.transactional_id, transaction.producer_id) == (NAME, ID)
    assert transaction.verify_only
    assert [(t.name, t.partitions) for t in transaction.topics] == [(TOPIC, [0])]
    assert first.error is ErrorCode.NONE
    assert site.produce(b"b", sequence=1).error is ErrorCode.NONE
    assert not site.coordinator.asked
    assert site.committed() == []
    assert site.end(commit=True) is ErrorCode.NONE
    assert site.committed() == [b"a", b"b"]


def test_a_coordinator_on_this_broker_that_knows_the_partition_is_not_waited_for(
    site: TransactionSite,
) -> None:
    site.coordinator.learn(0)
    first = site.produce(b"a")
    assert first.error is ErrorCode.NONE
    assert not site.coordinator.asked
    assert site.end(commit=True) is ErrorCode.NONE
    assert site.committed() == [b"a"]
    site.coordinator.known.clear()
    assert site.produce(b"late", sequence=1).waits, "the next transaction is verified anew"


def test_only_the_partition_and_the_epoch_that_are_asked_for_count(site: TransactionSite) -> None:
    site.coordinator.learn(1)
    site.coordinator.learn(0, epoch=1)
    assert site.produce(b"a").waits


def test_a_batch_does_not_overtake_one_that_waits(site: TransactionSite) -> None:
    first = site.produce(b"a")
    site.coordinator.learn(0)
    second = site.produce(b"b", sequence=1)
    assert first.waits
    assert second.waits
    site.coordinator.answer()
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.NONE)
    site.end(commit=True)
    assert site.committed() == [b"a", b"b"]


def test_what_a_coordinator_knows_does_not_let_an_older_epoch_in(site: TransactionSite) -> None:
    site.coordinator.learn(0, epoch=1)
    assert site.produce(b"a", epoch=1).error is ErrorCode.NONE
    site.end(commit=True, epoch=1)
    site.coordinator.learn(0)
    assert site.produce(b"b", sequence=1).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_version_2_has_its_partitions_added_whatever_is_known(site: TransactionSite) -> None:
    site.coordinator.learn(0, 1)
    both = site.produce(b"a", version=VERSION_2, indexes=(0, 1))
    assert both.waits
    (transaction,) = site.coordinator.answer().transactions
    assert not transaction.verify_only
    assert [(t.name, t.partitions) for t in transaction.topics] == [(TOPIC, [0, 1])]
    assert both.error is ErrorCode.NONE


def test_each_transaction_is_verified_anew(site: TransactionSite) -> None:
    site.produce(b"a")
    site.coordinator.answer()
    site.end(commit=True)
    late = site.produce(b"b", sequence=1)
    assert late.waits
    site.coordinator.answer(ErrorCode.INVALID_TXN_STATE)
    assert late.error is ErrorCode.INVALID_TXN_STATE
    assert site.committed() == [b"a"]
    assert site.partition().log.last_stable_offset == 2


def test_an_answer_about_a_transaction_that_has_ended_meanwhile_is_asked_for_again(
    site: TransactionSite,
) -> None:
    late = site.produce(b"late")
    site.end(commit=False)
    site.coordinator.answer()
    assert late.waits, "a marker came between: the answer is about what was before it"
    site.coordinator.answer(ErrorCode.INVALID_TXN_STATE)
    assert late.error is ErrorCode.INVALID_TXN_STATE
    assert site.partition().log_end_offset == 1, "the marker alone"


def test_markers_without_end_are_not_waited_for_without_end(site: TransactionSite) -> None:
    late = site.produce(b"late")
    while late.waits:
        site.end(commit=False)
        site.coordinator.answer()
    assert late.error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_version_2_adds_the_partition_and_begins_with_sequence_0(site: TransactionSite) -> None:
    first = site.produce(b"a", version=VERSION_2)
    request = site.coordinator.answer()
    assert not request.transactions[0].verify_only
    assert first.error is ErrorCode.NONE
    assert site.end(commit=True, epoch=1, transaction_version=2) is ErrorCode.NONE
    wrong = site.produce(b"b", version=VERSION_2, epoch=1, sequence=1)
    site.coordinator.answer()
    assert wrong.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    right = site.produce(b"b", version=VERSION_2, epoch=1, sequence=0)
    site.coordinator.answer()
    assert right.error is ErrorCode.NONE


def test_of_an_unknown_producer_version_2_takes_no_late_sequence(site: TransactionSite) -> None:
    wrong = site.produce(b"b", version=VERSION_2, sequence=3)
    site.coordinator.answer()
    assert wrong.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_marker_of_version_2_needs_a_larger_epoch_while_a_transaction_is_open(
    site: TransactionSite,
) -> None:
    site.produce(b"a", version=VERSION_2, epoch=4)
    site.coordinator.answer()
    assert site.end(commit=True, epoch=4, transaction_version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert site.end(commit=True, epoch=5, transaction_version=2) is ErrorCode.NONE
    again = site.end(commit=True, epoch=5, transaction_version=2)
    assert again is ErrorCode.NONE, "a marker may be written again"
    old = site.produce(b"b", version=VERSION_2, epoch=4, sequence=1)
    assert old.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not site.coordinator.asked


def test_an_older_coordinator_is_fenced(site: TransactionSite) -> None:
    assert site.end(commit=True, coordinator_epoch=3) is ErrorCode.NONE
    fenced = site.end(commit=True, coordinator_epoch=2)
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_batches_of_one_producer_keep_their_order_and_share_a_verification(
    site: TransactionSite,
) -> None:
    first, second = site.produce(b"a"), site.produce(b"b", sequence=1)
    assert len(site.coordinator.asked) == 1
    site.coordinator.answer()
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.NONE)
    assert not site.coordinator.asked
    site.end(commit=True)
    assert site.committed() == [b"a", b"b"]


def test_nobody_else_waits(site: TransactionSite) -> None:
    waiting = site.produce(b"a")
    plain = site.produce(b"p", producer_id=8, transactional=False)
    assert plain.error is ErrorCode.NONE
    other = site.produce(b"o", producer_id=9, name="other")
    assert waiting.waits
    assert other.waits
    site.coordinator.answer()
    assert waiting.error is ErrorCode.NONE
    assert other.waits, "one request at a time goes to a coordinator"
    site.coordinator.answer()
    assert other.error is ErrorCode.NONE


def test_partitions_and_transactions_share_a_request(site: TransactionSite) -> None:
    running = site.produce(indexes=(0, 1))
    others = [site.produce(producer_id=n, name=f"other-{n}", indexes=(2,)) for n in (8, 9)]
    assert [t.partitions for t in site.coordinator.answer().transactions[0].topics] == [[0, 1]]
    assert running.error is ErrorCode.NONE
    assert all(other.waits for other in others)
    request = site.coordinator.answer()
    assert [t.transactional_id for t in request.transactions] == ["other-8", "other-9"]
    assert [other.error for other in others] == [ErrorCode.NONE] * 2


def test_partitions_are_answered_for_themselves(site: TransactionSite) -> None:
    written = site.produce(indexes=(0, 1, 2))
    site.coordinator.answer(of={TopicPartition(TOPIC, 1): ErrorCode.TRANSACTION_ABORTABLE})
    assert [ErrorCode.of(each.error_code) for each in written.partitions] == [
        ErrorCode.NONE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.NONE,
    ]


@pytest.mark.parametrize(
    ("version", "answered", "told"),
    [
        (10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (11, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (11, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_a_producer_is_told(
    site: TransactionSite, version: int, answered: ErrorCode, told: ErrorCode
) -> None:
    written = site.produce(version=version)
    site.coordinator.answer(answered)
    assert written.error is told
    assert written.partitions[0].log_start_offset == -1
    assert site.partition().log_end_offset == 0


def test_a_coordinator_that_is_not_reached_is_tried_again(site: TransactionSite) -> None:
    written = site.produce()
    site.coordinator.fail(ErrorCode.REQUEST_TIMED_OUT)
    assert written.error is ErrorCode.NOT_ENOUGH_REPLICAS
    again = site.produce()
    site.coordinator.answer()
    assert again.error is ErrorCode.NONE


def test_version_2_waits_for_the_end_of_the_transaction_before(site: TransactionSite) -> None:
    written = site.produce(version=VERSION_2)
    site.coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert written.waits
    site.clock.advance(20)
    site.coordinator.answer()
    assert written.error is ErrorCode.NONE


def test_version_2_does_not_wait_for_ever(site: TransactionSite) -> None:
    written = site.produce(version=VERSION_2)
    for _ in range(6):
        site.coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        site.clock.advance(20)
    assert written.error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_lower_sequence_that_was_refused_goes_first(site: TransactionSite) -> None:
    first = site.produce(b"a")
    site.coordinator.answer(ErrorCode.NOT_COORDINATOR)
    assert first.error is ErrorCode.NOT_ENOUGH_REPLICAS
    second = site.produce(b"b", sequence=1)
    site.coordinator.answer()
    assert second.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    first = site.produce(b"a")
    site.coordinator.answer()
    assert first.error is ErrorCode.NONE


def test_a_newer_epoch_fences_an_older_one_that_waits(site: TransactionSite) -> None:
    blocking = site.produce(producer_id=9, name="other")
    old, new = site.produce(epoch=0), site.produce(epoch=1)
    assert old.error is ErrorCode.INVALID_PRODUCER_EPOCH
    site.coordinator.answer()
    site.coordinator.answer()
    assert (blocking.error, new.error) == (ErrorCode.NONE, ErrorCode.NONE)


def test_a_repeated_batch_of_an_open_transaction_is_a_success(site: TransactionSite) -> None:
    site.produce(b"a")
    site.coordinator.answer()
    again = site.produce(b"a")
    assert (again.error, again.partitions[0].base_offset) == (ErrorCode.NONE, 0)
    assert site.partition().log_end_offset == 1


def test_without_verification_older_clients_write_at_once(tmp_path: Path) -> None:
    site = TransactionSite(tmp_path, {"transaction.partition.verification.enable": "false"})
    assert site.produce(version=11).error is ErrorCode.NONE
    added = site.produce(version=12, producer_id=8, name="added")
    assert added.waits
    site.coordinator.answer()
    assert added.error is ErrorCode.NONE
    site.close()


def test_without_a_coordinator_nothing_is_written(site: TransactionSite) -> None:
    site.metadata.brokers.clear()
    assert site.produce().error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert not site.coordinator.asked


def test_whoever_waits_when_the_role_ends_is_refused(site: TransactionSite) -> None:
    written = site.produce()
    site.partition().fail(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert written.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    site.coordinator.answer()


def test_a_transactional_batch_needs_a_transactional_id(site: TransactionSite) -> None:
    refused = site.produce(name=None).error
    assert refused is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_markers_are_refused_where_nobody_leads(site: TransactionSite) -> None:
    unknown = site.end(commit=True, indexes=(0, 9))
    assert unknown is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def described(site: TransactionSite) -> list[ProducerState]:
    response = site.call(
        DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])]),
        0,
        DescribeProducersResponse,
    )
    return response.topics[0].partitions[0].active_producers


def test_an_open_transaction_is_described_and_can_be_ended_by_what_is_told(
    site: TransactionSite,
) -> None:
    site.produce(b"p", producer_id=8, transactional=False)
    site.produce(b"hangs", epoch=3)
    site.coordinator.answer()
    plain, hanging = sorted(described(site), key=lambda each: -each.producer_id)
    assert (plain.producer_id, plain.current_txn_start_offset) == (8, -1)
    assert (hanging.producer_id, hanging.producer_epoch) == (ID, 3)
    assert (hanging.current_txn_start_offset, hanging.coordinator_epoch) == (1, -1)
    ended = site.end(
        commit=False,
        epoch=hanging.producer_epoch,
        coordinator_epoch=max(0, hanging.coordinator_epoch),
    )
    assert ended is ErrorCode.NONE
    (_, hanging) = sorted(described(site), key=lambda each: -each.producer_id)
    assert (hanging.current_txn_start_offset, hanging.coordinator_epoch) == (-1, 0)
    assert site.committed() == [b"p"]


def test_a_request_holds_the_transaction_of_one_producer(site: TransactionSite) -> None:
    batches = []
    for producer_id in (7, 8):
        options = BatchOptions(
            producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        builder = BatchBuilder(options)
        builder.append(site.clock.now_ms(), None, b"v")
        batches.append(memoryview(bytearray(builder.build())))
    topic = TopicProduceData(
        name=TOPIC,
        partition_data=[
            PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)
        ],
    )
    request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=1000, topic_data=[topic])
    response = site.call(request, 11, ProduceResponse)
    codes = {each.error_code for each in response.responses[0].partition_responses}
    assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING.code}
    assert not site.coordinator.asked


def fetch(site: TransactionSite, *, min_bytes: int, committed: bool) -> Deferred[Response]:
    image = site.metadata.topic(TOPIC)
    assert image is not None
    partition = FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 20
    )
    return site.start(
        FetchRequest(
            max_wait_ms=60_000,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            isolation_level=int(committed),
            topics=[FetchTopic(topic_id=image.topic_id, partitions=[partition])],
            forgotten_topics_data=[],
        ),
        13,
    )


def test_a_committed_reader_that_waits_for_many_bytes_hears_of_the_end_of_a_transaction(
    site: TransactionSite,
) -> None:
    site.produce(b"v" * 2000)
    site.coordinator.answer()
    waiting = fetch(site, min_bytes=1000, committed=True)
    assert not waiting.done
    assert fetch(site, min_bytes=1000, committed=False).done
    site.end(commit=True)
    site.clock.settle()
    assert waiting.done


def test_a_committed_reader_is_told_what_to_leave_out(site: TransactionSite) -> None:
    site.produce(b"a")
    site.coordinator.answer()
    site.end(commit=False)
    response = fetch(site, min_bytes=1, committed=True).result()
    assert isinstance(response, FetchResponse)
    (partition,) = response.responses[0].partitions
    assert partition.last_stable_offset == partition.high_watermark == 2
    assert [
        (each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()
    ] == [(ID, 0)]
    response = fetch(site, min_bytes=1, committed=False).result()
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].aborted_transactions is None
