"""Reports of replicas that cannot be served: once, and again to whoever has not taken them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.controller.states import state
from tests.unit.runtime.cluster_site import Heard
from tests.unit.runtime.coordinator_site import HandClock

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.controller.context import TopicState
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.membership.offline_replica_reports import (
    INTERVAL_MS,
    OfflineReplicaReports,
    Replica,
)
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_cache import MetadataCache

TOPIC = TopicId(bytes(range(16)))


class Channel:
    """What was reported, and how the controller answers."""

    def __init__(self) -> None:
        self.reports: list[Sequence[Replica]] = []
        self.refusal: ErrorCode | None = None

    def report(self, replicas: Sequence[Replica]) -> Deferred[None]:
        self.reports.append(replicas)
        if self.refusal is None:
            return Deferred.of(None)
        outcome: Deferred[None] = Deferred()
        outcome.fail(KafkaError(self.refusal))
        return outcome


def test_a_report_is_repeated_until_it_is_taken_and_for_each_controller() -> None:
    channel, clock = Channel(), HandClock()
    offline = [TopicPartition("t", 0), TopicPartition("never-heard-of", 0)]
    config = DynamicConfig(BrokerConfig({"broker.id": "1"}))
    metadata = BrokerMetadata(BrokerId(1), MetadataCache("c"), config, listener=Heard())
    metadata.show(TopicState("t", TOPIC, (state((1,)),), {}))
    failed: list[TopicPartition] = []
    reports = OfflineReplicaReports(clock, metadata, lambda: failed, channel.report)
    reports.start()
    metadata.broker_epoch = 5
    clock.advance(10 * INTERVAL_MS)
    assert channel.reports == [], "there is nothing to report"
    failed += offline
    channel.refusal = ErrorCode.NETWORK_EXCEPTION
    clock.advance(INTERVAL_MS)
    channel.refusal = ErrorCode.NOT_CONTROLLER
    clock.advance(INTERVAL_MS)
    channel.refusal = None
    clock.advance(3 * INTERVAL_MS)
    assert channel.reports == [[(TOPIC, 0)]] * 3
    metadata.controller_epoch += 1
    clock.advance(3 * INTERVAL_MS)
    assert channel.reports == [[(TOPIC, 0)]] * 4
    failed.clear()
    clock.advance(INTERVAL_MS)
    assert channel.reports[-1] == []
    reports.stop()
    failed += offline
    clock.advance(3 * INTERVAL_MS)
    assert len(channel.reports) == 5
