"""Requests of a member of a ``cluster_site`` to its controller, over a wire that a test can cut."""

from __future__ import annotations

from typing import cast

from tests.unit.runtime.cluster_site import Member

from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.ensure_topic import EnsureTopicRequest, EnsureTopicResponse
from millstream.protocol.messages.propose_isr import (
    ProposedResult,
    ProposeIsrRequest,
    ProposeIsrResponse,
)
from millstream.protocol.messages.report_offline import (
    ReportOfflineRequest,
    ReportOfflineResponse,
)
from millstream.protocol.messages.stop_leading import (
    StillLed,
    StopLeadingRequest,
    StopLeadingResponse,
)
from millstream.runtime.broker_channels import BrokerChannels
from millstream.runtime.membership.controller_channel import ControllerChannel
from millstream.runtime.metadata.metadata_messages import partition_message


class Wire:
    """Carries requests to other members; ``failure`` is what becomes of them instead."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.sent: list[Request] = []
        self.forwarded: list[Request] = []
        self.failure: ErrorCode | None = None

    def send(
        self, broker_id: BrokerId, request: Request, timeout_ms: float, *, version: int, lane: str
    ) -> Deferred[Response]:
        self.forwarded.append(request)
        return self.send_between_brokers(broker_id, request, timeout_ms)

    def send_between_brokers(
        self, broker_id: BrokerId, request: Request, timeout_ms: float
    ) -> Deferred[Response]:
        self.sent.append(request)
        outcome: Deferred[Response] = Deferred()
        clock = self._member.site.clock
        if self.failure is not None:
            error = KafkaError(self.failure)
            clock.call_later(1, lambda: outcome.fail(error))
            return outcome
        peer = self._member.site.members[broker_id]
        clock.call_later(1, lambda: spawn(_serve(peer, request)).on_done(deliver))

        def deliver(done: Deferred[Response]) -> None:
            clock.call_later(1, lambda: outcome.complete(done.result()))

        return outcome


async def _serve(peer: Member, request: Request) -> Response:
    """Answer as the handlers do."""
    decisions = peer.decisions
    try:
        match request:
            case StopLeadingRequest():
                left = await decisions.replicas.stop_leading(
                    BrokerId(request.broker_id), request.broker_epoch
                )
                return StopLeadingResponse(
                    remaining=[StillLed(topic=each.topic, index=each.partition) for each in left]
                )
            case EnsureTopicRequest():
                await decisions.topics.ensure_topic(request.name)
                return EnsureTopicResponse()
            case ReportOfflineRequest():
                await decisions.reports.offline_replicas(
                    BrokerId(request.broker_id),
                    request.broker_epoch,
                    [(each.topic_id, each.index) for each in request.replicas],
                )
                return ReportOfflineResponse()
            case ProposeIsrRequest():
                return _proposed(peer, request)
            case _:
                raise AssertionError(request)
    except KafkaError as error:
        answers: dict[type[Request], Response] = {
            StopLeadingRequest: StopLeadingResponse(error_code=error.error.code, remaining=[]),
            EnsureTopicRequest: EnsureTopicResponse(error_code=error.error.code),
            ReportOfflineRequest: ReportOfflineResponse(error_code=error.error.code),
        }
        return answers[type(request)]


def _proposed(peer: Member, request: ProposeIsrRequest) -> ProposeIsrResponse:
    """Answer every proposal with the state that the controller holds."""
    results = []
    for each in request.partitions:
        topic = peer.decisions.context.topic_by_id(each.topic_id)
        assert topic is not None
        state = partition_message(each.index, topic.partitions[each.index])
        results.append(ProposedResult(error_code=0, state=state))
    return ProposeIsrResponse(partitions=results)


def channel_of(member: Member) -> tuple[ControllerChannel, Wire]:
    """Return a member's channel to its controller, and the wire under it."""
    wire = Wire(member)
    channels = cast("BrokerChannels", wire)
    return ControllerChannel(member.decisions, member.local, channels, member.site.clock), wire
