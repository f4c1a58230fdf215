"""DescribeFetchers (key 10007), version 0: which leaders do not answer this broker's fetches.

The controller asks it when a leader reports silent followers. One that another controller has
followed is answered STALE_CONTROLLER_EPOCH.
"""

from __future__ import annotations

from millstream.handlers.inter_broker import cluster_of
from millstream.handlers.request import RequestContext
from millstream.model.errors import KafkaError
from millstream.protocol.messages.describe_fetchers import (
    DescribeFetchersRequest,
    DescribeFetchersResponse,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: DescribeFetchersRequest
) -> DescribeFetchersResponse:
    """Name the leaders."""
    cluster = cluster_of(services)
    cluster.metadata.check_controller(request.controller_epoch)
    return DescribeFetchersResponse(unreachable_leaders=sorted(cluster.unreachable_leaders()))


def failed(
    context: RequestContext, request: DescribeFetchersRequest, error: KafkaError
) -> DescribeFetchersResponse:
    """Refuse the request."""
    return DescribeFetchersResponse(error_code=error.error.code, unreachable_leaders=[])
