"""Reports of replicas that cannot be served: once, and again to whoever has not heard."""

from __future__ import annotations

from collections.abc import Collection

from tests.unit.controller.states import state

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.controller.context import TopicState
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.report_offline import (
    ReportOfflineRequest,
    ReportOfflineResponse,
)
from millstream.runtime.membership.offline_reporter import OfflineReporter, Place
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_cache import MetadataCache

TOPIC = TopicId(bytes(range(16)))


class Line:
    """What was reported, and what is answered."""

    broker_id = BrokerId(1)

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.here: list[Collection[Place]] = []
        self.answer = ErrorCode.NONE
        self.is_cut = False

    def send(self, broker_id: BrokerId, request: Request, timeout_ms: float) -> Deferred[Response]:
        assert isinstance(request, ReportOfflineRequest)
        self.sent.append(len(request.replicas))
        outcome: Deferred[Response] = Deferred()
        if self.is_cut:
            outcome.fail(KafkaError(ErrorCode.NETWORK_EXCEPTION))
        else:
            outcome.complete(ReportOfflineResponse(error_code=self.answer.code))
        return outcome

    def report_here(self, broker_epoch: int, places: Collection[Place]) -> Deferred[None]:
        self.here.append(places)
        return Deferred.of(None)


def test_a_report_is_repeated_until_it_is_taken_and_for_each_controller() -> None:
    line = Line()
    offline = [TopicPartition("t", 0), TopicPartition("never-heard-of", 0)]
    local = BrokerMetadata(
        BrokerId(1), MetadataCache("c"), DynamicConfig(BrokerConfig({"broker.id": "1"}))
    )
    local.show(TopicState("t", TOPIC, (state((1,)),), {}))
    local.cache.controller_id = BrokerId(2)
    failed: list[TopicPartition] = []
    reporter = OfflineReporter(line, lambda: failed)
    reporter.look(local)
    local.broker_epoch = 5
    reporter.look(local)
    assert line.sent == [], "there is nothing to tell"
    failed += offline
    line.is_cut = True
    reporter.look(local)
    line.is_cut, line.answer = False, ErrorCode.NOT_CONTROLLER
    reporter.look(local)
    line.answer = ErrorCode.NONE
    reporter.look(local)
    reporter.look(local)
    assert line.sent == [1, 1, 1]
    local.controller_epoch += 1
    local.cache.controller_id = BrokerId(1)
    reporter.look(local)
    reporter.look(local)
    assert line.here == [{(TOPIC, 0)}]
    failed.clear()
    reporter.look(local)
    assert line.here[-1] == frozenset()
