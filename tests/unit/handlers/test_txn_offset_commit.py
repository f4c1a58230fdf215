"""TxnOffsetCommit, the markers that end its transactions, and OffsetFetch in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.group_calls import Calls
from tests.unit.runtime.coordinator_site import Site
from tests.unit.runtime.transaction_site import HandCoordinator

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.model.topic import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicId
from millstream.protocol.message import Response
from millstream.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from millstream.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

GROUP, NAME, ID = "readers", "payments", 7


class Broker(Calls):
    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.coordinator = HandCoordinator()
        super().__init__(directory, ask_coordinator=self.coordinator.send, settings=settings)
        self.site.create(TRANSACTION_STATE_TOPIC, 1, TopicId(b"t" * 16))
        self.site.create("t", 2, TopicId(b"d" * 16))
        self.group_partition = self.site.groups.partition_for(GROUP)

    def begin(
        self,
        offset: int,
        version: int = 3,
        *,
        epoch: int = 0,
        producer_id: int = ID,
        **fields: object,
    ) -> Deferred[Response]:
        topics = fields.pop("topics", {"t": [0]})
        assert isinstance(topics, dict)
        request = TxnOffsetCommitRequest(
            transactional_id=f"{NAME}-{producer_id}",
            group_id=GROUP,
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata="m"
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in topics.items()
            ],
            **fields,
        )
        return self.start(request, version)

    def commit(self, offset: int, version: int = 3, **fields: object) -> ErrorCode:
        """Commit in a transaction that the coordinator knows."""
        answer = self.begin(offset, version, **fields)  # type: ignore[arg-type]
        while self.coordinator.asked:
            self.coordinator.answer()
            self.site.clock.settle()
        return error_of(answer)

    def end(
        self, *, commit: bool, epoch: int = 0, transaction_version: int = 0, producer_id: int = ID
    ) -> ErrorCode:
        response = self.call(
            WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        transaction_result=commit,
                        coordinator_epoch=0,
                        transaction_version=transaction_version,
                        topics=[
                            WritableTxnMarkerTopic(
                                name=GROUP_METADATA_TOPIC, partition_indexes=[self.group_partition]
                            )
                        ],
                    )
                ]
            ),
            2,
            WriteTxnMarkersResponse,
        )
        return ErrorCode.of(response.markers[0].topics[0].partitions[0].error_code)

    def fetch(self, *, stable: bool = False) -> int | ErrorCode:
        response = self.call(
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=GROUP,
                        topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
                    )
                ],
                require_stable=stable,
            ),
            8,
            OffsetFetchResponse,
        )
        partition = response.groups[0].topics[0].partitions[0]
        if partition.error_code:
            return ErrorCode.of(partition.error_code)
        return partition.committed_offset

    def commit_plainly(self, offset: int) -> None:
        response = self.call(
            OffsetCommitRequest(
                group_id=GROUP,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[
                    OffsetCommitRequestTopic(
                        name="t",
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=0, committed_offset=offset, committed_metadata=None
                            )
                        ],
                    )
                ],
            ),
            8,
            OffsetCommitResponse,
        )
        assert response.topics[0].partitions[0].error_code == 0

    def restart(self) -> None:
        """Load the group coordinator again from its log."""
        self.site.groups.stop()
        self.site.groups.start()
        self.site.clock.settle()


def error_of(answer: Deferred[Response]) -> ErrorCode:
    response = answer.result()
    assert isinstance(response, TxnOffsetCommitResponse)
    return ErrorCode.of(response.topics[0].partitions[0].error_code)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.site.close()


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("version", [0, 2, 3, 4, 5])
def test_a_commit_counts_when_its_transaction_is_committed(
    broker: Broker, version: int, loaded: bool
) -> None:
    broker.commit_plainly(1)
    assert broker.commit(5, version) is ErrorCode.NONE
    if loaded:
        broker.restart()
    assert broker.fetch() == 1
    assert broker.fetch(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert broker.end(commit=True) is ErrorCode.NONE
    if loaded:
        broker.restart()
    assert broker.fetch(stable=True) == 5


@pytest.mark.parametrize("loaded", [False, True])
def test_a_commit_vanishes_when_its_transaction_is_aborted(broker: Broker, loaded: bool) -> None:
    broker.commit_plainly(1)
    broker.commit(5)
    assert broker.end(commit=False) is ErrorCode.NONE
    if loaded:
        broker.restart()
    assert broker.fetch(stable=True) == 1


def test_version_5_adds_the_groups_partition_and_version_4_verifies_it(broker: Broker) -> None:
    for version, verify_only in ((4, True), (5, False)):
        answer = broker.begin(5, version, producer_id=version)
        assert not answer.done
        transaction = broker.coordinator.answer().transactions[0]
        assert transaction.verify_only is verify_only
        assert transaction.topics[0].name == GROUP_METADATA_TOPIC
        assert transaction.topics[0].partitions == [broker.group_partition]
        broker.site.clock.settle()
        assert error_of(answer) is ErrorCode.NONE


def test_an_open_transaction_is_not_verified_again(broker: Broker) -> None:
    broker.commit(5)
    assert error_of(broker.begin(6)) is ErrorCode.NONE
    assert not broker.coordinator.asked
    broker.end(commit=True)
    assert broker.fetch() == 6


def test_a_marker_that_comes_while_the_coordinator_is_asked_lets_nothing_in(
    broker: Broker,
) -> None:
    late = broker.begin(5)
    assert broker.end(commit=False) is ErrorCode.NONE
    broker.coordinator.answer()
    broker.site.clock.settle()
    assert not late.done
    broker.coordinator.answer(ErrorCode.INVALID_TXN_STATE)
    broker.site.clock.settle()
    assert error_of(late) is ErrorCode.INVALID_TXN_STATE
    assert broker.fetch(stable=True) == -1


@pytest.mark.parametrize(
    ("version", "answered", "told"),
    [
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (3, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (3, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_what_the_producer_is_told(
    broker: Broker, version: int, answered: ErrorCode, told: ErrorCode
) -> None:
    answer = broker.begin(5, version)
    broker.coordinator.answer(answered)
    broker.site.clock.settle()
    assert error_of(answer) is told
    assert broker.fetch(stable=True) == -1


def test_an_older_epoch_is_fenced(broker: Broker) -> None:
    broker.commit(5, 5, epoch=3)
    assert broker.end(commit=True, epoch=4, transaction_version=2) is ErrorCode.NONE
    assert broker.commit(6, 5, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    stale = broker.end(commit=True, epoch=3, transaction_version=2)
    assert stale is ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.commit(6, 5, epoch=4) is ErrorCode.NONE
    assert broker.fetch() == 5


def test_without_verification_an_older_epoch_is_fenced_before_it_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(tmp_path, {"transaction.partition.verification.enable": "false"})
    assert broker.commit(5, epoch=3) is ErrorCode.NONE
    assert broker.end(commit=True, epoch=4) is ErrorCode.NONE
    late, bystander = broker.begin(6, epoch=3), broker.begin(7, producer_id=8)
    broker.site.clock.settle()
    assert error_of(late) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert error_of(bystander) is ErrorCode.NONE
    assert "failed" not in caplog.text, "no state was given up and loaded again"
    assert broker.end(commit=True, producer_id=8) is ErrorCode.NONE
    assert broker.fetch(stable=True) == 7
    broker.site.close()


def test_a_later_commit_outside_of_the_transaction_stays(broker: Broker) -> None:
    broker.commit(5)
    broker.commit_plainly(9)
    broker.end(commit=True)
    assert broker.fetch(stable=True) == 9


def test_two_transactions_of_one_partition(broker: Broker) -> None:
    broker.commit(5, producer_id=7)
    broker.commit(6, producer_id=8)
    broker.end(commit=True, producer_id=7)
    assert broker.fetch() == 5
    assert broker.fetch(stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    broker.end(commit=True, producer_id=8)
    assert broker.fetch(stable=True) == 6


def test_commits_of_many_producers_wait_for_one_flush(broker: Broker) -> None:
    offload, clock = broker.site.offload, broker.site.clock
    broker.commit_plainly(1)
    offload.held = True
    first = broker.begin(5, producer_id=100)
    broker.coordinator.answer()
    clock.settle()
    later = [broker.begin(5, producer_id=each) for each in range(101, 131)]
    while broker.coordinator.asked:
        broker.coordinator.answer()
        clock.settle()
    offload.release()
    clock.settle()
    assert first.done
    assert not any(answer.done for answer in later)
    offload.release()
    clock.settle()
    assert [error_of(answer) for answer in later] == [ErrorCode.NONE] * 30
    offload.held = False
    for each in range(100, 131):
        assert broker.end(commit=True, producer_id=each) is ErrorCode.NONE
    assert broker.fetch(stable=True) == 5


def test_hundreds_of_producers_commit_in_one_pass_of_the_loop(broker: Broker) -> None:
    answers = [broker.begin(5, producer_id=each) for each in range(500)]
    while broker.coordinator.asked:
        broker.coordinator.answer()
        broker.site.clock.settle()
    assert {error_of(answer) for answer in answers} == {ErrorCode.NONE}


def test_members_are_checked_where_they_are_named(broker: Broker) -> None:
    assert broker.commit(5, generation_id=3) is ErrorCode.ILLEGAL_GENERATION, "no such group"
    broker.commit_plainly(1)
    assert broker.commit(5, member_id="who", generation_id=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert broker.commit(5) is ErrorCode.NONE


def test_partitions_that_do_not_exist(broker: Broker) -> None:
    answer = broker.begin(5, topics={"t": [0, 9], "absent": [0]})
    broker.coordinator.answer()
    broker.site.clock.settle()
    response = answer.result()
    assert isinstance(response, TxnOffsetCommitResponse)
    errors = {
        (topic.name, each.partition_index): ErrorCode.of(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
    assert errors == {
        ("t", 0): ErrorCode.NONE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert error_of(broker.begin(5, topics={"absent": [0]})) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not broker.coordinator.asked


def test_a_group_that_is_deleted_takes_pending_offsets_with_it(broker: Broker) -> None:
    broker.commit(5)
    deleted = broker.call(DeleteGroupsRequest(groups_names=[GROUP]), 2, DeleteGroupsResponse)
    assert deleted.results[0].error_code == 0
    broker.end(commit=True)
    assert broker.fetch(stable=True) == -1


def test_a_marker_for_a_partition_that_is_not_coordinated_here(broker: Broker) -> None:
    site: Site = broker.site
    partition = site.partitions.get(GROUP_METADATA_TOPIC, broker.group_partition)
    slots = site.partitions.by_name[GROUP_METADATA_TOPIC]
    slots[broker.group_partition] = None
    assert broker.end(commit=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    slots[broker.group_partition] = partition
    assert broker.end(commit=True) is ErrorCode.NONE
