"""Transactions from the administrator's side, on scripted brokers."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from tests.client_twin import TwinBroker, TwinLoop
from tests.client_twin.loop import EPOCH_MS
from tests.client_twin.transactions import TransactionalCluster

from millstream.client.core.admin.core import AdminCore
from millstream.client.core.settings import AdminSettings, read_settings
from millstream.client.errors import BrokerError, UnsupportedVersionError
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from millstream.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from millstream.protocol.messages.describe_transactions import (
    TransactionState as DescribedTransaction,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

OLD_MS = 3_600_000


@dataclass
class Site:
    """Brokers whose partitions have producers, and coordinators that know some of them."""

    loop: TwinLoop
    cluster: TransactionalCluster
    admin: AdminCore
    open: dict[TopicPartition, list[ProducerState]] = field(default_factory=dict)
    known: dict[str, tuple[int, set[TopicPartition]]] = field(default_factory=dict)
    """Transactional id to producer id and partitions."""
    marked: list[tuple[int, TopicPartition, int]] = field(default_factory=list)
    """Broker, partition and epoch of each marker."""

    def producers(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, DescribeProducersRequest)
        topics = []
        for topic in request.topics:
            rows = []
            for index in topic.partition_indexes:
                leads = self.cluster.topics[topic.name].partitions[index].leader == broker.node_id
                error = ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
                rows.append(
                    PartitionResponse(
                        partition_index=index,
                        error_code=error.code,
                        error_message=None,
                        active_producers=self.open.get(TopicPartition(topic.name, index), []),
                    )
                )
            topics.append(TopicResponse(name=topic.name, partitions=rows))
        return DescribeProducersResponse(topics=topics)

    def list(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, ListTransactionsRequest)
        mine = broker.node_id == self.cluster.transaction_coordinator_id
        return ListTransactionsResponse(
            error_code=0,
            unknown_state_filters=[each for each in request.state_filters if each != "Ongoing"],
            transaction_states=[
                TransactionState(
                    transactional_id=name, producer_id=producer_id, transaction_state="Ongoing"
                )
                for name, (producer_id, _) in self.known.items()
                if mine
                and (not request.producer_id_filters or producer_id in request.producer_id_filters)
            ],
        )

    def describe(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, DescribeTransactionsRequest)
        rows = []
        for name in request.transactional_ids:
            producer_id, places = self.known.get(name, (-1, set()))
            error = ErrorCode.NONE if name in self.known else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            rows.append(
                DescribedTransaction(
                    error_code=error.code,
                    transactional_id=name,
                    transaction_state="Ongoing",
                    transaction_timeout_ms=60_000,
                    transaction_start_time_ms=EPOCH_MS,
                    producer_id=producer_id,
                    producer_epoch=0,
                    topics=[
                        TopicData(topic=each.topic, partitions=[each.partition]) for each in places
                    ],
                )
            )
        return DescribeTransactionsResponse(transaction_states=rows)

    def mark(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, WriteTxnMarkersRequest)
        (marker,) = request.markers
        assert not marker.transaction_result
        (topic,) = marker.topics
        (index,) = topic.partition_indexes
        leads = self.cluster.topics[topic.name].partitions[index].leader == broker.node_id
        error = ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if leads:
            place = TopicPartition(topic.name, index)
            self.marked.append((broker.node_id, place, marker.producer_epoch))
        row = WritableTxnMarkerPartitionResult(partition_index=index, error_code=error.code)
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[WritableTxnMarkerTopicResult(name=topic.name, partitions=[row])],
                )
            ]
        )


def site(brokers: int = 3) -> Site:
    loop = TwinLoop(0)
    cluster = TransactionalCluster(loop, range(1, brokers + 1))
    cluster.create_topic("t", 3)
    given = {"default_api_timeout_ms": 5000, "request_timeout_ms": 1000}
    settings = read_settings(AdminSettings, {"bootstrap.servers": cluster.bootstrap}, given)
    made = Site(loop, cluster, AdminCore(loop, settings))
    cluster.handlers |= {
        DescribeProducersRequest: made.producers,
        ListTransactionsRequest: made.list,
        DescribeTransactionsRequest: made.describe,
        WriteTxnMarkersRequest: made.mark,
    }
    return made


def producing(producer_id: int, start: int, *, ago_ms: int = OLD_MS) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=4,
        last_sequence=0,
        last_timestamp=EPOCH_MS - ago_ms,
        coordinator_epoch=7,
        current_txn_start_offset=start,
    )


def test_what_no_coordinator_knows_hangs() -> None:
    s = site()
    places = [TopicPartition("t", index) for index in range(3)]
    s.open = {
        places[0]: [producing(10, 5), producing(11, -1)],
        places[1]: [producing(12, 6), producing(13, 7)],
        places[2]: [producing(14, 8, ago_ms=1000), producing(10, 9)],
    }
    # 10 is known for partition 2 only, 12 is known with partition 1, 13 has no transactional id.
    s.known = {"a": (10, {places[2]}), "b": (12, {places[1]})}
    found = s.loop.run(s.admin.find_hanging_transactions(places))
    hanging = [(each.topic_partition, each.producer.producer_id) for each in found]
    assert hanging == [(places[0], 10), (places[1], 13)]


def test_a_hanging_transaction_is_ended_at_its_leader() -> None:
    s = site()
    place = TopicPartition("t", 1)
    s.open = {place: [producing(13, 7)]}
    found = s.loop.run(s.admin.find_open_transaction(place, 7))
    with pytest.raises(BrokerError, match="begins at offset 8"):
        s.loop.run(s.admin.find_open_transaction(place, 8))
    s.cluster.move_leader("t", 1, 3)
    s.loop.run(
        s.admin.abort_transaction(
            place,
            producer_id=found.producer.producer_id,
            producer_epoch=found.producer.producer_epoch,
            coordinator_epoch=found.producer.coordinator_epoch,
        )
    )
    assert s.marked == [(3, place, 4)]


def test_a_list_is_filtered_by_brokers_that_can() -> None:
    s = site()
    s.known = {"a": (10, set()), "b": (11, set())}
    listed = s.loop.run(s.admin.list_transactions(producer_ids=[11], pattern="b.*"))
    assert [each.transactional_id for each in listed] == ["b"]
    sent = s.cluster.asked(ListTransactionsRequest)
    assert len(sent) == 3
    assert {getattr(each, "transactional_id_pattern", None) for each in sent} == {"b.*"}
    with pytest.raises(ValueError, match="Sleeping"):
        s.loop.run(s.admin.list_transactions(states=["Sleeping"]))
    old = site(1)
    old.cluster.brokers[1].versions[ApiKey.LIST_TRANSACTIONS] = (0, 0)
    assert old.loop.run(old.admin.list_transactions()) == []
    with pytest.raises(UnsupportedVersionError, match="needs 1"):
        old.loop.run(old.admin.list_transactions(min_duration_ms=1))


def test_fencing_waits_until_what_was_open_is_aborted() -> None:
    s = site()
    left = [3]

    def busy(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, InitProducerIdRequest) or not left[0]:
            return None
        left[0] -= 1
        code = ErrorCode.CONCURRENT_TRANSACTIONS if left[0] else ErrorCode.NOT_COORDINATOR
        return InitProducerIdResponse(error_code=code.code, producer_epoch=-1)

    s.cluster.hooks.append(busy)
    fenced = s.loop.run(s.admin.fence_producers(["x", "y"])).get_all()
    assert {name: each.epoch for name, each in fenced.items()} == {"x": 0, "y": 0}
    again = s.loop.run(s.admin.fence_producers(["x"]))["x"].get()
    assert (again.producer_id, again.epoch) == (fenced["x"].producer_id, 1)


def test_each_transaction_has_its_own_outcome() -> None:
    s = site()
    s.known = {"a": (10, {TopicPartition("t", 2)})}
    outcomes = s.loop.run(s.admin.describe_transactions(["a", "b"]))
    assert outcomes["a"].get().partitions == (TopicPartition("t", 2),)
    assert outcomes.errors["b"].error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
