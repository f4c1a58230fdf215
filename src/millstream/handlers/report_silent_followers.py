"""ReportSilentFollowers (key 10006), version 0: a leader names followers that do not fetch.

Where the followers confirm that the leader is out of their reach, one of them leads instead.
"""

from __future__ import annotations

from millstream.handlers.inter_broker import cluster_of
from millstream.handlers.request import RequestContext
from millstream.model.broker import BrokerId
from millstream.model.errors import KafkaError
from millstream.protocol.messages.report_silent_followers import (
    ReportSilentFollowersRequest,
    ReportSilentFollowersResponse,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: ReportSilentFollowersRequest
) -> ReportSilentFollowersResponse:
    """Ask the followers, and move leaderships if they confirm it."""
    is_behind = await cluster_of(services).controller.reports.silent_followers(
        BrokerId(request.broker_id),
        request.broker_epoch,
        [BrokerId(each) for each in request.silent],
        [BrokerId(each) for each in request.unreachable_leaders],
    )
    return ReportSilentFollowersResponse(is_behind=is_behind)


def failed(
    context: RequestContext, request: ReportSilentFollowersRequest, error: KafkaError
) -> ReportSilentFollowersResponse:
    """Refuse the report."""
    return ReportSilentFollowersResponse(error_code=error.error.code)
