"""ReportOffline (key 10005), version 0: a broker names the replicas that it cannot serve.

Others are elected where it led, and it leaves the ISRs; it is given no leadership of them until it
has been started again.
"""

from __future__ import annotations

from millstream.handlers.inter_broker import cluster_of
from millstream.handlers.request import RequestContext
from millstream.model.broker import BrokerId
from millstream.model.errors import KafkaError
from millstream.protocol.messages.report_offline import (
    ReportOfflineRequest,
    ReportOfflineResponse,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: ReportOfflineRequest
) -> ReportOfflineResponse:
    """Elect others."""
    await cluster_of(services).controller.reports.offline_replicas(
        BrokerId(request.broker_id),
        request.broker_epoch,
        [(each.topic_id, each.index) for each in request.replicas],
    )
    return ReportOfflineResponse()


def failed(
    context: RequestContext, request: ReportOfflineRequest, error: KafkaError
) -> ReportOfflineResponse:
    """Refuse the report."""
    return ReportOfflineResponse(error_code=error.error.code)
